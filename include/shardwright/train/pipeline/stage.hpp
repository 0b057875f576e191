// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A range of a model's parts: forward, input gradient and weight gradient of a microbatch as separate
/// passes, derived from the parts.

#include <shardwright/core/error.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/tensor/reuse.hpp>
#include <shardwright/train/gradient/pass_position.hpp>
#include <shardwright/train/pipeline/model_parts.hpp>
#include <shardwright/train/pipeline/weights_in_use.hpp>
#include <shardwright/train/step/loss_scale.hpp>
#include <shardwright/train/tape.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The position of a microbatch in the run, if the batch provides it.
template <class Batch> [[nodiscard]] std::optional<BatchOrigin> origin_of_batch(const Batch& batch) {
  std::optional<BatchOrigin> origin;
  if constexpr (requires { batch.origin; })
    origin = batch.origin;
  if constexpr (requires { batch.sequences(); })
    if (origin && origin->sequences == 0)
      origin->sequences = batch.sequences();
  return origin;
}
/// The positions of the rows of its sequences, if they are not those of the text.
template <class Batch> [[nodiscard]] RowOrder rows_of_batch(const Batch& batch) {
  if constexpr (requires { batch.row_order(); })
    return batch.row_order();
  else
    return {};
}

/// Calls a part with the stream, and with the batch if it takes one.
template <class Part, class Stream, class Batch>
[[nodiscard]] decltype(auto) call_part(Part& part, Stream&& stream, const Batch& batch) {
  if constexpr (requires { part(std::forward<Stream>(stream), batch); })
    return part(std::forward<Stream>(stream), batch);
  else
    return part(std::forward<Stream>(stream));
}

template <class Out, class In> struct PartsFit {
  static_assert(
      std::is_same_v<Out, In>,
      "Parts: each part must return the stream in the layout that the next one takes (end the part with .as<Stream>())");
  static constexpr bool value = std::is_same_v<Out, In>;
};

} // namespace detail

