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
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

/// @brief The name of an optimizer's state of a parameter: "optimizer/first_moment/layers.3.mlp.down".
[[nodiscard]] std::string state_name(std::string_view parameter, std::string_view state);

namespace detail {

/// @throws LifecycleError for a parameter of a model whose adapters are merged: nothing in a checkpoint says
/// that its weights contain them.
void require_unmerged(const ParameterBase& parameter);

/// This rank's place among the meshes that hold a parameter.
[[nodiscard]] Replica copy_of(const ParameterBase& parameter);

/// Whether an optimizer counts the steps of each parameter.
template <class Optimizer, class P>
concept CountsSteps = requires(Optimizer& optimizer, const P& parameter) {
  optimizer.set_parameter_steps(parameter, optimizer.parameter_steps(parameter));
};

/// A number of steps that a checkpoint holds for a parameter.
[[nodiscard]] std::int64_t steps_in(double steps, const std::string& parameter);

/// This rank's place among those of its mesh.
[[nodiscard]] Replica of_mesh(const ParameterBase& parameter);

/// A tensor of a checkpoint as the model or the optimizer holds it, during a visit. What a checkpoint does
/// with each is compiled once, not for every type of parameter.
class HeldState {
public:
  const std::string name;
  const safetensors::Dtype dtype;
  const std::span<const std::int64_t> shape;
  const bool required; ///< Whether every checkpoint must have it.

  virtual void stage(Staging& to) const = 0;
  /// The name under which a source has it, after checking its shape and element type.
  [[nodiscard]] virtual std::string require_of(const BlockSource& source, bool convert) const;
  virtual void read(const BlockSource& source, bool convert) const = 0;

protected:
  HeldState(std::string own, safetensors::Dtype type, std::span<const std::int64_t> extents,
            bool always = true)
      : name(std::move(own)), dtype(type), shape(extents), required(always) {}
  ~HeldState() = default;
};
using VisitHeld = std::function<void(const HeldState&)>;

template <class P> class HeldWeights final : public HeldState {
  /// Frozen weights have no master copy, and are saved as they are.
  using Saved = std::conditional_t<P::trained, typename P::accumulation_element, typename P::element>;

public:
  HeldWeights(P& parameter, const Replica& meshes)
      : HeldState(parameter.name(), safetensors::dtype_of<Saved>(), parameter.shape()), parameter_(parameter),
        meshes_(meshes) {}
  void stage(Staging& to) const override {
    if constexpr (P::has_master)
      to.add(name, *parameter_.master(), meshes_);
    else
      to.add(name, parameter_.stored(), meshes_);
  }
  void read(const BlockSource& source, bool convert) const override {
    // Frozen ones are widened and rounded back, which changes nothing if they were saved in their own type.
    if constexpr (!P::trained)
      static_cast<void>(source.require(name, dtype, unsigned_of(shape), convert));
    parameter_.fill_weights(
        [&](auto& weights) { read_tensor(source, name, weights, convert || !P::trained); });
  }

private:
  P& parameter_;
  const Replica& meshes_;
};

/// Quantized weights, which are saved as words: "NAME.nf4". Other weights are quantized as they are read.
template <class P>
requires(P::quantized) class HeldWeights<P> final : public HeldState {
public:
  HeldWeights(P& parameter, const Replica& meshes)
      : HeldState(parameter.name() + "." + std::string(P::Form::name),
                  safetensors::dtype_of<typename P::stored_element>(), parameter.stored().shape()),
        parameter_(parameter), meshes_(meshes) {}
  void stage(Staging& to) const override { to.add(name, parameter_.stored(), meshes_); }
  [[nodiscard]] std::string require_of(const BlockSource& source, bool convert) const override {
    if (source.holds(name))
      return HeldState::require_of(source, convert);
    static_cast<void>(source.require(parameter_.name(),
                                     safetensors::dtype_of<typename P::accumulation_element>(),
                                     unsigned_of(parameter_.shape()), true));
    return parameter_.name();
  }
  void read(const BlockSource& source, bool /*convert*/) const override {
    if (source.holds(name))
      parameter_.fill_stored([&](auto& words) { read_tensor(source, name, words); });
    else
      parameter_.fill_weights([&](auto& weights) { read_tensor(source, parameter_.name(), weights, true); });
  }

private:
  P& parameter_;
  const Replica& meshes_;
};

/// A state of the optimizer.
template <class Tensor> class HeldTensor final : public HeldState {
public:
  HeldTensor(const std::string& own, Tensor& tensor, const Replica& meshes)
      : HeldState(own, safetensors::dtype_of<typename Tensor::value_type>(), tensor.shape()), tensor_(tensor),
        meshes_(meshes) {}
  void stage(Staging& to) const override { to.add(name, tensor_, meshes_); }
  void read(const BlockSource& source, bool convert) const override {
    read_tensor(source, name, tensor_, convert);
  }

private:
  Tensor& tensor_;
  const Replica& meshes_;
};

/// Numbers that are no tensor, as a vector of F64.
class HeldNumbers final : public HeldState {
public:
  using Set = std::function<void(const std::vector<double>&)>;
  HeldNumbers(const std::string& own, std::vector<double> values, const Replica& replica, bool always,
              Set set);
  void stage(Staging& to) const override;
  void read(const BlockSource& source, bool convert) const override;

private:
  std::vector<double> values_;
  std::int64_t count_;
  Replica replica_;
  Set set_;
};

/// The number of steps of a parameter. Earlier versions saved one for all parameters.
void visit_steps(const ParameterBase& parameter, std::int64_t steps, const Replica& replica,
                 const VisitHeld& visit, const std::function<void(std::int64_t)>& set);

/// The weights of a parameter, then its optimizer state, if it is trained.
/// @param in_mesh this rank's place in the mesh
template <class P, class Optimizer>
void visit_held(P& parameter, Optimizer& optimizer, const Replica& in_mesh, const VisitHeld& visit) {
  require_unmerged(parameter);
  const Replica meshes = copy_of(parameter);
  visit(HeldWeights<P>(parameter, meshes));
  if constexpr (P::trained) {
    optimizer.for_each_state_made(parameter, [&]<class Tensor>(std::string_view state, Tensor& tensor) {
      visit(HeldTensor<Tensor>(state_name(parameter.name(), state), tensor, meshes));
    });
    if constexpr (CountsSteps<Optimizer, P>)
      visit_steps(parameter, optimizer.parameter_steps(parameter), in_mesh * meshes, visit,
                  [&](std::int64_t steps) { optimizer.set_parameter_steps(parameter, steps); });
  }
}

/// The numbers that parts keep beside their parameters. Every rank of a mesh holds them, and if several
/// meshes hold a unit, every rank of each.
/// @param in_mesh this rank's place in the mesh, for a unit without parameters
void visit_kept(const std::vector<shardwright::detail::ListedPart>& unit, Replica in_mesh,
                const VisitHeld& visit);

/// What a checkpoint does with each.
[[nodiscard]] VisitHeld stage_in(Staging& to);
[[nodiscard]] VisitHeld require_of(const BlockSource& source, bool convert, std::vector<std::string>& names);
[[nodiscard]] VisitHeld read_from(const BlockSource& source, bool convert);

/// Visits all tensors of a rank's share.
template <class Model, class Optimizer>
void for_each_held(Model& model, Optimizer& optimizer, const VisitHeld& visit) {
  static_assert(sizeof(shardwright::detail::StatesOf<Optimizer, Model>) > 0);
  Replica in_mesh;
  for_each_parameter(model, [&](auto& parameter) {
    in_mesh = of_mesh(parameter);
    visit_held(parameter, optimizer, in_mesh, visit);
  });
  if constexpr (requires { model.for_each_stage([](auto&) {}); }) {
    model.for_each_stage([&](auto& stage) {
      for (const auto& unit : stage.parts())
        visit_kept(unit, in_mesh, visit);
    });
  } else if constexpr (shardwright::detail::HasMembers<Model>) {
    std::vector<shardwright::detail::ListedPart> parts;
    shardwright::detail::list_parts(model, {}, parts);
    visit_kept(parts, in_mesh, visit);
  }
}

} // namespace detail

