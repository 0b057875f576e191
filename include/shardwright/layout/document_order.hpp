// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief An order of packed documents that gives each rank of a ring as much attention to compute.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/layout/token_order.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Consecutive positions of one document.
struct DocumentPiece {
  std::size_t begin = 0; ///< Position in the text.
  std::size_t size = 0;
  std::size_t before = 0; ///< Tokens of the document before it.

  /// Pairs of a query in it and a key that this sees.
  [[nodiscard]] constexpr std::size_t pairs() const { return size * before + size * (size + 1) / 2; }
  /// Its tokens from number `from` on.
  [[nodiscard]] constexpr DocumentPiece part(std::size_t from, std::size_t count) const {
    return {begin + from, count, before + from};
  }
};

/// The pieces of each rank, and their query-key pairs.
class DocumentShares {
public:
  DocumentShares(std::size_t sequence, int ranks)
      : ranks_(static_cast<std::size_t>(ranks)), room_(ranks_, sequence / ranks_), pairs_(ranks_, 0),
        pieces_(ranks_) {}

  /// Gives a piece to the rank with the fewest pairs of those where it fits; one that fits nowhere is
  /// divided.
  void place(DocumentPiece piece) {
    while (piece.size > 0) {
      const bool fits = *std::max_element(room_.begin(), room_.end()) >= piece.size;
      std::size_t best = ranks_;
      for (std::size_t rank = 0; rank < ranks_; ++rank)
        if (room_[rank] >= (fits ? piece.size : 1) && (best == ranks_ || pairs_[rank] < pairs_[best]))
          best = rank;
      const std::size_t given = std::min(piece.size, room_[best]);
      give(best, piece.part(0, given));
      piece = piece.part(given, piece.size - given);
    }
  }

  [[nodiscard]] std::size_t most_pairs() const { return *std::max_element(pairs_.begin(), pairs_.end()); }
  /// The position of each place: rank r holds places in chunks r and 2 ranks - 1 - r.
  [[nodiscard]] std::vector<std::int32_t> order(std::size_t sequence) {
    std::vector<std::int32_t> out(sequence);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      std::vector<DocumentPiece>& own = pieces_[rank];
      std::sort(own.begin(), own.end(),
                [](const DocumentPiece& a, const DocumentPiece& b) { return a.begin < b.begin; });
      const TokenRuns places = ZigZagOrder::runs(static_cast<std::int64_t>(sequence),
                                                 static_cast<int>(ranks_), static_cast<int>(rank));
      std::size_t row = 0;
      for (const DocumentPiece& piece : own)
        for (std::size_t i = 0; i < piece.size; ++i)
          out[places.position(row++)] = static_cast<std::int32_t>(piece.begin + i);
    }
    return out;
  }

private:
  void give(std::size_t rank, const DocumentPiece& piece) {
    room_[rank] -= piece.size;
    pairs_[rank] += piece.pairs();
    pieces_[rank].push_back(piece);
  }

  std::size_t ranks_;
  std::vector<std::size_t> room_, pairs_;
  std::vector<std::vector<DocumentPiece>> pieces_;
};

/// What is wrong with the starts of a sequence's documents; empty if nothing is.
[[nodiscard]] inline std::string wrong_document_start(std::span<const std::int32_t> starts) {
  for (std::size_t i = 0; i < starts.size(); ++i)
    if (static_cast<std::size_t>(starts[i]) != i && (i == 0 || starts[i] != starts[i - 1]))
      return "the start of a token's document must be its own position or the start of the token before it, but at position " +
             std::to_string(i) + " it is " + std::to_string(starts[i]) +
             " (fill a sequence by fill_document_starts)";
  return {};
}

[[nodiscard]] inline std::vector<DocumentPiece> documents_of(std::span<const std::int32_t> starts) {
  if (const std::string wrong = wrong_document_start(starts); !wrong.empty())
    throw InvalidArgument("balanced_order: " + wrong);
  std::vector<DocumentPiece> out;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    if (static_cast<std::size_t>(starts[i]) == i)
      out.push_back({i, 0, 0});
    ++out.back().size;
  }
  return out;
}