/// @brief A range of a model's parts on a mesh without the pipeline's axis.
///
/// `Model` describes the whole: `Config`, `Batch`, `Parts`, `target`, and `boundary(config, batch)`, the
/// global shape of the stream. Stages pass on one tensor, the stream, and its gradient in the other
/// direction. All state of a microbatch between its passes is in its `Saved`, so any number may be in flight.
template <class Model> class Stage {
  using Holders = detail::PartHolders<typename Model::Parts>;
  using First = typename Holders::First;
  using Last = typename Holders::Last;
  static_assert(
      Holders::size > 1,
      "Parts: a model must have at least two, of which the first takes the batch and returns the stream, and the last takes the stream and returns the loss (split it)");

public:
  using Config = typename Model::Config;
  using Batch = typename Model::Batch;
  using target = typename Model::target;
  /// @brief The value that parts pass on.
  using Stream = std::remove_cvref_t<decltype(std::declval<First&>()(std::declval<Tape<target>&>(),
                                                                     std::declval<const Batch&>()))>;
  using Boundary = ShardedTensor<typename Stream::layout, typename Stream::element, target>;
  using Input = Boundary;
  using Output = Boundary;
  /// @brief Whether a part may need the whole batch: some exist or not at run time.
  static constexpr bool may_read_whole_batch = Holders::may_read_whole_batch;
  /// @brief The loss of the last part. It needs the whole batch if a part, or a member of one, does.
  using Loss =
      typename detail::LossOver<Holders::over_whole_batch, std::remove_cvref_t<decltype(detail::call_part(
                                                               std::declval<Last&>(), std::declval<Stream>(),
                                                               std::declval<const Batch&>()))>>::type;

  /// @brief The values that a microbatch keeps between its passes. Their memory returns to the pool with the
  /// last one.
  struct Saved {
    Tape<target> tape;
    detail::Slot<typename Stream::layout, typename Stream::element, target>* in = nullptr;
    detail::Slot<typename Stream::layout, typename Stream::element, target>* out = nullptr;
  };

  /// @brief Constructs the parts, names them and draws their initial values, which depend only on the seed,
  /// not on the mesh or the range. Not collective.
  /// @throws InvalidArgument if two parts have the same path, or if ties(config) of a part does not name the
  /// tied parameters that it holds.
  template <class Mesh>
  Stage(const Mesh& mesh, const Config& config, std::uint64_t seed, detail::UnitRange units,
        SharedParts& shared)
      : resources_(&mesh.core().template resources<target>()), config_(config), units_(units),
        holds_first_(units.begin == 0), holds_last_(units.end == detail::count_units<Model>(config).all) {
    std::size_t first = 0;
    holders_.each([&](auto& holder, auto) {
      holder.make(ModelPlace<Mesh>{mesh, shared}, config, first, units);
      first += std::remove_reference_t<decltype(holder)>::count(config);
    });
    detail::DistinctPaths paths;
    holders_.each([&](auto& holder, auto) {
      holder.visit([&](auto& part, std::size_t number) {
        std::vector<detail::ListedPart>& parts = parts_.emplace_back();
        const std::string name = holder.name(number);
        if constexpr (detail::AddsAdapters<Config>)
          adapters_ += config.adapters.add_to(part, name);
        detail::list_parts(part, name, parts);
        weights_.add_unit(name, parts);
        paths.add(parts);
        require_ties(parts, detail::ties_of<std::remove_reference_t<decltype(part)>>(config));
        detail::initialize_parts(parts, seed);
      });
    });
    if constexpr (detail::AddsAdapters<Config>)
      if (holds_first_ && holds_last_)
        config.adapters.require_some(adapters_);
    const bool first_reads = [] {
      if constexpr (requires { First::gradient_reads_weights; })
        return First::gradient_reads_weights;
      else
        return true;
    }();
    const std::size_t trained = detail::first_trained_unit<Model>(mesh, config, units.end);
    takes_gradient_ = trained < units.end;
    returns_gradient_ = trained < units.begin;
    runs_backward_ = takes_gradient_ || reads_whole_batch();
    weights_.read_back_to(std::max<std::size_t>(holds_first_ && !first_reads ? 1 : 0,
                                                returns_gradient_ ? 0 : trained - units.begin));
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  /// @brief For GradAccumulator, since the stage of the loss need not have a parameter.
  [[nodiscard]] static detail::SummedAxes summed_axes() { return Holders::summed_axes(); }

  [[nodiscard]] const Config& config() const noexcept { return config_; }
  /// @brief Index of its first part in the model, by which stages are ordered.
  [[nodiscard]] int first_unit() const noexcept { return static_cast<int>(units_.begin); }

  /// @brief The factor on the loss's gradient, which all gradients of a step have: the same on all stages.
  [[nodiscard]] const LossScale& loss_scale() const noexcept { return loss_scale_; }
  void set_loss_scale(LossScale scale) { loss_scale_ = std::move(scale); }

  /// @brief Chooses whether inputs of the coming passes are compared between ranks; see
  /// require_equal_inputs().
  void check_inputs(bool on) noexcept { checks_inputs_ = on; }

  /// @brief Whether this stage or one before it has a trained parameter: if not, its backward pass gets no
  /// gradient, and does nothing but compute losses over the whole batch.
  [[nodiscard]] bool takes_gradient() const noexcept { return takes_gradient_; }
  /// @brief Whether a stage before it has one, and so gets the gradient of its result from this one.
  [[nodiscard]] bool returns_gradient() const noexcept { return returns_gradient_; }

  /// @brief Memory for a microbatch's input from another stage.
  [[nodiscard]] Boundary make_input(const Batch& batch) const {
    return Boundary(*resources_, Model::boundary(config_, batch));
  }

  /// @brief The stream after this range, or the summed loss of the microbatch, added to `loss`.
  /// @param in the result of the previous stage; empty for the first stage
  [[nodiscard]] std::optional<Boundary> forward(std::optional<Boundary> in, const Batch& batch, Saved& saved,
                                                Loss& loss) {
    return run(Recording::training, std::move(in), batch, saved, AddLoss{batch, loss});
  }
  /// @brief The gradient of forward's input, from that of its result; empty unless returns_gradient().
  [[nodiscard]] std::optional<Boundary> input_gradient(std::optional<Boundary> gradient, Saved& saved) {
    return backward(std::move(gradient), saved, detail::GradientPass::input, PassPosition::middle);
  }
  /// @brief Adds the gradients of parameters after input_gradient, and releases `saved`.
  void weight_gradient(const Batch&, Saved& saved, PassPosition position) {
    if (runs_backward_)
      saved.tape.backward_weights(position);
    saved.tape.restart();
  }
  /// @brief Both, operation by operation, so that memory is released, and gradients are sent, as early as
  /// possible.
  [[nodiscard]] std::optional<Boundary> backward(std::optional<Boundary> gradient, const Batch&, Saved& saved,
                                                 PassPosition position) {
    auto out = backward(std::move(gradient), saved, detail::GradientPass::both, position);
    saved.tape.restart();
    return out;
  }

  /// @brief forward() without keeping anything for gradients.
  [[nodiscard]] std::optional<Boundary> evaluate(std::optional<Boundary> in, const Batch& batch, Saved& saved,
                                                 Loss& loss) {
    auto out = run(Recording::evaluation, std::move(in), batch, saved, AddLoss{batch, loss});
    saved.tape.restart();
    return out;
  }
  /// @brief forward() for counting only, as in training, with the same random numbers.
  [[nodiscard]] std::optional<Boundary> count(std::optional<Boundary> in, const Batch& batch, Saved& saved) {
    Loss unused{};
    auto out = run(Recording::counting, std::move(in), batch, saved, AddLoss{batch, unused});
    saved.tape.restart();
    return out;
  }
  /// @brief Whether a part of this stage needs the whole batch before its backward pass.
  [[nodiscard]] bool reads_whole_batch() const {
    bool out = false;
    if constexpr (may_read_whole_batch)
      for_each_part([&](const detail::ListedPart& each) { out = out || each.part->reads_whole_batch(); });
    return out;
  }
  /// @brief Declares that all forward passes of a step are done. Collective if a part needs the whole batch.
  void end_forwards() {
    for_each_part([](const detail::ListedPart& each) { each.part->end_forwards(); });
  }
  /// @brief Ends a step, for parts that count per step. Collective if there are any.
  void end_step(const StepVerdict& verdict) {
    for_each_part([&](const detail::ListedPart& each) { each.part->end_step(verdict); });
  }
  /// @brief Returns the result of the last part's `predict(stream, batch)`; for a last stage.
  [[nodiscard]] auto predict(std::optional<Boundary> in, const Batch& batch, Saved& saved) {
    std::optional<decltype(std::declval<Last&>().predict(std::declval<Stream>(), batch))> out;
    static_cast<void>(run(Recording::evaluation, std::move(in), batch, saved, [&](auto& last, Stream stream) {
      out.emplace(last.predict(std::move(stream), batch));
    }));
    saved.tape.restart();
    return *std::move(out);
  }

  /// @brief Visits the parameters that count for this stage: each counts once per rank.
  template <class Visitor> void for_each_parameter(Visitor&& visit) {
    each_part([&](auto, auto& part, std::size_t) { shardwright::for_each_parameter(part, visit); });
  }
  /// @brief Calls visit(part, path) with each part of this stage, with its own type.
  template <class Visitor> void for_each_unit(const Visitor& visit) {
    each_part([&](auto, auto& part, std::size_t unit) { visit(part, weights_.name(unit)); });
  }
  /// @brief How many of its modules got an adapter: see LoraOptions.
  [[nodiscard]] std::size_t adapters() const noexcept { return adapters_; }
  /// @brief The parts of its units, including tied parameters of other stages on the rank.
  [[nodiscard]] const std::vector<std::vector<detail::ListedPart>>& parts() const noexcept { return parts_; }
  /// @brief Visits each of them, in order.
  template <class Visitor> void for_each_part(const Visitor& visit) const {
    for (const auto& unit : parts_)
      for (const detail::ListedPart& each : unit)
        visit(each);
  }

  /// @brief The mesh of its parts.
  [[nodiscard]] detail::MeshCore& core() const noexcept { return resources_->core(); }
  /// @brief Ends with the stage; for a GradAccumulator, which must not outlive it.
  [[nodiscard]] std::weak_ptr<const void> lifetime() const noexcept { return lifetime_; }
  /// @brief Declares which pass reads the weights after the next one, so that its gathers start in time;
  /// empty if other weights may come in between.
  void expect_pass(std::optional<Pass> next) noexcept { weights_.expect_pass(next); }

private:
  /// Other ranks learn of a tied parameter from its part's ties(), and wait for the parts that name it.
  static void require_ties(const std::vector<detail::ListedPart>& parts,
                           const std::vector<std::string_view>& known) {
    for (const detail::ListedPart& each : parts)
      if (each.tied && std::find(known.begin(), known.end(), each.path) == known.end())
        throw InvalidArgument(
            "Stage: a part must name its tied parameters, but ties(config) of the one that holds " +
            each.path + " does not (add `static std::vector<std::string_view> ties(const Config&)` to it)");
    for (const std::string_view name : known)
      if (std::none_of(parts.begin(), parts.end(),
                       [&](const auto& each) { return each.tied && each.path == name; }))
        throw InvalidArgument(
            "Stage: a part must hold the tied parameters that it names, but ties(config) of one that does not names " +
            std::string(name) + " (list that in members() as a TiedParameter, or leave it out of ties)");
  }

  /// Calls visit(index of the part in the model, part, unit of this stage).
  template <class Visitor> void each_part(const Visitor& visit) {
    std::size_t unit = 0;
    holders_.each([&](auto& holder, auto place) {
      holder.visit([&](auto& part, std::size_t) { visit(place, part, unit++); });
    });
  }
  /// The last part's call, whose losses are summed.
  struct AddLoss {
    const Batch& batch;
    Loss& loss;
    template <class Part> void operator()(Part& last, Stream stream) const {
      loss += detail::call_part(last, std::move(stream), batch);
    }
  };

  /// Runs the parts, with `at_last(part, stream)` in place of the last one's call.
  template <class AtLast>
  [[nodiscard]] std::optional<Boundary> run(Recording recording, std::optional<Boundary> in,
                                            const Batch& batch, Saved& saved, const AtLast& at_last) {
    Tape<target>& tape = saved.tape;
    tape.restart(recording, detail::origin_of_batch(batch), detail::rows_of_batch(batch));
    tape.set_loss_scale(loss_scale_);
    if constexpr (requires { batch.counted_share; })
      tape.set_counted_share(batch.counted_share);
    tape.check_inputs(checks_inputs_);
    std::optional<Stream> stream;
    if (!holds_first_) {
      stream.emplace(detail::leaf_on(tape.core(), std::move(in).value(),
                                     recording == Recording::training && returns_gradient_,
                                     SourceLocation::current()));
      // The first dimension holds tokens; others may be split only to share the work.
      stream->slot().add_rows(detail::RowAxes::of<typename Stream::layout>(core(), 1));
      saved.in = &stream->slot();
    }
    each_part([&](auto index, auto& part, std::size_t unit) {
      constexpr std::size_t place = decltype(index)::value;
      if (recording == Recording::training)
        weights_.mark(tape.core(), unit, true);
      {
        const detail::MemoryOfPart memory(weights_.name(unit));
        const auto use = weights_.read(unit);
        if constexpr (place == 0) {
          stream.emplace(part(tape, batch));
        } else if constexpr (place + 1 == Holders::size) {
          at_last(part, *std::exchange(stream, std::nullopt));
        } else {
          auto out = detail::call_part(part, *std::exchange(stream, std::nullopt), batch);
          if constexpr (detail::PartsFit<decltype(out), Stream>::value)
            stream.emplace(std::move(out));
        }
      }
      if (recording == Recording::training)
        weights_.mark(tape.core(), unit, false);
    });
    if (holds_last_)
      return std::nullopt;
    saved.out = &stream->slot();
    auto handed = detail::operand_of(*std::exchange(stream, std::nullopt), SourceLocation{});
    return detail::owned(handed.read());
  }

  [[nodiscard]] std::optional<Boundary> backward(std::optional<Boundary> gradient, Saved& saved,
                                                 detail::GradientPass pass, PassPosition position) {
    if (!runs_backward_)
      return std::nullopt;
    const detail::MemoryOfPart memory{
        std::string_view()}; // reset to no part, even if a pass throws inside one
    if (takes_gradient_ && !holds_last_)
      saved.out->give(std::move(gradient).value(), SourceLocation{});
    saved.tape.core().backward(pass, position);
    if (!returns_gradient_)
      return std::nullopt;
    if (!saved.in->has_gradient())
      detail::reject_use(
          "Stage: the gradient of the loss must reach the stream, but in this stage no operation whose result the loss depends on reads it (compute the loss from the Var that the last part gets, not from its value())");
    return detail::owned(saved.in->take_gradient());
  }

  detail::TargetResources<target>* resources_;
  Config config_;
  detail::UnitRange units_;
  bool holds_first_, holds_last_;
  bool takes_gradient_ = true, returns_gradient_ = true, runs_backward_ = true;
  LossScale loss_scale_;
  typename Holders::type holders_;
  std::vector<std::vector<detail::ListedPart>> parts_; // by unit
  detail::WeightsInUse weights_;
  std::shared_ptr<const char> lifetime_ = std::make_shared<const char>();
  bool checks_inputs_ = false;
  std::size_t adapters_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
