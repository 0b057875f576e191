// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A few numbers that kernels write in a target's memory and the host then reads.

#include <shardwright/layout/layout.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// `count` numbers from the pool, replicated: each rank has its own.
template <std::size_t count, class Target, class Number = double>
class Scalars {
public:
  explicit Scalars(TargetResources<Target>& resources)
      : values_(resources, {static_cast<std::int64_t>(count)}) {}

  /// Where kernels write.
  [[nodiscard]] VectorView<Number, Target> view() { return values_.mutable_local(); }

  /// The numbers, once the kernels issued so far are done.
  [[nodiscard]] std::array<Number, count> read() const {
    std::array<Number, count> host{};
    wait_for_kernels(values_.execution());
    if constexpr (Target::host_accessible) {
      for (std::size_t i = 0; i < count; ++i)
        host[i] = values_.data()[i];
    } else {
      const Kokkos::View<Number*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> to(host.data(),
                                                                                                 count);
      Kokkos::deep_copy(values_.execution(), to, values_.local());
      wait_for_kernels(values_.execution());
    }
    return host;
  }

private:
  ShardedTensor<Layout<1>, Number, Target> values_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
