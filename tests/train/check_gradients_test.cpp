// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/check_gradients.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

using Block = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>;
using Row = sw::Layout<1, sw::Shard<0, tp>>;

/// Twice an element, with a gradient that is wrong from the global row `wrong` on.
struct WrongTwice {
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  std::int64_t wrong;

  template <sw::AnyShardedTensor X> [[nodiscard]] auto forward(sw::SourceLocation, const X& x) const {
    return sw::scale(x, 2.0);
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto gradient(const G& y_gradient, const X&, const Y&) const {
    auto out = sw::scale(y_gradient, 2.0);
    const auto columns = static_cast<std::size_t>(out.local_shape()[1]);
    for (std::size_t i = 0; i < out.local_size(); ++i)
      if (out.local_offset()[0] + static_cast<std::int64_t>(i / columns) >= wrong)
        out.mutable_data()[i] += 0.5 * (1 + static_cast<double>(i % columns));
    return out;
  }
};

/// The value, with a gradient whose last element is multiplied.
struct WrongLast {
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  double factor;

  template <sw::AnyShardedTensor X> [[nodiscard]] auto forward(sw::SourceLocation, const X& x) const {
    return x.clone();
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto gradient(const G& y_gradient, const X&, const Y&) const {
    auto out = y_gradient.clone();
    out.mutable_data()[out.local_size() - 1] *= factor;
    return out;
  }
};

/// Functions of a program's own: log(1 + exp(x)), one with a number, and one made of another.
struct Softplus {
  static constexpr std::string_view name = "softplus";
  static constexpr bool slope_of_result = false;
  template <class V> V operator()(V x) const {
    return chosen(x > 0, x, 0) + log(1 + exp(chosen(x > 0, -x, x)));
  }
  template <class V> V slope(V x) const { return sigmoid(x); }
};
struct LeakyRelu {
  static constexpr std::string_view name = "leaky_relu";
  static constexpr bool slope_of_result = true;
  double below;
  template <class V> V operator()(V x) const { return chosen(x >= 0, x, below * x); }
  template <class V> V slope(V y) const { return chosen(y < 0, below, 1); }
};
struct Mish {
  static constexpr std::string_view name = "mish";
  static constexpr bool slope_of_result = false;
  template <class V> V operator()(V x) const { return x * tanh(Softplus()(x)); }
  template <class V> V slope(V x) const {
    const V t = tanh(Softplus()(x));
    return t + x * (1 - t * t) * sigmoid(x);
  }
};
/// sqrt(left^2 + right^2), and a function that is linear in both operands, of which one gradient is
/// unchanged.
struct Hypotenuse {
  static constexpr std::string_view name = "hypotenuse";
  template <class V> V operator()(V left, V right) const { return sqrt(left * left + right * right); }
  template <class V> V left_gradient(V dy, V left, V right) const { return dy * left / (*this)(left, right); }
  template <class V> V right_gradient(V dy, V left, V right) const {
    return dy * right / (*this)(left, right);
  }
};
struct LessTwice {
  static constexpr std::string_view name = "less_twice";
  template <class Left, class Right> using layout = sw::AddLayout<Left, Right>;
  template <class V> V operator()(V left, V right) const { return left - 2 * right; }
  template <class V> sw::Unchanged<V> left_gradient(V dy, sw::Unread, sw::Unread) const { return dy; }
  template <class V> V right_gradient(V dy, sw::Unread, sw::Unread) const { return -2 * dy; }
};
inline constexpr sw::Binary<Hypotenuse> hypotenuse{};
inline constexpr sw::Binary<LessTwice> less_twice{};
static_assert(hypotenuse.left_gradient_reads.left && hypotenuse.left_gradient_reads.right);
static_assert(!less_twice.right_gradient_reads.left && !less_twice.right_gradient_reads.right);
inline constexpr sw::Elementwise<Softplus> softplus{};
inline constexpr sw::Elementwise<LeakyRelu> leaky_relu{{.below = 0.1}};
inline constexpr sw::Elementwise<Mish> mish{};

/// x y z, whose gradients one call computes.
struct ProductOfThree {
  static constexpr std::string_view name = "product_of_three";
  static constexpr std::array<sw::GradientReads, 3> gradients_read{
      {{.right = true, .others = true}, {.left = true, .others = true}, {.left = true, .right = true}}};

