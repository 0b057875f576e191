// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Low-rank adapters over an existing model, chosen by the paths of its layers.

#include <shardwright/nn/layers/adapter.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/pipeline/model_parts.hpp>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Calls visit(module, path) with each module below a part that can have an adapter.
template <class Type, class Visitor>
void visit_adaptable(Type& part, const std::string& path, const Visitor& visit) {
  if constexpr (requires(const LoraOptions& options, AddedAdapters& added) {
                  part.adapt(options, path, added);
                })
    visit(part, path);
  else if constexpr (is_parameter<Type> || is_tied<Type>)
    return;
  else if constexpr (HasMembers<Type>)
    part.members().each(
        [&](std::string_view name, auto& member) { visit_adaptable(member, path_below(path, name), visit); });
  else if constexpr (ModuleRange<Type>) {
    std::size_t number = 0;
    for (auto& each : part)
      visit_adaptable(each, path_below(path, std::to_string(number++)), visit);
  } else if constexpr (ModulePointer<Type>) {
    if (part)
      visit_adaptable(*part, path, visit);
  }
}

/// Finds a module that can have an adapter among types.
struct FindsAdaptable {
  bool* found;
  template <class Type> constexpr bool operator()(const Type*) const {
    if constexpr (requires(Type & module, const LoraOptions& options, const std::string& path,
                           AddedAdapters& added) { module.adapt(options, path, added); })
      *found = true;
    return !*found;
  }
  template <class Model> [[nodiscard]] static constexpr bool in() {
    bool out = false;
    const FindsAdaptable look{&out};
    if constexpr (requires { typename Model::Parts; })
      PartHolders<typename Model::Parts>::visit_types(
          [look]<class Holder>(const Holder*) { visit_module_types<typename Holder::type>(look); });
    else
      visit_module_types<Model>(look);
    return out;
  }
};
/// Checks that a model has such a module, with an error sentence if not.
template <class Model> struct AdaptableModel {
  static constexpr bool value = FindsAdaptable::in<Model>();
  static_assert(
      value,
      "Lora: adapters are added beside frozen weights, but no linear layer of this model has any (give the model FrozenLayouts, or a plan with Frozen<Zero>)");
};

/// Parts of one rank that get adapters, and the uses of the parameters that they tie. An adapter belongs to
/// one use: merged into the table, it would change the others, too.
class AdaptedParts {
public:
  /// Adds adapters to the modules below a part, all or none; returns how many.
  /// @throws InvalidArgument if one of them has a tied table that is used elsewhere, in this part or before.
  template <class Part> std::size_t add(Part& part, const std::string& path, const LoraOptions& options) {
    AddedAdapters added;
    try {
      return add(part, path, options, added);
    } catch (...) {
      for (const auto& take_out : added)
        take_out();
      throw;
    }
  }

private:
  template <class Part>
  std::size_t add(Part& part, const std::string& path, const LoraOptions& options, AddedAdapters& added) {
    std::size_t count = 0;
    std::set<const ParameterBase*> adapted;
    visit_adaptable(part, path, [&](auto& module, const std::string& of_module) {
      const std::size_t own = module.adapt(options, of_module, added);
      if (own > 0)
        adapted.insert(&module.weight());
      count += own;
    });
    std::vector<ListedPart> parts;
    list_parts(part, path, parts);
    for (const ListedPart& each : parts)
      if (each.tied)
        note(each, adapted.count(each.parameter) > 0);
    return count;
  }

  struct Uses {
    int count = 0;
    bool adapted = false;
  };
  void note(const ListedPart& tied, bool adapted) {
    Uses& uses = ties_[tied.parameter];
    ++uses.count;
    uses.adapted = uses.adapted || adapted;
    if (uses.adapted && uses.count > 1)
      throw InvalidArgument(
          "Lora: tables that get adapters must not be tied, but parts of this model share " + tied.path +
          " (adapt the other layers, without LoraOptions::tables, or untie the table)");
  }

