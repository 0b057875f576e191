// SPDX-License-Identifier: Apache-2.0

#include <shardwright/tensor/kernels/attention.hpp>
#include <shardwright/tensor/kernels/attention/key_values.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/product/matmul.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/kernels/swiglu.hpp>

#include "tensor/attention_problem.hpp"
#include "tensor/norm_of.hpp"

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

using namespace kernels_test;

namespace {

template <class Element> struct Problem : AttentionProblem<Element> {
  using Base = AttentionProblem<Element>;
  using Base::Base, Base::shape, Base::scale, Base::qkv, Base::out, Base::d_out, Base::d_qkv,
      Base::log_sum_exp, Base::work;

  void forward() {
    kernels::attention_forward(execution(), qkv, out, log_sum_exp, shape, whole(), scale, work);
  }
  void backward() {
    kernels::attention_backward(execution(), qkv, out, log_sum_exp, d_out, d_qkv, shape, whole(), scale,
                                work);
  }
  [[nodiscard]] kernels::AttentionBlock whole() const {
    return kernels::AttentionBlock::whole(shape.sequence);
  }

  /// The kernels that devices run, here on the host.
  void forward_rows() {
    kernels::run("rows", execution(), shape.tokens() * shape.heads(),
                 kernels::detail::AttentionForwardRow<Element>{
                     span(qkv), KeyValues<const Element>::fused(span(qkv), shape), kernels::span_of(out),
                     log_sum_exp.data(), shape, kernels::CausalBlock::whole(shape.sequence), false,
                     static_cast<Element>(scale)});
  }
  void backward_rows() {
    run_rows({span(qkv), KeyValues<const Element>::fused(span(qkv), shape), span(out), log_sum_exp.data(),
              span(d_out), kernels::span_of(d_qkv), KeyValues<Element>::fused(kernels::span_of(d_qkv), shape),
              shape, kernels::CausalBlock::whole(shape.sequence), false, static_cast<Element>(scale)});
  }

  /// The same queries with other keys.
  void forward_block(const Matrix<Element>& keys, const kernels::CausalBlock& block, bool rows) {
    if (!rows)
      return kernels::attention_forward_block(execution(), qkv, keys, out, log_sum_exp, shape, block, scale,
                                              work);
    kernels::run("rows", execution(), shape.tokens() * shape.heads(),
                 kernels::detail::AttentionForwardRow<Element>{
                     span(qkv), KeyValues<const Element>::packed(span(keys), shape), kernels::span_of(out),
                     log_sum_exp.data(), shape, block, true, static_cast<Element>(scale)});
  }
  void backward_block(const Matrix<Element>& keys, const Matrix<Element>& d_keys,
                      const kernels::CausalBlock& block, bool rows) {
    if (!rows)
      return kernels::attention_backward_block(execution(), qkv, keys, out, log_sum_exp, d_out, d_qkv, d_keys,
                                               shape, block, scale, work);
    run_rows({span(qkv), KeyValues<const Element>::packed(span(keys), shape), span(out), log_sum_exp.data(),
              span(d_out), kernels::span_of(d_qkv),
              KeyValues<Element>::packed(kernels::span_of(d_keys), shape), shape, block, true,
              static_cast<Element>(scale)});
  }

  /// Outputs by the definition, in double.
  Matrix<double> expected() const {
    Matrix<double> result("expected", shape.tokens(), shape.output_width());
    const std::size_t d = shape.head_dim, values = shape.value_width();
    for (std::size_t b = 0; b < shape.batch; ++b) {
      for (std::size_t h = 0; h < shape.heads(); ++h) {
        const std::size_t group = h / shape.q_per_kv * shape.group_width();
        const std::size_t q = group + h % shape.q_per_kv * d, k = group + shape.q_per_kv * d, v = k + d;
        for (std::size_t i = 0; i < shape.sequence; ++i) {
          const std::size_t row = b * shape.sequence;
          std::vector<double> weight(i + 1);
          double sum = 0;
          for (std::size_t j = 0; j <= i; ++j) {
            double dot = 0;
            for (std::size_t c = 0; c < d; ++c) {
              dot += static_cast<double>(qkv(row + i, q + c)) * static_cast<double>(qkv(row + j, k + c));
            }
            sum += weight[j] = std::exp(scale * dot);
          }
          for (std::size_t c = 0; c < values; ++c) {
            double value = 0;
            for (std::size_t j = 0; j <= i; ++j)
              value += weight[j] / sum * static_cast<double>(qkv(row + j, v + c));
            result(row + i, h * values + c) = value;
          }
        }
      }
    }
    return result;
  }

private:
  template <class E> using KeyValues = kernels::detail::KeyValueSpan<E>;

  static kernels::MatrixSpan<const Element> span(const Matrix<Element>& m) {
    return {m.data(), m.extent(0), m.extent(1), m.extent(1)};
  }
  static void run_rows(const kernels::detail::AttentionBackwardQuery<Element>& query) {
    const auto& shape = query.shape;
    kernels::run("q", execution(), shape.tokens() * shape.heads(), query);
    kernels::run("k", execution(), shape.batch * query.block.keys.rows * shape.kv_heads,
                 kernels::detail::AttentionBackwardKey<Element>{query});
  }
};

std::vector<kernels::AttentionShape> shapes() {
  return {{1, 1, 1, 1, 1},   {2, 5, 1, 1, 7},   {1, 32, 2, 1, 16},    {2, 33, 2, 2, 20},   {1, 70, 1, 3, 24},
          {3, 37, 2, 1, 64}, {1, 96, 1, 2, 80}, {2, 33, 2, 2, 20, 9}, {1, 37, 2, 1, 9, 20}}; // values
                                                                                             // narrower than
                                                                                             // keys and wider
}

} // namespace