  template <class X, class Y, class Z>
  [[nodiscard]] auto forward(sw::SourceLocation, const X& x, const Y& y, const Z& z) const {
    return x * y * z;
  }
  template <class G, class X, class Y, class Z> void gradients(const G& y_gradient, X& x, Y& y, Z& z) const {
    const auto first = x.read_last();
    const auto second = y.read_last();
    const auto third = z.read_last();
    x.give(y_gradient * second * third);
    y.give(y_gradient * first * third);
    z.give(y_gradient * first * second);
  }
};

/// The value; it holds a tensor that its gradient may read.
struct Holding {
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  sw::ShardedTensor<Block, const double> held;

  template <sw::AnyShardedTensor X> [[nodiscard]] auto forward(sw::SourceLocation, const X& x) const {
    return x.clone();
  }
  template <class G, class X, class Y> [[nodiscard]] G gradient(G y_gradient, const X&, const Y&) const {
    return y_gradient;
  }
};

/// The finding of check_gradients, or nothing.
template <class Function, class Inputs>
[[nodiscard]] std::optional<sw::GradientDifference> mismatch_of(Function function, const Inputs& inputs) {
  try {
    static_cast<void>(sw::check_gradients(function, inputs));
  } catch (const sw::GradientMismatch& error) {
    return error.difference();
  }
  return std::nullopt;
}

struct Weights {
  using Factor =
      sw::Parameter<Row, sw::Layout<1, sw::Shard<0, tp>, sw::Partial<sw::Sum, dp>>, double, sw::Zero1>;
  Factor factor;
  template <class Mesh> explicit Weights(const Mesh& mesh) : factor(mesh, {7}, sw::Initial::normal(1.0)) {}
  auto members() { return sw::members("factor", factor); }
};

/// Outside the macro of a check, in which all lines are one.
void use_own_functions(const sw::HostCommunicator& world, Findings& findings) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
  sw::ShardedTensor<Block, double> x(mesh, {5, 7});
  sw::fill_normal(x, {3, 1});
  const auto error = [&](const auto& function) {
    return sw::check_gradients(function, sw::members("x", x)).error;
  };
  findings.expect(error([](auto v) { return softplus(v); }) < 1e-7, "softplus");
  findings.expect(error([](auto v) { return leaky_relu(v); }) < 1e-7, "leaky_relu");
  findings.expect(error([](auto v) { return sw::square(mish(v)); }) < 1e-7, "mish");

  sw::ShardedTensor<Block, double> other(mesh, {5, 7});
  sw::ShardedTensor<Row, double> row(mesh, {7});
  sw::fill_normal(other, {3, 2});
  sw::fill_normal(row, {3, 3});
  const auto of_two = [&](const auto& right) {
    const auto both = [](auto a, auto b) { return less_twice(hypotenuse(a, b), b); };
    return sw::check_gradients(both, sw::members("x", x, "right", right)).error;
  };
  findings.expect(of_two(other) < 1e-7, "of equal shapes");
  findings.expect(of_two(row) < 1e-7, "with a row");
  Weights weights(mesh);
  sw::initialize(weights, 3);
  const auto with_parameter = [&](auto a) {
    return less_twice(hypotenuse(a, weights.factor), weights.factor);
  };
  findings.expect(sw::check_gradients(with_parameter, sw::members("x", x, "weights", weights)).error < 1e-7,
                  "parameter");
  auto left = x.clone().share();
  const double* const left_memory = left.data();
  const auto less = less_twice.forward({}, std::move(left), row);
  findings.expect(less.data() == left_memory, "memory of the left operand is reused");
  for (std::size_t i = 0; i < x.local_size(); ++i)
    findings.expect(less.data()[i] == x.data()[i] - 2 * row.data()[i % row.local_size()], "with a row ", i);
  sw::ShardedTensor<sw::Layout<1, sw::Shard<0, dp>>, std::int64_t> whole(mesh, {5});
  sw::fill(whole, 3);
  sw::multiply.into(whole, whole, whole);
  findings.expect(sw::subtract(whole, sw::add(whole, whole)).data()[0] == -9, "integers");

