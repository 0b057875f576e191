// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The comparison of the calls of an NCCL group between the hosts, before they are enqueued.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/call_account.hpp>
#include <shardwright/comm/fingerprint.hpp>
#include <shardwright/comm/report.hpp>
#include <shardwright/device/nccl/calls.hpp>
#include <shardwright/device/nccl/member.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Compares the calls of the ranks: collectives among all of them, one at a time, and a message between its
/// two sides. Does nothing without NcclOptions::check. The memory is reused.
template <class Api, class Runtime> class NcclAgreement {
public:
  using Call = NcclCall<Runtime>;

  explicit NcclAgreement(NcclMember<Api>& member) : member_(member) {}

  /// Sends the header of a message to its receiver, or starts to receive that of the sender.
  void begin_message(Call& started) {
    if (!compares())
      return;
    const CollectiveCall& call = started.call;
    const bool sends = call.operation == Operation::send;
    if (sends)
      started.header = {call, started.sequence};
    const std::span<MessageHeader> header(&started.header, 1);
    started.compared = member_.guarded([&] {
      HostCommunicator& host = member_.host();
      return sends ? host.async().send(std::as_bytes(header), call.root, header_tag, call.where)
                   : host.async().receive(std::as_writable_bytes(header), call.root, header_tag, call.where);
    });
  }

  /// Whether a call, the first that is not issued, has been compared; never waits.
  /// @throws CollectiveMismatch, which shows the calls that differ; the errors of the host group.
  [[nodiscard]] bool reached(Call& started) {
    if (!compares() || started.is_compared)
      return true;
    if (!(sends_or_receives(started.call.operation) ? message(started) : collective(started)))
      return false;
    return started.is_compared = true;
  }

private:
  static constexpr int header_tag = 0; ///< Of the messages between hosts.

  [[nodiscard]] bool compares() const { return member_.options().check && member_.size() > 1; }

  [[nodiscard]] bool message(Call& started) {
    if (!started.compared.done())
      return false;
    const CollectiveCall& call = started.call;
    member_.on_hosts(call, started.sequence, [&] { started.compared.wait(); });
    if (call.operation == Operation::send || started.header.matches(call))
      return true;
    disagree(started.header.mismatch(member_, call, started.sequence), started, true);
  }

  [[nodiscard]] bool collective(const Call& started) {
    const CollectiveCall& call = started.call;
    const auto on_hosts = [&](auto step) { return member_.on_hosts(call, started.sequence, step); };
    if (!under_way_)
      on_hosts([&] { begin(call, started.sequence); });
    if (!pending_.ready())
      return false;
    if (on_hosts([&] { return finish(); }))
      return true;
    const std::string sentence = member_.guarded([&] { return explained(call, started.sequence); });
    disagree(sentence, started, false); // all ranks have seen it
  }
  /// Sends this rank's call to the others.
  void begin(const CollectiveCall& call, std::uint64_t sequence) {
    HostCommunicator& host = member_.host();
    const Fingerprint own = fingerprint(call, host.rank(), host.size(), sequence);
    own_ = {own.common, own.unpaired()};
    all_.resize(2 * static_cast<std::size_t>(host.size()));
    pending_ = host.async().all_gather(own_, all_, {}, call.where);
    under_way_ = true;
  }
  /// Waits for all ranks' calls. @return whether they agree. @throws the host group's errors.
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
  [[nodiscard]] std::string explained(const CollectiveCall& call, std::uint64_t sequence) {
    const HostCommunicator& host = member_.host();
    const auto accounts = all_gather_v(host, CallAccount::pack(call, sequence, host.size()), call.where);
    return mismatch_of_accounts(host, "their sequence numbers differ",
                                [&](int rank) { return accounts[static_cast<std::size_t>(rank)].data(); });
  }

  [[noreturn]] void disagree(const std::string& sentence, const Call& started, bool tell) {
    member_.end(sentence, tell);
    throw CollectiveMismatch(std::string(name_of(started.call.operation)) + ": " + sentence,
                             member_.context(started.call, started.sequence));
  }

  NcclMember<Api>& member_;
  std::array<std::uint64_t, 2> own_{};
  std::vector<std::uint64_t> all_;
  Pending pending_;
  bool under_way_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
