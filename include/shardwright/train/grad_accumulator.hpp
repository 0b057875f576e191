// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief GradAccumulator: sums losses, tokens and gradients over microbatches and ranks, and normalises
/// once.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/describe.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/train/gradient/group.hpp>
#include <shardwright/train/gradient/squares.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/step/added_passes.hpp>
#include <shardwright/train/step/loss.hpp>
#include <shardwright/train/step/loss_axes.hpp>
#include <shardwright/train/step/loss_scale.hpp>
#include <shardwright/train/step/record.hpp>
#include <shardwright/train/step/totals.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The target of a model's parameters: `Model::target`, or host memory.
template <class Model> struct TargetOfModel { using type = DefaultTarget; };
template <class Model>
requires requires { typename Model::target; }
struct TargetOfModel<Model> {
  using type = typename Model::target;
};

/// The factor on a model's loss; nothing for models without one.
template <class Model> [[nodiscard]] std::optional<LossScale> loss_scale_of(const Model& model) {
  std::optional<LossScale> out;
  if constexpr (requires { model.loss_scale(); })
    out = model.loss_scale();
  return out;
}

} // namespace detail

/// @brief Collects one step: `add` after each microbatch's backward pass, `finish` once, `restart` for the
/// next step.
///
/// It takes the *sum* of token losses and the *number* of tokens, each with the axes over which ranks hold
/// different tokens, and divides once, by the number of valid tokens of the global batch (definition: token
/// losses {4} and {1,1,1} in two microbatches give 1.75, not the 2.5 of averaged means). The summary's scale
/// removes the loss scale of the tapes, or the model's `loss_scale()`, from its gradients. A batch without
/// valid tokens gives a summary that is not finite(), of 0 tokens, which optimizers skip.
///
/// On a device all sums stay in device memory and the host never waits: `add` takes the model's loss as is,
/// and `finish` returns a DeviceSummary.
template <ParameterSet Model> class GradAccumulator {
  using Target = typename detail::TargetOfModel<Model>::type;
  static constexpr bool on_host = Target::host_accessible;
  static constexpr bool has_stages = requires(Model & model) {
    model.for_each_stage(detail::VisitsAnything{});
  };

public:
  /// @brief The result of finish().
  using Summary = GradientSummaryOn<Target>;

  /// @param ranks all ranks that hold a part of the model, such as the world of a pipeline; by default those
  /// of the parameters' mesh.
  /// @throws LifecycleError if another accumulator holds a parameter's gradient, or if a model that is not a
  /// stage of a pipeline has no trained parameter.
  explicit GradAccumulator(Model& model, HostCommunicator ranks = {})
      : model_(&model), ranks_(std::move(ranks)) {
    if constexpr (has_stages) {
      model.for_each_stage([this](auto& stage) {
        core_ = &stage.core();
        summed_ = stage.summed_axes();
        hold(stage, groups_.emplace_back());
        groups_.back().follow(stage.lifetime());
      });
    } else {
      hold(model, groups_.emplace_back());
      for_each_trained_parameter(model, [this](auto& parameter) {
        using P = std::remove_reference_t<decltype(parameter)>;
        summed_.keep_only(detail::partial_axes<typename P::raw_layout>());
      });
    }
    if (core_ == nullptr)
      detail::reject_use(
          "GradAccumulator: the model must have a parameter that is trained, but it lists none (list its parameters in members(), and do not freeze all of them)");
  }
  /// @brief Detaches the gradients; the model has none until another accumulator holds them.
  ~GradAccumulator() = default;
  GradAccumulator(const GradAccumulator&) = delete;
  GradAccumulator& operator=(const GradAccumulator&) = delete;

  /// @brief Bytes of gradients at which a bucket is sent; the same on all ranks, and not to be changed during
  /// a step.
  void set_bucket_bytes(std::size_t bytes) {
    for (auto& group : groups_)
      group.set_bucket_bytes(bytes);
  }

  /// @brief Adds a microbatch whose backward pass has filled the parameters' slots. Losses over different
  /// axes may be added in one step. In checked builds collective over the mesh.
  /// @throws LifecycleError after finish(), for sums that were added already, and for losses with different
  /// loss scales; InvalidArgument if the program gives the count itself, and its layout does not name an axis
  /// over which every parameter's gradient is a sum.
  template <LayoutType L>
  void add(LossSum<L> loss, TokenCount<L> tokens, SourceLocation where = SourceLocation::current()) {
    static_assert(
        on_host,
        "GradAccumulator: the sums of a model on a device must be passed on unchanged, in device memory (call add(sums) with what the model returned)");
    add(CountedLoss<L>{loss, tokens}, where);
  }

  /// @brief The same with both sums in one object, as models return them.
  template <class Sums>
  requires requires(const Sums& sums) {
    typename Sums::layout;
    sums.read();
  }
  void add(const Sums& sums, SourceLocation where = SourceLocation::current()) {
    if constexpr (on_host)
      if (core_ != nullptr)
        detail::agreed(*core_, "GradAccumulator", where, Sums::layout::axes,
                       GivenNumber("number of tokens", sums.tokens.value));
    if (core_ != nullptr && !detail::origin_of(sums).counted && !sums.empty())
      summed_.require_in(Sums::layout::axes, detail::LayoutText<typename Sums::layout>::value, *core_, where);
    add_counted(sums);
  }
  /// @brief The same with sums that the program has reduced over axes that their layout no longer names. In
  /// checked builds collective over the mesh.
  /// @throws ConfigurationMismatch in checked builds, on every rank, if ranks along such an axis differ.
  template <class Sums>
  void add(const AssumedReplicated<Sums>& assumed,
           [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
    if constexpr (always_checked)
      if (core_ != nullptr) {
        const auto own = assumed.sums.read();
        const std::array<GivenNumber, 2> given{GivenNumber("loss", own.loss.value),
                                               GivenNumber("count", own.tokens.value)};
        detail::require_agreement(*core_, "assume_replicated", given, Sums::layout::axes, where);
      }
    add_counted(assumed.sums);
  }

  /// @brief Rejects anything but a sum with its count, with an error sentence.
  template <class Loss, class Tokens> void add(Loss, Tokens) {
    static_assert(
        sizeof(Loss) == 0,
        "GradAccumulator: add() must get a LossSum and a TokenCount over the same axes, never a mean or a plain number (pass the sum of token losses and the number of tokens; it divides once by the global count)");
  }

  /// @brief Reduces every gradient to the layout of its optimizer state, and loss, tokens and norm over the
  /// mesh.
  ///
  /// Collective. Cost: the transitions of the accumulators, and one all_reduce of three numbers.
  /// @throws LifecycleError before any add(), on a second call, if a parameter has no gradient, if the tape
  /// of a gradient had another loss scale than the sums, if microbatches on tapes were added without a
  /// backward pass or had one without being added, or if the model is destroyed.
  [[nodiscard]] Summary finish() {
    require_model();
    if (finished_)
      detail::reject_use(
          "GradAccumulator: finish() must be called once in a step (call restart() for the next)");
    if (microbatches_ == 0)
      detail::reject_use("GradAccumulator: finish() must follow at least one add() (run a microbatch)");
    if (const auto scale = detail::loss_scale_of(*model_); scale && scale != origin_.scale)
      detail::reject_use(
          "GradAccumulator: the loss scale must not change between add() and finish(), as gradients of both would be summed (set it after restart())");
    require_matching_passes();
    for_each_gradient([this](const auto& gradient) { origin_.join(gradient.origin(), false); });
    finished_ = true;
    for_each_gradient([](auto& gradient) { gradient.complete(); });
    for_each_gradient([](auto& gradient) { gradient.wait(); });
    for (detail::AnyParameterGradient<Target>* const gradient : by_name())
      gradient->sum_over_copies();
    std::size_t partial_sums = 0;
    for_each_gradient([&](const auto& gradient) { partial_sums += gradient.squares_workspace(); });
    detail::GradientSquares<Target> squares(core_->template resources<Target>(), partial_sums);
    for_each_gradient([&](const auto& gradient) { gradient.add_squares(squares); });
    return totals_.finish(*core_, ranks_.valid() ? ranks_ : core_->world(), squares.finish(),
                          origin_.scale.value_or(LossScale{}));
  }

  /// @brief Discards the step's losses and gradients and begins the next step.
  /// @throws LifecycleError if the model is destroyed.
  void restart() {
    require_model();
    for_each_gradient([](auto& gradient) { gradient.drop(); });
    totals_.restart();
    origin_ = {};
    microbatches_ = 0;
    added_.restart();
    finished_ = false;
  }

  /// @brief The sum of this rank's token losses since the last restart; on a device, waits for it.
  [[nodiscard]] double local_loss() const { return totals_.local_loss(); }
  /// @brief Calls visit(gradient) for the gradient of each parameter of this rank, in the model's order; for
  /// checks of a step.
  template <class Visitor> void for_each_gradient(Visitor&& visit) const {
    for (const auto& group : groups_)
      for (const auto& gradient : group.gradients())
        visit(*gradient);
  }
  /// @brief Microbatches added since the last restart.
  [[nodiscard]] int microbatches() const noexcept { return microbatches_; }

private:
  void require_model() const {
    for (const auto& group : groups_)
      if (group.lost())
        detail::reject_lost_model();
  }

  template <class Part> void hold(Part& part, detail::GradientGroup<Target>& group) {
    for_each_trained_parameter(part, [&](auto& parameter) {
      using P = std::remove_reference_t<decltype(parameter)>;
      static_assert(
          std::is_same_v<typename P::target, Target>,
          "GradAccumulator: the model must name the target of its parameters (add `using target = ...` to it)");
      group.hold(parameter);
      core_ = &parameter.resources().core();
    });
  }

  /// The gradients sorted by name: the same order on all ranks that hold copies of a parameter.
  [[nodiscard]] const std::vector<detail::AnyParameterGradient<Target>*>& by_name() {
    if (by_name_.empty()) { // at the first step, when parameters have their names
      for_each_gradient([this](auto& gradient) {
        auto at = by_name_.end();
        while (at != by_name_.begin() && gradient.parameter().name() < at[-1]->parameter().name())
          --at;
        by_name_.insert(at, &gradient);
      });
    }
    return by_name_;
  }

  /// Each microbatch counts on the ranks that its own axes determine.
  template <class Sums> void add_counted(const Sums& sums) {
    using L = typename Sums::layout;
    static_cast<void>(detail::LossOverTokens<Model, L>{});
    open_microbatch(detail::origin_of(sums));
    totals_.add(sums, detail::counts_once<L>(*core_));
  }
  void open_microbatch(const detail::SumOrigin& origin) {
    require_model();
    if (finished_)
      detail::reject_use(
          "GradAccumulator: add() must not follow finish() (call restart() for the next step)");
    if (microbatches_ == 0)
      origin_.scale = detail::loss_scale_of(*model_);
    added_.add(origin.pass);
    origin_.join(origin, microbatches_ == 0);
    ++microbatches_;
  }
  void require_matching_passes() {
    for_each_gradient([this](const auto& gradient) {
      added_.note_passes(gradient.passes(), static_cast<std::size_t>(gradient.parameter().stages()));
    });
    added_.require_passes();
  }

  Model* model_;
  HostCommunicator ranks_;
  std::list<detail::GradientGroup<Target>> groups_; // of each stage; a deque takes longer to compile
  std::vector<detail::AnyParameterGradient<Target>*> by_name_;
  detail::MeshCore* core_ = nullptr; // of the model
  detail::SummedAxes summed_;
  detail::StepTotals<Target> totals_;
  int microbatches_ = 0;
  detail::SumOrigin origin_; // of the step's sums
  detail::AddedPasses added_;
  bool finished_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
