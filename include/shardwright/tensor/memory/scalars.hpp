// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A few numbers that kernels write in a target's memory and the host then reads.

#include <shardwright/layout/layout.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// `count` numbers in memory of the pool, replicated: each rank has its own.
template <std::size_t count, class Target, class Number = double> class Scalars {
public:
  explicit Scalars(TargetResources<Target>& resources)
      : values_(resources, {static_cast<std::int64_t>(count)}) {}

  /// The memory that kernels write.
  [[nodiscard]] VectorView<Number, Target> view() { return values_.mutable_local(); }
  /// The memory that they read.
  [[nodiscard]] VectorView<const Number, Target> values() const { return values_.local(); }

  [[nodiscard]] TargetResources<Target>& resources() const { return values_.resources(); }

  /// The numbers, once the kernels issued so far are done: waits for them.
  [[nodiscard]] std::array<Number, count> read() const {
    std::array<Number, count> host{};
    copy_to_host<Target>(values_.execution(), values_.data(), host.data(), count);
    return host;
  }

private:
  ShardedTensor<Layout<1>, Number, Target> values_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
