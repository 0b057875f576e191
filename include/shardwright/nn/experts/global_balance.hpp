// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The exact balance of experts over the global batch, whose gradient needs the counts of all
/// microbatches first.

#include <shardwright/mesh/agreement.hpp>
#include <shardwright/nn/experts/balance_loss.hpp>
#include <shardwright/nn/experts/counts.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/train/parameter_base.hpp>
#include <shardwright/train/tape/loss_node.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The load-balancing loss with the global batch as its only token set: all microbatches of a step on
/// all ranks (arXiv 2501.11873, exact). Like balance_loss<WholeMicrobatch>, but T and the counts are those of
/// the batch, with one all_reduce per step.
///
/// A part of a model: list it in members(). The model's loss then needs the whole batch, so a pipeline
/// compiles only with a schedule that runs all forward passes first, or with CountingFirst; a model in one
/// piece runs the forward pass of each microbatch twice, first to count.
/// @tparam Logits layout of the router's logits, [tokens..., experts]
template <LayoutType Logits, class Target = DefaultTarget> class GlobalBalance final : public NamedPart {
public:
  static constexpr bool needs_whole_batch = true;
  using Loss = CountedLossOn<detail::LossOfLogits<Logits>, Target>;

  template <class Mesh>
  GlobalBalance(const Mesh& mesh, std::int64_t experts, const BalanceOptions& options = {})
      : options_(options), counts_(mesh.core().template resources<Target>(), {experts + 1}) {
    static_cast<void>(fits_mesh<ExpertCountsLayout<Logits>, typename Mesh::axis_list>);
    fill_zero(counts_);
  }

  void initialize(const std::string& path, std::uint64_t) override { name_ = path; }
  [[nodiscard]] bool reads_whole_batch() const override { return true; }
  /// @throws InvalidArgument: a copy would not see the batch.
  void set_copies(HostCommunicator) override {
    throw InvalidArgument(
        "GlobalBalance: all microbatches must pass through the rank that counts them, but this schedule holds each stage twice (take one that does not, such as 1F1B with CountingFirst)");
  }

  /// @brief Records the loss of a microbatch on the tape of its logits: its choice is counted now, its
  /// gradient and value are computed in the backward pass. Does nothing in an evaluation. No communication.
  /// @throws LifecycleError for a forward pass between end_forwards() and the last backward pass.
  /// @param total to which the loss is added then, too; null for none
  template <detail::TapeValue X>
  void operator()(X&& logits, const detail::ChoiceFor<X>& choice,
                  SourceLocation where = SourceLocation::current(), Loss* total = nullptr) {
    static_cast<void>(sizeof(detail::CountedChoice<typename detail::ChoiceFor<X>::layout,
                                                   RowwiseLayout<operation::route, Logits>>));
    detail::require_choice("GlobalBalance", logits, choice, where);
    detail::TapeCore& tape = logits.tape();
    if (tape.counts_ahead())
      count(choice, true);
    if (!tape.trains())
      return;
    if (name_.empty())
      detail::reject_use(
          "GlobalBalance: it must be a part of its model, or nothing says that the model's loss needs the whole batch (list it in members(), and call initialize() with the whole model)");
    count(choice, false);
    const BalanceOptions scaled = detail::options_on_tape(logits, options_);
    static_cast<void>(detail::record_loss(LossOfBatch<detail::ChoiceFor<X>>{this, choice, scaled, total},
                                          where, detail::wide_logits(std::forward<X>(logits), where)));
  }

  /// @brief Declares that the whole batch has been counted. Collective: one all_reduce of experts + 1
  /// integers over every axis that splits tokens.
  void end_forwards() override {
    if (final_ || counted_ == 0)
      return;
    final_.emplace(redistribute<Layout<1>>(counts_.clone()).share());
  }
  /// @brief This rank's part of the loss of the passes since the last call, as from balance_loss.
  [[nodiscard]] Loss take_loss() { return std::exchange(loss_, Loss{}); }

private:
  /// The loss of one microbatch, once all of the batch have been counted.
  template <class Choice> struct LossOfBatch {
    static constexpr std::string_view name = "balance_loss";
    static constexpr std::array<std::string_view, 0> differs_along{};
    GlobalBalance* balance;
    Choice choice;
    BalanceOptions options;
    Loss* total;

    [[nodiscard]] std::array<GivenNumber, 1> numbers() const {
      return {GivenNumber("coefficient", options.coefficient)};
    }
    template <class X, class Scale>
    [[nodiscard]] auto loss_and_gradient(SourceLocation where, X&& x, const Scale& scale) const {
      const detail::RowLoss loss{
          detail::BalanceOfRows{choice, balance->final_counts(), choice.local_matrix().extent(0), options}};
      auto made = loss.loss_and_gradient(where, std::forward<X>(x), scale);
      balance->loss_ += made.first;
      if (total != nullptr)
        *total += made.first;
      balance->end_backward();
      return made;
    }
  };

  template <class Choice> void count(const Choice& choice, bool ahead) {
    if (final_) {
      if (ahead || !ahead_ || ++forwards_ > counted_)
        detail::reject_use(
            "GlobalBalance: all microbatches of a step must be counted before its first backward pass, but one comes after it (give all to one run, under a schedule whose forwards come first or CountingFirst)");
      return;
    }
    ahead_ = ahead;
    ++counted_;
    detail::count_experts(choice, counts_, choice.local_matrix().extent(0));
  }
  [[nodiscard]] const auto& final_counts() const {
    if (!final_)
      detail::reject_use(
          "GlobalBalance: the counts of the whole batch must be final before a backward pass reads them, but microbatches may follow (run under a schedule whose forwards come first or CountingFirst, or call end_forwards() after the last forward pass)");
    return *final_;
  }
  void end_backward() {
    if (++backwards_ < counted_)
      return;
    counted_ = forwards_ = backwards_ = 0;
    final_.reset();
    fill_zero(counts_);
  }

  BalanceOptions options_;
  detail::CountTensor<ExpertCountsLayout<Logits>, Target> counts_;
  std::optional<ShardedTensor<Layout<1>, const std::int64_t, Target>> final_; // while backward passes run
  Loss loss_{};
  std::string name_;
  int counted_ = 0;
  int forwards_ = 0;
  int backwards_ = 0;
  bool ahead_ = false; // counted in separate passes
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
