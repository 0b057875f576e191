// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A trained or frozen tensor with a name and the layouts in which it is stored, read and updated.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/layout/describe.hpp>
#include <shardwright/layout/zero.hpp>
#include <shardwright/mesh/ordered_axes.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/quantize.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/train/gradient/gathered_weight.hpp>
#include <shardwright/train/gradient/gradient_slot.hpp>
#include <shardwright/train/gradient/parameter_gradient.hpp>
#include <shardwright/train/initial.hpp>
#include <shardwright/train/parameter_base.hpp>
#include <shardwright/train/step/global_sum.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Rejects what only a trained parameter has, with an error sentence.
template <class P> struct TrainedParameter {
  static_assert(
      P::trained,
      "Parameter: a frozen one has no gradient and no optimizer state, and no step changes it (visit the trained ones with for_each_trained_parameter(), set its weights with fill_weights(), or give it a Zero type that is not Frozen)");
  static constexpr bool value = P::trained;
};

} // namespace detail

/// @brief A parameter that operations read in layout `Compute` and whose gradient has, by propagation, layout
/// `Raw`, such as Partial<Sum, dp>. `Zero` (layout/zero.hpp) gives the layouts in which it is stored, its
/// gradient is accumulated and its optimizer state is kept; every transition follows from the types.
///
/// Weights, as stored and as read, have `Element`; gradients, their sums and the optimizer state have
/// AccumulationElement<Element>, and if that differs there is a master copy of the weights in the layout of
/// the optimizer state. On a Reproducible target, gradients are FixedPoint until they are reduced. It gets
/// its name and its initial values from initialize() of the model that lists it. A GradAccumulator of that
/// model holds its gradient. A pipeline may hold a parameter twice on a rank (tied tables, one object that
/// two stages add to) and on several meshes (stages of both directions, tied tables): copies whose gradients
/// are summed and that count once in the norm.
///
/// If `Zero` is Frozen, it is listed, initialized, gathered and saved like any other, but nothing asks for
/// its gradient: operations do not compute it, and what needs one does not compile. With a
/// form, Frozen<Zero, NormalFloat4>, the weights are stored and gathered in few bits, and widened for each
/// operation that reads them.
template <LayoutType Compute, LayoutType Raw, class Element = float, class Zero = DataParallel,
          class Target = DefaultTarget>
class Parameter final : public ParameterBase {
public:
  using element = Element;
  using accumulation_element = AccumulationElement<Element>;
  /// @brief That of raw gradients and their sums: the accumulation_element, or FixedPoint.
  using gradient_element = detail::GradientElement<Element, Target>;
  using target = Target;
  using zero = Zero;
  using compute_layout = Compute;
  using raw_layout = Raw;
  using stored_layout = typename Zero::template Stored<Compute>;
  using accumulator_layout = typename Zero::template Accumulator<Compute, Raw>;
  using state_layout = typename Zero::template State<Compute>;
  /// @brief A reduced gradient has the layout of the optimizer state.
  using gradient_layout = state_layout;
  /// @brief A gradient that is reduced over the axes that shard.
  using reduced_layout = ReducedGradient<Raw, state_layout, typename Zero::axes>;
  /// @brief Can be an operand of operations on a tape.
  using tape_operand = Parameter;

  /// @brief The form of quantized weights, or void.
  using Form = typename detail::FormOf<Zero>::type;
  static constexpr bool quantized = !std::is_void_v<Form>;
  /// @brief The Element, or a word of a form.
  using stored_element = std::conditional_t<quantized, detail::QuantizedWord, Element>;

  using Stored = ShardedTensor<stored_layout, stored_element, Target>;
  using Weight = ShardedTensor<Compute, const Element, Target>;
  using RawTensor = ShardedTensor<Raw, gradient_element, Target>;
  using GradientTensor = ShardedTensor<gradient_layout, accumulation_element, Target>;
  using GradientHandle = ShardedTensor<gradient_layout, const accumulation_element, Target>;
  using Shape = typename Stored::Shape;
  /// @brief A shape as an argument: the number of extents is checked by the compiler.
  using GivenShape = detail::GivenShape<stored_layout>;

  static constexpr int tensor_rank = Compute::tensor_rank;
  /// @brief False if it is frozen.
  static constexpr bool trained = detail::trains<Zero>;
  /// @brief True if each microbatch's gradient is reduced, rather than their sum.
  static constexpr bool reduces_each_microbatch = !std::is_same_v<accumulator_layout, Raw>;
  /// @brief True if there are master weights with another element type.
  static constexpr bool has_master = trained && !std::is_same_v<accumulation_element, Element>;

