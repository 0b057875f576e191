// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Records of started calls, which a transport keeps until the handle is waited for, and then reuses.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/pending.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// A call with its own copies of the block spans, which outlive those of the caller.
struct KeptCall {
  CollectiveCall call{};
  std::vector<StridedBlock> in_blocks;
  std::vector<StridedBlock> out_blocks;

  /// @param spans_live Whether the caller's spans live until the call has ended.
  void copy(const CollectiveCall& source, bool spans_live = false) {
    call = source;
    if (spans_live)
      return;
    in_blocks.assign(source.in_blocks.begin(), source.in_blocks.end());
    out_blocks.assign(source.out_blocks.begin(), source.out_blocks.end());
    call.in_blocks = in_blocks;
    call.out_blocks = out_blocks;
  }
};

/// A started call as its handle sees it: `Owner`, the transport that keeps the record, implements what the
/// handle requests for `State`.
template <class Owner, class State> struct StartedCall final : PendingOperation, State {
  template <class... Arguments>
  explicit StartedCall(Owner& of, Arguments&&... arguments)
      : State(std::forward<Arguments>(arguments)...), owner(of) {}
  [[nodiscard]] bool ready() override { return owner.ready(*this); }
  [[nodiscard]] bool expire(std::chrono::nanoseconds polled) override { return owner.expire(*this, polled); }
  void wait() override { owner.wait(*this); }
  void abandon() noexcept override { owner.abandon(*this); }

  Owner& owner;
};

/// Reusable records, so that starts and waits allocate nothing in steady state.
template <class Record> class RecordPool {
public:
  /// A free record, or a new one constructed from the arguments.
  template <class... Arguments> [[nodiscard]] Record& take(Arguments&&... arguments) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.reserve(all_.size() + 1); // so that giving back does not allocate
      return *all_.emplace_back(std::make_unique<Record>(std::forward<Arguments>(arguments)...));
    }
    Record& out = *free_.back();
    free_.pop_back();
    return out;
  }
  void give_back(Record& record) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(&record);
  }
  /// Records created so far, the largest number in use at the same time.
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

  /// Returns a record at the end of its scope, also after an exception, unless it has been released.
  class Return {
  public:
    Return(RecordPool& pool, Record& record) noexcept : pool_(pool), record_(&record) {}
    ~Return() {
      if (record_ != nullptr)
        pool_.give_back(*record_);
    }
    Return(const Return&) = delete;
    Return& operator=(const Return&) = delete;
    Record* release() noexcept { return std::exchange(record_, nullptr); }

  private:
    RecordPool& pool_;
    Record* record_;
  };

private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Record>> all_;
  std::vector<Record*> free_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
