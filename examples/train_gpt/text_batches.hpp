// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The microbatches of a step, from rows of tokens.

#include "options.hpp"

#include <shardwright/io/token_rows.hpp>
#include <shardwright/layout/attention_mask.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/nn/attention/mask.hpp>
#include <shardwright/nn/decoder/token_batch.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/tensor/memory/shared_memory.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
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
      for (std::size_t i = 0; options.pack && i < count_; ++i)
        starts_.push_back(make_starts(places_.front()));
      const std::size_t of_starts = options.pack ? count_ * starts_.front().local_size() : 0;
      uploads_.emplace(2 * count_ * places_.front().local_size() + of_starts);
    }
  }

  /// @brief The microbatches of a step of training.
  [[nodiscard]] std::span<const Batch> training(std::int64_t step) {
    const auto read = [&](std::size_t row, auto ids, auto targets, auto starts) {
      data_->training(static_cast<std::uint64_t>(step), {row, row + 1}, ids, targets, starts);
    };
    if constexpr (in_new_tensors) {
      const auto out = passes(count_, options_.rows(), read, step);
      if constexpr (Parts::Task::has_experts)
        sw::set_counted_share(std::span(batches_));
      return out;
    } else {
      batches_.clear();
      std::size_t at = 0;
      const auto upload = [&](auto& place, Column column, std::size_t pass) {
        sw::read_rows(place, uploads_->half().data() + at, one_of(read, column), first_row(pass));
        uploads_->upload(at, place);
        at += place.local_size();
      };
      for (std::size_t pass = 0; pass < count_; ++pass) {
        Ids& ids = places_[2 * pass];
        Ids& targets = places_[2 * pass + 1];
        upload(ids, Column::ids, pass);
        upload(targets, Column::targets, pass);
        Mask mask{};
        if (options_.pack) {
          upload(starts_[pass], Column::starts, pass);
          mask = sw::documents(sw::causal, starts_[pass]);
        }
        batches_.push_back({ids.share(), targets.share(), origin(step, pass), std::move(mask)});
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
    return passes(count_, options_.rows(), [&](std::size_t row, auto ids, auto targets, auto starts) {
      data_->validation(number, validations(), static_cast<std::size_t>(options_.batch), {row, row + 1}, ids,
                        targets, starts);
    });
  }

  /// @brief `count` microbatches of `rows` sequences.
  /// @param read called as read(row, ids, targets, starts): one sequence of the global batch
  /// @param sequence tokens of each; 0: of the model
  template <class Read>
  [[nodiscard]] std::span<const Batch> passes(std::size_t count, std::int64_t rows, Read read,
                                              std::int64_t step = 0, std::int64_t sequence = 0) {
    batches_.clear();
    for (std::size_t pass = 0; pass < count; ++pass) {
      Ids ids = make_ids(rows, sequence);
      Ids targets = make_ids(rows, sequence);
      Mask mask{};
      if (options_.pack)
        mask = read_mask(ids, targets, read, pass);
      sw::load_rows(ids, one_of(read, Column::ids), first_row(pass));
      sw::load_rows(targets, one_of(read, Column::targets), first_row(pass));
      batches_.push_back({ids.share(), targets.share(), origin(step, pass), std::move(mask)});
    }
    return batches_;
  }

private:
  using Mask = decltype(Batch::mask);
  using Starts = sw::ShardedTensor<typename Mask::starts_layout, std::int32_t, Target>;
  static constexpr bool in_new_tensors = Target::host_accessible || sw::counts_only<Target>;
  struct Nothing {};
  enum class Column : std::uint8_t { ids, targets, starts };

  [[nodiscard]] Ids make_ids(std::int64_t rows, std::int64_t sequence = 0) const {
    return Ids(run_.mesh, {rows, sequence > 0 ? sequence : run_.config.sequence});
  }
  [[nodiscard]] Starts make_starts(const Ids& ids) const { return Starts(run_.mesh, ids.shape()); }
  /// One of the columns that `read` fills.
  template <class Read> [[nodiscard]] auto one_of(Read& read, Column column) {
    return [this, &read, column](std::int64_t row, std::span<std::int32_t> out) {
      others_.resize(3 * out.size());
      std::array<std::span<std::int32_t>, 3> columns;
      for (std::size_t i = 0; i < columns.size(); ++i)
        columns[i] = std::span(others_).subspan(i * out.size(), out.size());
      columns[static_cast<std::size_t>(column)] = out;
      std::apply([&](auto... each) { read(static_cast<std::size_t>(row), each...); }, columns);
    };
  }
  /// Keeps the documents of each sequence apart, and distributes their work over a ring. Dropout needs the
  /// usual order, which its masks are keyed by, and so do sums that are the same on every mesh.
  template <class Read> [[nodiscard]] Mask read_mask(Ids& ids, Ids& targets, Read& read, std::size_t pass) {
    Starts starts = make_starts(ids);
    sw::load_rows(starts, one_of(read, Column::starts), first_row(pass));
    if constexpr (!sw::is_reproducible<Target> && requires { ids.arrange({}); })
      if (run_.config.dropout == 0 && (!options_.lora || options_.lora->dropout == 0)) {
        const sw::TextOrder order = sw::order_of_documents(ids, starts);
        ids.arrange(order);
        targets.arrange(order);
      }
    return sw::documents(sw::causal, starts);
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
  std::vector<std::int32_t> others_;
  std::vector<Ids> places_; // on a device
  std::vector<Starts> starts_;
  std::conditional_t<in_new_tensors, Nothing, std::optional<sw::Uploads<std::int32_t, Target>>> uploads_;
};

} // namespace train_gpt
