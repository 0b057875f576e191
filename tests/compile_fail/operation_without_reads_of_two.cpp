// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: operation: one of two operands must declare what each gradient reads (give it static constexpr detail::GradientReads left_gradient_reads and right_gradient_reads)
// expect: FirstOf

#include <shardwright/train/tape/operation_node.hpp>

using namespace shardwright;
using namespace shardwright::axis;

struct FirstOf {
  static constexpr std::string_view name = "first";
#ifndef SHARDWRIGHT_EXPECT_FAIL
  static constexpr detail::GradientReads left_gradient_reads{};
  static constexpr detail::GradientReads right_gradient_reads{};
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

using Value = Var<Layout<2, Shard<0, dp>>>;
void use(const Value& x, const Value& y) { static_cast<void>(apply(FirstOf{}, {}, x, y)); }