  static_assert(
      RealElement<Element>,
      "Parameter: the elements must be floating-point, because a weight has a gradient (keep integers in a ShardedTensor)");
  static_assert(
      !is_reproducible<Target> || std::is_same_v<accumulation_element, float>,
      "Parameter: on a Reproducible target the elements must be float or bfloat16, because the sums of gradients have the range and the units of these (choose one of them, or a target that is not Reproducible)");
  static_assert(
      !quantized || Target::host_accessible,
      "Parameter: quantized weights must be on the host, whose processors widen them (keep weights on a device whole, with Frozen<Zero>)");
  static_assert(
      !state_layout::value.has_partial(),
      "Parameter: the optimizer state must not be Partial, an incomplete sum (keep it replicated or sharded)");
  static_assert(
      !reduces_each_microbatch || std::is_same_v<accumulator_layout, reduced_layout>,
      "Parameter: the accumulator must have the layout of the raw gradient, or that of the optimizer state as far as the gradient is reduced (use ReducedGradient<Raw, State, axes>)");

  /// @brief The destination of a raw gradient: `tensor = beta * tensor + gradient`. On a Reproducible target
  /// its kernels add FixedPoint terms, `beta` is 0 or 1, and `bool* fault` is where they note one that does
  /// not fit.
  using Slot = detail::GradientSlot<RawTensor, accumulation_element>;

  /// @brief A parameter that initialize() names and fills; until then it has no memory. Not collective.
  /// @param shape the global extents
  /// @throws InvalidArgument for a negative extent or a size that overflows.
  template <class Mesh>
  Parameter(const Mesh& mesh, const GivenShape& shape, const Initial& initial,
            SourceLocation where = SourceLocation::current())
      : Parameter(mesh, shape, initial, ParameterRole::weight, where) {}
  /// @brief The same for a gain or a bias, which optimizers may treat differently: see decay_matrices().
  template <class Mesh>
  Parameter(const Mesh& mesh, const GivenShape& given, const Initial& initial, ParameterRole role,
            SourceLocation where = SourceLocation::current())
      : ParameterBase({}, where, role), resources_(&mesh.core().template resources<Target>()),
        initial_(initial), shape_(given.shape),
        stored_(detail::TensorAccess::outline<Stored>(mesh.core(), stored_shape(given.shape))) {
    static_cast<void>(fits_mesh<stored_layout, typename Mesh::axis_list>);
    detail::check_shape(given.shape, sizeof(accumulation_element), where);
    if constexpr (is_reproducible<Target>) // a product whose gradient sums over these axes
      detail::require_ordered_weight<Compute>(mesh.core(), where);
  }

  /// @brief A parameter with given values.
  /// @param weights in the accumulation_element; if the stored weights have another one, they are rounded,
  /// and the optimizer's block of the original is kept as the master copy
  Parameter(std::string name, ShardedTensor<stored_layout, accumulation_element, Target> weights,
            SourceLocation where = SourceLocation::current())
      : ParameterBase(std::move(name), where), resources_(&weights.resources()), shape_(weights.shape()),
        master_(master_of(weights)), stored_(narrowed(std::move(weights))) {}

  /// @throws LifecycleError while a GradAccumulator holds the gradient of either.
  Parameter(Parameter&&) = default;            // NOLINT(performance-noexcept-move-constructor)
  Parameter& operator=(Parameter&&) = default; // NOLINT(performance-noexcept-move-constructor)

  /// @brief Gives a parameter made by the first constructor its name and values. Collective over
  /// the mesh only in checked builds.
  /// @throws LifecycleError on a second call; InvalidArgument if the layout cuts a block of quantized
  /// weights.
  void initialize(const std::string& name, std::uint64_t seed) override {
    if (initialized())
      detail::reject_second_initialization(this->name(), name);
    if constexpr (quantized)
      detail::require_whole_blocks(core(), stored_layout::value, stored_layout::axes, shape(), name, where());
    const detail::MemoryFor memory(MemoryKind::parameters);
    ShardedTensor<stored_layout, accumulation_element, Target> weights(*resources_, shape(), where());
    if constexpr (!RealElement<Element>)
      return; // the sentence above says why
    else if (const RandomKey key{seed, initial_.key.value_or(detail::key_of(name))}; initial_.deviation > 0)
      fill_normal(weights, key, initial_.mean, initial_.deviation, where());
    else if (initial_.bound > 0)
      fill_uniform(weights, key, initial_.mean - initial_.bound, initial_.mean + initial_.bound, where());
    else
      fill(weights, {initial_.mean, where()});
    set_name(name);
    master_ = master_of(weights);
    stored_ = narrowed(std::move(weights));
  }
  [[nodiscard]] bool initialized() const noexcept { return stored_.valid(); }

  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  /// @brief Pool and execution instance.
  [[nodiscard]] detail::TargetResources<Target>& resources() const noexcept { return *resources_; }
  /// @brief The weights as stored, to be read: fill_weights() sets and update_weights() changes them, with
  /// the master copy.
  [[nodiscard]] const Stored& stored() const noexcept { return stored_; }
  /// @brief The optimizer's block of the weights in the element type of gradients; empty if the stored
  /// weights have that type.
  [[nodiscard]] const std::optional<GradientTensor>& master() const noexcept { return master_; }

