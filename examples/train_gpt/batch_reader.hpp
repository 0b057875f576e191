// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The microbatches of a step, from rows of tokens.

#include "run_parts.hpp"

#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/tensor/memory/shared_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace train_gpt {

/// @brief Reads microbatches into tensors: new ones on a host; on a device at fixed addresses, where a
/// captured step finds them, and without waiting.
template <class Parts> class BatchReader {
  using Batch = typename Parts::Batch;
  using Ids = typename Parts::Ids;
  using Target = typename Ids::target;
  static constexpr bool on_host = Target::host_accessible;

public:
  explicit BatchReader(const Parts& run) : run_(run) {
    batches_.reserve(run.plan.accumulation());
    if constexpr (!on_host) {
      for (std::size_t i = 0; i < 2 * run.plan.accumulation(); ++i)
        places_.push_back(run.make_ids(run.plan.microbatch()));
      uploads_.emplace(2 * run.plan.accumulation() * places_.front().local_size());
    }
  }

  /// @brief The microbatches of a step of training.
  /// @param read called as read(row, ids, targets): one sequence of the global batch
  template <class Read> [[nodiscard]] std::span<const Batch> training(std::int64_t step, Read read) {
    if constexpr (on_host) {
      return passes(run_.plan.accumulation(), run_.plan.microbatch(), read, step);
    } else {
      batches_.clear();
      std::size_t at = 0;
      for (std::size_t pass = 0; pass < run_.plan.accumulation(); ++pass) {
        for (const bool wants_ids : {true, false}) {
          Ids& place = places_[2 * pass + (wants_ids ? 0 : 1)];
          sw::read_rows(place, uploads_->half().data() + at, one_of(read, wants_ids), first_row(pass));
          uploads_->upload(at, place);
          at += place.local_size();
        }
        batches_.push_back(
            {places_[2 * pass].share(), places_[2 * pass + 1].share(), run_.origin(step, pass)});
      }
      uploads_->flip();
      return batches_;
    }
  }

  /// @brief `count` microbatches of `rows` sequences per data rank, for an evaluation.
  template <class Read>
  [[nodiscard]] std::span<const Batch> passes(std::size_t count, std::size_t rows, Read read,
                                              std::int64_t step = 0) {
    batches_.clear();
    for (std::size_t pass = 0; pass < count; ++pass) {
      Ids ids = run_.make_ids(rows);
      Ids targets = run_.make_ids(rows);
      sw::load_rows(ids, one_of(read, true), first_row(pass));
      sw::load_rows(targets, one_of(read, false), first_row(pass));
      batches_.push_back({ids.share(), targets.share(), run_.origin(step, pass)});
    }
    return batches_;
  }

private:
  /// The ids or the targets that `read` returns.
  template <class Read> [[nodiscard]] auto one_of(Read& read, bool wants_ids) {
    return [this, &read, wants_ids](std::int64_t row, std::span<std::int32_t> out) {
      other_.resize(out.size());
      const std::span<std::int32_t> other(other_);
      wants_ids ? read(static_cast<std::size_t>(row), out, other)
                : read(static_cast<std::size_t>(row), other, out);
    };
  }
  [[nodiscard]] std::int64_t first_row(std::size_t pass) const {
    return static_cast<std::int64_t>(run_.plan.rows(pass, 0).begin);
  }

  struct Nothing {};
  const Parts& run_;
  std::vector<Batch> batches_;
  std::vector<std::int32_t> other_;
  std::vector<Ids> places_; // on a device
  std::conditional_t<on_host, Nothing, std::optional<sw::Uploads<std::int32_t, Target>>> uploads_;
};

} // namespace train_gpt