TEMPLATE_TEST_CASE("Attention matches its definition for grouped heads and odd lengths", "[kernels]", float,
                   double) {
  for (const auto& shape : shapes()) {
    Problem<TestType> problem(shape);
    problem.forward();
    const auto expected = problem.expected();
    REQUIRE(largest_difference(problem.out, expected) < tolerance<TestType>);
    const auto lse = problem.log_sum_exp;
    problem.log_sum_exp = Vector<TestType>("lse", lse.size());
    problem.forward_rows();
    REQUIRE(largest_difference(problem.out, expected) < tolerance<TestType>);
    REQUIRE(largest_difference(problem.log_sum_exp, lse) < tolerance<TestType>);
  }
}

TEST_CASE("Attention gradients match finite differences", "[kernels]") {
  for (const auto& shape : shapes()) {
    Problem<double> problem(shape);
    problem.forward();
    Kokkos::deep_copy(problem.d_qkv, std::numeric_limits<double>::quiet_NaN());
    problem.backward();
    const auto gradient = copy_of(problem.d_qkv);
    problem.backward_rows();
    REQUIRE(largest_difference(problem.d_qkv, gradient) < 1e-12);
    require_gradient(
        problem.qkv, gradient,
        [&] {
          problem.forward();
          return weighted_sum(problem.d_out, problem.out);
        },
        1 + problem.qkv.size() / 60);
  }
}

namespace {

/// Rows of a whole matrix at the positions of one part of each sequence, or back to them.
template <class Element>
void move_rows(const Matrix<Element>& whole, std::size_t sequence, const sw::TokenRuns& runs,
               const Matrix<Element>& part, bool back) {
  for (std::size_t t = 0; t < part.extent(0); ++t)
    for (std::size_t c = 0; c < part.extent(1); ++c) {
      Element& at = whole(t / runs.rows * sequence + runs.position(t % runs.rows), c);
      (back ? at : part(t, c)) = (back ? part(t, c) : at);
    }
}

/// Attention and its gradients by parts of the sequence: each part's queries with its own keys, then with
/// those of the others.
template <class Order, class Element>
void check_parts(const kernels::AttentionShape& shape, int parts, bool rows) {
  Problem<Element> whole(shape);
  whole.forward();
  whole.backward();
  const Matrix<Element> out("out", shape.tokens(), shape.output_width());
  const Matrix<Element> d_qkv("d_qkv", shape.tokens(), shape.qkv_width());
  std::vector<sw::TokenRuns> runs;
  std::vector<Problem<Element>> part;
  std::vector<Matrix<Element>> keys, d_keys;
  for (int p = 0; p < parts; ++p) {
    runs.push_back(Order::runs(static_cast<std::int64_t>(shape.sequence), parts, p));
    kernels::AttentionShape local = shape;
    local.sequence = runs.back().rows;
    part.emplace_back(local);
    move_rows(whole.qkv, shape.sequence, runs.back(), part.back().qkv, false);
    move_rows(whole.d_out, shape.sequence, runs.back(), part.back().d_out, false);
    keys.emplace_back("keys", local.tokens(), local.kv_heads * local.key_value_width());
    d_keys.emplace_back("d_keys", local.tokens(), local.kv_heads * local.key_value_width());
    kernels::pack_key_values(execution(), part.back().qkv, keys.back(), local);
  }
  const auto other = [&](std::size_t p, std::size_t step) { return (p + part.size() - step) % part.size(); };
  for (std::size_t p = 0; p < part.size(); ++p) {
    part[p].forward();
    for (std::size_t step = 1; step < part.size(); ++step)
      part[p].forward_block(keys[other(p, step)], {runs[p], runs[other(p, step)]}, rows);
    part[p].backward();
  }
  for (std::size_t p = 0; p < part.size(); ++p)
    for (std::size_t step = 1; step < part.size(); ++step) {
      const std::size_t from = other(p, step);
      Kokkos::deep_copy(d_keys[from], std::numeric_limits<double>::quiet_NaN());
      part[p].backward_block(keys[from], d_keys[from], {runs[p], runs[from]}, rows);
      kernels::add_key_values(execution(), d_keys[from], part[from].d_qkv, part[from].shape);
    }
  for (std::size_t p = 0; p < part.size(); ++p) {
    move_rows(out, shape.sequence, runs[p], part[p].out, true);
    move_rows(d_qkv, shape.sequence, runs[p], part[p].d_qkv, true);
  }
  REQUIRE(largest_difference(out, whole.out) < tolerance<Element>);
  REQUIRE(largest_difference(d_qkv, whole.d_qkv) < 10 * tolerance<Element>);
}

} // namespace

