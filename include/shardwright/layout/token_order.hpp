// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Orders of a sharded sequence, as types: the positions of each rank's rows.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/block.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Positions of a rank's rows: the first `split` rows have consecutive positions from `first` on, the
/// others from `second` on. Positions ascend with rows.
struct TokenRuns {
  std::size_t rows = 0;
  std::size_t split = 0;
  std::size_t first = 0;
  std::size_t second = 0;

  /// @brief `rows` consecutive positions from `first` on.
  [[nodiscard]] SHARDWRIGHT_FUNCTION static constexpr TokenRuns one(std::size_t rows, std::size_t first = 0) {
    return {rows, rows, first, first + rows};
  }

  /// @brief Position of a row.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t position(std::size_t row) const {
    return row < split ? first + row : second + (row - split);
  }
  /// @brief Rows whose position is below `position`; they are the first ones.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t rows_before(std::size_t position) const {
    return counted(position, first, split) + counted(position, second, rows - split);
  }
  /// @brief One more than the last position; 0 if there are no rows.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t end() const {
    return rows == 0 ? 0 : position(rows - 1) + 1;
  }

  friend constexpr bool operator==(const TokenRuns&, const TokenRuns&) = default;

private:
  SHARDWRIGHT_FUNCTION static constexpr std::size_t counted(std::size_t position, std::size_t from,
                                                            std::size_t count) {
    return position <= from ? 0 : position - from < count ? position - from : count;
  }
};

/// @brief Positions of the rows of whole sequences as gathered from the ranks that share them, first rank
/// first: in the order of the text, or in chunks of it, of which rank r has the r-th from either end.
///
/// It does not depend on the layout of a value: a block of rows knows its positions wherever it lies.
struct RowOrder {
  std::size_t sequence = 0; ///< Rows of a sequence; 0 if unknown.
  std::size_t chunk = 0;    ///< Rows of a chunk; 0 if the rows are in the order of the text.
  /// Of each place of each of this rank's sequences: its position in the text, in a host's memory. Null if
  /// places are positions.
  const std::int32_t* text = nullptr;

  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr bool is_natural() const { return chunk == 0; }
  /// @brief Position of a row, or its place if there is a text; the rows of the next sequence follow.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t position(std::size_t row) const {
    if (is_natural())
      return row;
    const std::size_t before = row / sequence * sequence, inside = row - before;
    const std::size_t number = inside / chunk;
    const std::size_t place = number % 2 == 0 ? number / 2 : sequence / chunk - 1 - number / 2;
    return before + place * chunk + (inside - number * chunk);
  }
  /// @brief Position in the text of a row of this rank's sequence `number`. For hosts.
  [[nodiscard]] constexpr std::size_t position_in_text(std::size_t number, std::size_t row) const {
    const std::size_t place = position(row);
    return text == nullptr ? place : static_cast<std::size_t>(text[number * sequence + place]);
  }

  friend constexpr bool operator==(const RowOrder&, const RowOrder&) = default;
};

/// @brief Rows in the order of the text: rank r of `ranks` holds the r-th ceil chunk of the sequence.
struct NaturalOrder {
  static constexpr std::string_view name = "NaturalOrder";

  /// @brief The sequence length must be a multiple of this number.
  [[nodiscard]] static constexpr std::int64_t divisor(int) noexcept { return 1; }
  [[nodiscard]] static constexpr TokenRuns runs(std::int64_t sequence, int ranks, int rank) {
    const DimensionBlock block = chunk_of({0, sequence}, ranks, rank);
    return TokenRuns::one(static_cast<std::size_t>(block.size), static_cast<std::size_t>(block.offset));
  }
  [[nodiscard]] static constexpr RowOrder rows(std::int64_t sequence, int) {
    return {static_cast<std::size_t>(sequence)};
  }
};

/// @brief Chunks folded over the ranks: of 2 * ranks chunks, rank r holds chunks r and 2 * ranks - 1 - r, so
/// that each rank has the same amount of causal attention to do (Llama Team, arXiv 2407.21783, section
/// 3.3.2).
///
/// On one rank it is NaturalOrder. Otherwise the sequence length must be a multiple of 2 * ranks.
struct ZigZagOrder {
  static constexpr std::string_view name = "ZigZagOrder";

  [[nodiscard]] static constexpr std::int64_t divisor(int ranks) noexcept {
    return ranks == 1 ? 1 : 2 * std::int64_t{ranks};
  }
  [[nodiscard]] static constexpr TokenRuns runs(std::int64_t sequence, int ranks, int rank) {
    if (ranks == 1)
      return TokenRuns::one(static_cast<std::size_t>(sequence));
    const auto chunk = static_cast<std::size_t>(sequence / divisor(ranks));
    return {2 * chunk, chunk, static_cast<std::size_t>(rank) * chunk,
            static_cast<std::size_t>(2 * ranks - 1 - rank) * chunk};
  }
  [[nodiscard]] static constexpr RowOrder rows(std::int64_t sequence, int ranks) {
    return {static_cast<std::size_t>(sequence),
            ranks == 1 ? 0 : static_cast<std::size_t>(sequence / divisor(ranks))};
  }
};

/// @brief An order of a sequence over the ranks that share it.
template <class Type>
concept TokenOrder = requires(std::int64_t sequence, int ranks, int rank) {
  { Type::name } -> std::convertible_to<std::string_view>;
  { Type::divisor(ranks) } -> std::same_as<std::int64_t>;
  { Type::runs(sequence, ranks, rank) } -> std::same_as<TokenRuns>;
  { Type::rows(sequence, ranks) } -> std::same_as<RowOrder>;
};

/// @brief Row of a position in the whole sequence as gathered from the ranks, first rank first.
template <TokenOrder Order>
[[nodiscard]] constexpr std::size_t row_of(std::size_t position, std::int64_t sequence, int ranks) {
  std::size_t before = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const TokenRuns runs = Order::runs(sequence, ranks, rank);
    const std::size_t row = runs.rows_before(position);
    if (row < runs.rows && runs.position(row) == position)
      return before + row;
    before += runs.rows;
  }
  return before;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
