// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The calls that thread ranks publish to one another in a collective, and their comparison.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/report.hpp>
#include <shardwright/comm/threads/ranks.hpp>
#include <shardwright/comm/validate.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// One rank's arguments of a split.
struct SplitRequest {
  int colour = 0;
  int key = 0;
  const std::string* name = nullptr;
};

/// What a thread rank tells its peers about a call besides its CollectiveCall.
struct CallExtras {
  const SplitRequest* request = nullptr;
  DirectExchange* direct = nullptr;
  bool started = false; ///< The rank continues meanwhile.
};

/// One rank's published call in a collective: written before its arrival, read after everyone's.
///
/// The first line holds the arrival itself and what most exchanges need, so that one transfer between cores
/// brings both.
struct alignas(128) ThreadSlot {
  std::atomic<std::uint64_t> arrived{0}; ///< Number of the collective that the rank has entered.
  std::uint64_t common = 0;              ///< Of the fingerprint.
  std::uint64_t unpaired = 0;            ///< The fingerprint's `sent` minus its `received`.
  const CollectiveCall* call = nullptr;
  ByteRange in{};
  ByteRange out{};
  const StridedBlock* in_blocks = nullptr;  ///< Null for even ones.
  const StridedBlock* out_blocks = nullptr; ///< Null for even ones.
  CallExtras extras{};
  bool dense = true; ///< The output is contiguous, so that its range is exact.
  int core = -1;     ///< Where the rank began the call.

  /// The block of the input that goes to a rank, or of the output that comes from it. Who knows its count
  /// need not read the call.
  [[nodiscard]] StridedBlock in_block(int rank, std::size_t count) const noexcept {
    return block(in_blocks, static_cast<std::size_t>(rank), count);
  }
  [[nodiscard]] StridedBlock out_block(int rank, std::size_t count) const noexcept {
    return block(out_blocks, static_cast<std::size_t>(rank), count);
  }

  /// Publishes a rank's call, with its fingerprint if the ranks compare them.
  void show(const CollectiveCall& shown, int rank, int ranks, std::uint64_t sequence, bool check) noexcept {
    call = &shown;
    in = byte_range(shown.in, in_elements(shown, rank, ranks), shown.element);
    out = byte_range(shown.out, out_elements(shown, ranks), shown.element);
    in_blocks = shown.in_blocks.empty() ? nullptr : shown.in_blocks.data();
    out_blocks = shown.out_blocks.empty() ? nullptr : shown.out_blocks.data();
    if (!check)
      return;
    const Fingerprint own = fingerprint(shown, rank, ranks, sequence);
    common = own.common;
    unpaired = own.unpaired();
    dense = std::all_of(shown.out_blocks.begin(), shown.out_blocks.end(),
                        [](const auto& block) { return block.contiguous(); });
  }

private:
  [[nodiscard]] static StridedBlock block(const StridedBlock* blocks, std::size_t rank,
                                          std::size_t count) noexcept {
    return blocks != nullptr ? blocks[rank] : contiguous_block(rank * count, count);
  }
};

/// Whether all ranks issued the same call.
[[nodiscard]] inline bool consistent(const ThreadSlot* slots, int ranks) noexcept {
  FingerprintComparison calls;
  for (int r = 0; r < ranks; ++r)
    calls.add(slots[r].common, slots[r].unpaired);
  return calls.agree();
}

/// Whether two ranks of a small group began a small call on one core. All ranks read the same, so they agree.
[[nodiscard]] inline bool small_on_one_core(const ThreadSlot* slots, int ranks) noexcept {
  constexpr int most_ranks = 8; // all pairs are compared
  constexpr std::uintptr_t most_bytes = 64 << 10;
  if (ranks > most_ranks || slots[0].in.end - slots[0].in.begin > most_bytes ||
      slots[0].out.end - slots[0].out.begin > most_bytes)
    return false;
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < a; ++b)
      if (slots[a].core >= 0 && slots[a].core == slots[b].core)
        return true;
  return false;
}

/// Calls `report(a, b, output)` for the first rank a that writes where rank b reads, or writes if `output`.
/// All pairs are checked, so large worlds skip this; strided outputs are skipped as well, since ranks may
/// share a buffer row by row.
/// @return whether there is one.
template <class Report> bool find_clash(const ThreadSlot* slots, int ranks, Report report) {
  constexpr int most_ranks = 16;
  if (ranks > most_ranks)
    return false;
  for (int a = 0; a < ranks; ++a) {
    if (!slots[a].dense || slots[a].out.empty())
      continue;
    for (int b = 0; b < ranks; ++b) {
      if (a == b)
        continue;
      const bool output = slots[b].dense && slots[a].out.overlaps(slots[b].out);
      if (output || slots[a].out.overlaps(slots[b].in)) {
        report(a, b, output);
        return true;
      }
    }
  }
  return false;
}
[[nodiscard]] inline bool buffers_clash(const ThreadSlot* slots, int ranks) {
  return find_clash(slots, ranks, [](int, int, bool) {});
}

/// The sentence about buffers that overlap between ranks; `group` knows the world ranks.
template <class Group> [[nodiscard]] std::string clash_sentence(const Group& group, const ThreadSlot* slots) {
  std::string out;
  find_clash(slots, group.size(), [&](int a, int b, bool output) {
    out = "every rank must write to its own memory, but the output of rank " +
          std::to_string(group.world_rank(a)) + " overlaps the " + (output ? "output" : "input") +
          " of rank " + std::to_string(group.world_rank(b)) +
          " (thread ranks share one address space: allocate inside the program, once per rank)";
  });
  return out;
}

/// The sentence about calls that differ.
template <class Group>
[[nodiscard]] std::string mismatch_sentence(const Group& group, const ThreadSlot* slots,
                                            std::uint64_t sequence) {
  std::vector<IssuedCall> calls;
  for (int rank = 0; rank < group.size(); ++rank)
    calls.push_back({group.world_rank(rank), describe(*slots[rank].call, sequence)});
  const auto call_of = [slots](int rank) -> const CollectiveCall& { return *slots[rank].call; };
  const auto world_rank = [&group](int rank) { return group.world_rank(rank); };
  return mismatch_sentence(group.name(), difference_of(group.size(), call_of, world_rank), calls);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
