// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The reason why a rank has ended its world or a group, as plain bytes that other processes can read.

#include <shardwright/comm/failure.hpp>
#include <shardwright/comm/mpi/last_call.hpp>
#include <shardwright/comm/stderr_line.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

struct MpiCause {
  std::atomic<std::uint32_t> begun;
  std::atomic<std::uint32_t> kind;
  std::atomic<std::uint64_t> group_id;
  std::array<char, 1024> sentence;

  void write(std::uint64_t id, Failure::Kind of_kind, std::string_view text) noexcept {
    group_id.store(0, std::memory_order_release);
    copy_sentence(sentence, text);
    kind.store(static_cast<std::uint32_t>(of_kind), std::memory_order_relaxed);
    group_id.store(id, std::memory_order_release);
  }
  [[nodiscard]] Failure read(int rank) const {
    Failure out;
    out.kind = static_cast<Failure::Kind>(kind.load(std::memory_order_relaxed));
    out.rank = rank;
    out.sentence = printable({sentence.data(), ::strnlen(sentence.data(), sentence.size())});
    return out;
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
