// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The trainings and dry runs that a build holds.

#include <shardwright/mesh/buffer_pool.hpp>
#include <shardwright/nn/experts/report.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/step/report.hpp>

#include <algorithm>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace trainer {

/// @brief Called on every rank after each step, with the loads of a model with experts.
using OnStep =
    std::function<void(const shardwright::StepReport&, std::span<const shardwright::ExpertLoadReport>,
                       const shardwright::PoolStatistics&)>;

/// @brief The functions of a type that a build holds, one for each kind of training: a training takes half a
/// minute to compile, so each has a unit of its own, in which an object registers it.
template <class Kind, class Function> class Compiled {
public:
  Compiled(Kind kind, Function function) { entries().emplace_back(std::move(kind), function); }

  /// @brief Null if the build has none for the kind.
  [[nodiscard]] static Function find(const Kind& kind) {
    const auto found = std::find_if(entries().begin(), entries().end(),
                                    [&](const auto& entry) { return entry.first == kind; });
    return found != entries().end() ? found->second : nullptr;
  }
  [[nodiscard]] static std::vector<std::pair<Kind, Function>>& entries() {
    static std::vector<std::pair<Kind, Function>> all;
    return all;
  }
};

/// @brief The dry runs of a program's trainings, each of which counts a step as a rank of the mesh.
template <class Options>
using CompiledDryRun = Compiled<typename Options::Kind, shardwright::DryRun (*)(const Options&, int rank)>;

} // namespace trainer
