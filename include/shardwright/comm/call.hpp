// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One communication call as a value, which every communicator executes, checks and records.

#include <shardwright/comm/call_subject.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/core/source_location.hpp>
#include <shardwright/core/strided_block.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Operations of a communicator.
enum class Operation : std::uint8_t {
  barrier,
  broadcast,
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  split,
  send,
  receive
};

/// @brief Name for messages, such as "all_reduce".
[[nodiscard]] constexpr std::string_view name_of(Operation operation) noexcept {
  switch (operation) {
  case Operation::barrier:
    return "barrier";
  case Operation::broadcast:
    return "broadcast";
  case Operation::all_reduce:
    return "all_reduce";
  case Operation::all_gather:
    return "all_gather";
  case Operation::reduce_scatter:
    return "reduce_scatter";
  case Operation::all_to_all:
    return "all_to_all";
  case Operation::split:
    return "split";
  case Operation::send:
    return "send";
  case Operation::receive:
    return "receive";
  }
  return "unknown";
}

/// @brief Tags of messages are below this number on every transport. An MPI library with fewer than three
/// times as many tags rejects the highest ones.
inline constexpr int message_tags = 1 << 28;

/// @brief The times at which a call moved its data, as observed by its transport; the caller keeps the object
/// alive until the call has ended.
///
/// The work begins when all ranks of a collective, or both sides of a message, have arrived (MPI without
/// checks: when this rank's part begins). A call that fails has no end.
class CallTimes {
public:
  using Clock = std::chrono::steady_clock;

  void begin(Clock::time_point now = Clock::now()) noexcept { begun_ = now; }
  void end(Clock::time_point now = Clock::now()) noexcept {
    ended_at_ = now;
    ended_.store(true, std::memory_order_release);
  }
  /// @brief Returns whether the data has moved; until then another thread may write the times.
  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  [[nodiscard]] Clock::time_point begun_at() const noexcept { return begun_; }
  [[nodiscard]] Clock::time_point ended_at() const noexcept { return ended_at_; }

  CallTimes() = default;
  /// @brief Returns whether it is a MarkedTimes (device/runtime.hpp), which holds device events instead of
  /// times.
  [[nodiscard]] bool marked() const noexcept { return marked_; }

protected:
  struct Marked {};
  explicit CallTimes(Marked) noexcept : marked_(true) {}

private:
  bool marked_ = false;
  Clock::time_point begun_{};
  Clock::time_point ended_at_{};
  std::atomic<bool> ended_{false};
};

/// @brief A communication call on one rank; buffers are untyped, counts are elements.
///
/// | operation | in | out | blocks |
/// |---|---|---|---|
/// | broadcast | count on the root, unused elsewhere | count (all ranks; the root's may equal in) | |
/// | all_reduce | count | count (may equal in) | |
/// | all_gather | own block, contiguous, of count | the whole; block r of `out_blocks` comes from rank r | out |
/// | reduce_scatter | the whole; block r of `in_blocks` goes to rank r | own block, contiguous, of count | in |
/// | all_to_all | block r of `in_blocks` goes to rank r | block r of `out_blocks` comes from rank r | both |
/// | send, receive | count / - | - / count | |
///
/// An empty block span means even contiguous blocks: block r is `count` elements from `r * count`. A span
/// that is not empty has one block per rank; all_to_all has both or neither. Block r of rank s and the
/// matching block of rank r hold equally many elements, in row-major order, whatever their strides.
///
/// In place: all_reduce with in == out; all_gather with in == start of the own block inside out, that block
/// contiguous; reduce_scatter with out == start of the own block inside in, that block contiguous. Any other
/// overlap of in and out is rejected. Only the out block is written; an in-place reduce_scatter leaves the
/// other blocks of in unchanged.
///
/// Lifetimes: `run` needs buffers and block spans until it returns. `start` copies the block spans before it
/// returns; the buffers must live, untouched, until the Pending has been waited for.
struct CollectiveCall {
  Operation operation = Operation::barrier;
  ReduceOp reduce_op = ReduceOp::sum;
  ElementType element = ElementType::uint8;
  int root = 0; ///< Root of a broadcast; peer of a send or receive.
  int tag = 0;  ///< Matches sends with receives; at least 0 and below message_tags.
  std::size_t count = 0;
  const void* in = nullptr;
  void* out = nullptr;
  std::span<const StridedBlock> in_blocks{};
  std::span<const StridedBlock> out_blocks{};
  ReductionOrder order{};
  detail::SubjectShape subject{}; ///< Also compared when ranks compare calls.
  SourceLocation where{};
  CallTimes* times = nullptr; ///< Receives the times of the work; if null, the transport reads no clock.

  /// @brief Block of `in` that goes to a rank.
  [[nodiscard]] constexpr StridedBlock in_block(int rank) const noexcept { return block(in_blocks, rank); }
  /// @brief Block of `out` that comes from a rank.
  [[nodiscard]] constexpr StridedBlock out_block(int rank) const noexcept { return block(out_blocks, rank); }

private:
  [[nodiscard]] constexpr StridedBlock block(std::span<const StridedBlock> blocks, int rank) const noexcept {
    const auto index = static_cast<std::size_t>(rank);
    return blocks.empty() ? contiguous_block(index * count, count) : blocks[index];
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