/// @brief Copies a rank's share of a model and of its optimizer's state; not collective.
///
/// Weights are saved in the element type of gradients: the master copy if there is one; frozen ones in their
/// own element type. The optimizer's number of steps is saved for each parameter, as "optimizer/steps/NAME"
/// in F64. A block that several ranks hold, within a mesh or, of a tied parameter, in several stages, is
/// written once.
/// @throws LifecycleError while the model's adapters are merged.
template <ParameterSet Model, class Optimizer> void stage(Model& model, Optimizer& optimizer, Staging& to) {
  detail::for_each_held(model, optimizer, detail::stage_in(to));
}

/// @brief The names of the tensors in a rank's share, after checking that each was saved with its shape and
/// element type; reads no data. Not collective.
/// @param convert whether another floating-point type may have been saved
/// @throws DataError naming a tensor that is missing, or of another shape or type; LifecycleError while the
/// model's adapters are merged.
template <ParameterSet Model, class Optimizer>
[[nodiscard]] std::vector<std::string> require_state(const BlockSource& source, Model& model,
                                                     Optimizer& optimizer, bool convert = false) {
  std::vector<std::string> names;
  detail::for_each_held(model, optimizer, detail::require_of(source, convert, names));
  return names;
}

/// @brief Fills a rank's share of a model and of its optimizer's state, whatever mesh, stages and sharding
/// they were saved from; not collective.
///
/// Low-precision weights are the saved weights, rounded as they were before the save. Checkpoints of earlier
/// versions hold one number of optimizer steps, in their description, for all parameters: call set_steps() of
/// the optimizer with it, as Training::resume() does.
/// @param convert whether another floating-point type may have been saved
/// @throws as require_state(), and DataError if data cannot be read: the model is then unusable.
template <ParameterSet Model, class Optimizer>
void read_state(const BlockSource& source, Model& model, Optimizer& optimizer, bool convert = false) {
  detail::for_each_held(model, optimizer, detail::read_from(source, convert));
}

