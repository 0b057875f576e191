// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Targets (memory for a tensor's blocks and an execution space for its kernels), and views of local
/// blocks.

#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/config.hpp>
#include <shardwright/device/driven_transports.hpp>
#include <shardwright/mesh/huge_pages.hpp>

#include <Kokkos_Core.hpp>

#if defined(KOKKOS_ENABLE_CUDA)
#include <shardwright/mesh/cuda_target.hpp>
#endif

#include <concepts>
#include <cstddef>
#include <mutex>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Host memory, with kernels run by the Kokkos host backend `ExecutionSpace`.
template <class ExecutionSpace> struct HostTarget {
  using execution_space = ExecutionSpace;
  using memory_space = Kokkos::HostSpace;
  /// Whether host code may read and write the memory.
  static constexpr bool host_accessible = true;

  /// @brief An execution-space instance for one rank; copies share it.
  ///
  /// Newer Serial backends lock per instance, so thread ranks that shared one would run their kernels one
  /// after another.
  [[nodiscard]] static execution_space make_execution_space() {
#if defined(KOKKOS_ENABLE_SERIAL) && KOKKOS_VERSION >= 40200
    if constexpr (std::is_same_v<execution_space, Kokkos::Serial>) {
      static std::mutex registration; // before 4.4 the backend's own list of instances is not guarded
      const std::lock_guard lock(registration);
      return Kokkos::Serial(Kokkos::NewInstance{});
    }
#endif
    return execution_space();
  }

  [[nodiscard]] static void* allocate(const execution_space&, const char* label, std::size_t bytes) {
    return detail::allocate_host(label, bytes);
  }
  static void deallocate(const execution_space&, const char*, void* data, std::size_t bytes) noexcept {
    detail::deallocate_host(data, bytes);
  }
};

/// @brief The default target of tensors: host memory, and one core per rank if the Serial backend is enabled.
#if defined(KOKKOS_ENABLE_SERIAL)
using DefaultTarget = HostTarget<Kokkos::Serial>;
#else
using DefaultTarget = HostTarget<Kokkos::DefaultHostExecutionSpace>;
#endif

/// @brief True for the target of a dry run, and for its execution space: its tensors have shapes but no
/// memory, so a program must not launch its own kernels there.
template <class Where> inline constexpr bool counts_only = requires {
  typename Where::execution_space::counts_for;
};

/// @brief An execution space, a memory space that it can access, and a function that makes instances. A
/// target whose memory host code cannot access also makes communicators for it: `connect(group, execution)`
/// is collective over a host group and returns a communicator of the same ranks, ordered with `execution`;
/// and `idle(execution)` says whether the instance's work is done, or throws its device's error. A target
/// may also have `end_stream(execution)`, which a mesh calls after its work there, and its own
/// `allocate(execution, label, bytes)` and `deallocate(execution, label, data, bytes)`. One that only counts
/// (train/dry_run/counting_target.hpp) has no kernels, but has `allocate`.
template <class Type>
concept Target = requires {
  typename Type::execution_space;
  typename Type::memory_space;
  { Type::host_accessible } -> std::convertible_to<bool>;
  { Type::make_execution_space() } -> std::same_as<typename Type::execution_space>;
}
&&(counts_only<Type> || bool(Kokkos::SpaceAccessibility<typename Type::execution_space,
                                                        typename Type::memory_space>::accessible)) &&
    (bool(Type::host_accessible) ||
     requires(HostCommunicator group, const typename Type::execution_space& execution) {
       { Type::connect(group, execution) } -> std::same_as<DeviceCommunicator>;
       { Type::idle(execution) } -> std::same_as<bool>;
     });

/// @brief The communicator that carries blocks of a target between ranks, by the kind of its memory.
template <Target Where>
using CommunicatorOf = std::conditional_t<Where::host_accessible, HostCommunicator, DeviceCommunicator>;

namespace detail {

/// Waits for the kernels of one instance. Newer backends report fences by name, and build the default name
/// each time; a short name needs no memory.
template <class ExecutionSpace> void wait_for_kernels(const ExecutionSpace& execution) {
  if constexpr (requires { execution.fence("sw::fence"); })
    execution.fence("sw::fence");
  else
    execution.fence();
}

/// Makes the host wait for all work of a device target's instance. A plain fence would hang if a call cannot
/// complete, and would keep other ranks waiting for calls that this rank has started. Only explicit copies,
/// reads and allocations wait; a target may count them.
/// @throws the error of such a call.
template <class Where> void wait_for_device(const typename Where::execution_space& execution) {
  if constexpr (requires { Where::note_host_wait(); })
    Where::note_host_wait();
  static_cast<void>(await_device([&] { return Where::idle(execution); }));
  wait_for_kernels(execution);
}

/// Memory of a target that is closest to the instance's kernels. A device may synchronise when it allocates,
/// so the host waits first.
/// @throws whatever that wait throws; without a wait, no shardwright::Error.
template <class Where>
[[nodiscard]] void* allocate_for(const typename Where::execution_space& execution, const char* label,
                                 std::size_t bytes) {
  if constexpr (!Where::host_accessible)
    wait_for_device<Where>(execution);
  if constexpr (requires { Where::allocate(execution, label, bytes); })
    return Where::allocate(execution, label, bytes);
  else
    return Kokkos::kokkos_malloc<typename Where::memory_space>(label, bytes);
}
template <class Where>
void deallocate_for(const typename Where::execution_space& execution, const char* label, void* data,
                    std::size_t bytes) noexcept {
  if constexpr (requires { Where::deallocate(execution, label, data, bytes); })
    Where::deallocate(execution, label, data, bytes);
  else
    Kokkos::kokkos_free<typename Where::memory_space>(data);
}

/// Synchronises the kernels of an instance with a call that reads what they wrote: a host communicator reads
/// memory immediately, while one of a device target is ordered with the instance.
template <class Where> void order_call_after(const typename Where::execution_space& execution) {
  if constexpr (Where::host_accessible)
    wait_for_kernels(execution);
}

template <class Element, int tensor_rank> struct PointersTo {
  using type = typename PointersTo<Element, tensor_rank - 1>::type*;
};
template <class Element> struct PointersTo<Element, 0> { using type = Element; };

} // namespace detail

/// @brief Row-major view of a local block that does not own its memory.
template <class Element, int tensor_rank, Target Where = DefaultTarget>
using LocalView = Kokkos::View<typename detail::PointersTo<Element, tensor_rank>::type, Kokkos::LayoutRight,
                               typename Where::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// @brief View of a part of a local block, whose rows need not be contiguous.
template <class Element, int tensor_rank, Target Where = DefaultTarget>
using StridedView =
    Kokkos::View<typename detail::PointersTo<Element, tensor_rank>::type, Kokkos::LayoutStride,
                 typename Where::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// @brief Row-major [rows, columns].
template <class Element, Target Where = DefaultTarget> using MatrixView = LocalView<Element, 2, Where>;

/// @brief [elements].
template <class Element, Target Where = DefaultTarget> using VectorView = LocalView<Element, 1, Where>;

} // namespace shardwright::inline SHARDWRIGHT_ABI
