// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Compares the numbers of an optimizer between ranks: those of a step, and those of each parameter.

#include <shardwright/mesh/agreement.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/optimizer/states.hpp>

#include <span>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

template <class Optimizer>
concept GivesNumbers = requires(const Optimizer& optimizer) {
  std::span<const GivenNumber>(optimizer.numbers());
};
template <class Optimizer>
concept GivesNumbersOfParameters = requires(const Optimizer& optimizer, const ParameterInfo& parameter) {
  std::span<const GivenNumber>(optimizer.numbers_of(parameter));
};

/// The numbers of an optimizer's step that are the same for all parameters.
template <class Optimizer>
[[nodiscard]] std::vector<GivenNumber> numbers_of_step(const Optimizer& optimizer, double learning_rate) {
  std::vector<GivenNumber> out{GivenNumber("learning rate", learning_rate)};
  if constexpr (GivesNumbers<Optimizer>)
    for (const GivenNumber& number : optimizer.numbers())
      out.push_back(number);
  return out;
}

/// Compares these, and the numbers of each parameter, between the ranks of every mesh with parameters: the
/// stages of a pipeline have different ones. Collective over each such mesh, unless there are no numbers.
/// @throws ConfigurationMismatch on every rank of the mesh.
template <class Model, class Optimizer>
void agree_on_parameters(Model& model, const Optimizer& optimizer, std::string_view name,
                         std::span<const GivenNumber> of_step, SourceLocation where) {
  const MeshCore* mesh = nullptr;
  std::vector<GivenNumber> given;
  const auto compare = [&] {
    if (mesh != nullptr && !given.empty())
      require_agreement(*mesh, name, given, no_axes, where);
  };
  ParameterList trained;
  for_each_trained_parameter(model, trained);
  for (const ParameterBase* const parameter : trained.all) {
    if (mesh != &parameter->core()) {
      compare();
      mesh = &parameter->core();
      given.assign(of_step.begin(), of_step.end());
    }
    if constexpr (GivesNumbersOfParameters<Optimizer>)
      for (GivenNumber number : optimizer.numbers_of(
               ParameterInfo{parameter->name(), parameter->dimensions(), parameter->role()})) {
        number.of = parameter->name();
        given.push_back(number);
      }
  }
  compare();
}

/// Compares all numbers of an optimizer: those of a step over all ranks of a model, which may have several
/// meshes, and those of its parameters. Collective over `ranks`.
/// @throws ConfigurationMismatch naming both numbers and their ranks.
template <class Model, class Optimizer>
void agree_on_optimizer(Model& model, const Optimizer& optimizer, const HostCommunicator& ranks,
                        double learning_rate, SourceLocation where) {
  require_agreement(ranks, "Training", numbers_of_step(optimizer, learning_rate), where);
  agree_on_parameters(model, optimizer, "Training", {}, where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
