// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The messages in flight of one step of a call, and the ranks for which they wait.

#include <shardwright/comm/mpi/environment.hpp>
#include <shardwright/core/strided_block.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The MPI communicator of a group, which has its ranks alone, in its order.
struct MpiChannel {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<int> world_ranks; ///< Rank in the world of each rank of the group.
  std::vector<int> processes;   ///< Of each rank, if this one may read its memory and it this one's; else 0.
};

/// Announces a large block to the rank that takes it.
struct BlockOffer {
  static constexpr std::uint64_t unlike_data = 0x7f3a'91c5'e8d2'604b;

  std::uint64_t mark = 0;
  std::uint64_t address = 0; ///< Where the sender's buffer begins; 0 if the block comes by messages.
  StridedBlock block{};      ///< In bytes.
};

/// Messages that have been posted and not yet completed; the arrays are reused from step to step.
class MpiRequests {
public:
  /// Most bytes of one MPI message: MPI counts are int.
  static constexpr std::size_t max_message_bytes = std::size_t{1} << 30;
  /// MPI sends messages up to this length eagerly, and longer ones by rendezvous: Open MPI's limit in shared
  /// memory is 4 KiB with headers.
  static constexpr std::size_t eager_bytes = 3968;
  /// Up to this many bytes go in parts that are sent eagerly. A rendezvous takes longer than five of them if
  /// Open MPI reads the other process's memory (CMA, its default), and hardly less time otherwise.
  static constexpr std::size_t parted_bytes = std::size_t{16} << 10;
  /// Longer blocks of an exchange are announced before they move: one message more hardly counts.
  static constexpr std::size_t unannounced_bytes = std::size_t{128} << 10;
  /// In an all_reduce, every rank reads all of every other's data up to this many bytes altogether, as one
  /// round is faster than two.
  static constexpr std::size_t one_round_bytes = std::size_t{16} << 10;

  /// Both sides must pass the same kind. A synchronous message is sent when its receive has begun; for a
  /// ragged one the receiver only knows the maximum length.
  enum class Mode { standard, synchronous, ragged };

  void send(const MpiChannel& channel, const void* data, std::size_t bytes, int peer, int tag,
            const MpiCallSite& site, Mode mode = Mode::standard) {
    const auto* const from = static_cast<const std::byte*>(data);
    const auto post = mode == Mode::synchronous ? MPI_Issend : MPI_Isend;
    in_parts(bytes, mode, [&](std::size_t at, std::size_t part) {
      MPI_Request& request = add({peer});
      check_mpi(post(from + at, static_cast<int>(part), MPI_BYTE, peer, tag, channel.comm, &request),
                "MPI_Isend", &site);
    });
  }

  void receive(const MpiChannel& channel, void* data, std::size_t bytes, int peer, int tag,
               const MpiCallSite& site, Mode mode = Mode::standard) {
    auto* const to = static_cast<std::byte*>(data);
    in_parts(bytes, mode, [&](std::size_t at, std::size_t part) {
      MPI_Request& request = add({peer, bytes, at, part, true, mode == Mode::ragged, to + at});
      check_mpi(MPI_Irecv(to + at, static_cast<int>(part), MPI_BYTE, peer, tag, channel.comm, &request),
                "MPI_Irecv", &site);
    });
  }

  /// Whether all messages are done; the set is empty then.
  /// @throws CollectiveMismatch if a message is shorter or longer than this rank's call says;
  /// TransportError.
  [[nodiscard]] bool test(const MpiCallSite& site) {
    if (requests_.empty())
      return true;
    const std::size_t count = requests_.size();
    if (statuses_.size() < count)
      statuses_.resize(count);
    int done = 0;
    const int code = MPI_Testall(static_cast<int>(count), requests_.data(), &done, statuses_.data());
    if (code != MPI_SUCCESS)
      fail(code, site);
    if (done == 0) {
      // If a message is shorter than this rank's call says, its other parts may never arrive.
      if (++tests_ % 64 == 0)
        check_arrived(site);
      return false;
    }
    for (std::size_t i = 0; i < count; ++i)
      check_length(i, site);
    requests_.clear();
    messages_.clear();
    return true;
  }

