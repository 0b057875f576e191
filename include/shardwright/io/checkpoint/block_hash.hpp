// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The hash that a checkpoint stores for its blocks: 128-bit XXH3, from the xxHash header.

#include <shardwright/core/config.hpp>
#include <shardwright/io/checkpoint/manifest.hpp>

#if !__has_include(<xxhash.h>)
#error "checkpoint: the header xxhash.h must be installed (apt-get install libxxhash-dev)"
#endif
#if defined(__AVX512F__) && !defined(XXH_VECTOR)
#define XXH_VECTOR XXH_AVX2 // g++ 12 warns about its own header for AVX-512
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

/// @brief The hash of bytes, computed at about memory bandwidth.
[[nodiscard]] inline BlockHash hash_of(std::span<const std::byte> bytes) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

namespace detail {

/// Hashes bytes that arrive piece by piece; the result is the hash of all of them.
class RunningHash {
public:
  RunningHash() noexcept { XXH3_128bits_reset(&state_); }
  void add(std::span<const std::byte> bytes) noexcept {
    XXH3_128bits_update(&state_, bytes.data(), bytes.size());
  }
  [[nodiscard]] BlockHash hash() const noexcept {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return {hash.high64, hash.low64};
  }

private:
  XXH3_state_t state_;
};

} // namespace detail

/// @brief The hash of a text.
[[nodiscard]] inline BlockHash hash_of(std::string_view text) noexcept {
  return hash_of(std::as_bytes(std::span(text)));
}

/// @brief Parses 32 lower-case hexadecimal digits; nothing if the text is anything else.
[[nodiscard]] constexpr std::optional<BlockHash> find_hash(std::string_view text) noexcept {
  if (text.size() != 32)
    return std::nullopt;
  BlockHash out;
  for (std::size_t i = 0; i < 32; ++i) {
    const char c = text[i];
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
      return std::nullopt;
    std::uint64_t& half = i < 16 ? out.high : out.low;
    half = half << 4U | static_cast<std::uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return out;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