  const auto y = softplus(x);
  static_assert(std::is_same_v<decltype(y)::layout, Block>);
  for (std::size_t i = 0; i < x.local_size(); ++i)
    findings.expect(std::abs(y.data()[i] - std::log1p(std::exp(x.data()[i]))) < 1e-14, "value ", i);
  auto handle = x.clone().share();
  const double* const memory = handle.data();
  findings.expect(softplus.forward({}, std::move(handle)).data() == memory, "memory is reused");

  sw::ShardedTensor<Block, double> small(mesh, {5, 3});
  int line = 0;
  try {
    line = __LINE__ + 1;
    softplus.into(small, x);
  } catch (const sw::InvalidArgument& wrong) {
    findings.expect(wrong.context().where.line == line, "line ", wrong.context().where.line);
    findings.expect(std::string(wrong.what()).starts_with("softplus: "), wrong.what());
    line = 0;
  }
  findings.expect(line == 0, "softplus.into must throw");
}

} // namespace

TEST_CASE("functions of a program's own have layouts, gradients, reuse of memory and places of errors") {
  CHECK(on_ranks(4, use_own_functions) == "");
}

TEST_CASE("check_gradients accepts correct gradients of tensors and parameters, and restores all values") {
  for (const int ranks : {1, 2, 4})
    CHECK(on_ranks(ranks, [ranks](sw::HostCommunicator world, Findings& findings) {
            const int tensor = ranks == 1 ? 1 : 2;
            const sw::DeviceMesh mesh{world, sw::extent<dp>(ranks / tensor), sw::extent<cp>(1),
                                      sw::extent<tp>(tensor)};
            sw::ShardedTensor<Block, double> x(mesh, {5, 7});
            sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>, sw::Partial<sw::Sum, tp>>, double> parts(
                mesh, {5, 7});
            sw::fill_normal(x, {1, 1});
            for (std::size_t i = 0; i < parts.local_size(); ++i)
              parts.mutable_data()[i] = 0.1 * static_cast<double>(i) - mesh.coordinate<tp>();
            const auto sums = sw::redistribute<sw::Layout<2, sw::Shard<0, dp>>>(parts);
            Weights weights(mesh);
            sw::initialize(weights, 3);
            const auto before = weights.factor.stored().clone();
            int calls = 0;
            const sw::GradientDifference worst = sw::check_gradients(
                [&](auto a, auto b) {
                  ++calls;
                  return sw::tanh(a * weights.factor) + sw::exp(-(b * 0.1)).template as<Block>() * x;
                },
                sw::members("a", x, "b", sums, "weights", weights), {.directions = 3, .elements = 4});
            findings.expect(worst.error < 1e-8, worst.input, " ", worst.error);
            findings.expect(calls == 1 + 2 * 3 * (3 + 4), "calls: ", calls);
            const auto of_part = sw::check_gradients([](auto a) { return sw::scale(std::move(a), 3.0); },
                                                     sw::members("part", parts));
            findings.expect(of_part.error < 1e-8, "a Partial input: ", of_part.error);
            const auto of_loss =
                sw::check_gradients([](auto a) { return sw::dot(a, a); }, sw::members("a", x));
            findings.expect(of_loss.error < 1e-8, "a scalar: ", of_loss.error);
            bool same = true;
            for (std::size_t i = 0; i < before.local_size(); ++i)
              same = same && before.data()[i] == weights.factor.stored().data()[i];
            findings.expect(same, "the parameter is what it was");
          }) == "");
}

TEST_CASE("check_gradients names the worst element of a wrong gradient on every rank") {
  CHECK(
      on_ranks(4, [](sw::HostCommunicator world, Findings& findings) {
        const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
        sw::ShardedTensor<Block, double> right(mesh, {5, 7});
        sw::ShardedTensor<Block, double> wrong(mesh, {5, 7});
        sw::fill_normal(right, {1, 1});
        sw::fill_normal(wrong, {1, 2});
        std::optional<sw::GradientDifference> found;
        std::string message;
        try {
          static_cast<void>(sw::check_gradients(
              [](auto a, auto b) { return a * a + apply(WrongTwice{4}, {}, sw::scale(b, 1.0 / 3)); },
              sw::members("right", right, "wrong", wrong)));
        } catch (const sw::GradientMismatch& error) {
          found = error.difference();
          message = error.what();
        }
        // Columns 0 to 3 are on one rank, 4 to 6 on the other.
        findings.expect(found && found->input == "wrong[4, 3]", message);
        findings.expect(found && std::abs(found->gradient - found->quotient - 2.0 / 3) < 1e-6, message);
        findings.expect(
            message.find(
                "check_gradients: a gradient must be the slope of its function, but that of wrong[4, 3] is") ==
                0,
            message);
        std::ostringstream slopes; // in ten digits
        slopes << std::setprecision(10) << " is " << (found ? found->gradient : 0)
               << ", and the difference quotient " << (found ? found->quotient : 0) << " (look";
        findings.expect(message.find(slopes.str()) != std::string::npos, message);
        findings.expect(message.find("check_gradients_test.cpp:") != std::string::npos, message);
      }) == "");
}