TEMPLATE_TEST_CASE("Attention by blocks of keys agrees with the whole sequence, in either order", "[kernels]",
                   float, double) {
  for (const bool rows : {false, true}) {
    check_parts<sw::ZigZagOrder, TestType>({2, 24, 2, 2, 20}, 3, rows);
    check_parts<sw::ZigZagOrder, TestType>({1, 280, 1, 1, 8}, 2, rows); // chunks of more than one row block
    check_parts<sw::NaturalOrder, TestType>({1, 22, 1, 3, 16}, 2, rows);
    check_parts<sw::NaturalOrder, TestType>({1, 21, 2, 1, 7}, 3, rows);
    check_parts<sw::ZigZagOrder, TestType>({1, 24, 2, 2, 20, 9}, 3, rows);
  }
}

TEST_CASE("The rows whose key gradients are added together depend only on their positions", "[kernels]") {
  using Part = std::array<std::size_t, 3>; // leaf, position and rows
  const auto parts_of = [](const sw::TokenRuns& runs, std::size_t sequence) {
    const kernels::detail::QueryLeaves leaves({runs, sw::TokenRuns::one(sequence)});
    std::vector<Part> parts;
    for (std::size_t leaf = 0; leaf < leaves.count; leaf += leaves.together)
      for (const bool others : {false, true}) {
        const auto range = leaves.rows_of(leaf, leaves.together, others);
        for (std::size_t row = range.begin; row < range.end; row += parts.back()[2]) {
          const std::size_t at = runs.position(row),
                            block_end = range.begin + (row - range.begin) / 32 * 32 + 32;
          parts.push_back(
              {leaves.leaf_of(at), at, std::min({leaves.left(at), block_end - row, range.end - row})});
        }
      }
    return parts;
  };
  for (std::int64_t sequence = 16; sequence <= 1024; sequence += 16) {
    const auto size = static_cast<std::size_t>(sequence);
    std::vector<Part> whole = parts_of(sw::TokenRuns::one(size), size);
    std::sort(whole.begin(), whole.end());
    REQUIRE(whole.size() <= std::max<std::size_t>(16, 2 * size / 32));
    for (const int ranks : {2, 4, 8}) {
      std::vector<Part> all;
      for (int rank = 0; rank < ranks; ++rank)
        for (const Part& part : parts_of(sw::ZigZagOrder::runs(sequence, ranks, rank), size)) {
          REQUIRE(part[0] / static_cast<std::size_t>(8 / ranks) == static_cast<std::size_t>(rank));
          all.push_back(part);
        }
      std::sort(all.begin(), all.end());
      REQUIRE(all == whole);
    }
  }
}

TEST_CASE("Attention in single precision has the gradient of double precision, up to rounding", "[kernels]") {
  for (const auto& shape : shapes()) {
    Problem<float> single(shape);
    Problem<double> twice(shape);
    single.forward();
    single.backward();
    twice.forward();
    twice.backward();
    REQUIRE(largest_difference(single.d_qkv, twice.d_qkv) < 1e-4);
  }
}

