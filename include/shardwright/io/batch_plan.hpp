// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The division of a step's batch of sequences over data ranks, microbatches and accumulation.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Rows [begin, end) of a step's batch.
struct RowRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  /// @brief Number of rows.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return end - begin; }
  friend constexpr bool operator==(const RowRange&, const RowRange&) = default;
};

/// @brief batch = data_ranks × microbatch × accumulation, all in sequences; checked before anything is
/// allocated.
///
/// Microbatch m of the step is rows [m × data_ranks × microbatch, (m + 1) × data_ranks × microbatch) of the
/// batch, and data rank r holds the r-th part of it: the rows of a tensor with Shard<0, dp>.
class BatchPlan {
public:
  /// @brief Checks the product. @throws InvalidArgument naming all four numbers and nearby batches that fit.
  BatchPlan(std::int64_t batch, std::int64_t data_ranks, std::int64_t microbatch, std::int64_t accumulation)
      : batch_(static_cast<std::size_t>(batch)), data_ranks_(static_cast<std::size_t>(data_ranks)),
        microbatch_(static_cast<std::size_t>(microbatch)),
        accumulation_(static_cast<std::size_t>(accumulation)) {
    check(batch, data_ranks, microbatch, accumulation);
  }

  [[nodiscard]] std::size_t batch() const noexcept { return batch_; }           ///< Sequences of a step.
  [[nodiscard]] std::size_t data_ranks() const noexcept { return data_ranks_; } ///< Extent of the data axis.
  [[nodiscard]] std::size_t microbatch() const noexcept {
    return microbatch_;
  } ///< Sequences per rank and pass.
  [[nodiscard]] std::size_t accumulation() const noexcept { return accumulation_; } ///< Passes per step.

  /// @brief Rows of the batch that `data_rank` computes in pass `pass` of the step.
  [[nodiscard]] RowRange rows(std::size_t pass, std::size_t data_rank) const {
    if (pass >= accumulation_ || data_rank >= data_ranks_)
      throw InvalidArgument("BatchPlan: pass " + std::to_string(pass) + " and data rank " +
                            std::to_string(data_rank) + " must be below " + std::to_string(accumulation_) +
                            " and " + std::to_string(data_ranks_));
    const std::size_t begin = (pass * data_ranks_ + data_rank) * microbatch_;
    return {begin, begin + microbatch_};
  }

private:
  static void check(std::int64_t batch, std::int64_t data_ranks, std::int64_t microbatch,
                    std::int64_t accumulation) {
    const std::string numbers = "batch " + std::to_string(batch) + ", dp " + std::to_string(data_ranks) +
                                ", microbatch " + std::to_string(microbatch) + ", accumulation " +
                                std::to_string(accumulation);
    if (batch <= 0 || data_ranks <= 0 || microbatch <= 0 || accumulation <= 0)
      throw InvalidArgument("BatchPlan: all numbers must be positive (" + numbers + ")");
    constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max();
    if (data_ranks > limit / microbatch || data_ranks * microbatch > limit / accumulation)
      throw InvalidArgument("BatchPlan: dp x microbatch x accumulation must fit into 64 bits (" + numbers +
                            ")");
    const std::int64_t product = data_ranks * microbatch * accumulation;
    if (batch == product)
      return;
    std::string advice = "give batch " + std::to_string(product);
    const std::int64_t per_pass = data_ranks * microbatch;
    if (batch % per_pass == 0)
      advice += ", or accumulation " + std::to_string(batch / per_pass);
    else if (batch % (data_ranks * accumulation) == 0)
      advice += ", or microbatch " + std::to_string(batch / (data_ranks * accumulation));
    throw InvalidArgument("BatchPlan: batch must be dp x microbatch x accumulation, but " +
                          std::to_string(batch) + " is not " + std::to_string(data_ranks) + " x " +
                          std::to_string(microbatch) + " x " + std::to_string(accumulation) + " = " +
                          std::to_string(product) + " (" + advice + ")");
  }

  std::size_t batch_;
  std::size_t data_ranks_;
  std::size_t microbatch_;
  std::size_t accumulation_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
