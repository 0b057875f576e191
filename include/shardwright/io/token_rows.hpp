// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Rows of tokens that a language model is trained on, the same on every mesh.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
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

/// @brief A training part and a held-out part of some data, read a row of `sequence()` inputs and targets at
/// a time. A row depends only on the data, the seed and its number, never on the mesh.
///
/// Immutable once built; any number of threads may read it.
class TokenRows {
public:
  virtual ~TokenRows() = default;

  /// @brief Fills inputs and targets, [rows.size(), sequence()] each, with the rows of the training batch of
  /// `step`. A target of -1 does not count.
  /// @param starts of the same size: the first place in its row of each token's document; or empty
  /// @throws InvalidArgument if a span has another size.
  void training(std::uint64_t step, RowRange rows, std::span<std::int32_t> inputs,
                std::span<std::int32_t> targets, std::span<std::int32_t> starts = {}) const {
    check_sizes(rows, inputs.size(), targets.size(), starts.size());
    for (std::size_t row = rows.begin; row < rows.end; ++row)
      copy_training(step, row, part_of(row - rows.begin, inputs, targets, starts));
  }

  /// @brief The same from the held-out part: rows of batch `index` of `batches` batches of `batch` rows each.
  ///
  /// The batches are spread evenly over the held-out rows; a row appears twice only if batches × batch is
  /// more than validation_samples().
  void validation(std::size_t index, std::size_t batches, std::size_t batch, RowRange rows,
                  std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
                  std::span<std::int32_t> starts = {}) const {
    check_sizes(rows, inputs.size(), targets.size(), starts.size());
    if (index >= batches || rows.end > batch)
      throw InvalidArgument("TokenRows: validation batch " + std::to_string(index) + " up to row " +
                            std::to_string(rows.end) + " must be below " + std::to_string(batches) +
                            " batches of " + std::to_string(batch) + " rows");
    if (validation_samples() == 0)
      throw InvalidArgument("TokenRows: validation needs held-out rows, but there are none (hold some out)");
    for (std::size_t row = rows.begin; row < rows.end; ++row) {
      const std::size_t sample = (index * batch + row) * validation_samples() / (batches * batch);
      copy_validation(sample, part_of(row - rows.begin, inputs, targets, starts));
    }
  }

  /// @brief Batches of `batch` rows that cover the held-out part once, at least 1 and at most `most`.
  [[nodiscard]] std::size_t validation_batches(std::size_t batch, std::size_t most) const noexcept {
    return std::max<std::size_t>(1, std::min(most, validation_samples() / std::max<std::size_t>(1, batch)));
  }

  [[nodiscard]] std::size_t sequence() const noexcept { return sequence_; } ///< Tokens of a row.
  /// @brief Rows of the training part, if each is read once in an epoch; 0 if they are drawn.
  [[nodiscard]] virtual std::size_t epoch_rows() const noexcept { return 0; }
  /// @brief Rows of the held-out part.
  [[nodiscard]] virtual std::size_t validation_samples() const noexcept = 0;
  /// @brief Identity of the data, for comparing ranks that read their own copy.
  [[nodiscard]] virtual std::uint64_t hash() const noexcept = 0;
  /// @brief The size of the data, for a report, such as "1200 tokens of text".
  [[nodiscard]] virtual std::string description() const = 0;

protected:
  /// @brief The places of one row; no starts if nobody reads them.
  struct Places {
    std::span<std::int32_t> inputs, targets, starts;
  };

  /// @throws InvalidArgument for a sequence of zero.
  explicit TokenRows(std::size_t sequence) : sequence_(sequence) {
    if (sequence == 0)
      throw InvalidArgument("TokenRows: the sequence must be at least 1 token, but it is 0");
  }
  TokenRows(const TokenRows&) = default;
  TokenRows(TokenRows&&) = default;
  TokenRows& operator=(const TokenRows&) = default;
  TokenRows& operator=(TokenRows&&) = default;

private:
  virtual void copy_training(std::uint64_t step, std::size_t row, const Places& to) const = 0;
  virtual void copy_validation(std::size_t sample, const Places& to) const = 0;

  [[nodiscard]] Places part_of(std::size_t row, std::span<std::int32_t> inputs,
                               std::span<std::int32_t> targets, std::span<std::int32_t> starts) const {
    const auto part = [&](std::span<std::int32_t> all) { return all.subspan(row * sequence_, sequence_); };
    return {part(inputs), part(targets), starts.empty() ? starts : part(starts)};
  }
  void check_sizes(RowRange rows, std::size_t inputs, std::size_t targets, std::size_t starts) const {
    if (rows.begin > rows.end || inputs != rows.size() * sequence_ || targets != inputs ||
        (starts != 0 && starts != inputs))
      throw InvalidArgument("TokenRows: rows " + std::to_string(rows.begin) + " to " +
                            std::to_string(rows.end) + " of " + std::to_string(sequence_) +
                            " tokens must fill all spans, but inputs hold " + std::to_string(inputs) +
                            ", targets " + std::to_string(targets) + " and starts " + std::to_string(starts) +
                            " tokens");
  }

  std::size_t sequence_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
