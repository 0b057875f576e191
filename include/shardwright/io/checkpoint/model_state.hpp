// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A model with its optimizer's state as the tensors of a checkpoint, with the same names and shapes
/// on every mesh.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/io/checkpoint/block.hpp>
#include <shardwright/io/checkpoint/staged_block.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/optimizer/optimizer_for.hpp>
#include <shardwright/train/parameter_base.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

/// @brief The name of an optimizer's state of a parameter: "optimizer/first_moment/layers.3.mlp.down".
[[nodiscard]] inline std::string state_name(std::string_view parameter, std::string_view state) {
  std::string out = "optimizer/" + std::string(state) + "/" + std::string(parameter);
  std::replace(out.begin(), out.end(), ' ', '_');
  return out;
}

namespace detail {

/// This rank's place among the meshes that hold a parameter.
[[nodiscard]] inline Replica copy_of(const ParameterBase& parameter) {
  const HostCommunicator& copies = parameter.copies();
  if (!copies.valid())
    return {};
  return {static_cast<std::uint64_t>(copies.rank()), static_cast<std::uint64_t>(copies.size())};
}

/// Whether an optimizer counts the steps of each parameter.
template <class Optimizer, class P>
concept CountsSteps = requires(Optimizer& optimizer, const P& parameter) {
  optimizer.set_parameter_steps(parameter, optimizer.parameter_steps(parameter));
};

/// The number of steps that a checkpoint holds under that name.
[[nodiscard]] inline std::int64_t steps_in(const BlockSource& source, const std::string& name) {
  double steps = 0;
  source.read(name, {{0}, {1}}, std::as_writable_bytes(std::span(&steps, 1)));
  if (!(steps >= 0 && steps < 9e15)) // exact in a double
    throw DataError("checkpoint: " + name + " must be a number of steps, but it is " + std::to_string(steps));
  return static_cast<std::int64_t>(steps);
}

/// This rank's place among those of its mesh.
template <class P> [[nodiscard]] Replica of_mesh(const P& parameter) {
  const HostCommunicator& mesh = parameter.resources().core().world();
  return {static_cast<std::uint64_t>(mesh.rank()), static_cast<std::uint64_t>(mesh.size())};
}

/// The name under which the steps of a parameter are saved; empty for an optimizer that does not count them.
// Functions, since clang looks up members of an optimizer in a generic lambda before it discards a branch.
template <class Optimizer, class P>
[[nodiscard]] std::string name_of_steps(const Optimizer&, const P& parameter) {
  return CountsSteps<Optimizer, P> ? state_name(parameter.name(), "steps") : std::string();
}
template <class Optimizer, class P>
void stage_steps(Optimizer& optimizer, const P& parameter, const Replica& meshes, Staging& to) {
  if constexpr (CountsSteps<Optimizer, P>)
    to.add(name_of_steps(optimizer, parameter), {static_cast<double>(optimizer.parameter_steps(parameter))},
           of_mesh(parameter) * meshes);
}
template <class Optimizer, class P>
void read_steps(const BlockSource& source, Optimizer& optimizer, const P& parameter) {
  if constexpr (CountsSteps<Optimizer, P>)
    if (const std::string name = name_of_steps(optimizer, parameter); source.holds(name))
      optimizer.set_parameter_steps(parameter, steps_in(source, name));
}

/// Calls visit(part, path, replica) for every part that keeps numbers beside its parameters. Every rank of a
/// mesh holds them, and if several meshes hold a unit, every rank of each.
template <class Visit>
void each_kept(const std::vector<shardwright::detail::ListedPart>& unit, const Replica& in_mesh,
               const Visit& visit) {
  Replica meshes;
  for (const auto& each : unit)
    if (each.parameter != nullptr && !each.tied)
      meshes = copy_of(*each.parameter);
  for (const auto& each : unit)
    if (each.parameter == nullptr)
      visit(*each.part, each.path, in_mesh * meshes);
}
template <class Model, class Visit> void for_each_kept(Model& model, const Visit& visit) {
  Replica in_mesh;
  for_each_parameter(model, [&](auto& parameter) { in_mesh = of_mesh(parameter); });
  if constexpr (requires { model.for_each_stage([](auto&) {}); }) {
    model.for_each_stage([&](auto& stage) {
      for (const auto& unit : stage.parts())
        each_kept(unit, in_mesh, visit);
    });
  } else if constexpr (shardwright::detail::HasMembers<Model>) {
    std::vector<shardwright::detail::ListedPart> parts;
    shardwright::detail::list_parts(model, {}, parts);
    each_kept(parts, in_mesh, visit);
  }
}

} // namespace detail

