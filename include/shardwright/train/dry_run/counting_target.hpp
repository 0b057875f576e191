// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A target without storage and kernels: tensors on it have shapes, and the pool counts them.

#include <shardwright/core/error.hpp>
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/mesh/target.hpp>
#include <shardwright/train/dry_run/dry_run_record.hpp>
#include <shardwright/train/dry_run/recording_transport.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Stands for instances of `Execution`; nothing runs on it.
template <class Execution> class CountingExecution {
public:
  using execution_space = CountingExecution;
  using counts_for = Execution;
  using memory_space = typename Execution::memory_space;
  [[nodiscard]] int concurrency() const { return Execution().concurrency(); }
  void fence() const noexcept {}
};

/// @brief The target of a dry run: like `Base`, but without memory and kernels. Numbers read from it are 1.
template <class Base> struct Counting {
  using base = Base;
  using execution_space = CountingExecution<typename Base::execution_space>;
  using memory_space = typename Base::memory_space;
  static constexpr bool host_accessible = Base::host_accessible;

  [[nodiscard]] static execution_space make_execution_space() { return {}; }
  /// @brief Returns an address that belongs to no memory, a different one for each block.
  [[nodiscard]] static void* allocate(const execution_space&, const char*, std::size_t bytes) {
    return detail::unmapped_memory(bytes);
  }
  static void deallocate(const execution_space&, const char*, void*, std::size_t) noexcept {}
  /// @throws LifecycleError outside a dry run, where nothing records calls.
  [[nodiscard]] static DeviceCommunicator connect(const HostCommunicator& group, const execution_space&) {
    const detail::DryRunRecord* const record = detail::DryRunRecord::current();
    if (record == nullptr)
      throw LifecycleError(
          "Counting: a counting target must be used inside a dry run (call dry_run() with the program that creates the mesh, or use the target that it counts for)");
    return detail::recording_device_group(group, record->log);
  }
  [[nodiscard]] static bool idle(const execution_space&) noexcept { return true; }
};

/// @brief A dry run of ordered sums counts their memory, kernels and calls.
template <class Base> inline constexpr bool is_reproducible<Counting<Base>> = is_reproducible<Base>;

} // namespace shardwright::inline SHARDWRIGHT_ABI
