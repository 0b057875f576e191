// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: operation: one of two operands must have both gradients to be used on a tape (give it left_gradient(y_gradient, left, right) and right_gradient(y_gradient, left, right))
// expect: LeftOf

#include <shardwright/train/tape/operation_node.hpp>

using namespace shardwright;
using namespace shardwright::axis;

struct LeftOf {
  static constexpr std::string_view name = "first";
  static constexpr detail::GradientReads left_gradient_reads{};
  static constexpr detail::GradientReads right_gradient_reads{};
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

using Value = Var<Layout<2, Shard<0, dp>>>;
void use(const Value& x, const Value& y) { static_cast<void>(apply(LeftOf{}, {}, x, y)); }