  void start_gather() override {
    if (!initialized())
      detail::reject_unlisted(where(), detail::LayoutText<Compute>::value);
    weight_.start(stored_, where());
  }
  void finish_gather() override { weight_.finish(); }
  void release() override { weight_.release(); }
  /// @brief The weights as operations read them; quantized ones are widened into memory of their own.
  /// @throws LifecycleError if they are not gathered.
  [[nodiscard]] auto weight() const -> std::conditional_t<quantized, Weight, const Weight&> {
    if (!weight_.tensor().valid())
      detail::reject_parameter(
          name(),
          ": the weights must be gathered before they are read (call start_gather() and finish_gather(), and release() after the use)");
    if constexpr (quantized) {
      const detail::MemoryFor memory(MemoryKind::gathered_weights);
      return widen<Form, Element>(weight_.tensor(), where()).share();
    } else {
      return weight_.tensor();
    }
  }

  /// @brief Its gradient. @throws LifecycleError if no GradAccumulator holds one.
  [[nodiscard]] detail::ParameterGradient<gradient_element, Target>& gradient_state() const {
    static_assert(sizeof(detail::TrainedParameter<Parameter>) > 0);
    return static_cast<detail::ParameterGradient<gradient_element, Target>&>(this->held_gradient());
  }
  /// @brief Where a microbatch adds its raw gradient; the first gradient overwrites.
  /// @throws LifecycleError if no GradAccumulator holds the gradient, and after the step's last one, until
  /// restart() begins the next step.
  [[nodiscard]] Slot gradient_slot() {
    if (gradient_state().is_complete())
      detail::reject_parameter(
          name(),
          ": the step's gradient is complete, and nothing may be added to it (call restart() for the next step, and give PassPosition::last only to the step's last pass)");
    const bool first = !raw_.valid();
    const detail::MemoryFor memory(MemoryKind::gradients);
    if (first)
      raw_ = RawTensor(*resources_, shape());
    const auto beta = static_cast<accumulation_element>(first ? 0 : 1);
    if constexpr (is_reproducible<Target>)
      return {raw_, beta, &gradient_state().fault()};
    else
      return {raw_, beta};
  }
  [[nodiscard]] detail::BufferHandle take_raw_gradient() override {
    return raw_.valid() ? detail::TensorAccess::take_memory(std::move(raw_)) : detail::BufferHandle();
  }
  /// @brief The gradient of the summed loss, after GradAccumulator::finish. @throws LifecycleError before it.
  [[nodiscard]] GradientHandle gradient() const {
    return detail::TensorAccess::in_memory<GradientHandle>(gradient_state().finished(), shape());
  }
  /// @brief The transitions of its gradient on this mesh.
  [[nodiscard]] detail::GradientLayouts gradient_layouts() const {
    return {.over_shards = detail::transition_steps<Transition<raw_layout, reduced_layout>>,
            .over_rest = detail::transition_steps<Transition<reduced_layout, gradient_layout>>,
            .shape = shape(),
            .each_pass = reduces_each_microbatch,
            .replica = detail::replica_of(resources_->core(), gradient_layout::axes)};
  }

  /// @brief The weights of the optimizer's block, if they can be updated in place; stored weights of another
  /// element type must then become the rounded copy.
  struct InPlace {
    accumulation_element* weights;
    Element* rounded; ///< Null if the weights are the stored ones.
  };
  /// @brief The in-place block on a device; empty if an update needs a transition (use update_weights then).
  /// @throws LifecycleError while the weights are gathered.
  [[nodiscard]] std::optional<InPlace> in_place() {
    static_assert(!Target::host_accessible);
    static_assert(sizeof(detail::TrainedParameter<Parameter>) > 0);
    begin_write();
    if (!detail::bind_transition<Transition<state_layout, stored_layout>>(stored_.core()).trivial())
      return std::nullopt;
    if constexpr (has_master)
      return InPlace{master_->mutable_data(), stored_.mutable_data()};
    else
      return InPlace{stored_.mutable_data(), nullptr};
  }

