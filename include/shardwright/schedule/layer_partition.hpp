// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The assignment of a model's layers to stages, as a value or as a type.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Half-open range [begin, end) of layers.
struct LayerRange {
  int begin = 0;
  int end = 0;

  [[nodiscard]] constexpr int size() const noexcept { return end - begin; }
  friend constexpr bool operator==(const LayerRange&, const LayerRange&) = default;
};

/// @brief Layers of stage `stage` if `layers` are distributed evenly: the earlier stages get the remainder,
/// one each.
[[nodiscard]] constexpr LayerRange even_layers(int layers, int stages, int stage) noexcept {
  const int each = layers / stages;
  const int rest = layers % stages;
  const int begin = stage * each + (stage < rest ? stage : rest);
  return {begin, begin + each + (stage < rest ? 1 : 0)};
}

namespace detail {

[[noreturn]] void reject_partition(int layers, int stages);
[[noreturn]] void reject_stage(std::size_t stage, int layers);
[[noreturn]] void reject_sum_of_layers(std::size_t stages, int sum, int layers);

} // namespace detail

/// @brief The layers of every stage, chosen at run time; a stage may have none.
class LayerPartition {
public:
  /// @brief Distributes layers evenly; the earlier stages get the remainder.
  /// @throws InvalidArgument if layers is negative or stages is not positive.
  constexpr LayerPartition(int layers, int stages) {
    if (stages < 1 || layers < 0)
      detail::reject_partition(layers, stages);
    for (int stage = 0; stage < stages; ++stage)
      ends_.push_back(even_layers(layers, stages, stage).end);
  }

  /// @brief The given numbers of layers, one per stage, which must sum to `layers`.
  /// @throws InvalidArgument naming both numbers if they do not, or if one is negative.
  constexpr LayerPartition(int layers, const std::vector<int>& per_stage) {
    int end = 0;
    for (std::size_t stage = 0; stage < per_stage.size(); ++stage) {
      if (per_stage[stage] < 0)
        detail::reject_stage(stage, per_stage[stage]);
      ends_.push_back(end += per_stage[stage]);
    }
    if (end != layers || ends_.empty())
      detail::reject_sum_of_layers(per_stage.size(), end, layers);
  }

  [[nodiscard]] constexpr int stages() const noexcept { return static_cast<int>(ends_.size()); }
  [[nodiscard]] constexpr int layers() const noexcept { return ends_.back(); }
  /// @brief Layers of one stage, 0 <= stage < stages().
  [[nodiscard]] constexpr LayerRange operator[](int stage) const {
    const auto index = static_cast<std::size_t>(stage);
    return {stage == 0 ? 0 : ends_[index - 1], ends_[index]};
  }

private:
  std::vector<int> ends_;
};

namespace detail {

template <int layers_of_stages, int layers_of_model> struct LayersOfStages {
  static_assert(
      layers_of_stages == layers_of_model,
      "LayerPartition: the layers of the stages must sum to the layers of the model (change the layers of a stage, or the layers of the model)");
};

template <int layers> struct LayersOfStage {
  static_assert(layers >= 0, "LayerPartition: a stage must not have a negative number of layers (use 0)");
};

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void reject_partition(int layers, int stages) {
  throw InvalidArgument(
      "LayerPartition: " + std::to_string(layers) + " layers over " + std::to_string(stages) +
      " stages: the layers must be at least 0 and the stages at least 1 (correct the number that is too small)");
}
SHARDWRIGHT_INLINE void reject_stage(std::size_t stage, int layers) {
  throw InvalidArgument("LayerPartition: stage " + std::to_string(stage) + " has " + std::to_string(layers) +
                        " layers, which must not be negative");
}
SHARDWRIGHT_INLINE void reject_sum_of_layers(std::size_t stages, int sum, int layers) {
  throw InvalidArgument("LayerPartition: the " + std::to_string(stages) + " stages have " +
                        std::to_string(sum) + " layers together, but the model has " +
                        std::to_string(layers) +
                        " (change the layers of a stage, or the layers of the model)");
}
#endif

} // namespace detail

/// @brief The layers of every stage as part of a type; a sum that differs from `layers_of_model` does not
/// compile.
template <int layers_of_model, int... layers_of_stage>
struct StaticLayerPartition : detail::LayersOfStages<(0 + ... + layers_of_stage), layers_of_model> {
  static_assert((true && ... && (sizeof(detail::LayersOfStage<layers_of_stage>) != 0)));
  static constexpr int layers = layers_of_model;
  static constexpr int stages = sizeof...(layers_of_stage);

  /// @brief The same as a value.
  [[nodiscard]] static constexpr LayerPartition value() { return {layers_of_model, {layers_of_stage...}}; }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
