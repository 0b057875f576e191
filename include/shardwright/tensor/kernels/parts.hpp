// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Batches many small pieces of work into one launch: a kernel for one array, applied to several.

#include <shardwright/tensor/kernels/launch.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels {
namespace detail {

/// Functors over consecutive blocks: the first blocks are those of the first part.
template <class Part> struct Parts {
  /// As many as fit into the arguments of a launch.
  static constexpr std::size_t capacity =
      (functor_bytes - sizeof(std::size_t)) / (sizeof(Part) + sizeof(std::size_t));

  Part parts[capacity];
  std::size_t ends[capacity]; ///< Blocks of a part and of those before it.
  std::size_t count = 0;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    std::size_t first = 0;
    for (std::size_t last = count - 1; first < last;) {
      const std::size_t middle = (first + last) / 2;
      if (block < ends[middle])
        last = middle;
      else
        first = middle + 1;
    }
    parts[first](block - (first == 0 ? 0 : ends[first - 1]));
  }
};

} // namespace detail

/// @brief Collects parts with lanes and launches them together, in as few launches as their arguments allow.
/// A part gives bitwise the same result as in a separate launch.
template <class Execution, class Part> class PartLauncher {
public:
  PartLauncher(const char* label, const Execution& execution) : label_(label), execution_(execution) {}

  void add(const Part& part, std::size_t blocks) {
    if (blocks == 0)
      return;
    if (parts_.count == detail::Parts<Part>::capacity)
      launch();
    const std::size_t before = parts_.count == 0 ? 0 : parts_.ends[parts_.count - 1];
    parts_.parts[parts_.count] = part;
    parts_.ends[parts_.count] = before + blocks;
    ++parts_.count;
  }
  /// Launches the parts that were added since the last launch.
  void launch() {
    if (parts_.count > 0)
      run_lanes(label_, execution_, parts_.ends[parts_.count - 1], parts_);
    parts_.count = 0;
  }
  [[nodiscard]] const Execution& execution() const noexcept { return execution_; }

private:
  const char* label_;
  Execution execution_;
  detail::Parts<Part> parts_{};
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels
