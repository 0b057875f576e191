// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A warp of 32 fibers that runs device code on the host: kernels of lanes, with CUDA's own shuffles
/// and ballots. A unit includes it before any header of kernels.
///
/// A fiber runs alone until it comes to an instruction of the warp, where it waits for all others. So a
/// thread that reads memory that another one writes, without sync_lanes() in between, reads the old value in
/// one of the two orders in which the fibers run. Threads that come to different instructions, or that leave
/// while others wait, are reported.

#include <shardwright/core/config.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <ucontext.h>
#include <vector>

namespace fibers {

/// @brief Runs a body once for each of the 32 threads of a warp.
class Warp {
public:
  static constexpr unsigned threads = 32;

  /// @param backwards whether the last thread runs first. @return the error, or nothing
  template <class Body> static std::string run(const Body& body, bool backwards) {
    Warp warp;
    warp.body_ = [&body](unsigned thread) { body(thread); };
    current() = &warp;
    for (Fiber& fiber : warp.fibers_)
      prepare(fiber, warp.outside_);
    while (warp.complaint_.empty() && warp.finished_ < threads) {
      for (unsigned i = 0; i < threads; ++i) {
        warp.thread_ = backwards ? threads - 1 - i : i;
        Fiber& fiber = warp.fibers_[warp.thread_];
        fiber.waits = nullptr;
        if (!fiber.done)
          swapcontext(&warp.outside_, &fiber.context);
      }
      for (const Fiber& fiber : warp.fibers_)
        if (fiber.done != warp.fibers_[0].done)
          warp.complaint_ = "a thread left while others wait for it";
        else if (!fiber.done && std::string_view(fiber.waits) != warp.fibers_[0].waits)
          warp.complaint_ = std::string("threads met in ") + fiber.waits + " and " + warp.fibers_[0].waits;
    }
    current() = nullptr;
    return warp.complaint_;
  }

  [[nodiscard]] static Warp*& current() {
    static Warp* warp = nullptr;
    return warp;
  }
  [[nodiscard]] unsigned thread() const { return thread_; }

  /// @brief Shows a number to the others and waits for theirs. Two sets alternate: a fiber may show its next
  /// number before another one has read this one.
  template <class Number> std::array<Number, threads> meet(const char* instruction, Number own) {
    Fiber& fiber = fibers_[thread_];
    Slots& slots = slots_[fiber.meetings++ % 2];
    std::memcpy(slots[thread_].data(), &own, sizeof own);
    fiber.waits = instruction;
    swapcontext(&fiber.context, &outside_);
    std::array<Number, threads> all{};
    for (unsigned i = 0; i < threads; ++i)
      std::memcpy(&all[i], slots[i].data(), sizeof(Number));
    return all;
  }

private:
  using Slots = std::array<std::array<unsigned char, 8>, threads>;
  struct Fiber {
    ucontext_t context{};
    std::vector<char> stack;
    const char* waits = nullptr;
    unsigned meetings = 0;
    bool done = false;
  };

  /// A separate function, because getcontext may return twice.
  static void prepare(Fiber& fiber, ucontext_t& outside) {
    fiber.stack.resize(std::size_t{256} << 10);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = &outside;
    makecontext(&fiber.context, start, 0);
  }
  static void start() {
    Warp& warp = *current();
    const unsigned thread = warp.thread_;
    warp.body_(thread);
    warp.fibers_[thread].done = true;
    ++warp.finished_;
  }

  std::array<Fiber, threads> fibers_;
  std::array<Slots, 2> slots_{};
  std::function<void(unsigned)> body_;
  ucontext_t outside_{};
  unsigned thread_ = 0;
  unsigned finished_ = 0;
  std::string complaint_;
};

} // namespace fibers

// NOLINTBEGIN: CUDA's own names
inline void __syncwarp() { static_cast<void>(fibers::Warp::current()->meet("__syncwarp", 0)); }
template <class Number> Number __shfl_xor_sync(unsigned, Number own, int distance) {
  fibers::Warp& warp = *fibers::Warp::current();
  const auto all = warp.meet("__shfl_xor_sync", own);
  return all[warp.thread() ^ static_cast<unsigned>(distance)];
}
inline unsigned __ballot_sync(unsigned, bool holds) {
  const auto all = fibers::Warp::current()->meet("__ballot_sync", holds);
  unsigned bits = 0;
  for (unsigned i = 0; i < fibers::Warp::threads; ++i)
    bits |= static_cast<unsigned>(all[i]) << i;
  return bits;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline float __fdividef(float a, float b) { return a / b; }

// The headers that follow are a device's, in a separate namespace beside the host's.
#define __CUDA_ARCH__ 900
#undef SHARDWRIGHT_ABI
#define SHARDWRIGHT_ABI v0_1_fibers
// NOLINTEND

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {
inline unsigned lane_of_warp() { return fibers::Warp::current()->thread(); }
inline float power_of_two_of(float x) { return std::exp2(x); }
} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
