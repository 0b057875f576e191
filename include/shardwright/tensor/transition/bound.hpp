// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The steps of a transition that are needed on one mesh.

#include <shardwright/layout/transition_runtime.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/local_extents.hpp>
#include <shardwright/tensor/transition/step_geometry.hpp>

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A transition bound to the extents and coordinates of its axes.
struct BoundTransition {
  AxisBinding binding;
  std::span<const TransitionStep> steps;
  int effective = 0;                     ///< Steps that do something on this mesh.
  const TransitionStep* first = nullptr; ///< The first one of them.
  bool has_trivial_axis = false;         ///< Whether a step names an axis of extent 1.

  /// Whether the transition does nothing here, so that the memory may be shared.
  [[nodiscard]] bool trivial() const noexcept { return effective == 0; }
  /// Whether it is one collective.
  [[nodiscard]] bool is_one_call() const noexcept { return effective == 1 && is_collective(first->kind); }
  /// Whether it is a single all_reduce, which may overwrite its input.
  [[nodiscard]] bool is_all_reduce() const noexcept {
    return effective == 1 && first->kind == StepKind::all_reduce;
  }
  /// Replaces the steps by steps that are all effective.
  void use(std::span<const TransitionStep> narrowed) noexcept {
    steps = narrowed;
    effective = static_cast<int>(narrowed.size());
    first = narrowed.data();
    has_trivial_axis = false;
  }
};

[[nodiscard]] inline bool does_something(const TransitionStep& step, const AxisBinding& binding) noexcept {
  for (const int axis : step.axes)
    if (binding.extents[static_cast<std::size_t>(axis)] != 1)
      return true;
  return false;
}

/// The cheapest steps at the mesh's extents, with the layouts around them.
[[nodiscard]] std::vector<TransitionStep> steps_at(const AxisBinding& binding, const LayoutValue& from,
                                                   const LayoutValue& to);

inline void count_steps(BoundTransition& bound) noexcept {
  for (const TransitionStep& step : bound.steps) {
    bool does = false;
    for (const int axis : step.axes)
      (bound.binding.extents[static_cast<std::size_t>(axis)] == 1 ? bound.has_trivial_axis : does) = true;
    if (does && bound.effective++ == 0)
      bound.first = &step;
  }
}

/// A Transition as a value, so that the code that executes transitions is compiled only once.
struct TransitionSteps {
  std::span<const std::string_view> axes;
  std::span<const TransitionStep> steps;
  const LayoutValue* from;
  const LayoutValue* to;
  unsigned model_axes; ///< Those of `axes` that divide the model.
};
template <class Steps>
inline constexpr TransitionSteps transition_steps{Steps::axes, Steps::steps, &Steps::from_value,
                                                  &Steps::to_value,
                                                  model_axes_of(typename Steps::axis_list{})};

[[nodiscard]] BoundTransition bind_transition(MeshCore& core, const TransitionSteps& table);
template <class Steps> [[nodiscard]] BoundTransition bind_transition(MeshCore& core) {
  return bind_transition(core, transition_steps<Steps>);
}

/// The call of a transition that is a single collective on this mesh, for reuse; empty for any other
/// transition.
/// @param where the line of the program that the calls are for
[[nodiscard]] std::optional<PreparedCollective> single_call(MeshCore& core, const TransitionSteps& table,
                                                            std::span<const std::int64_t> shape,
                                                            SourceLocation where);

/// Elements of this rank's block of a tensor of `shape` in a layout of the table.
[[nodiscard]] inline std::size_t block_elements(const MeshCore& core, const TransitionSteps& table,
                                                const LayoutValue& layout,
                                                std::span<const std::int64_t> shape) {
  const AxisBinding binding = bind_axes(core, table.axes);
  std::size_t elements = 1;
  for (std::size_t d = 0; d < shape.size(); ++d)
    elements *= static_cast<std::size_t>(block_at(layout, d, binding, shape[d]).size);
  return elements;
}

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE std::vector<TransitionStep> steps_at(const AxisBinding& binding, const LayoutValue& from,
                                                        const LayoutValue& to) {
  std::vector<TransitionStep> steps;
  LayoutValue layout = without_trivial_axes(from, binding.extents);
  for (const TransitionMove& move : plan_transition(from, to, binding.extents)) {
    TransitionStep& step = steps.emplace_back();
    static_cast<TransitionMove&>(step) = move;
    step.before = layout;
    step.after = layout = apply(move, layout);
  }
  return steps;
}

SHARDWRIGHT_INLINE BoundTransition bind_transition(MeshCore& core, const TransitionSteps& table) {
  if (table.model_axes != 0) // a layout that no constructor has compared with the mesh
    require_model_axes(core, table.axes, table.model_axes);
  BoundTransition bound{bind_axes(core, table.axes), table.steps};
  count_steps(bound);
  // Dropping axes of extent 1 is enough for a single step; two steps may be a detour that only such an axis
  // required.
  if (bound.effective > 1 && bound.has_trivial_axis)
    bound.use(core.part<PlannedSteps>().find(
        bound.steps.data(), [&] { return steps_at(bound.binding, *table.from, *table.to); }));
  return bound;
}

SHARDWRIGHT_INLINE std::optional<PreparedCollective> single_call(MeshCore& core, const TransitionSteps& table,
                                                                 std::span<const std::int64_t> shape,
                                                                 SourceLocation where) {
  const BoundTransition bound = bind_transition(core, table);
  std::optional<PreparedCollective> out;
  if (bound.is_one_call()) {
    StepGeometry(*bound.first, bound.binding, shape).bind(out.emplace());
    out->call.where = where;
  }
  return out;
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