#if !defined(SHARDWRIGHT_COMPILED_CHECKPOINTS)
SHARDWRIGHT_INLINE std::string state_name(std::string_view parameter, std::string_view state) {
  std::string out = "optimizer/" + std::string(state) + "/" + std::string(parameter);
  std::replace(out.begin(), out.end(), ' ', '_');
  return out;
}

namespace detail {

SHARDWRIGHT_INLINE void require_unmerged(const ParameterBase& parameter) {
  if (parameter.merged())
    throw LifecycleError(
        "checkpoint: the adapters of a model must not be merged while it is saved or read, but those of the model of " +
        parameter.name() + " are (call unmerge_adapters first)");
}

SHARDWRIGHT_INLINE Replica copy_of(const ParameterBase& parameter) {
  const HostCommunicator& copies = parameter.copies();
  if (!copies.valid())
    return {};
  return {static_cast<std::uint64_t>(copies.rank()), static_cast<std::uint64_t>(copies.size())};
}

SHARDWRIGHT_INLINE std::int64_t steps_in(double steps, const std::string& parameter) {
  if (!(steps >= 0 && steps < 9e15)) // exact in a double
    throw DataError("checkpoint: " + state_name(parameter, "steps") +
                    " must be a number of steps, but it is " + std::to_string(steps));
  return static_cast<std::int64_t>(steps);
}

SHARDWRIGHT_INLINE Replica of_mesh(const ParameterBase& parameter) {
  const HostCommunicator& mesh = parameter.core().world();
  return {static_cast<std::uint64_t>(mesh.rank()), static_cast<std::uint64_t>(mesh.size())};
}

SHARDWRIGHT_INLINE HeldNumbers::HeldNumbers(const std::string& own, std::vector<double> values,
                                            const Replica& replica, bool always, Set set)
    : HeldState(own, safetensors::Dtype::f64, std::span(&count_, 1), always), values_(std::move(values)),
      count_(static_cast<std::int64_t>(values_.size())), replica_(replica), set_(std::move(set)) {}

SHARDWRIGHT_INLINE void HeldNumbers::stage(Staging& to) const { to.add(name, values_, replica_); }

SHARDWRIGHT_INLINE void HeldNumbers::read(const BlockSource& source, bool /*convert*/) const {
  std::vector<double> values(values_.size());
  source.read(name, {{0}, {values.size()}}, std::as_writable_bytes(std::span(values)));
  set_(values);
}

SHARDWRIGHT_INLINE void visit_steps(const ParameterBase& parameter, std::int64_t steps,
                                    const Replica& replica, const VisitHeld& visit,
                                    const std::function<void(std::int64_t)>& set) {
  visit(HeldNumbers(
      state_name(parameter.name(), "steps"), {static_cast<double>(steps)}, replica, false,
      [&](const std::vector<double>& values) { set(steps_in(values.front(), parameter.name())); }));
}

SHARDWRIGHT_INLINE void visit_kept(const std::vector<shardwright::detail::ListedPart>& unit, Replica in_mesh,
                                   const VisitHeld& visit) {
  Replica meshes;
  for (const auto& each : unit)
    if (each.parameter != nullptr && !each.tied) {
      in_mesh = of_mesh(*each.parameter); // The model may list none of them, if all are frozen.
      meshes = copy_of(*each.parameter);
    }
  for (const auto& each : unit) {
    if (each.parameter != nullptr)
      continue;
    std::vector<PartState> state = each.part->state();
    for (PartState& kept : state)
      visit(HeldNumbers(each.path + "." + std::string(kept.name), kept.values, in_mesh * meshes, true,
                        [&](const std::vector<double>& values) {
                          kept.values = values;
                          each.part->set_state(state);
                        }));
  }
}

SHARDWRIGHT_INLINE std::string HeldState::require_of(const BlockSource& source, bool convert) const {
  static_cast<void>(source.require(name, dtype, unsigned_of(shape), convert));
  return name;
}

SHARDWRIGHT_INLINE VisitHeld stage_in(Staging& to) {
  return [&to](const HeldState& each) { each.stage(to); };
}

SHARDWRIGHT_INLINE VisitHeld require_of(const BlockSource& source, bool convert,
                                        std::vector<std::string>& names) {
  return [&source, convert, &names](const HeldState& each) {
    if (!each.required && !source.holds(each.name))
      return;
    names.push_back(each.require_of(source, convert));
  };
}

SHARDWRIGHT_INLINE VisitHeld read_from(const BlockSource& source, bool convert) {
  return [&source, convert](const HeldState& each) {
    if (each.required || source.holds(each.name))
      each.read(source, convert);
  };
}

} // namespace detail
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
