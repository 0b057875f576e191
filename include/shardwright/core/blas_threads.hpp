// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The thread count of the program's BLAS, limited while ranks run and restored afterwards.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <string>

#include <sys/mman.h>
#include <sys/resource.h>

#if defined(__ELF__)
// Each exists in some BLAS and is null in the others; no header declares them all.
extern "C" {
void openblas_set_num_threads(int) __attribute__((weak));
int openblas_get_num_threads(void) __attribute__((weak));
void MKL_Set_Num_Threads(int) __attribute__((weak));
int MKL_Get_Max_Threads(void) __attribute__((weak));
void bli_thread_set_num_threads(long) __attribute__((weak));
long bli_thread_get_num_threads(void) __attribute__((weak));
}
#endif

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One BLAS library: its thread count, for the whole process, and the environment variable that sets it.
struct BlasThreads {
  int (*count)();
  void (*set)(int threads);
  const char* variable;
};

/// The BLAS that the program is linked with, if it is OpenBLAS, MKL or BLIS; otherwise null.
[[nodiscard]] inline const BlasThreads* linked_blas() noexcept {
#if defined(__ELF__)
  static constexpr std::array known = {
      BlasThreads{[] { return openblas_get_num_threads(); },
                  [](int threads) { openblas_set_num_threads(threads); }, "OPENBLAS_NUM_THREADS"},
      BlasThreads{[] { return MKL_Get_Max_Threads(); }, [](int threads) { MKL_Set_Num_Threads(threads); },
                  "MKL_NUM_THREADS"},
      BlasThreads{[] { return static_cast<int>(bli_thread_get_num_threads()); },
                  [](int threads) { bli_thread_set_num_threads(threads); }, "BLIS_NUM_THREADS"}};
  if (&openblas_set_num_threads != nullptr && &openblas_get_num_threads != nullptr)
    return &known[0];
  if (&MKL_Set_Num_Threads != nullptr && &MKL_Get_Max_Threads != nullptr)
    return &known[1];
  if (&bli_thread_set_num_threads != nullptr && &bli_thread_get_num_threads != nullptr)
    return &known[2];
#endif
  return nullptr;
}

/// Checks that the process may allocate the address space that OpenBLAS needs on `ranks` threads. If it may
/// not (ulimit -v), OpenBLAS hangs in its allocator, or ends the process.
/// @throws InvalidArgument with the numbers and what to do.
inline void require_blas_memory(int ranks) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  // The buffer of a call (on x86), an arena of the C library, a stack.
  constexpr std::size_t each = (128 + 64 + 8) * mebibyte;
  rlimit limit{};
  if (linked_blas() == nullptr || ::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return;
  const std::size_t needed = static_cast<std::size_t>(ranks) * each;
  void* const room = ::mmap(nullptr, needed, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    throw InvalidArgument(
        "launch: " + std::to_string(ranks) + " thread ranks must find " + std::to_string(needed / mebibyte) +
        " MiB of address space for the BLAS, but the process limit of " +
        std::to_string(limit.rlim_cur / mebibyte) +
        " MiB leaves less (raise it with ulimit -v, start fewer ranks, or set LaunchOptions::blas_threads to 0 for a program that multiplies no matrices)");
  ::munmap(room, needed);
}

/// Limits the BLAS to `threads` threads during its lifetime, unless that is 0 or the user has set the BLAS's
/// environment variable. If several exist at the same time, the first one applies, and the last one to be
/// destroyed restores the previous setting.
class BlasThreadLimit {
public:
  explicit BlasThreadLimit(int threads) {
    const BlasThreads* const blas = linked_blas();
    if (threads == 0 || blas == nullptr || std::getenv(blas->variable) != nullptr)
      return;
    active_ = true;
    const std::lock_guard lock(state().mutex);
    if (state().holders++ > 0)
      return;
    state().before = blas->count();
    blas->set(threads);
  }
  ~BlasThreadLimit() {
    if (!active_)
      return;
    const std::lock_guard lock(state().mutex);
    if (--state().holders == 0)
      linked_blas()->set(state().before);
  }
  BlasThreadLimit(const BlasThreadLimit&) = delete;
  BlasThreadLimit& operator=(const BlasThreadLimit&) = delete;

private:
  struct State {
    std::mutex mutex;
    int holders = 0;
    int before = 1;
  };
  static State& state() noexcept {
    static State only;
    return only;
  }

  bool active_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