  /// @brief Sets the weights: `fill(weights)` is called once, and writes every element of a tensor in the
  /// stored layout and the accumulation_element, from which stored weights and master copy follow. Collective
  /// over the mesh only in checked builds.
  ///
  /// Cost: one tensor in that layout, if the stored weights have another element type, and no master copy is
  /// in that layout.
  /// @throws LifecycleError while the weights are gathered, and before initialize().
  template <class Fill> void fill_weights(Fill fill) {
    begin_write();
    if constexpr (has_master) {
      if constexpr (std::is_same_v<state_layout, stored_layout>) {
        fill(*master_);
        narrow_into_stored(*master_);
      } else {
        const detail::MemoryFor memory(MemoryKind::parameters);
        ShardedTensor<stored_layout, accumulation_element, Target> weights(*resources_, shape(), where());
        fill(weights);
        redistribute_into(weights, *master_);
        narrow_into_stored(weights);
      }
    } else if constexpr (!std::is_same_v<accumulation_element, stored_element>) {
      const detail::MemoryFor memory(MemoryKind::parameters);
      ShardedTensor<stored_layout, accumulation_element, Target> weights(*resources_, shape(), where());
      fill(weights);
      narrow_into_stored(weights);
    } else {
      fill(stored_);
    }
  }
  /// @brief Sets quantized weights as they are stored: `fill(words)` writes those of a tensor in the stored
  /// layout, such as those of a checkpoint.
  /// @throws as fill_weights
  template <class Fill> void fill_stored(Fill fill) requires(quantized) {
    begin_write();
    fill(stored_);
  }

  /// @brief Changes the weights: calls `change(weights)` with those of the optimizer's block, in its element
  /// type, and redistributes them to the stored layout; on a device, into their existing memory, where
  /// captured kernels find them in every step. Collective if the layouts differ.
  /// @throws LifecycleError while the weights are gathered, and before initialize().
  template <class Change> void update_weights(Change change) {
    static_assert(sizeof(detail::TrainedParameter<Parameter>) > 0);
    begin_write();
    const detail::MemoryFor memory(MemoryKind::parameters);
    if constexpr (has_master) {
      change(*master_);
      narrow_into_stored(*master_);
    } else if constexpr (std::is_same_v<state_layout, stored_layout>) {
      change(stored_);
    } else if constexpr (!Target::host_accessible) {
      ShardedTensor<state_layout, Element, Target> slice(stored_.resources(), stored_.shape());
      redistribute_into(stored_, slice);
      change(slice);
      redistribute_into(slice, stored_);
    } else {
      auto slice = redistribute<state_layout>(std::move(stored_));
      change(slice);
      stored_ = redistribute<stored_layout>(std::move(slice));
    }
  }

private:
  using Master = std::optional<GradientTensor>;

  [[nodiscard]] detail::ParameterType type() const noexcept override {
    return {detail::LayoutText<Compute>::value, detail::LayoutText<Raw>::value,
            element_type_of<stored_element>(), stored_.shape(), resources_->core()};
  }

  /// The shape of the stored weights.
  [[nodiscard]] static Shape stored_shape(const Shape& shape) {
    if constexpr (quantized)
      return detail::words_shape<Form, stored_layout>(shape);
    else
      return shape;
  }
  /// Weights with the stored element.
  template <class Weights> [[nodiscard]] static auto narrowed(Weights&& weights) {
    if constexpr (quantized)
      return quantize<Form>(weights);
    else
      return convert<Element>(std::forward<Weights>(weights));
  }
  [[nodiscard]] static Master
  master_of(const ShardedTensor<stored_layout, accumulation_element, Target>& weights) {
    [[maybe_unused]] const detail::MemoryFor memory(MemoryKind::master_weights);
    if constexpr (has_master)
      return redistribute<state_layout>(weights.clone());
    else
      return std::nullopt;
  }
  /// Rounds weights in any layout, on a device into the memory of the stored ones.
  template <class Weights> void narrow_into_stored(const Weights& weights) {
    if constexpr (Target::host_accessible)
      stored_ = redistribute<stored_layout>(narrowed(weights));
    else
      redistribute_into(convert<Element>(weights), stored_);
  }
  void begin_write() {
    if (!initialized())
      detail::reject_unlisted(where(), detail::LayoutText<Compute>::value);
    if (weight_.in_use())
      detail::reject_parameter(
          name(), ": the weights must not be updated while they are gathered (release() them first)");
    note_write();
  }

  detail::TargetResources<Target>* resources_;
  Initial initial_;
  Shape shape_;
  Master master_;
  Stored stored_;
  detail::WeightInUse<Compute, Stored> weight_;
  RawTensor raw_ = detail::TensorAccess::nothing<RawTensor>(); // of the microbatches so far
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
