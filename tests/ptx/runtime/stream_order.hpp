// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds work of two streams that touches the same bytes although nothing orders it: an event is
/// missing, or a wait of the host.
///
/// Which work comes before which is known from calls alone, by vector clocks (`fake_cuda::Turn`), so that a
/// missing event is found in whatever turns the streams took. What the host's threads tell each other is not
/// seen: work that is issued after any thread has waited counts as behind what it waited for.

#include "ptx/executor.hpp"
#include "ptx/module.hpp"
#include "support/fake_cuda_library.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ptx_runtime {

class StreamOrder {
public:
  /// @brief Notes what a piece of work has touched.
  /// @param what  its name in a report
  /// @param kernel null if it is not a kernel
  /// @returns a report of two accesses that nothing orders, one of them a write; empty if there is none
  [[nodiscard]] std::string note(const fake_cuda::Turn& turn, const std::string& what,
                                 const ptx::Kernel* kernel, std::vector<ptx::Touched> touched);

  /// @brief New memory: what happened at its addresses before does not count.
  void forget(const void* data, std::size_t bytes);

private:
  struct Piece {
    fake_cuda::Turn turn;
    std::string what;
    const ptx::Kernel* kernel;
  };
  struct Access {
    std::shared_ptr<const Piece> by; // null: none
    std::uint32_t instruction = 0;
    bool strong = false;
  };
  /// What is known of neighbouring bytes: the last write, and the reads since.
  struct Bytes {
    std::uintptr_t end;
    Access write;
    std::vector<Access> reads;
  };
  using Map = std::map<std::uintptr_t, Bytes>;

  Map::iterator cut(std::uintptr_t at);
  [[nodiscard]] std::string note(const Access& access, const ptx::Touched& range);
  static bool conflict(const Access& before, const Access& now);
  static std::string report(const Access& before, bool written, const Access& now, const ptx::Touched& range,
                            std::uintptr_t at);

  Map bytes_; // by their begin
};

} // namespace ptx_runtime
