// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention on a sequence that is sharded over a ring of ranks: keys and values travel, queries stay.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/pending.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/nn/decoder/token_tensor.hpp>
#include <shardwright/tensor/kernels/attention.hpp>
#include <shardwright/tensor/kernels/attention/key_values.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One pass around the ring (Liu et al., arXiv 2310.01889): in step s a rank has the keys and values of the
/// rank s places before it. While it computes with them, they are forwarded to the next rank and the next
/// ones arrive. Results and gradients of many blocks are accumulated in the AccumulationElement. Keys that
/// none of its queries see are forwarded as well. Not templated on layouts and masks.
template <class Element, class Target> class RingAttention {
  using Accumulated = AccumulationElement<Element>;
  using Rows = MatrixView<Element, Target>;
  using SumRows = MatrixView<Accumulated, Target>;
  using ConstRows = MatrixView<const Element, Target>;
  using Vector = VectorView<Accumulated, Target>;
  using ConstVector = VectorView<const Accumulated, Target>;
  using Buffer = ShardedTensor<Layout<2>, Element, Target>;
  /// The sum over blocks.
  using Sums = ShardedTensor<Layout<2>, Accumulated, Target>;
  static constexpr int keys_tag = 0;
  static constexpr int gradients_tag = 1;

public:
  RingAttention(TargetResources<Target>& resources, CommunicatorOf<Target>& ranks,
                const TokenPositions<ZigZagOrder>& positions, const kernels::AttentionShape& shape,
                const kernels::KeyMask& mask, double scale, SourceLocation where)
      : resources_(&resources), ranks_(&ranks), positions_(positions), shape_(shape), mask_(mask),
        scale_(scale), where_(where) {}

  /// Blocks are merged in the order of the steps: this rank's keys, then those of the ranks before it.
  void forward(const ConstRows& qkv, const Rows& out, const Vector& log_sum_exp) {
    in_sums(out, [&](const SumRows& sums) { forward_in(qkv, sums, log_sum_exp); });
  }

  /// A block's gradient follows its keys one step behind: the rank after the owner begins it, each of the
  /// others adds its part, and the last one sends it back to the owner.
  void backward(const ConstRows& qkv, const ConstRows& out, const ConstVector& log_sum_exp,
                const ConstRows& d_out, const Rows& d_qkv) {
    in_sums(d_qkv, [&](const SumRows& sums) { backward_in(qkv, out, log_sum_exp, d_out, sums); });
  }

private:
  /// Calls `run` with rows in which blocks may be accumulated: `rows`, or memory that is rounded to them
  /// afterwards.
  template <class Run> void in_sums(const Rows& rows, Run run) {
    if constexpr (is_narrow<Element>) {
      Sums sums(*resources_,
                {static_cast<std::int64_t>(rows.extent(0)), static_cast<std::int64_t>(rows.extent(1))});
      run(sums.mutable_local_matrix());
      kernels::copy(execution(), sums.local_matrix(), rows);
    } else {
      run(rows);
    }
  }

  void forward_in(const ConstRows& qkv, const SumRows& out, const Vector& log_sum_exp) {
    Buffer keys = packed_keys(qkv);
    Buffer next = buffer();
    auto workspace = memory(kernels::attention_forward_workspace<Element, Accumulated>(execution(), shape_));
    Hop hop = pass_on(keys, next);
    kernels::attention_forward(execution(), qkv, out, log_sum_exp, shape_, block(0), scale_,
                               workspace.mutable_local());
    for (int step = 1; step < positions_.ranks(); ++step) {
      hop.wait();
      std::swap(keys, next);
      if (step + 1 < positions_.ranks())
        hop = pass_on(keys, next);
      kernels::attention_forward_block(execution(), qkv, keys.local_matrix(), out, log_sum_exp, shape_,
                                       block(step), scale_, workspace.mutable_local());
    }
  }

  void backward_in(const ConstRows& qkv, const ConstRows& out, const ConstVector& log_sum_exp,
                   const ConstRows& d_out, const SumRows& d_qkv) {
    Buffer keys = packed_keys(qkv);
    Buffer next = buffer();
    Sums arrived = buffer<Accumulated>();
    std::array<Sums, 2> parts{buffer<Accumulated>(), buffer<Accumulated>()};
    auto workspace = memory(kernels::attention_backward_workspace<Element, Accumulated>(execution(), shape_));
    std::array<Pending, 2> sends;
    Pending arrival;
    Hop hop = pass_on(keys, next);
    kernels::attention_backward(execution(), qkv, out, log_sum_exp, d_out, d_qkv, shape_, block(0), scale_,
                                workspace.mutable_local());
    for (int step = 1; step < positions_.ranks(); ++step) {
      hop.wait();
      std::swap(keys, next);
      if (step + 1 < positions_.ranks())
        hop = pass_on(keys, next);
      const std::size_t slot = slot_of(step);
      if (step > 2)
        sends[slot].wait();
      kernels::attention_backward_block(execution(), qkv, keys.local_matrix(), out, log_sum_exp, d_out, d_qkv,
                                        parts[slot].mutable_local_matrix(), shape_, block(step), scale_,
                                        workspace.mutable_local());
      if (step > 1) {
        arrival.wait();
        kernels::add(execution(), arrived.local_matrix(), parts[slot].local_matrix(),
                     parts[slot].mutable_local_matrix());
      }
      const auto exchange = ranks_->exchange();
      arrival = receive(arrived, gradients_tag);
      sends[slot] = send(parts[slot], gradients_tag);
    }
    arrival.wait();
    kernels::add_key_values(execution(), arrived.local_matrix(), d_qkv, shape_);
    for (int step = std::max(1, positions_.ranks() - 2); step < positions_.ranks(); ++step)
      sends[slot_of(step)].wait();
  }

  /// Both messages of one step; the memory outlives it.
  struct Hop {
    Pending arrival;
    Pending departure;
    void wait() {
      arrival.wait();
      departure.wait();
    }
  };

  [[nodiscard]] const typename Target::execution_space& execution() const { return resources_->execution(); }
  template <class Kept = Element> [[nodiscard]] ShardedTensor<Layout<2>, Kept, Target> buffer() const {
    return {*resources_,
            {static_cast<std::int64_t>(shape_.tokens()),
             static_cast<std::int64_t>(shape_.kv_heads * shape_.key_value_width())}};
  }
  [[nodiscard]] Buffer packed_keys(const ConstRows& qkv) const {
    Buffer keys = buffer();
    kernels::pack_key_values(execution(), qkv, keys.mutable_local_matrix(), shape_);
    return keys;
  }
  [[nodiscard]] ShardedTensor<Layout<1>, Accumulated, Target> memory(std::size_t elements) const {
    return {*resources_, {static_cast<std::int64_t>(elements)}};
  }
  /// This rank's queries against the keys that it has in a step.
  [[nodiscard]] kernels::AttentionBlock block(int step) const {
    return {positions_.runs(), positions_.runs_of(rank_at(-step)), mask_};
  }

  [[nodiscard]] static std::size_t slot_of(int step) { return static_cast<std::size_t>(step % 2); }
  [[nodiscard]] int rank_at(int distance) const {
    return (positions_.rank() + distance + positions_.ranks()) % positions_.ranks();
  }
  template <class Tensor> [[nodiscard]] Pending send(const Tensor& from, int tag) {
    order_call_after<Target>(execution());
    return ranks_->async().send(std::span(from.data(), from.local_size()), rank_at(1), tag, where_);
  }
  template <class Tensor> [[nodiscard]] Pending receive(Tensor& to, int tag) {
    order_call_after<Target>(execution());
    return ranks_->async().receive(std::span(to.mutable_data(), to.local_size()), rank_at(-1), tag, where_);
  }
  [[nodiscard]] Hop pass_on(const Buffer& keys, Buffer& next) {
    const auto exchange = ranks_->exchange();
    Pending arrival = receive(next, keys_tag);
    return {std::move(arrival), send(keys, keys_tag)};
  }

  TargetResources<Target>* resources_;
  CommunicatorOf<Target>* ranks_;
  TokenPositions<ZigZagOrder> positions_;
  kernels::AttentionShape shape_;
  kernels::KeyMask mask_;
  double scale_;
  SourceLocation where_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
