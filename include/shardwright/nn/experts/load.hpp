// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The load of experts over steps, and a bias that balances it without a loss.

#include <shardwright/core/exact_sum.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/experts/counts.hpp>
#include <shardwright/nn/experts/report.hpp>
#include <shardwright/nn/experts/router_options.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>
#include <shardwright/tensor/ordered_sum.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/train/parameter_base.hpp>
#include <shardwright/train/step/device_loss.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace kernels {

/// @brief bias[e] += rate x sign(sum of counts - experts x count[e]), in integers; by one thread.
struct MoveExpertBias {
  const std::int64_t* counts; // [experts + 1]
  const bool* take;           // of a device; null if the host has decided
  float* bias;
  std::int64_t experts;
  double rate;
  bool recentre;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t) const {
    if (take != nullptr && !*take)
      return;
    std::int64_t sum = 0;
    for (std::int64_t e = 0; e < experts; ++e)
      sum += counts[e];
    std::int64_t signs = 0;
    for (std::int64_t e = 0; e < experts; ++e)
      signs += sign(sum, e);
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::int64_t change = experts * sign(sum, e) - (recentre ? signs : 0);
      bias[e] += static_cast<float>(rate * static_cast<double>(change) / static_cast<double>(experts));
    }
  }

private:
  [[nodiscard]] SHARDWRIGHT_FUNCTION std::int64_t sign(std::int64_t sum, std::int64_t e) const {
    const std::int64_t missing = sum - experts * counts[e];
    return missing > 0 ? 1 : missing < 0 ? -1 : 0;
  }
};

} // namespace kernels

/// @brief The part of an ExpertLoad that does not depend on its type.
class ExpertLoadBase : public NamedPart {
public:
  /// @brief The last step's numbers; waits for a device.
  [[nodiscard]] virtual ExpertLoadReport report() const = 0;

protected:
  ~ExpertLoadBase() = default;
};