  /// Adds the ranks of the group whose messages are not done.
  void add_missing(std::vector<bool>& missing) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      if (requests_[i] == MPI_REQUEST_NULL)
        continue;
      if (MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0)
        missing[static_cast<std::size_t>(messages_[i].peer)] = true;
    }
  }

  /// Gives up: receives without a matching message are cancelled, the rest is left to MPI.
  void cancel() noexcept {
    int finalised = 0;
    MPI_Finalized(&finalised);
    for (std::size_t i = 0; finalised == 0 && i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL)
        continue;
      if (messages_[i].receive)
        MPI_Cancel(&requests_[i]);
      MPI_Request_free(&requests_[i]);
    }
    requests_.clear();
    messages_.clear();
  }

  /// A rank of the group has sent another number of bytes than this rank's call says.
  [[noreturn]] static void mismatch(int peer, std::size_t bytes, const std::string& what,
                                    const MpiCallSite& site) {
    throw CollectiveMismatch(std::string(name_of(site.operation)) + ": rank " + std::to_string(peer) +
                                 " of the group must send " + std::to_string(bytes) + " bytes, but it " +
                                 what + " (pass equal counts and element types on all ranks)",
                             site.context());
  }

private:
  struct Message {
    int peer = 0;
    // The rest is of a receive.
    std::size_t all = 0; ///< Bytes of all parts.
    std::size_t at = 0;  ///< Where this part begins.
    std::size_t bytes = 0;
    bool receive = false;
    bool ragged = false;
    const void* data = nullptr;
  };

  /// Calls post(offset, bytes) for every part; the last one is shorter, so that different lengths on the two
  /// sides are detected.
  template <class Post> static void in_parts(std::size_t bytes, Mode mode, Post post) {
    const bool parted = mode == Mode::standard && bytes <= parted_bytes;
    const std::size_t most = parted ? eager_bytes : max_message_bytes;
    for (std::size_t at = 0, part = most; part == most; at += part) {
      part = std::min(bytes - at, most);
      post(at, part);
    }
  }

  MPI_Request& add(const Message& message) {
    messages_.push_back(message);
    requests_.push_back(MPI_REQUEST_NULL);
    return requests_.back();
  }

  void check_arrived(const MpiCallSite& site) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      if (messages_[i].receive && requests_[i] != MPI_REQUEST_NULL &&
          MPI_Request_get_status(requests_[i], &done, &statuses_[i]) == MPI_SUCCESS && done != 0)
        check_length(i, site);
    }
  }

  void check_length(std::size_t i, const MpiCallSite& site) const {
    const Message& message = messages_[i];
    if (!message.receive || message.ragged)
      return;
    int count = 0;
    MPI_Get_count(&statuses_[i], MPI_BYTE, &count);
    auto bytes = static_cast<std::size_t>(count);
    if (bytes == sizeof(BlockOffer)) {
      BlockOffer offer;
      std::memcpy(&offer, message.data, sizeof offer);
      if (offer.mark == BlockOffer::unlike_data)
        bytes = offer.block.count();
    }
    if (bytes == message.bytes)
      return;
    // The first of several parts, where this rank expects a message that is too long for parts.
    const bool more = bytes == eager_bytes && message.all > parted_bytes;
    mismatch(message.peer, message.all,
             more ? "sent fewer" : "sent " + std::to_string(message.at + bytes) + " bytes", site);
  }

  [[noreturn]] void fail(int code, const MpiCallSite& site) const {
    for (std::size_t i = 0; code == MPI_ERR_IN_STATUS && i < requests_.size(); ++i) {
      const int own = statuses_[i].MPI_ERROR;
      if (own == MPI_SUCCESS || own == MPI_ERR_PENDING)
        continue;
      int error_class = own;
      MPI_Error_class(own, &error_class);
      if (error_class == MPI_ERR_TRUNCATE)
        mismatch(messages_[i].peer, messages_[i].all, "sent more", site);
      check_mpi(own, "MPI_Testall", &site);
    }
    check_mpi(code, "MPI_Testall", &site);
    throw TransportError(code, "MPI_Testall: MPI must say which message failed, but it did not",
                         site.context());
  }

  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<Message> messages_;
  unsigned tests_ = 0;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