/// @brief Copies a rank's share of a model and of its optimizer's state; not collective.
///
/// Weights are saved in the element type of gradients: the master copy if there is one. The optimizer's
/// number of steps is saved for each parameter, as "optimizer/steps/NAME" in F64. A block that several ranks
/// hold, within a mesh or, of a tied parameter, in several stages, is written once.
template <ParameterSet Model, class Optimizer> void stage(Model& model, Optimizer& optimizer, Staging& to) {
  static_assert(sizeof(shardwright::detail::StatesOf<Optimizer, Model>) > 0);
  for_each_parameter(model, [&](auto& parameter) {
    const Replica meshes = detail::copy_of(parameter);
    if constexpr (std::remove_reference_t<decltype(parameter)>::has_master)
      to.add(parameter.name(), *parameter.master(), meshes);
    else
      to.add(parameter.name(), parameter.stored(), meshes);
    optimizer.for_each_state_made(parameter, [&](std::string_view name, const auto& state) {
      to.add(state_name(parameter.name(), name), state, meshes);
    });
    detail::stage_steps(optimizer, parameter, meshes, to);
  });
  detail::for_each_kept(model, [&](NamedPart& part, const std::string& path, const Replica& replica) {
    for (const PartState& each : part.state())
      to.add(path + "." + std::string(each.name), each.values, replica);
  });
}

/// @brief The names of the tensors in a rank's share, after checking that each was saved with its shape and
/// element type; reads no data. Not collective.
/// @param convert whether another floating-point type may have been saved
/// @throws DataError naming a tensor that is missing, or of another shape or type.
template <ParameterSet Model, class Optimizer>
[[nodiscard]] std::vector<std::string> require_state(const BlockSource& source, Model& model,
                                                     Optimizer& optimizer, bool convert = false) {
  static_assert(sizeof(shardwright::detail::StatesOf<Optimizer, Model>) > 0);
  std::vector<std::string> names;
  const auto require = [&](std::string name, safetensors::Dtype dtype,
                           const std::vector<std::uint64_t>& shape) {
    static_cast<void>(source.require(name, dtype, shape, convert));
    names.push_back(std::move(name));
  };
  for_each_parameter(model, [&](auto& parameter) {
    using Main = typename std::remove_reference_t<decltype(parameter)>::accumulation_element;
    const std::vector<std::uint64_t> shape = detail::unsigned_of(parameter.shape());
    require(parameter.name(), safetensors::dtype_of<Main>(), shape);
    optimizer.for_each_state_made(parameter, [&](std::string_view name, const auto&) {
      require(state_name(parameter.name(), name), safetensors::dtype_of<Main>(), shape);
    });
    if (std::string steps = detail::name_of_steps(optimizer, parameter);
        !steps.empty() && source.holds(steps))
      require(std::move(steps), safetensors::Dtype::f64, {1});
  });
  detail::for_each_kept(model, [&](NamedPart& part, const std::string& path, const Replica&) {
    for (const PartState& each : part.state())
      require(path + "." + std::string(each.name), safetensors::Dtype::f64, {each.values.size()});
  });
  return names;
}

/// @brief Fills a rank's share of a model and of its optimizer's state, whatever mesh, stages and sharding
/// they were saved from; not collective.
///
/// Low-precision weights are the saved weights, rounded as they were before the save. Checkpoints of earlier
/// versions hold one number of optimizer steps, in their description, for all parameters: call set_steps() of
/// the optimizer with it, as Training::resume() does.
/// @param convert whether another floating-point type may have been saved
/// @throws DataError as require_state(), and if data cannot be read: the model is then unusable.
template <ParameterSet Model, class Optimizer>
void read_state(const BlockSource& source, Model& model, Optimizer& optimizer, bool convert = false) {
  static_assert(sizeof(shardwright::detail::StatesOf<Optimizer, Model>) > 0);
  for_each_parameter(model, [&](auto& parameter) {
    parameter.fill_weights([&](auto& weights) { read_tensor(source, parameter.name(), weights, convert); });
    optimizer.for_each_state_made(parameter, [&](std::string_view name, auto& state) {
      read_tensor(source, state_name(parameter.name(), name), state, convert);
    });
    detail::read_steps(source, optimizer, parameter);
  });
  detail::for_each_kept(model, [&](NamedPart& part, const std::string& path, const Replica&) {
    std::vector<PartState> state = part.state();
    for (PartState& each : state)
      source.read(path + "." + std::string(each.name), {{0}, {each.values.size()}},
                  std::as_writable_bytes(std::span(each.values)));
    part.set_state(state);
  });
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
