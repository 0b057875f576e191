// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The microbatches of a step, from rows of tokens.

#include "options.hpp"

#include <shardwright/io/token_rows.hpp>
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

namespace sw = shardwright;

/// @brief Reads microbatches into tensors: new ones on a host; on a device at fixed addresses, where a
/// captured step finds them, and without waiting.
template <class Parts> class TextBatches {
public:
  using Batch = typename Parts::Batch;
  using Ids = typename Batch::Ids;
  using Target = typename Ids::target;

  /// @param data null in a dry run, which reads nothing
  TextBatches(const Parts& run, const Options& options, const sw::TokenRows* data)
      : run_(run), options_(options), data_(data), count_(static_cast<std::size_t>(options.accumulation)) {
    batches_.reserve(count_);
    if constexpr (!in_new_tensors) {
      for (std::size_t i = 0; i < 2 * count_; ++i)
        places_.push_back(make_ids(options.rows()));
      uploads_.emplace(2 * count_ * places_.front().local_size());
    }
  }

  /// @brief The microbatches of a step of training.
  [[nodiscard]] std::span<const Batch> training(std::int64_t step) {
    const auto read = [&](std::size_t row, auto ids, auto targets) {
      data_->training(static_cast<std::uint64_t>(step), {row, row + 1}, ids, targets);
    };
    if constexpr (in_new_tensors) {
      return passes(count_, options_.rows(), read, step);
    } else {
      batches_.clear();
      std::size_t at = 0;
      for (std::size_t pass = 0; pass < count_; ++pass) {
        for (const bool wants_ids : {true, false}) {
          Ids& place = places_[2 * pass + (wants_ids ? 0 : 1)];
          sw::read_rows(place, uploads_->half().data() + at, one_of(read, wants_ids), first_row(pass));
          uploads_->upload(at, place);
          at += place.local_size();
        }
        batches_.push_back({places_[2 * pass].share(), places_[2 * pass + 1].share(), origin(step, pass)});
      }
      uploads_->flip();
      return batches_;
    }
  }

  /// @brief Number of batches of a held-out loss.
  [[nodiscard]] std::size_t validations() const {
    return data_->validation_batches(static_cast<std::size_t>(options_.batch),
                                     static_cast<std::size_t>(options_.validation_batches));
  }
  /// @brief The microbatches of one of them.
  [[nodiscard]] std::span<const Batch> validation(std::size_t number) {
    return passes(count_, options_.rows(), [&](std::size_t row, auto ids, auto targets) {
      data_->validation(number, validations(), static_cast<std::size_t>(options_.batch), {row, row + 1}, ids,
                        targets);
    });
  }

  /// @brief `count` microbatches of `rows` sequences.
  /// @param read called as read(row, ids, targets): one sequence of the global batch
  template <class Read>
  [[nodiscard]] std::span<const Batch> passes(std::size_t count, std::int64_t rows, Read read,
                                              std::int64_t step = 0) {
    batches_.clear();
    for (std::size_t pass = 0; pass < count; ++pass) {
      Ids ids = make_ids(rows);
      Ids targets = make_ids(rows);
      sw::load_rows(ids, one_of(read, true), first_row(pass));
      sw::load_rows(targets, one_of(read, false), first_row(pass));
      batches_.push_back({ids.share(), targets.share(), origin(step, pass)});
    }
    return batches_;
  }

private:
  static constexpr bool in_new_tensors = Target::host_accessible || sw::counts_only<Target>;
  struct Nothing {};

  [[nodiscard]] Ids make_ids(std::int64_t rows) const { return Ids(run_.mesh, {rows, run_.config.sequence}); }
  /// The ids or the targets that `read` returns.
  template <class Read> [[nodiscard]] auto one_of(Read& read, bool wants_ids) {
    return [this, &read, wants_ids](std::int64_t row, std::span<std::int32_t> out) {
      other_.resize(out.size());
      const std::span<std::int32_t> other(other_);
      wants_ids ? read(static_cast<std::size_t>(row), out, other)
                : read(static_cast<std::size_t>(row), other, out);
    };
  }
  /// The first row of a pass in the batch of its step.
  [[nodiscard]] std::int64_t first_row(std::size_t pass) const {
    return static_cast<std::int64_t>(pass) * options_.rows();
  }
  /// The key of a pass for dropout.
  [[nodiscard]] sw::BatchOrigin origin(std::int64_t step, std::size_t pass) const {
    return {static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(first_row(pass))};
  }

  const Parts& run_;
  const Options& options_;
  const sw::TokenRows* data_;
  std::size_t count_;
  std::vector<Batch> batches_;
  std::vector<std::int32_t> other_;
  std::vector<Ids> places_; // on a device
  std::conditional_t<in_new_tensors, Nothing, std::optional<sw::Uploads<std::int32_t, Target>>> uploads_;
};

} // namespace train_gpt