  std::map<const ParameterBase*, Uses> ties_;
};

/// Uses of one table may be on several ranks of a pipeline, each of which adapts its own.
/// @throws InvalidArgument, on all ranks, if the whole model has another use of a table that gets an adapter.
template <class Model, class Mesh, class Config>
void require_tables_apart(const Mesh& mesh, const Config& config) {
  SharedParts shared; // their parameters have no memory yet
  AdaptedParts adapted;
  PartHolders<typename Model::Parts>::visit_types([&]<class Holder>(const Holder*) {
    using Part = typename Holder::type;
    for (std::size_t i = 0; i < Holder::count(config); ++i)
      if (!ties_of<Part>(config).empty()) {
        Part part(ModelPlace<Mesh>{mesh, shared, i}, config);
        adapted.add(part, Holder::name(i), config.adapters);
      }
  });
}

/// Whether a model is one of stages, each of which may have adapters or none.
template <class Model> inline constexpr bool is_staged = requires(Model& model) {
  model.for_each_stage(VisitsAnything{});
};
/// Checks that a model can have adapters to exchange, with an error sentence if not.
template <class Model> struct ModelWithAdapters {
  static constexpr bool value = [] {
    if constexpr (is_staged<Model>)
      return AddsAdapters<std::remove_cvref_t<decltype(std::declval<Model&>().config())>>;
    else
      return FindsAdaptable::in<Model>();
  }();
  static_assert(
      value,
      "Lora: values must be exchanged with those of adapters, but no layer of this model can have any (make a model of Adapted<Model>, or adapt() a module with frozen weights)");
};

/// Merges the adapters of all layers, or takes them out.
template <class Model> void set_merged(Model& model, bool merged) {
  const auto set = [merged](auto& module, const std::string&) { module.merge_adapter(merged); };
  if constexpr (is_staged<Model>)
    model.for_each_stage([&](auto& stage) {
      stage.for_each_unit([&](auto& part, const std::string& name) { visit_adaptable(part, name, set); });
    });
  else
    visit_adaptable(model, {}, set);
  // All of them, so that every rank refuses a checkpoint, those without adapters too.
  for (ParameterBase* parameter : parameters_of(model))
    parameter->set_merged(merged);
}

} // namespace detail

template <class Part> std::size_t LoraOptions::add_to(Part& part, const std::string& path) const {
  return detail::AdaptedParts().add(part, path, *this);
}

/// @brief A model with low-rank adapters: `SingleStageModel<Adapted<Model>>` or PipelineModel, with a Config
/// that has the Model's members and `adapters`.
///
/// The weights of `Model` must be Frozen, as by FrozenLayouts: its text is the same. Every Linear layer that
/// `adapters.matches` chooses computes y = x W + factor (x A) B. Both summands have one layout, Partial
/// included, so one transition completes their sum; on a Reproducible target x W and x A are completed
/// before. Adapters are parameters "PATH.lora.a" and "PATH.lora.b", whose initial values depend on path and
/// seed only.
template <class Model> struct Adapted : Model {
  static_assert(sizeof(detail::AdaptableModel<Model>) > 0);
  struct Config : Model::Config {
    LoraOptions adapters;
  };
  template <class Mesh> static void check(const Mesh& mesh, const Config& config) {
    detail::check_model<Model>(mesh, config);
    if (config.adapters.tables)
      detail::require_tables_apart<Model>(mesh, config);
  }
};

/// @brief Adds adapters to the modules of a model that is not in stages, before initialize().
/// @param path of the model itself; empty for a whole one
/// @return how many
/// @throws InvalidArgument if no module is chosen, for a rank below 1, or for a tied table that the model
/// uses elsewhere, too. The model is then as it was.
template <class Model>
std::size_t adapt(Model& model, const LoraOptions& options, const std::string& path = {}) {
  static_assert(sizeof(detail::AdaptableModel<Model>) > 0);
  const std::size_t count = options.add_to(model, path);
  LoraOptions::require_some(count);
  return count;
}