/// @brief Expert counts of the current and the last step, and the bias on the choice computed from them: an
/// expert with fewer tokens than the mean gains `rate`, one with more loses it (auxiliary-loss-free load
/// balancing, Wang et al., arXiv 2408.15664).
///
/// A part of a model: list it in members(). Training, or your own loop, ends its steps; the bias is updated
/// only if the optimizer took the step. Bias and counts are the same on every rank, and the bias is float
/// whatever the element type of the weights. A checkpoint contains both.
/// @tparam Logits layout of the router's logits, [tokens..., experts]
template <LayoutType Logits, class Target = DefaultTarget> class ExpertLoad final : public ExpertLoadBase {
public:
  using Bias = ShardedTensor<Layout<1>, const float, Target>;
  using Loss = CountedLossOn<ReduceAllLayout<Sum, Logits>, Target>;
  /// @brief This rank's sums of the router's losses in the current step.
  struct Losses {
    Loss balance{}, z{};
    double counted_share = 1; ///< Of their tapes.
  };

  template <class Mesh>
  ExpertLoad(const Mesh& mesh, std::int64_t experts, const ExpertBiasOptions& options = {})
      : options_(options), counts_(mesh, experts), bias_(mesh, {experts}) {
    fill_zero(bias_);
  }

  void initialize(const std::string& path, std::uint64_t) override { name_ = path; }
  void set_copies(HostCommunicator ranks) override { copies_ = std::move(ranks); }
  /// @brief Its path in the model, such as "layers.3.router.load".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// @brief Adds the expert choices of a microbatch, on its first forward pass only. No communication.
  template <class Pass, class Choice> void count(const Pass& pass, const Choice& experts) {
    counts_.add(pass, experts);
  }
  /// @brief Adds the number of choices dropped by within_capacity() on all ranks that split the tokens, on
  /// the first forward pass only.
  void count_dropped(const std::optional<FirstPass>& pass, std::int64_t choices) {
    dropped_ += pass ? choices : 0;
  }
  /// @brief Sums for the report, to which the losses of first passes are added; null on a device, and before
  /// report_losses().
  [[nodiscard]] Losses* losses() noexcept { return losses_ ? &*losses_ : nullptr; }
  /// @brief From now on, end_step() sums losses() over the ranks, with one more all_reduce of two numbers
  /// (on a Reproducible target, two of an ExactSum), and another if the layer has copies. Does nothing on a
  /// device, where a step would wait for them.
  void report_losses() {
    if constexpr (Target::host_accessible)
      losses_.emplace();
  }
  [[nodiscard]] const ExpertBiasOptions& options() const noexcept { return options_; }
  /// @brief float [experts], for RouteWith::bias: a handle that must be released before the step ends.
  [[nodiscard]] Bias bias() const { return bias_.share(); }
  /// @brief Restores a saved bias. @throws InvalidArgument for another number of experts.
  void set_bias(const Bias& saved, SourceLocation where = SourceLocation::current()) {
    detail::require_shape("ExpertLoad", "bias", saved.shape(), bias_.shape(), bias_.core(), where);
    bias_ = saved.clone();
  }
  /// @brief Bias and counts of the last step, which a stale_balance_loss reads; -1 if there was none.
  [[nodiscard]] std::vector<PartState> state() const override {
    std::vector<float> bias(bias_.local_size());
    detail::copy_to_host<Target>(bias_.execution(), bias_.data(), bias.data(), bias.size());
    std::vector<double> counts(bias.size() + 1, -1);
    if (last_.known()) {
      const std::vector<std::int64_t> experts = last_.experts();
      std::copy(experts.begin(), experts.end(), counts.begin());
      counts.back() = static_cast<double>(last_.tokens());
    }
    return {{"bias", {bias.begin(), bias.end()}}, {"counts", std::move(counts)}};
  }
  void set_state(const std::vector<PartState>& saved) override {
    const std::vector<float> bias(saved[0].values.begin(), saved[0].values.end());
    detail::copy_to_target<Target>(bias_.execution(), bias.data(), bias_.mutable_data(), bias.size());
    last_ = saved[1].values.back() < 0 ? StaleCounts<Target>() : counts_.of_step(saved[1].values);
  }

  /// @brief The counts of the last step that was taken; on a device, of the last step.
  [[nodiscard]] const StaleCounts<Target>& last_step() const noexcept { return last_; }

  [[nodiscard]] ExpertLoadReport report() const override {
    std::vector<float> bias(bias_.size());
    detail::copy_to_host<Target>(bias_.execution(), bias_.data(), bias.data(), bias.size());
    return {name_, last_.experts(), std::move(bias), last_dropped_, last_losses_[0], last_losses_[1]};
  }

  /// @brief Ends a step: updates the bias, and resets the counts. Collective if the step is taken: one
  /// all_reduce of experts + 1 integers and, after report_losses(), one of two numbers; on a Reproducible
  /// target two of an ExactSum. If the layer has copies, one more of each over them, of two numbers on any
  /// target, and one of the number of dropped choices.
  void end_step(const StepVerdict& verdict) override {
    const std::int64_t dropped = std::exchange(dropped_, 0);
    const Losses losses = losses_ ? std::exchange(*losses_, Losses{}) : Losses{};
    if (!verdict.taken) {
      counts_.restart();
      return;
    }
    last_ = counts_.finish(copies_);
    last_dropped_ = dropped;
    if (copies_.valid())
      copies_.all_reduce_in_place(std::span(&last_dropped_, 1));
    if constexpr (Target::host_accessible)
      if (losses_)
        last_losses_ = means_of(losses);
    if (options_.rate != 0)
      detail::run_once("sw::expert_bias", bias_.execution(),
                       kernels::MoveExpertBias{last_.tensor().data(), verdict.device_take,
                                               bias_.mutable_data(), bias_.shape()[0], options_.rate,
                                               options_.recentre});
  }

private:
  /// Over all tokens of the step, which last_ has counted.
  [[nodiscard]] std::array<double, 2> means_of(const Losses& losses) {
    std::array<double, 2> out{losses.balance.loss.value, losses.z.loss.value};
    if constexpr (is_reproducible<Target>) {
      for (double& each : out)
        each = exact_sum_of(each);
    } else {
      ShardedTensor<ExpertCountsLayout<Logits>, double, Target> parts(bias_.resources(), {2});
      if constexpr (!counts_only<Target>)
        std::copy(out.begin(), out.end(), parts.mutable_data());
      const auto sums = redistribute<Layout<1>>(std::move(parts));
      if constexpr (!counts_only<Target>)
        std::copy_n(sums.data(), out.size(), out.begin());
    }
    if (copies_.valid())
      copies_.all_reduce_in_place(std::span<double>(out));
    if constexpr (counts_only<Target>)
      return out;
    const double tokens = static_cast<double>(last_.tokens()) * losses.counted_share;
    for (double& each : out)
      each = tokens > 0 ? each / tokens : 0;
    return out;
  }

  /// The sum of the numbers of the ranks that split the tokens, for any number of such ranks.
  [[nodiscard]] double exact_sum_of(double number) {
    ShardedTensor<ReduceAllLayout<OrderedSum, Logits>, ExactSum, Target> part(bias_.resources(), {});
    if constexpr (!counts_only<Target>)
      *part.mutable_data() = ExactSum(number);
    return detail::ordered_number(std::move(part), {});
  }

  ExpertBiasOptions options_;
  ExpertCounts<Logits, Target> counts_;
  ShardedTensor<Layout<1>, float, Target> bias_;
  StaleCounts<Target> last_;
  HostCommunicator copies_;
  std::int64_t dropped_ = 0;
  std::int64_t last_dropped_ = 0;
  std::optional<Losses> losses_;
  std::array<double, 2> last_losses_{}; // balance, z
  std::string name_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
