// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention masks as types: which keys a query sees, by their positions.

#include <shardwright/core/config.hpp>

#include <concepts>
#include <cstddef>
#include <limits>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The range of keys that a query sees: from `before` positions before its own up to `after` positions
/// after it.
struct KeyWindow {
  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

  std::size_t before = unlimited;
  std::size_t after = 0;

  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr bool sees(std::size_t query, std::size_t key) const {
    return first_key(query) <= key && key < end_key(query);
  }
  /// @brief First position that a query sees.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t first_key(std::size_t query) const {
    return query > before ? query - before : 0;
  }
  /// @brief One more than the last position that a query sees; `unlimited` if it sees all later ones.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t end_key(std::size_t query) const {
    return end(query, after);
  }
  /// @brief First position of the queries that see a key.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t first_query(std::size_t key) const {
    return key > after ? key - after : 0;
  }
  /// @brief One more than the last position of the queries that see a key.
  [[nodiscard]] SHARDWRIGHT_FUNCTION constexpr std::size_t end_query(std::size_t key) const {
    return end(key, before);
  }

  friend constexpr bool operator==(const KeyWindow&, const KeyWindow&) = default;

private:
  SHARDWRIGHT_FUNCTION static constexpr std::size_t end(std::size_t position, std::size_t further) {
    return further >= unlimited - position ? unlimited : position + further + 1;
  }
};

/// @brief A type whose `window` gives the keys that a query of attention sees.
template <class Type>
concept AttentionMask = std::copyable<Type> && requires {
  { Type::window } -> std::convertible_to<KeyWindow>;
};

/// @brief A query sees the keys up to its own position.
struct CausalMask {
  static constexpr KeyWindow window{};
};
/// @brief A query sees all keys.
struct FullMask {
  static constexpr KeyWindow window{KeyWindow::unlimited, KeyWindow::unlimited};
};
/// @brief A query sees the last `keys` keys, including its own (Beltagy et al., arXiv 2004.05150; causal as
/// in Jiang et al., arXiv 2310.06825).
template <std::size_t keys> struct SlidingWindowMask {
  static_assert(keys > 0,
                "sliding_window: a query must see at least one key, its own (write sliding_window<1>)");
  static constexpr KeyWindow window{keys - 1, 0};
};

inline constexpr CausalMask causal{}; ///< @brief CausalMask as a value.
inline constexpr FullMask full{};     ///< @brief FullMask as a value.
/// @brief SlidingWindowMask as a value.
template <std::size_t keys> inline constexpr SlidingWindowMask<keys> sliding_window{};

} // namespace shardwright::inline SHARDWRIGHT_ABI
