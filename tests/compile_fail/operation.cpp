// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/elementwise/arithmetic.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/tape/operation_node.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Value = Var<Layout<2, Shard<0, dp>>>;

namespace check_gradients_single {
// expect: check_gradients: the inputs must be double, because difference quotients in other element types are too coarse (convert them first)

void check(const ShardedTensor<Layout<2, Shard<0, dp>>>& x) {
  const auto f = [](auto value) { return value * value; };
#ifdef SHARDWRIGHT_EXPECT_FAIL
  static_cast<void>(check_gradients(f, members("x", x)));
#else
  const auto inputs = convert<double>(x);
  static_cast<void>(check_gradients(f, members("x", inputs)));
#endif
}
} // namespace check_gradients_single

namespace operation_without_gradient {
// expect: operation: it must have a gradient to be used on a tape (give it gradient(y_gradient, x, y), with the state as a fourth argument if forward returns one)
// expect: Halved

struct Halved {
  static constexpr std::string_view name = "halved";
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  template <AnyShardedTensor X> auto forward(SourceLocation, const X& x) const { return x.share(); }
#ifndef SHARDWRIGHT_EXPECT_FAIL
  template <class G, class X, class Y> auto gradient(G gradient, const X&, const Y&) const {
    return gradient;
  }
#endif
};

void use(const Var<Layout<2, Shard<0, dp>>>& x) { static_cast<void>(apply(Halved{}, {}, x)); }
} // namespace operation_without_gradient

namespace operation_without_reads {
// expect: operation: it must declare what its gradient reads (give it static constexpr bool gradient_reads_input and gradient_reads_output)
// expect: Doubled

struct Doubled {
  static constexpr std::string_view name = "doubled";
#ifndef SHARDWRIGHT_EXPECT_FAIL
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
#endif
  template <AnyShardedTensor X> auto forward(SourceLocation, const X& x) const { return x.share(); }
  template <class G, class X, class Y> auto gradient(G gradient, const X&, const Y&) const {
    return gradient;
  }
};

void use(const Var<Layout<2, Shard<0, dp>>>& x) { static_cast<void>(apply(Doubled{}, {}, x)); }
} // namespace operation_without_reads

namespace operation_without_reads_of_two {
// expect: operation: one of two operands must declare what each gradient reads (give it static constexpr GradientReads left_gradient_reads and right_gradient_reads)
// expect: FirstOf

struct FirstOf {
  static constexpr std::string_view name = "first";
#ifndef SHARDWRIGHT_EXPECT_FAIL
  static constexpr GradientReads left_gradient_reads{};
  static constexpr GradientReads right_gradient_reads{};
#endif
  template <AnyShardedTensor Left, AnyShardedTensor Right>
  auto forward(SourceLocation, const Left& left, const Right&) const {
    return left.share();
  }
  template <class G, class Left, class Right>
  auto left_gradient(G gradient, const Left&, const Right&) const {
    return gradient;
  }
  template <class G, class Left, class Right>
  auto right_gradient(G gradient, const Left&, const Right&) const {
    return gradient;
  }
};

void use(const Value& x, const Value& y) { static_cast<void>(apply(FirstOf{}, {}, x, y)); }
} // namespace operation_without_reads_of_two

namespace operation_without_right_gradient {
// expect: operation: one of two operands must have both gradients to be used on a tape (give it left_gradient(y_gradient, left, right) and right_gradient(y_gradient, left, right))
// expect: LeftOf

struct LeftOf {
  static constexpr std::string_view name = "first";
  static constexpr GradientReads left_gradient_reads{};
  static constexpr GradientReads right_gradient_reads{};
  template <AnyShardedTensor Left, AnyShardedTensor Right>
  auto forward(SourceLocation, const Left& left, const Right&) const {
    return left.share();
  }
  template <class G, class Left, class Right>
  auto left_gradient(G gradient, const Left&, const Right&) const {
    return gradient;
  }
#ifndef SHARDWRIGHT_EXPECT_FAIL
  template <class G, class Left, class Right>
  auto right_gradient(G gradient, const Left&, const Right&) const {
    return gradient;
  }
#endif
};

void use(const Value& x, const Value& y) { static_cast<void>(apply(LeftOf{}, {}, x, y)); }
} // namespace operation_without_right_gradient
