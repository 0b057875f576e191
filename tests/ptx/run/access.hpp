// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The checks that every access of a warp to memory passes, and the memory behind the addresses.

#include <cstddef>
#include <cstdint>

#include "../read/decoder.hpp"
#include "block.hpp"
#include "warp.hpp"

namespace ptx {

/// @brief What an instruction wants of memory, the same for all lanes.
struct Access {
  Space space = Space::generic;
  unsigned bytes = 4; ///< Of a lane. The address must be a multiple of them.
  bool reads = false, writes = false;
  Strength strength = Strength::weak;
  bool pending = false; ///< A copy that writes later.
};

/// @brief Where the lanes of a warp access memory.
struct Addresses {
  std::uint64_t given[warp_lanes]; ///< As the registers and the offset say.
  std::byte* memory[warp_lanes];   ///< On the host.
};

/// @brief An access that passed the checks for alignment, bounds and bytes never written.
class Checked {
public:
  /// @throws Fault.
  Checked(Warp&, const Instruction&, std::uint32_t lanes, const Access&);

  std::byte* memory(unsigned lane) const { return addresses_.memory[lane]; }

  bool in_shared(unsigned lane) const { return (shared_lanes_ & bit(lane)) != 0; }

  /// @brief Notes the access of a lane for the search for races.
  /// @param value is what a store writes: lanes of one store that agree do not race.
  /// @throws Fault (race).
  void note(unsigned lane, const void* value = nullptr);

private:
  void resolve(std::uint32_t lanes, Space space);
  void resolve_generic(std::uint32_t lanes);
  void resolve_global(std::uint32_t lanes);
  void resolve_window(std::uint32_t lanes, std::byte* base, std::size_t extent, std::size_t stride,
                      const char* what);
  void check_written(std::uint32_t lanes);
  [[noreturn]] void fail_bounds(unsigned lane) const;
  [[noreturn]] void fail_race(unsigned lane, const Races::Conflict&) const;
  void check_alignment(std::uint32_t lanes) const;

  Warp& warp_;
  const Access& access_;
  Addresses addresses_;
  std::uint32_t shared_lanes_ = 0, global_lanes_ = 0;
  Races::Access race_;
  bool notes_ = false;
};

/// @brief The addresses of the lanes: from[0] plus the offset.
void compute_addresses(Warp&, const Instruction&, std::uint32_t lanes, std::uint64_t* out);

} // namespace ptx
