// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Counts of the tokens that chose each expert: integers, summed over the axes that split tokens, by
/// type.

#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/nn/experts/route.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/kernels/experts/balance.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/train/tape/first_pass.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Layout of a rank's part of the counts, from that of the logits: Partial<Sum> over every axis that
/// splits tokens, and over no other.
template <LayoutType Logits>
using ExpertCountsLayout = LeadingSumLayout<RowwiseLayout<operation::route, Logits>, Logits::tensor_rank - 1>;

namespace detail {

template <LayoutType Counts, class Target> using CountTensor = ShardedTensor<Counts, std::int64_t, Target>;

/// Adds the experts that a block chose to its counts.
template <class Choice, class Counts>
void count_experts(const Choice& choice, Counts& counts, std::size_t rows_of_group) {
  const auto rows = choice.local_matrix();
  if (rows.size() == 0)
    return;
  kernels::run("sw::count_exp", choice.execution(), rows.extent(0),
               kernels::CountExperts{choice.data(), counts.mutable_data(), rows_of_group, rows.extent(1),
                                     static_cast<std::size_t>(counts.shape().back()) - 1});
}

template <class Choice, class Wanted> struct CountedChoice {
  static_assert(
      std::is_same_v<Choice, Wanted>,
      "ExpertCounts: the choice must have the layout of the logits that the counts are made for, whose axes are those that split tokens (make the counts for the layout that the router reads)");
};
template <class Pass> struct CountingPass {
  static_assert(
      std::is_same_v<Pass, FirstPass> || std::is_same_v<Pass, std::optional<FirstPass>>,
      "ExpertCounts: add() must be given the FirstPass, or evaluations and replays would count, too (pass first_pass() of the tape or of a Var on it)");
};

} // namespace detail

/// @brief The counts of a completed step, the same on every rank, for losses that do not wait for the current
/// step. Counts of the current step cannot be passed instead.
template <class Target = DefaultTarget> class StaleCounts {
public:
  StaleCounts() = default; ///< Before the first step: no counts, and losses from them are 0.

  [[nodiscard]] bool known() const noexcept { return counts_.has_value(); }
  /// @brief Tokens that chose each expert; waits for a device. Empty before the first step.
  [[nodiscard]] std::vector<std::int64_t> experts() const {
    std::vector<std::int64_t> out = numbers();
    if (!out.empty())
      out.pop_back();
    return out;
  }
  /// @brief Tokens that chose; waits for a device.
  [[nodiscard]] std::int64_t tokens() const {
    const std::vector<std::int64_t> all = numbers();
    return all.empty() ? 0 : all.back();
  }
  /// @brief [experts + 1], the tokens last; for operations. @pre known()
  [[nodiscard]] const ShardedTensor<Layout<1>, const std::int64_t, Target>& tensor() const {
    return *counts_;
  }

private:
  template <LayoutType, class> friend class ExpertCounts;
  explicit StaleCounts(ShardedTensor<Layout<1>, const std::int64_t, Target> counts)
      : counts_(std::move(counts)) {}

  [[nodiscard]] std::vector<std::int64_t> numbers() const {
    std::vector<std::int64_t> out(counts_ ? counts_->size() : 0);
    if (counts_)
      detail::copy_to_host<Target>(counts_->execution(), counts_->data(), out.data(), out.size());
    return out;
  }

  std::optional<ShardedTensor<Layout<1>, const std::int64_t, Target>> counts_;
};

/// @brief The number of tokens in a step that chose each expert, and the number of all choosing tokens,
/// excluding padding.
///
/// 64-bit integers, since floats stop counting at 2^24. Only first passes of training count. The layout of a
/// rank's part names every axis that splits tokens, and no other: ranks with copies of a token, such as those
/// of tp without sequence parallelism, count it once, and ranks with other layers, those along pp, are on
/// another mesh.
/// @tparam Logits layout of the router's logits, [tokens..., experts]
template <LayoutType Logits, class Target = DefaultTarget> class ExpertCounts {
public:
  using layout = ExpertCountsLayout<Logits>;

  template <class Mesh>
  ExpertCounts(const Mesh& mesh, std::int64_t experts)
      : counts_(mesh.core().template resources<Target>(), {experts + 1}) {
    static_cast<void>(fits_mesh<layout, typename Mesh::axis_list>);
    fill_zero(counts_);
  }

  /// @brief Adds the choice of a microbatch; nothing if there is no first pass. No communication.
  template <class Pass, class Choice> void add(const Pass& pass, const Choice& experts) {
    static_cast<void>(sizeof(detail::CountingPass<Pass>));
    static_cast<void>(
        sizeof(detail::CountedChoice<typename Choice::layout, RowwiseLayout<operation::route, Logits>>));
    if constexpr (std::is_same_v<Pass, std::optional<FirstPass>>) {
      if (pass)
        add_now(experts);
    } else {
      add_now(experts);
    }
  }

  /// @brief This rank's part, [experts + 1], the tokens last.
  [[nodiscard]] const detail::CountTensor<layout, Target>& part() const noexcept { return counts_; }
  /// @brief Ends the step: returns the sums over all ranks that hold different tokens, and resets the counts.
  /// Collective: one all_reduce of experts + 1 integers over the axes that split tokens.
  /// @param copies ranks of other meshes that counted other microbatches in the same layer: another
  /// all_reduce, for which the host waits for the device
  [[nodiscard]] StaleCounts<Target> finish(const HostCommunicator& copies = {},
                                           SourceLocation where = SourceLocation::current()) {
    auto sums = redistribute<Layout<1>>(counts_.clone(), where);
    if (copies.valid()) {
      std::vector<std::int64_t> numbers(sums.size());
      detail::copy_to_host<Target>(sums.execution(), sums.data(), numbers.data(), numbers.size());
      HostCommunicator(copies).all_reduce(numbers, numbers);
      detail::copy_to_target<Target>(sums.execution(), numbers.data(), sums.mutable_data(), numbers.size());
    }
    restart();
    return StaleCounts<Target>(sums.share());
  }
  /// @brief The counts of a step from saved numbers: experts + 1, the tokens last.
  template <class Numbers> [[nodiscard]] StaleCounts<Target> of_step(const Numbers& numbers) const {
    ShardedTensor<Layout<1>, std::int64_t, Target> out(counts_.resources(), counts_.shape());
    const std::vector<std::int64_t> all(numbers.begin(), numbers.end());
    detail::copy_to_target<Target>(out.execution(), all.data(), out.mutable_data(), all.size());
    return StaleCounts<Target>(out.share());
  }
  /// @brief Forgets the step.
  void restart() { fill_zero(counts_); }

private:
  template <class Choice> void add_now(const Choice& experts) {
    detail::count_experts(experts, counts_, experts.local_matrix().extent(0));
  }

  detail::CountTensor<layout, Target> counts_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
