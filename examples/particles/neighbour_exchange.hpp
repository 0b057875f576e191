// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief NeighbourExchange: items that change their owners, in one message to each neighbour.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/pending.hpp>
#include <shardwright/core/error.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace particles {

namespace sw = shardwright;

/// Moves items to their owners, this rank or a neighbour. Each ordered pair of neighbours keeps a room, a
/// number of items that both know: a message is the number of items that leave and as many as the room holds.
/// Only a pair with more of them sends the rest in a second message, and both ends then enlarge the room.
/// Rooms do not shrink: a message has less than twice the bytes of the fullest one so far.
template <class Item> class NeighbourExchange {
  static_assert(std::is_trivially_copyable_v<Item>, "its bytes are sent");

public:
  /// `neighbours[r]`: whether rank r is one, which it must say of this rank, too.
  NeighbourExchange(sw::HostCommunicator ranks, std::vector<bool> neighbours)
      : ranks_(std::move(ranks)), neighbours_(std::move(neighbours)), room_to_(neighbours_.size()),
        room_from_(neighbours_.size()) {
    neighbours_[static_cast<std::size_t>(ranks_.rank())] = false; // no message to oneself
  }

  /// Replaces `items` by those of all ranks whose owner is this one, in the order of the ranks they come from
  /// and of the items there. Collective. @throws InvalidArgument for an owner that is no neighbour.
  template <class OwnerOf> void operator()(std::vector<Item>& items, const OwnerOf& owner_of) {
    const std::size_t size = neighbours_.size(), own = static_cast<std::size_t>(ranks_.rank());
    std::vector<std::vector<Item>> leaving(size), coming(size);
    for (const Item& item : items) {
      const auto owner = static_cast<std::size_t>(owner_of(item));
      if (owner != own && (owner >= size || !neighbours_[owner]))
        throw sw::InvalidArgument(
            "NeighbourExchange: items must go to this rank or a neighbour, but one goes to rank " +
            std::to_string(owner) + " (name it as a neighbour, or move items less far in a step)");
      leaving[owner].push_back(item);
    }
    coming[own] = std::move(leaving[own]);

    const Blocks out = blocks(room_to_), in = blocks(room_from_);
    sent_.resize(out.bytes);
    received_.resize(in.bytes);
    for (std::size_t r = 0; r < size; ++r)
      if (neighbours_[r]) {
        const std::uint64_t count = leaving[r].size();
        std::uint8_t* const to = sent_.data() + out.blocks[r].offset;
        std::memcpy(to, &count, header);
        copy(to + header, leaving[r].data(), std::min(leaving[r].size(), room_to_[r]));
      }
    //! [exchange]
    ranks_.all_to_all(sent_, received_, out.blocks, in.blocks);

    std::vector<sw::Pending> rests;
    for (std::size_t r = 0; r < size; ++r)
      if (neighbours_[r]) {
        std::uint64_t count = 0;
        const std::uint8_t* const from = received_.data() + in.blocks[r].offset;
        std::memcpy(&count, from, header);
        coming[r].resize(count);
        copy(coming[r].data(), from + header, std::min(coming[r].size(), room_from_[r]));
        const int rank = static_cast<int>(r);
        if (leaving[r].size() > room_to_[r])
          rests.push_back(ranks_.async().send(rest<const std::uint8_t>(leaving[r], room_to_[r]), rank));
        if (coming[r].size() > room_from_[r])
          rests.push_back(ranks_.async().receive(rest<std::uint8_t>(coming[r], room_from_[r]), rank));
        enlarge(room_to_[r], leaving[r].size());
        enlarge(room_from_[r], coming[r].size());
      }
    for (sw::Pending& one : rests)
      one.wait();
    //! [exchange]

    items.clear();
    for (const std::vector<Item>& from : coming)
      items.insert(items.end(), from.begin(), from.end());
  }

private:
  static constexpr std::size_t header = sizeof(std::uint64_t);
  struct Blocks {
    std::vector<sw::StridedBlock> blocks; // for every rank
    std::size_t bytes = 0;
  };

  Blocks blocks(const std::vector<std::size_t>& rooms) const {
    Blocks out;
    for (std::size_t r = 0; r < rooms.size(); ++r) {
      const std::size_t bytes = neighbours_[r] ? header + rooms[r] * sizeof(Item) : 0; // none: no message
      out.blocks.push_back(sw::contiguous_block(out.bytes, bytes));
      out.bytes += bytes;
    }
    return out;
  }
  static void copy(void* to, const void* from, std::size_t items) {
    if (items > 0)
      std::memcpy(to, from, items * sizeof(Item));
  }
  template <class Byte> static std::span<Byte> rest(auto& items, std::size_t room) {
    return {reinterpret_cast<Byte*>(items.data() + room), (items.size() - room) * sizeof(Item)};
  }
  /// To a power of two, so that a pair sends few second messages however slowly its items become more.
  static void enlarge(std::size_t& room, std::size_t items) {
    if (items > room)
      room = std::bit_ceil(items);
  }

  sw::HostCommunicator ranks_;
  std::vector<bool> neighbours_;
  std::vector<std::size_t> room_to_, room_from_; // items, for every rank
  std::vector<std::uint8_t> sent_, received_;
};

} // namespace particles
