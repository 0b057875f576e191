// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention on a Reproducible target, whose bits do not depend on the ranks that share a sequence.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/mesh/ordered_axes.hpp>
#include <shardwright/nn/decoder/token_tensor.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/kernels/attention/in_leaves.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/memory/vector_of.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Queries stay on their rank, which gathers the keys and values of whole sequences: as many bytes as a ring
/// moves. So a query adds over its keys as on one rank. The gradients of keys and values are sums over
/// queries: each rank's leaves are a subtree, and a reduce_scatter joins them. Not templated on layouts and
/// masks.
template <class Element, class Target> class GatheredAttention {
  using Accumulated = AccumulationElement<Element>;
  using Rows = MatrixView<Element, Target>;
  using ConstRows = MatrixView<const Element, Target>;
  using Vector = VectorView<Accumulated, Target>;
  using ConstVector = VectorView<const Accumulated, Target>;
  template <class Kept> using Buffer = ShardedTensor<Layout<2>, Kept, Target>;

public:
  /// @param axes of the ranks that share a sequence, as bits; none if one rank has all of it
  template <class Order>
  GatheredAttention(TargetResources<Target>& resources, unsigned axes, const TokenPositions<Order>& positions,
                    const kernels::AttentionShape& shape, const kernels::KeyMask& mask, double scale,
                    SourceLocation where)
      : resources_(&resources), ranks_(&resources.core().template communicator<Target>(axes)),
        tree_(ordered_tree(resources.core(), axes, where)), order_(positions.row_order()),
        block_(ranks_->size() == 1 ? kernels::AttentionBlock::whole(shape.sequence, mask)
                                   : kernels::AttentionBlock(positions.runs(), whole(positions), mask)),
        shape_(shape), scale_(scale), where_(where) {
    if (positions.text() != nullptr)
      reject(
          "on a Reproducible target the tokens of a sequence must be in the order of their text, but a balanced order of documents was given (make the batch without it)");
    if (ranks_->size() > 1 && positions.sequence() % 16 != 0)
      reject(
          "on a Reproducible target the sequence that context ranks share must be a multiple of 16, but it is " +
          std::to_string(positions.sequence()) + " (change the sequence length)");
  }

  void forward(const ConstRows& qkv, const Rows& out, const Vector& log_sum_exp) const {
    auto work = workspace();
    if (ranks_->size() == 1)
      return kernels::attention_forward(execution(), qkv, out, log_sum_exp, shape_, block_, scale_,
                                        work.mutable_local());
    kernels::detail::attention_forward_over(execution(), qkv, whole_keys(qkv).local_matrix(), out,
                                            log_sum_exp, shape_, block_, scale_, work.mutable_local());
  }

  void backward(const ConstRows& qkv, const ConstRows& out, const ConstVector& log_sum_exp,
                const ConstRows& d_out, const Rows& d_qkv) const {
    if (ranks_->size() > 1)
      return shared_backward(qkv, out, log_sum_exp, d_out, d_qkv);
    kernels::detail::attention_backward_in_leaves(execution(), qkv, out, log_sum_exp, d_out, d_qkv, shape_,
                                                  block_, scale_, workspace().mutable_local());
  }

private:
  void shared_backward(const ConstRows& qkv, const ConstRows& out, const ConstVector& log_sum_exp,
                       const ConstRows& d_out, const Rows& d_qkv) const {
    const auto sum_rows = [&](const auto& d_rows) {
      auto parts = buffer<Accumulated>(ranks_->size());
      {
        const auto keys = whole_keys(qkv);
        kernels::detail::attention_backward_in_leaves(execution(), qkv, keys.local_matrix(), out, log_sum_exp,
                                                      d_out, d_rows, parts.mutable_local_matrix(), shape_,
                                                      block_, scale_, workspace().mutable_local());
      }
      auto by_rank = buffer<Accumulated>(ranks_->size());
      kernels::detail::reorder_tokens<false>(execution(), parts.local_matrix(),
                                             by_rank.mutable_local_matrix(), shape_, order_);
      auto own = buffer<Accumulated>(1);
      order_call_after<Target>(execution());
      ranks_->reduce_scatter(std::span(by_rank.data(), by_rank.local_size()),
                             std::span(own.mutable_data(), own.local_size()), ReduceOp::sum, tree_, where_);
      kernels::detail::unpack_key_values(execution(), own.local_matrix(), d_rows, shape_);
    };
    if constexpr (is_narrow<Element>) { // rounded once, as on one rank
      Buffer<Accumulated> sums(*resources_, {static_cast<std::int64_t>(d_qkv.extent(0)),
                                             static_cast<std::int64_t>(d_qkv.extent(1))});
      sum_rows(sums.mutable_local_matrix());
      kernels::copy(execution(), sums.local_matrix(), d_qkv);
    } else {
      sum_rows(d_qkv);
    }
  }

  /// Keys and values of whole sequences, in the order of the text.
  [[nodiscard]] Buffer<Element> whole_keys(const ConstRows& qkv) const {
    auto own = buffer<Element>(1);
    kernels::pack_key_values(execution(), qkv, own.mutable_local_matrix(), shape_);
    auto by_rank = buffer<Element>(ranks_->size());
    order_call_after<Target>(execution());
    ranks_->all_gather(std::span(own.data(), own.local_size()),
                       std::span(by_rank.mutable_data(), by_rank.local_size()), {}, where_);
    auto keys = buffer<Element>(ranks_->size());
    kernels::detail::reorder_tokens<true>(execution(), by_rank.local_matrix(), keys.mutable_local_matrix(),
                                          shape_, order_);
    return keys;
  }

  template <class Positions> [[nodiscard]] static TokenRuns whole(const Positions& positions) {
    return TokenRuns::one(static_cast<std::size_t>(positions.sequence()));
  }
  [[nodiscard]] const typename Target::execution_space& execution() const { return resources_->execution(); }
  /// Keys and values, or their gradients, of the tokens of so many ranks.
  template <class Kept> [[nodiscard]] Buffer<Kept> buffer(int ranks) const {
    return {*resources_,
            {ranks * static_cast<std::int64_t>(shape_.tokens()),
             static_cast<std::int64_t>(shape_.kv_heads * shape_.key_value_width())}};
  }
  [[nodiscard]] auto workspace() const {
    return workspace_of<Accumulated, Target>(
        *resources_, kernels::detail::attention_in_leaves_workspace<Element>(execution(), shape_, block_));
  }
  [[noreturn]] void reject(const std::string& sentence) const {
    reject_operation("attention", sentence, resources_->core(), where_);
  }

  TargetResources<Target>* resources_;
  CommunicatorOf<Target>* ranks_;
  ReductionOrder tree_;
  RowOrder order_;
  kernels::AttentionBlock block_;
  kernels::AttentionShape shape_;
  double scale_;
  SourceLocation where_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