TEST_CASE("Large scores neither overflow nor lose the maximum; a NaN reaches the rows that see it",
          "[kernels]") {
  Problem<float> problem({1, 40, 1, 1, 16});
  for (std::size_t i = 0; i < problem.qkv.size(); ++i)
    problem.qkv.data()[i] *= 100.0f;
  problem.forward();
  for (std::size_t i = 0; i < problem.out.size(); ++i)
    REQUIRE(std::isfinite(problem.out.data()[i]));
  problem.backward();
  for (std::size_t i = 0; i < problem.d_qkv.size(); ++i)
    REQUIRE(std::isfinite(problem.d_qkv.data()[i]));
  problem.qkv(35, 16) = std::numeric_limits<float>::quiet_NaN(); // the key of token 35
  problem.forward();
  for (std::size_t i = 0; i < 40; ++i)
    REQUIRE(std::isnan(problem.out(i, 0)) == (i >= 35));
}

TEST_CASE("A workspace that is too small is rejected", "[kernels]") {
  Problem<float> problem({1, 8, 1, 1, 8});
  problem.work = Vector<float>("work", 3);
  REQUIRE_THROWS_AS(problem.forward(), sw::InvalidArgument);
  REQUIRE_THROWS_AS(problem.backward(), sw::InvalidArgument);
}

TEST_CASE("Kernels do not write beyond a workspace of the requested size", "[kernels]") {
  Problem<float> problem({1, 64, 1, 1, 8}); // whole blocks of queries
  const std::size_t own = kernels::attention_forward_workspace<float>(execution(), problem.shape);
  const Vector<float> larger("work", own + 64);
  kernels::fill(execution(), larger, 7.0f);
  problem.work = Vector<float>(larger.data(), own);
  problem.forward();
  for (std::size_t i = own; i < larger.size(); ++i)
    REQUIRE(larger(i) == 7.0f);
}

// Thread ranks run kernels at the same time; on old Kokkos the host backend's scratch belongs to the whole
// process.
TEST_CASE("Many threads with separate data get the same bits as one", "[kernels]") {
  const auto program = [](std::uint64_t seed) {
    const auto e = execution();
    Problem<float> problem({2, 45, 2, 2, 24});
    kernels::fill_normal(e, problem.qkv, {{0, 0}, {problem.qkv.extent(0), problem.qkv.extent(1)}}, {seed, 1},
                         0, 1);
    const std::size_t rows = problem.out.extent(0), width = problem.out.extent(1);
    Vector<float> gain("gain", width), rms("rms", rows), d_gain("d_gain", width);
    Vector<float> norm_work("work", kernels::norm_workspace(rows, width, false));
    Vector<double> norm("norm", 1), partials("partials", kernels::reduce_workspace(problem.d_qkv.size()));
    kernels::fill(e, gain, 1.5f);
    const Matrix<float> product("product", rows, rows), y("y", rows, width), half("half", rows, width / 2);
    std::vector<double> result;
    for (int repetition = 0; repetition < 5; ++repetition) {
      problem.forward();
      run_norm<false>(norm_of(problem.out, gain, rms), problem.d_out, problem.d_out, y);
      kernels::swiglu_forward(e, y, half);
      kernels::matmul(e, y, kernels::Transpose::no, y, kernels::Transpose::yes, product);
      problem.backward();
      auto backward = norm_of(problem.d_out, gain, rms);
      backward.d_gain = span_of(d_gain);
      backward.workspace = span_of(norm_work);
      run_norm_gradient<false>(backward, y, problem.d_out, problem.out);
      kernels::dot(e, problem.d_qkv, problem.d_qkv, norm, partials);
      result.push_back(norm(0));
      kernels::dot(e, product, product, norm, partials);
      result.push_back(norm(0));
      kernels::dot(e, half, half, norm, partials);
      result.push_back(norm(0));
    }
    return result;
  };
  constexpr std::size_t ranks = 6;
  std::vector<std::vector<double>> alone(ranks), together(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    alone[r] = program(r);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] { together[r] = program(r); });
  for (std::thread& thread : threads)
    thread.join();
  REQUIRE(alone[0] != alone[1]);
  for (std::size_t r = 0; r < ranks; ++r)
    REQUIRE(together[r] == alone[r]);
}
