// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The messages in flight of one step of a call, whom they wait for, and an all-gather made of them.

#include <shardwright/comm/mpi/environment.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// An MPI communicator with the ranks and tags of one group inside it.
struct MpiChannel {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<int> addresses;   ///< Rank in `comm` of each rank of the group.
  std::vector<int> world_ranks; ///< Rank in the world of each rank of the group.
};

/// Messages that were posted and not yet completed; the arrays are kept from step to step.
class MpiRequests {
public:
  /// Bytes of one MPI message at most: MPI counts are int.
  static constexpr std::size_t max_message_bytes = std::size_t{1} << 30;

  enum class Mode { standard, synchronous };

  void send(const MpiChannel& channel, const void* data, std::size_t bytes, int peer, int tag,
            const MpiCallSite& site, Mode mode = Mode::standard) {
    const auto* from = static_cast<const std::byte*>(data);
    do {
      const std::size_t part = bytes < max_message_bytes ? bytes : max_message_bytes;
      MPI_Request& request = add(peer, part, false);
      const auto post = mode == Mode::standard ? MPI_Isend : MPI_Issend;
      check_mpi(post(from, static_cast<int>(part), MPI_BYTE,
                     channel.addresses[static_cast<std::size_t>(peer)], tag, channel.comm, &request),
                "MPI_Isend", &site);
      from += part;
      bytes -= part;
    } while (bytes > 0);
  }

  void receive(const MpiChannel& channel, void* data, std::size_t bytes, int peer, int tag,
               const MpiCallSite& site) {
    auto* to = static_cast<std::byte*>(data);
    do {
      const std::size_t part = bytes < max_message_bytes ? bytes : max_message_bytes;
      MPI_Request& request = add(peer, part, true);
      check_mpi(MPI_Irecv(to, static_cast<int>(part), MPI_BYTE,
                          channel.addresses[static_cast<std::size_t>(peer)], tag, channel.comm, &request),
                "MPI_Irecv", &site);
      to += part;
      bytes -= part;
    } while (bytes > 0);
  }

  [[nodiscard]] bool empty() const noexcept { return requests_.empty(); }

  /// Whether all messages are done; the set is empty then.
  /// @throws CollectiveMismatch where a message is shorter or longer than this rank's call says;
  /// TransportError.
  [[nodiscard]] bool test(const MpiCallSite& site) {
    if (requests_.empty())
      return true;
    statuses_.resize(requests_.size());
    int done = 0;
    const int code =
        MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data());
    if (code != MPI_SUCCESS)
      fail(code, site);
    if (done == 0)
      return false;
    for (std::size_t i = 0; i < messages_.size(); ++i)
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

  /// Gives up: receives that no message has met are withdrawn, the rest is left to MPI.
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

private:
  struct Message {
    int peer = 0;
    std::size_t bytes = 0;
    bool receive = false;
  };

  MPI_Request& add(int peer, std::size_t bytes, bool receive) {
    messages_.push_back({peer, bytes, receive});
    requests_.push_back(MPI_REQUEST_NULL);
    return requests_.back();
  }

  void check_length(std::size_t i, const MpiCallSite& site) const {
    if (!messages_[i].receive)
      return;
    int bytes = 0;
    MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes);
    if (static_cast<std::size_t>(bytes) != messages_[i].bytes)
      mismatch(i, site, "sent " + std::to_string(bytes) + " bytes");
  }

  [[noreturn]] void fail(int code, const MpiCallSite& site) const {
    for (std::size_t i = 0; code == MPI_ERR_IN_STATUS && i < statuses_.size(); ++i) {
      const int own = statuses_[i].MPI_ERROR;
      if (own == MPI_SUCCESS || own == MPI_ERR_PENDING)
        continue;
      int error_class = own;
      MPI_Error_class(own, &error_class);
      if (error_class == MPI_ERR_TRUNCATE)
        mismatch(i, site, "sent more");
      check_mpi(own, "MPI_Testall", &site);
    }
    check_mpi(code, "MPI_Testall", &site);
    throw TransportError(code, "MPI_Testall: MPI must say which message failed, but it did not",
                         site.context());
  }

  [[noreturn]] void mismatch(std::size_t i, const MpiCallSite& site, const std::string& what) const {
    throw CollectiveMismatch(std::string(name_of(site.operation)) + ": rank " +
                                 std::to_string(messages_[i].peer) + " of the group must send " +
                                 std::to_string(messages_[i].bytes) + " bytes, but it " + what +
                                 " (pass equal counts and element types on all ranks)",
                             site.context());
  }

  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<Message> messages_;
};

/// An all-gather of small entries (Bruck et al., IEEE TPDS 8(11), 1997); entry i ends up at (own rank + i)
/// mod ranks.
///
/// When it is done, every rank has entered it: it is a barrier too.
class MpiAgreement {
public:
  void start(const void* entry, std::size_t bytes, int ranks) {
    bytes_ = bytes;
    ranks_ = static_cast<std::size_t>(ranks);
    have_ = 0;
    coming_ = 1;
    entries_.resize(bytes * ranks_);
    std::memcpy(entries_.data(), entry, bytes);
  }

  /// Moves on as far as messages allow. @return whether every entry is here.
  [[nodiscard]] bool advance(const MpiChannel& channel, int rank, int tag, const MpiCallSite& site) {
    for (;;) {
      if (!requests_.test(site))
        return false;
      have_ += coming_;
      coming_ = 0;
      if (have_ >= ranks_)
        return true;
      coming_ = std::min(have_, ranks_ - have_);
      const auto own = static_cast<std::size_t>(rank);
      const auto to = static_cast<int>((own + ranks_ - have_) % ranks_);
      const auto from = static_cast<int>((own + have_) % ranks_);
      requests_.receive(channel, entries_.data() + have_ * bytes_, coming_ * bytes_, from, tag, site);
      requests_.send(channel, entries_.data(), coming_ * bytes_, to, tag, site);
    }
  }

  /// Bytes of a rank's entry, once all are here.
  [[nodiscard]] const std::byte* bytes(int of_rank, int own_rank) const {
    const auto index =
        (static_cast<std::size_t>(of_rank) + ranks_ - static_cast<std::size_t>(own_rank)) % ranks_;
    return entries_.data() + index * bytes_;
  }
  template <class Entry>
  [[nodiscard]] Entry entry(int of_rank, int own_rank) const {
    Entry out;
    std::memcpy(&out, bytes(of_rank, own_rank), sizeof out);
    return out;
  }

  [[nodiscard]] MpiRequests& requests() noexcept { return requests_; }

private:
  std::vector<std::byte> entries_;
  std::size_t bytes_ = 0;
  std::size_t ranks_ = 0;
  std::size_t have_ = 0;
  std::size_t coming_ = 0;
  MpiRequests requests_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
