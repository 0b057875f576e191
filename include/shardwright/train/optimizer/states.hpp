// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The state that optimizers keep for each parameter, and its settings.

#include <shardwright/core/error.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/tensor/local_extents.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/tensor/transition/block_copy.hpp>
#include <shardwright/train/parameter.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The properties by which a parameter is assigned to a group.
struct ParameterInfo {
  std::string_view name; ///< Its path, such as "layers.3.down".
  int tensor_rank = 0;
  ParameterRole role = ParameterRole::weight;
};

/// @brief Which parameters belong to a group: a predicate, the same on all ranks.
class ParameterMatch {
public:
  /// @brief Rejects a group without one, with an error sentence.
  template <bool none = false> ParameterMatch() {
    static_assert(
        none,
        "ParameterGroup: a group must say which parameters belong to it (set matches; for all parameters, to [](const ParameterInfo&) { return true; })");
  }
  /// @throws InvalidArgument for an empty std::function.
  template <class Predicate>
  requires std::is_invocable_r_v<bool, const Predicate&, const ParameterInfo&>
  ParameterMatch(Predicate predicate) // NOLINT(google-explicit-constructor): written as a lambda
      : predicate_(std::move(predicate)) {
    if (!predicate_)
      throw InvalidArgument(
          "ParameterGroup: a group must say which parameters belong to it, but matches is an empty function (set it to a predicate)");
  }
  [[nodiscard]] bool operator()(const ParameterInfo& parameter) const { return predicate_(parameter); }

private:
  std::function<bool(const ParameterInfo&)> predicate_;
};

/// @brief Settings for a group of parameters: the first group that matches applies.
struct ParameterGroup {
  ParameterMatch matches;
  double weight_decay_factor = 1;
  double learning_rate_factor = 1;
};

/// @brief The factors of one parameter.
struct ParameterFactors {
  double weight_decay_factor = 1;
  double learning_rate_factor = 1;

  /// @brief The numbers that all ranks must give alike.
  [[nodiscard]] std::array<GivenNumber, 2> numbers() const {
    return {GivenNumber("weight decay factor", weight_decay_factor),
            GivenNumber("learning rate factor", learning_rate_factor)};
  }
};

namespace detail {
/// The index of the first group that matches a parameter; the number of groups if none does.
[[nodiscard]] std::size_t group_of(const std::vector<ParameterGroup>& groups, const ParameterInfo& parameter);
} // namespace detail

/// @brief The factors of the first group that matches a parameter; 1 if none does.
[[nodiscard]] ParameterFactors factors_of(const std::vector<ParameterGroup>& groups,
                                          const ParameterInfo& parameter);

/// @brief The usual groups: matrices and tables decay; gains, biases of any number of dimensions, and other
/// vectors do not. A parameter called "bias" is one, even if its module does not say so.
[[nodiscard]] std::vector<ParameterGroup> decay_matrices();

namespace detail {

/// The state of one parameter, independent of its type: blocks of `Number` like its gradient's, and the
/// factors of its group.
///
/// Kept as raw memory: compiling tensors for every type of parameter takes far longer.
template <std::size_t count> class OptimizerState : public ParameterFactors {
public:
  /// Updates of the parameter so far; empty if it has had none, and no checkpoint gave a number.
  std::optional<std::int64_t> steps;
  BufferHandle device_step; ///< The device's own kernels::OptimizerStep, which continues `steps`.
  std::size_t group = 0;    ///< Index of the group whose factors it has.

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] BufferHandle& operator[](std::size_t i) noexcept { return blocks_[i]; }

  /// Makes `kept` blocks of zeros, and sets the factors of the first group that matches.
  template <class Number, class Target>
  [[gnu::noinline]] void make(TargetResources<Target>& resources, std::size_t elements, std::size_t kept,
                              const std::vector<ParameterGroup>& groups, const ParameterInfo& parameter) {
    group = group_of(groups, parameter);
    static_cast<ParameterFactors&>(*this) = factors_of(groups, parameter);
    const MemoryFor memory(MemoryKind::optimizer_state);
    for (; size_ < kept; ++size_) {
      blocks_[size_] = new_block<Number>(resources, elements);
      fill_zero<Target>(resources.execution(), static_cast<Number*>(blocks_[size_].data()), elements);
    }
    made_ = true;
  }
  [[nodiscard]] bool made() const noexcept { return made_; }

private:
  std::array<BufferHandle, count> blocks_;
  std::size_t size_ = 0;
  bool made_ = false;
};

} // namespace detail

