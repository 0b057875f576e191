// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The state that optimizers keep for each parameter, and the settings that apply to it.

#include <shardwright/core/error.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/train/parameter.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The facts by which a parameter is assigned to a group.
struct ParameterInfo {
  std::string_view name; ///< Its path, such as "layers.3.down".
  int tensor_rank = 0;
  ParameterRole role = ParameterRole::weight;
};

/// @brief Parameters to which an optimizer applies settings of their own: the first group that matches
/// decides.
struct ParameterGroup {
  std::function<bool(const ParameterInfo&)> matches; ///< The same on all ranks.
  double weight_decay_factor = 1;
  double learning_rate_factor = 1;
};

/// @brief The usual groups: matrices and tables decay; gains, biases, of any number of dimensions, and other
/// vectors do not. What is called "bias" is one, also where its module does not say so.
[[nodiscard]] inline std::vector<ParameterGroup> decay_matrices() {
  return {{.matches =
               [](const ParameterInfo& parameter) {
                 const std::string_view last = parameter.name.substr(parameter.name.rfind('.') + 1);
                 return parameter.role == ParameterRole::weight && parameter.tensor_rank > 1 &&
                        last != "bias";
               }},
          {.matches = [](const ParameterInfo&) { return true; }, .weight_decay_factor = 0}};
}

namespace detail {

/// At most `count` tensors, in their place: for every type of tensor, a vector takes far longer to compile.
template <class Tensor, std::size_t count>
class StateTensors {
public:
  template <class... Arguments>
  Tensor& add(Arguments&&... arguments) {
    return tensors_[size_++].emplace(std::forward<Arguments>(arguments)...);
  }
  [[nodiscard]] Tensor& operator[](std::size_t i) noexcept { return *tensors_[i]; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

private:
  std::array<std::optional<Tensor>, count> tensors_;
  std::size_t size_ = 0;
};

/// Factors of an optimizer for one parameter, whatever its type.
struct StateFactors {
  virtual ~StateFactors() = default;
  double weight_decay_factor = 1;
  double learning_rate_factor = 1;

  /// Those of the first group that matches.
  void choose(const std::vector<ParameterGroup>& groups, const ParameterInfo& parameter) {
    for (const ParameterGroup& group : groups)
      if (group.matches(parameter)) {
        weight_decay_factor = group.weight_decay_factor;
        learning_rate_factor = group.learning_rate_factor;
        return;
      }
  }
};

} // namespace detail

/// @brief `count` tensors for each parameter, in the layout of its optimizer state and its main element; they
/// begin at zero.
template <std::size_t count>
class OptimizerStates {
public:
  template <class P>
  struct State final : detail::StateFactors {
    detail::StateTensors<typename P::GradientTensor, count> tensors;
  };

  explicit OptimizerStates(const std::array<std::string_view, count>& names) : names_(names) {}

  /// @brief The state of a parameter, made at its first use.
  /// @param kept how many of the tensors the optimizer needs, the first ones
  template <class P>
  [[nodiscard]] State<P>& of(const P& parameter, const std::vector<ParameterGroup>& groups,
                             std::size_t kept = count) {
    std::unique_ptr<detail::StateFactors>& place = place_of(parameter.number());
    if (place == nullptr) {
      const detail::MemoryFor memory(MemoryKind::optimizer_state);
      auto made = std::make_unique<State<P>>();
      for (std::size_t i = 0; i < kept; ++i)
        fill(made->tensors.add(parameter.resources(), parameter.shape()), typename P::main_element(0));
      made->choose(groups, {parameter.name(), P::tensor_rank, parameter.role()});
      place = std::move(made);
    }
    return static_cast<State<P>&>(*place);
  }

  /// @brief Calls visit(name, tensor) for what a parameter has; nothing before its first use.
  template <class P, class Visitor>
  void visit(const P& parameter, Visitor&& visitor) {
    const auto found = states_.find(parameter.number());
    if (found == states_.end())
      return;
    auto& tensors = static_cast<State<P>&>(*found->second).tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      visitor(names_[i], tensors[i]);
  }

private:
  // Out of line: the table's code is long, and stands in the update of every type of parameter.
  [[nodiscard, gnu::noinline]] std::unique_ptr<detail::StateFactors>& place_of(std::uint64_t number) {
    return states_[number];
  }

  std::array<std::string_view, count> names_;
  // By the parameter's number: another one may come to lie where it was.
  std::unordered_map<std::uint64_t, std::unique_ptr<detail::StateFactors>> states_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