TEST_CASE("check_gradients fails if one element among thousands is wrong, whatever follows it") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2)};
          sw::ShardedTensor<sw::Layout<2>, double> large(mesh, {40, 100});
          sw::ShardedTensor<sw::Layout<2>, double> small(mesh, {2, 3});
          sw::fill_normal(large, {1, 1});
          sw::fill_normal(small, {1, 2});
          // The last element is not among those that are checked one by one.
          const auto alone = mismatch_of([](auto x) { return apply(WrongLast{2.0}, {}, std::move(x)); },
                                         sw::members("x", large));
          findings.expect(alone && alone->input == "x" && alone->error > 1e-6, "alone");
          const auto function = [](auto x, auto y) {
            return sw::squared_norm(apply(WrongLast{2.0}, {}, std::move(x))) + sw::squared_norm(std::move(y));
          };
          const auto first = mismatch_of(function, sw::members("x", large, "y", small));
          findings.expect(first && first->input == "x", "before an input that is right");
          // A wrong element that is checked is named, although it is less wrong than the direction.
          const auto named = mismatch_of(function, sw::members("x", small, "y", large));
          findings.expect(named && named->input == "x[1, 2]", named ? named->input : "none");
        }) == "");
}

TEST_CASE("check_gradients counts a NaN gradient as the worst, whatever follows it") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2)};
          sw::ShardedTensor<sw::Layout<2>, double> x(mesh, {5, 6}), y(mesh, {5, 6});
          sw::fill_normal(x, {1, 1});
          sw::fill_normal(y, {1, 2});
          const auto found = mismatch_of(
              [](auto left, auto right) {
                return sw::multiply(
                    apply(WrongLast{std::numeric_limits<double>::quiet_NaN()}, {}, std::move(left)),
                    std::move(right));
              },
              sw::members("x", x, "y", y));
          findings.expect(found && found->input.starts_with("x") && std::isnan(found->error),
                          found ? found->input : "none");
        }) == "");
}

TEST_CASE("an operation of three values gives all gradients in one call") {
  CHECK(on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
          const sw::DeviceMesh<dp, tp> mesh(world, sw::extent<dp>(2), sw::extent<tp>(2));
          sw::ShardedTensor<Block, double> x(mesh, {5, 3}), y(mesh, {5, 3}), z(mesh, {5, 3});
          sw::fill_normal(x, {1, 1});
          sw::fill_normal(y, {1, 2});
          sw::fill_normal(z, {1, 3});
          const auto product = [](auto a, auto b, auto c) {
            return apply(ProductOfThree{}, sw::SourceLocation::current(), std::move(a), std::move(b),
                         std::move(c));
          };
          const auto worst = sw::check_gradients(product, sw::members("x", x, "y", y, "z", z));
          findings.expect(worst.error < 1e-7, worst.input, " is off by ", worst.error);
        }) == "");
}

TEST_CASE("what an operation holds is released with its last gradient") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const sw::DeviceMesh<dp, tp> mesh(world, sw::extent<dp>(1), sw::extent<tp>(1));
          sw::ShardedTensor<Block, double> x(mesh, {8, 8});
          sw::fill_normal(x, {1, 1});
          sw::Tape<> tape;
          const auto y = apply(Holding{x.clone().share()}, sw::SourceLocation::current(), tape.variable(x));
          tape.seed(y, x.share());
          const std::size_t before = mesh.pool_statistics().requested_bytes;
          tape.backward();
          const std::size_t after = mesh.pool_statistics().requested_bytes;
          findings.expect(before - after == x.local_size() * sizeof(double), before, " bytes, then ", after);
        }) == "");
}