/// @brief `count` tensors for each parameter, in the layout of its optimizer state and its
/// accumulation_element; initially zero.
template <std::size_t count> class OptimizerStates {
public:
  using State = detail::OptimizerState<count>;

  explicit OptimizerStates(const std::array<std::string_view, count>& names) : names_(names) {}

  /// @brief The state of a parameter, created at its first use.
  /// @param kept how many of the tensors, from the first, the optimizer needs
  template <class P>
  [[nodiscard]] State& of(const P& parameter, const std::vector<ParameterGroup>& groups,
                          std::size_t kept = count) {
    static_assert(sizeof(detail::TrainedParameter<P>) > 0);
    State& state = entry(parameter);
    if (!state.made()) {
      auto& resources = parameter.resources();
      const auto block =
          detail::local_shape_of<typename P::state_layout>(resources.core(), parameter.shape());
      state.template make<typename P::accumulation_element>(
          resources, detail::product(block), kept, groups,
          {parameter.name(), P::tensor_rank, parameter.role()});
    }
    return state;
  }

  /// @brief The same without creating the tensors.
  [[nodiscard]] State& entry(const ParameterBase& parameter) { return place_of(parameter.number()); }

  /// @brief Calls visit(state) with the state of every parameter, in any order.
  template <class Visitor> void for_each(const Visitor& visitor) {
    for (auto& [number, state] : states_)
      visitor(state);
  }
  /// @brief Calls visit(name, tensor) for each state of a parameter; nothing before its first use.
  template <class P, class Visitor> void visit(const P& parameter, Visitor&& visitor) {
    static_assert(sizeof(detail::TrainedParameter<P>) > 0);
    State* const state = known(parameter.number());
    for (std::size_t i = 0; state != nullptr && i < state->size(); ++i) {
      Lent<typename P::GradientTensor> lent((*state)[i], parameter.shape());
      visitor(names_[i], lent.tensor);
    }
  }

private:
  /// Temporarily wraps a block in a tensor that owns it.
  template <class Tensor> struct Lent {
    detail::BufferHandle& home;
    Tensor tensor;

    Lent(detail::BufferHandle& block, const typename Tensor::Shape& shape)
        : home(block), tensor(detail::TensorAccess::in_memory<Tensor>(std::move(block), shape)) {}
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    ~Lent() { home = detail::TensorAccess::take_memory(std::move(tensor)); }
  };

  // Out of line: the table's code is long, and would be in the update of every type of parameter.
  [[nodiscard, gnu::noinline]] State& place_of(std::uint64_t number) { return states_[number]; }
  [[nodiscard, gnu::noinline]] State* known(std::uint64_t number) {
    const auto found = states_.find(number);
    return found == states_.end() ? nullptr : &found->second;
  }

  std::array<std::string_view, count> names_;
  // By the parameter's number: another parameter may later have the same address.
  std::unordered_map<std::uint64_t, State> states_;
};

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE std::size_t detail::group_of(const std::vector<ParameterGroup>& groups,
                                                const ParameterInfo& parameter) {
  std::size_t group = 0;
  while (group < groups.size() && !groups[group].matches(parameter))
    ++group;
  return group;
}

SHARDWRIGHT_INLINE ParameterFactors factors_of(const std::vector<ParameterGroup>& groups,
                                               const ParameterInfo& parameter) {
  const std::size_t group = detail::group_of(groups, parameter);
  if (group == groups.size())
    return {};
  return {groups[group].weight_decay_factor, groups[group].learning_rate_factor};
}

SHARDWRIGHT_INLINE std::vector<ParameterGroup> decay_matrices() {
  return {{.matches =
               [](const ParameterInfo& parameter) {
                 const std::string_view last = parameter.name.substr(parameter.name.rfind('.') + 1);
                 return parameter.role == ParameterRole::weight && parameter.tensor_rank > 1 &&
                        last != "bias";
               }},
          {.matches = [](const ParameterInfo&) { return true; }, .weight_decay_factor = 0}};
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
