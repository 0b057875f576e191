// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The state of calls of thread ranks in device memory while they are under way: the devices, and the
/// places at which collectives and messages meet.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/threads/group.hpp>
#include <shardwright/comm/threads/mailbox.hpp>
#include <shardwright/device/peers/work.hpp>
#include <shardwright/device/runtime.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A device that ranks are on.
template <PeerRuntime Runtime>
struct PeerDevice {
  Runtime runtime;
  std::optional<typename Runtime::Stream> stream; ///< Of the collectives.
};

/// One side of a message in device memory.
template <PeerRuntime Runtime>
struct PeerMessage : ThreadMessage {
  /// `own` is the number of this side's device among those of the group.
  PeerMessage(std::vector<PeerDevice<Runtime>>& devices, unsigned own)
      : ready(devices[own].runtime.make_event()) {
    for (PeerDevice<Runtime>& device : devices)
      carried.push_back(device.runtime.make_event());
  }
  typename Runtime::Event ready;                ///< What the side's stream held when the message was posted.
  std::vector<typename Runtime::Event> carried; ///< The end of the copy, by the device that carries it.
  std::string broken; ///< What the device said where it failed; set before the state.
};

/// Where the calls of one collective meet.
template <PeerRuntime Runtime>
struct PeerRound {
  using Event = typename Runtime::Event;
  using Stream = typename Runtime::Stream;
  enum class State : std::uint8_t { open, launched, mismatched, clashing };
  struct Part {
    Part(Runtime& runtime, std::size_t ranks) : ready(runtime.make_event()) {
      in_blocks.reserve(ranks);
      out_blocks.reserve(ranks);
    }
    CollectiveCall call{};
    std::vector<StridedBlock> in_blocks, out_blocks;
    Event ready;
  };
  /// What one device does.
  struct Launch {
    /// A table that some list needs is made at once: it would come late in a run that is steady by then.
    Launch(Runtime& runtime, std::size_t most_entries) : done(runtime.make_event()) {
      if (most_entries > PeerWork::inline_entries)
        table.emplace(runtime.make_table(most_entries * sizeof(PeerEntry)));
    }
    Event done;
    std::optional<typename Runtime::Table> table;
    bool reads_table = false;
  };
  PeerRound(std::vector<PeerDevice<Runtime>>& devices, const std::vector<unsigned>& device_of)
      : slots(device_of.size()) {
    for (const unsigned device : device_of)
      parts.emplace_back(devices[device].runtime, slots.size());
    for (unsigned device = 0; device < devices.size(); ++device) {
      const auto own = static_cast<std::size_t>(std::count(device_of.begin(), device_of.end(), device));
      launches.emplace_back(devices[device].runtime, PeerWorkList::most_entries(slots.size(), own));
    }
  }
  std::uint64_t sequence = 0;
  std::vector<ThreadSlot> slots;
  std::vector<Part> parts;
  std::vector<Launch> launches; ///< By device.
  int arrived = 0;
  int left = 0;
  std::string sentence; ///< Set before the state says so.
  std::atomic<State> state{State::open};
  PeerRound* next = nullptr;

  [[nodiscard]] bool over() const noexcept { return state.load(std::memory_order_seq_cst) != State::open; }
  /// Puts a stream behind the work of all devices.
  void put_before(Runtime& runtime, Stream& stream) {
    for (Launch& launch : launches)
      runtime.wait(stream, launch.done);
  }
  /// Whether all devices have done their work.
  [[nodiscard]] bool done(Runtime& runtime) {
    return std::all_of(launches.begin(), launches.end(),
                       [&](Launch& launch) { return runtime.done(launch.done); });
  }
  /// Whether a device may still read its table.
  [[nodiscard]] bool reads_table(Runtime& runtime) {
    return std::any_of(launches.begin(), launches.end(),
                       [&](Launch& launch) { return launch.reads_table && !runtime.done(launch.done); });
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
