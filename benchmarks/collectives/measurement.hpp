// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common part of both sides of the comparison: the cases, the buffers, and the timing of one
/// collective.

#include "timing.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace collectives {

enum class Kind : std::uint32_t { all_reduce, reduce_scatter, all_gather };

[[nodiscard]] inline const char* name_of(Kind kind) {
  switch (kind) {
  case Kind::all_reduce:
    return "all_reduce";
  case Kind::reduce_scatter:
    return "reduce_scatter";
  case Kind::all_gather:
    return "all_gather";
  }
  return "";
}

[[nodiscard]] inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(benchmark::Clock::now().time_since_epoch())
      .count();
}

/// @brief One line of the table. `bytes` is the larger of input and output of one rank.
struct Case {
  Kind kind = Kind::all_reduce;
  bool in_place = false;
  std::uint64_t bytes = 0;
  double seconds = 0;   ///< If positive, the turn makes calls back to back for this long.
  bool library = false; ///< Processes run the library's collective instead of Open MPI's.
};

/// @brief Times of calls back to back on one rank.
struct Sustained {
  double median = 0; ///< Seconds of one call.
  double mean = 0;   ///< Seconds of all calls over their number.
  std::uint64_t calls = 0;
  double shared = 0;        ///< Share of the time in which both ranks were on one core.
  double shared_median = 0; ///< Median of the calls that ended so; 0 if there are few.
};

/// @brief The cores on which two ranks were seen last.
struct alignas(128) SeenCore {
  std::atomic<int> core{-1};
};

/// @brief Runs `call()` back to back for some seconds. `any(stop)` returns on all ranks whether any of them
/// wants to stop; like `call`, it is a collective, and counts as one. Each of the two ranks writes its core
/// to `cores`.
template <class Call, class Any>
[[nodiscard]] Sustained sustain(double seconds, int rank, SeenCore (&cores)[2], Call call, Any any) {
  constexpr int calls_between_looks = 16;
  constexpr std::size_t most_samples = std::size_t{1} << 20U;
  std::vector<double> times, shared;
  times.reserve(most_samples);
  shared.reserve(most_samples);
  call();
  const benchmark::Clock::time_point begin = benchmark::Clock::now();
  std::uint64_t calls = 0;
  double passed = 0, shared_seconds = 0;
  do {
    for (int i = 0; i < calls_between_looks; ++i) {
      const std::int64_t start = now_ns();
      call();
      const double time = static_cast<double>(now_ns() - start) * 1e-9;
      const int core = sched_getcpu();
      if (cores[rank].core.load(std::memory_order_relaxed) != core) // a store would take the line away
        cores[rank].core.store(core, std::memory_order_relaxed);
      const bool together = cores[1 - rank].core.load(std::memory_order_relaxed) == core;
      shared_seconds += together ? time : 0;
      for (std::vector<double>* const list : {&times, &shared})
        if (list->size() < most_samples && (together || list == &times))
          list->push_back(time);
    }
    calls += calls_between_looks + 1;
    passed = std::chrono::duration<double>(benchmark::Clock::now() - begin).count();
  } while (!any(passed > seconds));
  return {benchmark::median(times), passed / static_cast<double>(calls), calls, shared_seconds / passed,
          shared.size() < 10 ? 0 : benchmark::median(shared)};
}

/// @brief Repetitions of a case in one turn: more for small ones, which scatter more and cost less.
[[nodiscard]] inline int repetitions(std::uint64_t bytes) {
  return static_cast<int>(std::clamp<std::uint64_t>((std::uint64_t{8} << 20U) / bytes, 3, 40));
}

/// @brief A rank's buffers and the elements of a case in them.
class Buffers {
public:
  explicit Buffers(std::uint64_t most_bytes)
      : count_(most_bytes / sizeof(float)), in_(allocate(most_bytes)), out_(allocate(most_bytes)) {
    std::fill_n(in_.get(), count_, 1.0F);
    std::fill_n(out_.get(), count_, 1.0F);
  }

  /// @brief Start of the input of a case.
  [[nodiscard]] float* in(const Case& test, int rank, int ranks) const {
    if (test.kind != Kind::all_gather || !test.in_place)
      return in_.get();
    return out_.get() + in_count(test, ranks) * static_cast<std::size_t>(rank);
  }
  /// @brief Start of the output of a case.
  [[nodiscard]] float* out(const Case& test, int rank, int ranks) const {
    if (!test.in_place || test.kind == Kind::all_gather)
      return out_.get();
    return test.kind == Kind::all_reduce
               ? in_.get()
               : in_.get() + out_count(test, ranks) * static_cast<std::size_t>(rank);
  }
  [[nodiscard]] static std::size_t in_count(const Case& test, int ranks) {
    const std::size_t whole = test.bytes / sizeof(float);
    return test.kind == Kind::all_gather ? whole / static_cast<std::size_t>(ranks) : whole;
  }
  [[nodiscard]] static std::size_t out_count(const Case& test, int ranks) {
    const std::size_t whole = test.bytes / sizeof(float);
    return test.kind == Kind::reduce_scatter ? whole / static_cast<std::size_t>(ranks) : whole;
  }

  /// @brief Before each timed collective, reads the result of the last one and writes new input. Otherwise
  /// cache lines stay where the last collective left them, and small sizes look several times too fast.
  void renew(const Case& test, int rank, int ranks, int round) {
    const float* result = out(test, rank, ranks);
    float sum = 0;
    for (std::size_t i = 0; i < out_count(test, ranks); i += 16)
      sum += result[i];
    seen_ = sum;
    float* const data = in(test, rank, ranks);
    const auto value = static_cast<float>(round + rank);
    for (std::size_t i = 0; i < in_count(test, ranks); ++i)
      data[i] = value;
  }

private:
  struct Free {
    void operator()(float* data) const { ::operator delete[](data, std::align_val_t{4096}); }
  };
  using Memory = std::unique_ptr<float[], Free>;
  static Memory allocate(std::uint64_t bytes) {
    return Memory(static_cast<float*>(::operator new[](bytes, std::align_val_t{4096})));
  }

  std::size_t count_;
  Memory in_;
  Memory out_;
  volatile float seen_ = 0;
};

/// @brief The start and end of one collective on one rank.
struct Span {
  std::int64_t start = 0;
  std::int64_t end = 0;
};

/// @brief Time of a turn: the median over its repetitions of the time from the first start to the last end.
/// `spans` holds `ranks` spans per repetition.
[[nodiscard]] inline double turn_seconds(const Span* spans, int ranks, int repetitions) {
  std::vector<double> times;
  for (int r = 0; r < repetitions; ++r) {
    const Span* const group = spans + static_cast<std::ptrdiff_t>(r) * ranks;
    std::int64_t start = group[0].start, end = group[0].end;
    for (int rank = 1; rank < ranks; ++rank) {
      start = std::min(start, group[rank].start);
      end = std::max(end, group[rank].end);
    }
    times.push_back(static_cast<double>(end - start) * 1e-9);
  }
  return benchmark::median(times);
}

} // namespace collectives
