// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The hosts of an NCCL group compare their calls before these are enqueued.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/comm/report.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One comparison at a time; the memory is kept.
class NcclAgreement {
public:
  /// Tells the others of this rank's call.
  void begin(HostCommunicator& host, const CollectiveCall& call, std::uint64_t sequence) {
    const Fingerprint own = fingerprint(call, host.rank(), host.size(), sequence);
    own_ = {own.common, own.unpaired()};
    all_.resize(2 * static_cast<std::size_t>(host.size()));
    pending_ = host.all_gather_async(own_, all_, call.where);
    under_way_ = true;
  }
  [[nodiscard]] bool under_way() const noexcept { return under_way_; }
  [[nodiscard]] bool ready() const { return pending_.ready(); }

  /// Waits for all ranks' calls. @return whether they are one. @throws the host group's errors.
  [[nodiscard]] bool finish() {
    under_way_ = false;
    pending_.wait();
    FingerprintComparison calls;
    for (std::size_t i = 0; i < all_.size(); i += 2)
      calls.add(all_[i], all_[i + 1]);
    return calls.agree();
  }

  /// Collective over the host group, after all ranks have seen that they disagree: the sentence that shows
  /// all calls.
  [[nodiscard]] static std::string explain(HostCommunicator& host, const CollectiveCall& call,
                                           std::uint64_t sequence) {
    constexpr std::size_t text_bytes = 256;
    std::array<unsigned char, text_bytes> own{};
    const std::string text = describe(call, sequence);
    for (std::size_t i = 0; i < text.size() && i + 1 < text_bytes; ++i)
      own[i] = static_cast<unsigned char>(text[i]);
    std::vector<unsigned char> all(text_bytes * static_cast<std::size_t>(host.size()));
    host.all_gather(own, all, call.where);
    const auto text_of_rank = [&](int rank) {
      return std::string(reinterpret_cast<const char*>(all.data()) +
                         text_bytes * static_cast<std::size_t>(rank));
    };
    std::vector<IssuedCall> calls;
    for (int rank = 0; rank < host.size(); ++rank)
      calls.push_back({host.world_rank(rank), text_of_rank(rank)});
    return mismatch_sentence(host.name(), {}, calls);
  }

private:
  std::array<std::uint64_t, 2> own_{};
  std::vector<std::uint64_t> all_;
  Pending pending_;
  bool under_way_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
