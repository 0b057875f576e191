// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The type that captures the work of a target's stream, for targets that can.

#include <shardwright/mesh/buffer_pool.hpp>
#include <shardwright/mesh/target.hpp>
#if defined(KOKKOS_ENABLE_CUDA)
#include <shardwright/mesh/cuda_graphs.hpp>
#endif

#include <optional>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// For targets whose steps are never captured; a StepGraph with an obstacle does not use it.
template <class Target> class NoCapture {
public:
  struct Captured {};
  struct Replayable {};
  explicit NoCapture(TargetResources<Target>&) {}
  void begin() {}
  [[nodiscard]] std::optional<Captured> end() { return std::nullopt; }
  void discard() {}
  [[nodiscard]] Replayable instantiate(Captured) { return {}; }
  [[nodiscard]] bool update(Replayable&, Captured&) { return false; }
  void launch(Replayable&) {}
};

template <class Target> struct CaptureOn { using type = NoCapture<Target>; };
/// A target may name the type that captures its work.
template <class Target>
requires requires { typename Target::step_capture; }
struct CaptureOn<Target> {
  using type = typename Target::step_capture;
};
#if defined(KOKKOS_ENABLE_CUDA)
template <> struct CaptureOn<CudaTarget> { using type = CudaGraphs; };
#endif

template <class Target> using CaptureOf = typename CaptureOn<Target>::type;

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
