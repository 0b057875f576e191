// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Documents packed into a row of tokens: which document a place belongs to, and what it predicts.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Tokens, and which of them a model learns to predict.
struct Document {
  std::vector<std::int32_t> tokens;
  std::vector<bool> learned; ///< One for each token; the first is never predicted.
};

/// @brief A row of a batch, filled with documents one after the other, in the order of the text.
///
/// Targets and starts are made here, of the whole row, before any rank takes its part of it: load all of them
/// with load_rows(), and a rank's part is right however a sequence is split. A target never belongs to
/// another document than its input. Each place after the last document is a document of its own without a
/// target.
class PackedTokens {
public:
  /// @param sequence places of the row
  /// @param padding input after the last document
  /// @throws InvalidArgument for a sequence of zero.
  explicit PackedTokens(std::size_t sequence, std::int32_t padding = 0)
      : ids_(sequence, padding), targets_(sequence, -1), starts_(sequence) {
    if (sequence == 0)
      throw InvalidArgument("PackedTokens: the sequence must be at least 1 token, but it is 0");
    std::iota(starts_.begin(), starts_.end(), 0);
  }

  /// @brief Appends a document whose tokens are all inputs; the last one has no target.
  /// @throws InvalidArgument if it is longer than room().
  void add(std::span<const std::int32_t> tokens) {
    if (tokens.size() > room())
      throw InvalidArgument("PackedTokens: a document must fit in what is left of the row, " +
                            std::to_string(room()) + " of " + std::to_string(ids_.size()) +
                            " places, but it takes " + std::to_string(tokens.size()) +
                            " (cut it, or begin another row)");
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      ids_[size_ + i] = tokens[i];
      starts_[size_ + i] = static_cast<std::int32_t>(size_);
      if (i + 1 < tokens.size())
        targets_[size_ + i] = tokens[i + 1];
    }
    size_ += tokens.size();
  }
  /// @brief Appends a document of which only learned tokens are targets; the last token is no input.
  /// @throws InvalidArgument if it has no tokens, not a mark for each, or more inputs than room().
  void add(const Document& document) {
    if (document.tokens.empty() || document.learned.size() != document.tokens.size())
      throw InvalidArgument(
          "PackedTokens: a document must have tokens and a mark for each of them, but it has " +
          std::to_string(document.tokens.size()) + " tokens and " + std::to_string(document.learned.size()) +
          " marks (leave it out, or mark its tokens)");
    const std::size_t begin = size_;
    add(std::span(document.tokens).first(document.tokens.size() - 1));
    for (std::size_t i = 1; i < document.tokens.size(); ++i)
      targets_[begin + i - 1] = document.learned[i] ? document.tokens[i] : -1;
  }

  /// @brief Places that are still free.
  [[nodiscard]] std::size_t room() const noexcept { return ids_.size() - size_; }
  /// @brief The token at each place.
  [[nodiscard]] std::span<const std::int32_t> ids() const noexcept { return ids_; }
  /// @brief The target of each place: the token after it, or -1 if it has none.
  [[nodiscard]] std::span<const std::int32_t> targets() const noexcept { return targets_; }
  /// @brief The first place of each place's document: what documents() takes, and the place that positions
  /// inside a document count from.
  [[nodiscard]] std::span<const std::int32_t> starts() const noexcept { return starts_; }

private:
  std::vector<std::int32_t> ids_, targets_, starts_;
  std::size_t size_ = 0; // places taken
};

/// @brief Assigns documents to rows: the longest first, each to the row with the least room that it fits in,
/// and to a new row if it fits in none (best fit decreasing, Johnson, 1974). O(documents × log(documents)).
///
/// It depends only on the lengths and their order.
/// @param lengths places that each document takes, at most `sequence`
/// @returns the numbers of each row's documents
[[nodiscard]] inline std::vector<std::vector<std::size_t>> pack_rows(std::span<const std::size_t> lengths,
                                                                     std::size_t sequence) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<std::size_t>> rows;
  std::multimap<std::size_t, std::size_t> rows_by_room;
  for (const std::size_t document : order) {
    std::size_t row = rows.size(), room = sequence;
    if (const auto found = rows_by_room.lower_bound(lengths[document]); found != rows_by_room.end()) {
      std::tie(room, row) = *found;
      rows_by_room.erase(found);
    } else {
      rows.emplace_back();
    }
    rows[row].push_back(document);
    rows_by_room.emplace(room - lengths[document], row);
  }
  return rows;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