/// @brief Adds every adapter to the weights of its layer, W + factor A B: the model then computes without
/// adapters, and no checkpoint saves or reads it until they are taken out. Low-precision weights are rounded
/// again. Collective; cost: A B and its transition to the stored layout, one layer after the other.
/// @throws LifecycleError if they are merged already.
template <class Model> void merge_adapters(Model& model) { detail::set_merged(model, true); }
/// @brief Takes them out again, up to rounding. @throws LifecycleError if they are not merged.
template <class Model> void unmerge_adapters(Model& model) { detail::set_merged(model, false); }

/// @brief Values of a model's adapters beside those that it computes with: several adapters over one base, to
/// be served or trained in turn. They have the same sizes and layers.
template <class Model> class OtherAdapters {
  static_assert(sizeof(detail::ModelWithAdapters<Model>) > 0);

public:
  /// @brief Begins as a copy of the model's. @throws InvalidArgument if it has none, and is not in stages.
  explicit OtherAdapters(Model& model) {
    each(model, [this](auto& parameter) {
      parameter.update_weights([&](auto& weights) {
        values_.push_back({text_of(parameter), detail::TensorAccess::take_memory(weights.clone())});
      });
    });
    if (!detail::is_staged<Model> && values_.empty())
      throw InvalidArgument(
          "Lora: values must be exchanged with those of adapters, but this model has none yet (call adapt() first)");
  }
  /// @brief Exchanges them with the model's. Collective if optimizer states are in another layout. Costs no
  /// copy of the base, and none of adapters that are stored as the optimizer updates them.
  ///
  /// An optimizer keeps its moments, and a step that was captured on a device the addresses of values, which
  /// are exchanged: give each adapter that is trained a Training of its own.
  /// @throws LifecycleError for merged adapters, InvalidArgument before the first is exchanged if the model
  /// has others, or is on another mesh.
  void exchange(Model& model) {
    require_same(model);
    auto value = values_.begin();
    each(model, [&value](auto& parameter) {
      parameter.update_weights([&value]<class Weights>(Weights& weights) {
        auto other = detail::TensorAccess::in_memory<Weights>(std::move(value->memory), weights.shape());
        std::swap(other, weights);
        value->memory = detail::TensorAccess::take_memory(std::move(other));
      });
      ++value;
    });
  }

private:
  struct Value {
    std::string text; ///< Name and shape of the parameter.
    detail::BufferHandle memory;
  };

  /// Visits A and B of each adapter.
  template <class Visit> static void each(Model& model, const Visit& visit) {
    for_each_trained_parameter(model, [&](auto& parameter) {
      if (!parameter.name().ends_with(".lora.a") && !parameter.name().ends_with(".lora.b"))
        return;
      if (parameter.merged())
        throw LifecycleError(
            "Lora: adapters must be taken out of the weights before they are exchanged, but " +
            parameter.name() + " is merged (call unmerge_adapters first)");
      visit(parameter);
    });
  }
  template <class P> [[nodiscard]] static std::string text_of(const P& parameter) {
    return parameter.name() + " " + detail::text_of(parameter.shape());
  }

  void require_same(Model& model) const {
    auto value = values_.begin();
    each(model, [&](auto& parameter) {
      const std::string text = text_of(parameter);
      if (value == values_.end())
        reject(text, "none");
      if (text != value->text)
        reject(text, value->text);
      if (&value->memory.pool() != &parameter.resources())
        reject(text + " on another mesh", "it on theirs");
      ++value;
    });
    if (value != values_.end())
      reject("none", value->text);
  }
  [[noreturn]] static void reject(const std::string& found, const std::string& kept) {
    throw InvalidArgument(
        "Lora: values must be exchanged with a model of the same adapters on the same mesh, but it has " +
        found + " where they have " + kept +
        " (give the model the mesh and the LoraOptions of the one that they began with)");
  }

  std::vector<Value> values_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
