// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reductions and gathers that overlap with a rank's passes, recorded if requested.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/pending.hpp>
#include <shardwright/mesh/mesh_core.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// One overlapped call, and when its data moved.
struct BackgroundCall {
  Background purpose{};
  std::size_t bytes = 0; ///< Of this rank's larger buffer.
  CallTimes times{};
};

/// The overlapped calls of a mesh since their recording began.
struct BackgroundLog {
  bool active = false;
  std::vector<std::unique_ptr<BackgroundCall>> calls;
};

/// Starts an overlapped call, and records it if requested.
template <class Target>
[[nodiscard]] Pending start_background(MeshCore& core, unsigned mask, Background purpose,
                                       CollectiveCall call) {
  CommunicatorOf<Target>& ranks = core.background<Target>(mask, purpose);
  if (BackgroundLog& log = core.part<BackgroundLog>(); log.active) {
    BackgroundCall& note = *log.calls.emplace_back(std::make_unique<BackgroundCall>());
    note.purpose = purpose;
    note.bytes = call.count * size_of(call.element);
    if (call.operation != Operation::all_reduce)
      note.bytes *= static_cast<std::size_t>(ranks.size());
    call.times = &note.times;
  }
  return ranks.start(call);
}

/// Starts or stops recording the overlapped calls of a mesh; clears earlier records. None may be pending.
inline void record_background(MeshCore& core, bool active) {
  BackgroundLog& log = core.part<BackgroundLog>();
  log.calls.clear();
  log.active = active;
}

} // namespace detail

/// @brief Starts or stops recording when reductions and gathers that overlap with the passes move their data;
/// clears earlier records. Must not be called while one is in flight. See PipelineRunner::timeline.
template <class Mesh> void record_background(const Mesh& mesh, bool active) {
  detail::record_background(mesh.core(), active);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
