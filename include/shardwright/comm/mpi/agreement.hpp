// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Lets every rank of a group see one small entry of every other, in a logarithmic number of rounds.

#include <shardwright/comm/mpi/requests.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

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