/// Two pieces of the document for each of the ranks, or of as many as it suffices for, whole multiples of
/// `unit` tokens, and the tokens before them; pieces r and 2 ranks - 1 - r together have the same pairs for
/// each r.
inline void cut(const DocumentPiece& document, std::size_t ranks, std::size_t unit,
                std::vector<DocumentPiece>& out) {
  const std::size_t count = 2 * std::min(ranks, document.size / (2 * unit));
  const std::size_t size = count == 0 ? 0 : document.size / count / unit * unit;
  const std::size_t left = document.size - count * size;
  if (left > 0)
    out.push_back(document.part(0, left));
  for (std::size_t number = 0; number < count; ++number)
    out.push_back(document.part(left + number * size, size));
}

} // namespace detail

/// @brief Distributes the tokens of a sequence over a ring of ranks, so that each has as many tokens as the
/// others and about as many query-key pairs of causal attention within documents.
///
/// Pieces go to the rank with the fewest pairs, those with the most pairs first. Most documents are one
/// piece, and need no other rank's keys; a document that is large for a rank's share is cut into equal
/// pieces, two for each rank (as TransformerEngine orders packed sequences) or for as many ranks as it has
/// blocks for, and what they leave. As few are cut, and into pieces of as many whole blocks of attention's 32
/// queries, as leave no rank more than 1.05 times the mean, or the least that was found. It depends on the
/// starts only.
///
/// Cost: O(sequence + documents × ranks) and a sort of the pieces for each size of a document and of a piece
/// that is tried, at most 12 log2(sequence), and one sort of the positions.
/// @param starts the first position of each token's document
/// @returns the position in the text of each place; places are in ZigZagOrder, and the positions of a rank
/// ascend with them. One document alone, of whole blocks, is in ZigZagOrder itself.
/// @throws InvalidArgument if the sequence is no multiple of two chunks for each rank, or no documents have
/// the starts.
[[nodiscard]] inline std::vector<std::int32_t> balanced_order(std::span<const std::int32_t> starts,
                                                              int ranks) {
  const std::size_t sequence = starts.size();
  std::vector<detail::DocumentPiece> documents = detail::documents_of(starts);
  std::vector<std::int32_t> natural(sequence);
  std::iota(natural.begin(), natural.end(), 0);
  if (ranks == 1 || sequence == 0)
    return natural;
  if (const auto divisor = static_cast<std::size_t>(ZigZagOrder::divisor(ranks)); sequence % divisor != 0)
    throw InvalidArgument("balanced_order: the sequence " + std::to_string(sequence) +
                          " must be a multiple of " + std::to_string(divisor) + ", two chunks for each of " +
                          std::to_string(ranks) + " ranks (change its length, or use fewer ranks)");
  const auto by_pairs = [](const detail::DocumentPiece& a, const detail::DocumentPiece& b) {
    return a.pairs() > b.pairs();
  };
  const std::size_t all = std::accumulate(
      documents.begin(), documents.end(), std::size_t{0},
      [](std::size_t sum, const detail::DocumentPiece& document) { return sum + document.pairs(); });
  const double mean = static_cast<double>(all) / ranks;
  std::optional<detail::DocumentShares> best;
  for (std::size_t unit = 32; unit > 0; unit /= 2)
    for (double largest = mean / 2; largest >= 0.5; largest /= 2) { // pairs of a document that is not cut
      std::vector<detail::DocumentPiece> pieces;
      for (const detail::DocumentPiece& document : documents)
        if (static_cast<double>(document.pairs()) > largest)
          detail::cut(document, static_cast<std::size_t>(ranks), unit, pieces);
        else
          pieces.push_back(document);
      std::stable_sort(pieces.begin(), pieces.end(), by_pairs);
      detail::DocumentShares shares(sequence, ranks);
      for (const detail::DocumentPiece& piece : pieces)
        shares.place(piece);
      if (!best || shares.most_pairs() < best->most_pairs())
        best = std::move(shares);
      if (static_cast<double>(best->most_pairs()) <= 1.05 * mean)
        return best->order(sequence);
    }
  return best->order(sequence);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
