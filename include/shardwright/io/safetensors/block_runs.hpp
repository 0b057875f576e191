// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A block of a row-major tensor, and its contiguous runs of bytes.

#include <shardwright/core/config.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::safetensors {

/// @brief A part of a tensor: `extent` elements from `offset` on in each dimension.
struct BlockOf {
  std::vector<std::uint64_t> offset;
  std::vector<std::uint64_t> extent;
};

namespace detail {

/// Runs of equal length, a stride apart in the innermost of several nested loops; in elements.
class BlockRuns {
public:
  /// The block [offset, offset + extent) of a tensor, which lies inside it.
  BlockRuns(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> offset,
            std::span<const std::uint64_t> extent) {
    std::uint64_t stride = 1;
    // Trailing dimensions that are taken whole are part of one run.
    std::size_t d = shape.size();
    for (; d > 0 && extent[d - 1] == shape[d - 1]; --d)
      stride *= shape[d - 1];
    run_ = stride;
    if (d > 0) {
      --d;
      run_ *= extent[d];
      first_ = offset[d] * stride;
      stride *= shape[d];
    }
    for (; d > 0; --d) {
      loops_.push_back({extent[d - 1], stride});
      first_ += offset[d - 1] * stride;
      stride *= shape[d - 1];
    }
    runs_ = run_ == 0 ? 0 : 1;
    for (const Loop& loop : loops_)
      runs_ *= loop.count;
  }

  [[nodiscard]] std::uint64_t first() const noexcept { return first_; } ///< Element where the first begins.
  [[nodiscard]] std::uint64_t length() const noexcept { return run_; }  ///< Elements of each run.
  [[nodiscard]] std::uint64_t count() const noexcept { return runs_; }  ///< Runs.
  /// Elements from the start of a run to that of the next, in the innermost loop.
  [[nodiscard]] std::uint64_t stride() const noexcept {
    return loops_.empty() ? run_ : loops_.front().stride;
  }

  /// Calls `visit(element of the tensor)` for the start of each run, in ascending order.
  template <class Visit> void for_each(const Visit& visit) const {
    std::vector<std::uint64_t> at(loops_.size(), 0);
    std::uint64_t begin = first_;
    for (std::uint64_t run = 0; run < runs_; ++run) {
      visit(begin);
      for (std::size_t i = 0; i < loops_.size(); ++i) {
        begin += loops_[i].stride;
        if (++at[i] < loops_[i].count)
          break;
        begin -= loops_[i].stride * loops_[i].count;
        at[i] = 0;
      }
    }
  }

private:
  struct Loop {
    std::uint64_t count;
    std::uint64_t stride;
  };

  std::vector<Loop> loops_; // the innermost first
  std::uint64_t first_ = 0;
  std::uint64_t run_ = 1;
  std::uint64_t runs_ = 1;
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI::safetensors
