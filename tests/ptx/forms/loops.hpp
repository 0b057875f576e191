// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Functions of values as instructions: a loop over the lanes around a function object.

#include <cstdint>

#include "../run/warp.hpp"

namespace ptx {

/// @brief to = F(from[0])
template <class To, class From, class F> void unary(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const From* const a = warp.row<From>(in.from[0]);
  assign_lanes(warp.row<To>(in.to), lanes, [a](unsigned lane) { return static_cast<To>(F{}(a[lane])); });
}

/// @brief to = F(from[0], from[1])
template <class To, class From, class F> void binary(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const From* const a = warp.row<From>(in.from[0]);
  const From* const b = warp.row<From>(in.from[1]);
  assign_lanes(warp.row<To>(in.to), lanes,
               [a, b](unsigned lane) { return static_cast<To>(F{}(a[lane], b[lane])); });
}

/// @brief to = F(from[0], from[1], from[2]); the third may have another type, as that of mad.wide.
template <class To, class From, class Third, class F>
void ternary(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const From* const a = warp.row<From>(in.from[0]);
  const From* const b = warp.row<From>(in.from[1]);
  const Third* const c = warp.row<Third>(in.from[2]);
  assign_lanes(warp.row<To>(in.to), lanes,
               [a, b, c](unsigned lane) { return static_cast<To>(F{}(a[lane], b[lane], c[lane])); });
}

} // namespace ptx
