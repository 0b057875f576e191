// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The memory order of loads, stores and atomic operations: PTX ISA 9.0, section 8.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../read/type.hpp"
#include "../run/block.hpp"
#include "build.hpp"

namespace ptx {

/// @brief Parts of Instruction::target of an access.
namespace ordering {
inline constexpr std::uint32_t strength = 3, acquires = 4, releases = 8;
} // namespace ordering

/// @brief Takes the words of order and scope. Returns whether the access is strong.
inline bool take_ordering(Build& build) {
  const std::string_view order =
      build.words.take_one_of({"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"});
  const std::string_view scope = build.words.take_one_of({"cta", "cluster", "gpu", "sys"});
  if (order == "mmio")
    build.words.take("relaxed");
  if (order.empty() || order == "weak")
    return false;
  build.out.target = static_cast<std::uint32_t>(scope == "cta" ? Strength::block : Strength::device);
  if (order == "acquire" || order == "acq_rel")
    build.out.target |= ordering::acquires;
  if (order == "release" || order == "acq_rel")
    build.out.target |= ordering::releases;
  return true;
}

inline void order_before(Warp& warp, const Instruction& in) {
  if ((in.target & ordering::releases) != 0 && warp.launched.races)
    warp.launched.races->fence(warp.block.number, warp.index, true, false);
}
inline void order_after(Warp& warp, const Instruction& in) {
  if (!warp.launched.races)
    return;
  warp.launched.races->strong_read(warp.block.number, warp.index);
  if ((in.target & ordering::acquires) != 0)
    warp.launched.races->fence(warp.block.number, warp.index, false, true);
}

template <class T> T load_atomic(const std::byte* at) {
  T value;
  if constexpr (sizeof(T) <= 8)
    __atomic_load(reinterpret_cast<const T*>(at), &value, __ATOMIC_SEQ_CST);
  else
    std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T> void store_atomic(std::byte* at, T value) {
  if constexpr (sizeof(T) <= 8)
    __atomic_store(reinterpret_cast<T*>(at), &value, __ATOMIC_SEQ_CST);
  else
    std::memcpy(at, &value, sizeof value);
}

} // namespace ptx
