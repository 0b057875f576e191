// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Messages of one direction between two ranks over NCCL, matched by tag.
///
/// NCCL has no tags, and a send blocks later work on its communicator until it is received. So each direction
/// of a pair has its own communicator and stream, created at the first message, and every send announces its
/// tag to the receiver over the host group. NCCL's receives follow the order of the sends: a message without
/// a receive yet, but ahead of one that has a receive, goes to memory kept here and is copied when its
/// receive is issued.

#include <shardwright/device/nccl/calls.hpp>
#include <shardwright/device/nccl/member.hpp>
#include <shardwright/device/runtime.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One direction between this rank and a peer.
template <class Api, class Runtime> class NcclMessages {
public:
  using Member = NcclMember<Api>;
  using Call = NcclCall<Runtime>;

  NcclMessages(Member& member, Runtime& runtime, int peer, bool sends)
      : member_(member), runtime_(runtime), peer_(peer), sends_(sends), channel_(member.new_channel()),
        stream_(runtime.make_stream()) {}

  [[nodiscard]] bool is(int peer, bool sends) const noexcept { return peer == peer_ && sends == sends_; }
  [[nodiscard]] NcclChannel<Api>& channel() noexcept { return *channel_; }
  [[nodiscard]] NcclWatch<Runtime>& watch() noexcept { return watch_; }
  /// The message that NCCL is currently enqueuing, or null.
  [[nodiscard]] Call* issuing() const noexcept {
    return queue_.empty() || !queue_.front().issued ? nullptr : queue_.front().message;
  }

  /// Accepts a message, whose ready event has been recorded.
  void post(Call& message) {
    if (sends_)
      announce(message);
    else
      unmatched_.push_back(&message);
  }

  /// Whether the other side has matched a send, so that it may complete.
  [[nodiscard]] bool taken(const Call& message) const {
    for (std::size_t i = announcements_.size(); i-- > 0;) // newest first: records of calls are reused
      if (announcements_[i]->message == &message)
        return announcements_[i]->sent.done();
    return true;
  }

  /// Advances as far as possible without waiting.
  void progress() {
    if (sends_)
      reap();
    else
      read_headers();
    while (!queue_.empty() && advance(queue_.front()))
      queue_.erase(queue_.begin());
  }

  /// " (the other side has sent under tags 3, 4)" for a receive that found no match.
  [[nodiscard]] std::string offered() const {
    std::string out;
    for (const auto& one : early_)
      if (!one->claimed)
        out += (out.empty() ? "the other side has sent under tag " : ", ") + std::to_string(one->header.tag);
    return out;
  }

private:
  /// Sent ahead of a message, for the receiver to compare.
  struct Header {
    std::uint64_t count = 0;
    std::int32_t tag = 0;
    ElementType element = ElementType::uint8;
    typename Api::UniqueId id{}; ///< For the direction's communicator.
  };
  struct Announcement {
    Header header;
    Pending sent;
    const Call* message = nullptr;
  };
  /// The receive of such a message into memory, monitored like a call. Reused.
  struct EarlyReceive {
    explicit EarlyReceive(Runtime& runtime) : message(runtime) {}
    Call message;
    bool taken = false;
  };
  /// A message that arrived before its receive.
  struct EarlyMessage {
    Header header;
    typename Runtime::Memory memory;
    EarlyReceive* receive;
    bool claimed = false;
  };
  /// A step on the stream: a send from a buffer, a receive into a buffer or the memory kept here, or the copy
  /// from there.
  struct Step {
    Call* message = nullptr;
    EarlyMessage* early = nullptr; ///< The message to copy.
    bool issued = false;
  };

  static constexpr int host_tag = 0;

  void announce(Call& message) {
    if (!begun_) {
      member_.check(member_.api().unique_id(id_), *channel_, "ncclGetUniqueId", message.call,
                    message.sequence);
      open(id_, message.call, message.sequence);
    }
    std::unique_ptr<Announcement> note;
    if (spare_.empty()) {
      note = std::make_unique<Announcement>();
      spare_.reserve(announcements_.size() + 1);
    } else {
      note = std::move(spare_.back());
      spare_.pop_back();
    }
    note->header = {message.call.count, message.call.tag, message.call.element, id_};
    note->message = &message;
    note->sent = member_.guarded([&] {
      return member_.host().send_async(bytes_of(std::as_const(note->header)), peer_, host_tag,
                                       message.call.where);
    });
    announcements_.push_back(std::move(note));
    queue_.push_back({&message, nullptr, false});
  }

  /// Consumed announcements are reused.
  void reap() {
    while (!announcements_.empty() && announcements_.front()->sent.done()) {
      member_.guarded([&] { announcements_.front()->sent.wait(); });
      announcements_.front()->message = nullptr;
      spare_.push_back(std::move(announcements_.front()));
      announcements_.erase(announcements_.begin());
    }
  }

  void read_headers() {
    claim_early();
    while (!unmatched_.empty()) {
      const CollectiveCall& first = unmatched_.front()->call;
      if (!reading_)
        pending_header_ = member_.guarded(
            [&] { return member_.host().receive_async(bytes_of(header_), peer_, host_tag, first.where); });
      reading_ = true;
      if (!pending_header_.done())
        return;
      reading_ = false;
      member_.guarded([&] { pending_header_.wait(); });
      if (!begun_)
        open(header_.id, first, unmatched_.front()->sequence);
      match();
    }
  }

  /// Passes early messages to the receives that now match them.
  void claim_early() {
    for (auto& one : early_) {
      if (one->claimed)
        continue;
      if (Call* const message = take_unmatched(one->header); message != nullptr) {
        one->claimed = true;
        queue_.push_back({message, one.get(), false});
      }
    }
  }

  void match() {
    if (Call* const message = take_unmatched(header_); message != nullptr) {
      queue_.push_back({message, nullptr, false});
      return;
    }
    auto memory = memory_of(bytes_in(header_));
    EarlyReceive& receive = receive_early(*unmatched_.front(), memory.data());
    early_.push_back(
        std::make_unique<EarlyMessage>(EarlyMessage{header_, std::move(memory), &receive, false}));
    queue_.push_back({&receive.message, nullptr, false});
  }

  /// A record for the message that has arrived instead of the one that `asked` waits for.
  [[nodiscard]] EarlyReceive& receive_early(const Call& asked, void* memory) {
    auto known = std::find_if(early_receives_.begin(), early_receives_.end(),
                              [](const auto& each) { return !each->taken && !each->message.watched; });
    if (known == early_receives_.end())
      known = early_receives_.insert(known, std::make_unique<EarlyReceive>(runtime_));
    CollectiveCall call = asked.call;
    call.out = memory;
    call.times = nullptr;
    call.tag = header_.tag;
    call.count = header_.count;
    call.element = header_.element;
    (*known)->message.begin(call, asked.sequence);
    (*known)->taken = true;
    return **known;
  }

  /// The first receive of the header's tag, or null. @throws CollectiveMismatch.
  [[nodiscard]] Call* take_unmatched(const Header& header) {
    for (std::size_t i = 0; i < unmatched_.size(); ++i) {
      Call* const message = unmatched_[i];
      if (message->call.tag != header.tag)
        continue;
      if (message->call.count != header.count || message->call.element != header.element) {
        CollectiveCall sent = message->call;
        sent.operation = Operation::send;
        sent.root = member_.rank();
        sent.count = header.count;
        sent.element = header.element;
        sent.where = {};
        const std::string sentence =
            message_mismatch(member_.world_rank(peer_), sent, 0, member_.world_rank(member_.rank()),
                             message->call, message->sequence);
        member_.end(sentence, true);
        throw CollectiveMismatch("receive: " + sentence, member_.context(message->call, message->sequence));
      }
      unmatched_.erase(unmatched_.begin() + static_cast<std::ptrdiff_t>(i));
      return message;
    }
    return nullptr;
  }

  void open(const typename Api::UniqueId& id, const CollectiveCall& call, std::uint64_t sequence) {
    begun_ = true;
    if constexpr (requires { runtime_.use_device(); })
      runtime_.use_device(); // NCCL takes the current one
    std::string name = member_.name() + " " + std::to_string(member_.rank()) + (sends_ ? " to " : " from ") +
                       std::to_string(peer_);
    member_.check(channel_->open(id, 2, sends_ ? 0 : 1, std::move(name)), *channel_, "ncclCommInitRankConfig",
                  call, sequence);
  }

  /// @return whether the step is over.
  [[nodiscard]] bool advance(Step& step) {
    Call& message = *step.message;
    const CollectiveCall& call = message.call;
    const char* const what = sends_ ? "ncclSend" : "ncclRecv";
    const bool copies = step.early != nullptr;
    if (!copies) {
      const NcclResult state = channel_->state();
      member_.check(state, *channel_, what, call, message.sequence);
      if (state == NcclResult::in_progress)
        return false;
    }
    if (!step.issued) {
      runtime_.wait(stream_, message.ready_event);
      note_begin(runtime_, stream_, call.times);
    }
    if (copies) {
      if (call.count > 0)
        runtime_.copy(stream_, call.out, step.early->memory.data(), bytes_in(step.early->header));
      drop(*step.early); // the next use of the memory follows the copy on this stream
    } else if (!step.issued) {
      step.issued = true;
      message.begun = std::chrono::steady_clock::now();
      const NcclResult result = issue(call);
      member_.check(result, *channel_, what, call, message.sequence);
      if (result == NcclResult::in_progress)
        return false;
    }
    note_end(runtime_, stream_, call.times);
    runtime_.record(message.done_event, stream_);
    message.stage = Call::Stage::enqueued;
    watch_.add(message);
    return true;
  }

  [[nodiscard]] NcclResult issue(const CollectiveCall& call) {
    if (call.count == 0)
      return NcclResult::success;
    Api& api = member_.api();
    auto&& stream = native_stream(stream_);
    return channel_->issue([&](typename Api::Communicator comm) {
      return sends_ ? api.send(call.in, call.count, call.element, 1, comm, stream)
                    : api.receive(call.out, call.count, call.element, 0, comm, stream);
    });
  }

  [[nodiscard]] typename Runtime::Memory memory_of(std::size_t bytes) {
    for (std::size_t i = 0; i < free_memory_.size(); ++i)
      if (free_memory_[i].bytes() >= bytes) {
        typename Runtime::Memory out = std::move(free_memory_[i]);
        free_memory_.erase(free_memory_.begin() + static_cast<std::ptrdiff_t>(i));
        return out;
      }
    return runtime_.make_memory(bytes == 0 ? 1 : bytes);
  }
  void drop(EarlyMessage& gone) {
    gone.receive->taken = false;
    free_memory_.push_back(std::move(gone.memory));
    std::erase_if(early_, [&](const auto& one) { return one.get() == &gone; });
  }

  [[nodiscard]] static std::size_t bytes_in(const Header& header) {
    return static_cast<std::size_t>(header.count) * size_of(header.element);
  }
  [[nodiscard]] static std::span<std::byte> bytes_of(Header& header) {
    return {reinterpret_cast<std::byte*>(&header), sizeof header};
  }
  [[nodiscard]] static std::span<const std::byte> bytes_of(const Header& header) {
    return {reinterpret_cast<const std::byte*>(&header), sizeof header};
  }

  Member& member_;
  Runtime& runtime_;
  int peer_;
  bool sends_;
  std::unique_ptr<NcclChannel<Api>> channel_;
  typename Runtime::Stream stream_;
  typename Api::UniqueId id_{};
  bool begun_ = false;
  std::vector<Step> queue_;
  NcclWatch<Runtime> watch_;
  std::vector<std::unique_ptr<Announcement>> announcements_;
  std::vector<std::unique_ptr<Announcement>> spare_;
  std::vector<Call*> unmatched_;
  Header header_{};
  Pending pending_header_;
  bool reading_ = false;
  std::vector<std::unique_ptr<EarlyMessage>> early_;
  std::vector<std::unique_ptr<EarlyReceive>> early_receives_;
  std::vector<typename Runtime::Memory> free_memory_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
