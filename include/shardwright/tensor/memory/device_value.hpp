// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A plain value in a target's memory, which kernels read and write in stream order.

#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>

#include <cstddef>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Runs a functor once, on the stream.
template <class Execution, class Functor>
void run_once(const char* label, const Execution& execution, const Functor& functor) {
  kernels::run(label, execution, 1, functor);
}

/// Its memory comes from the pool and stays at the same address as long as the object lives.
template <class Value, class Target> class DeviceValue {
  static_assert(std::is_trivially_copyable_v<Value>);

public:
  explicit DeviceValue(TargetResources<Target>& resources, const Value& initial = {})
      : buffer_(resources.take(sizeof(Value))) {
    store(initial);
  }

  [[nodiscard]] Value* get() const { return static_cast<Value*>(buffer_.data()); }
  [[nodiscard]] TargetResources<Target>& resources() const {
    return static_cast<TargetResources<Target>&>(buffer_.pool());
  }
  [[nodiscard]] const typename Target::execution_space& execution() const { return resources().execution(); }

  /// In stream order; the host does not wait.
  void store(const Value& value) {
    run_once("sw::store", execution(), kernels::StoreValue<Value>{get(), value});
  }

  /// The value after all kernels issued so far: waits for them and copies.
  [[nodiscard]] Value read() const {
    Value out;
    copy_to_host<Target>(execution(), reinterpret_cast<const unsigned char*>(get()),
                         reinterpret_cast<unsigned char*>(&out), sizeof out);
    return out;
  }

private:
  BufferHandle buffer_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
