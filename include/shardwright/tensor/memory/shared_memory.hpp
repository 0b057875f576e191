// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Host memory that a target's kernels can access as well, and uploads from it.

#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Pinned memory for device targets, plain memory otherwise: a dry run needs no device.
template <class Target> struct SharedSpace {
#if defined(KOKKOS_ENABLE_CUDA)
  static constexpr bool pinned = std::is_same_v<typename Target::memory_space, Kokkos::CudaSpace>;
  using type = std::conditional_t<
      counts_only<Target>, Kokkos::HostSpace,
      std::conditional_t<pinned, Kokkos::CudaHostPinnedSpace, typename Target::memory_space>>;
#else
  using type = typename Target::memory_space;
#endif
};

/// Elements that the host and kernels of a target read and write; the user must synchronise them.
///
/// Pinned memory is accessible from all GPUs of the process, wherever it was allocated (CUDA C++ Programming
/// Guide, "Unified Virtual Address Space").
template <class Element, class Target> class SharedMemory {
  using Space = typename SharedSpace<Target>::type;
  static_assert(bool(Kokkos::SpaceAccessibility<Kokkos::HostSpace, Space>::accessible));
  static_assert(std::is_trivially_destructible_v<Element>);

public:
  explicit SharedMemory(std::size_t count)
      : data_(static_cast<Element*>(
            Kokkos::kokkos_malloc<Space>("sw::shared", std::max<std::size_t>(count, 1) * sizeof(Element)))) {
    std::uninitialized_fill_n(data_, count, Element{});
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() {
    settle_device();
    Kokkos::kokkos_free<Space>(data_);
  }

  [[nodiscard]] Element* data() const noexcept { return data_; }

private:
  Element* data_;
};

template <class Element> struct UploadKernel {
  const Element* from;
  Element* to;
  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const { to[i] = from[i]; }
};

} // namespace detail

/// @brief Uploads host elements to tensors on a device without waiting: the host fills one half while kernels
/// read the other.
///
/// A half may be filled again once the device has completed the uploads from it, which are those before the
/// last call of flip() but one.
template <class Element, class Target> class Uploads {
public:
  /// @param elements capacity of one half
  explicit Uploads(std::size_t elements) : size_(elements), memory_(2 * elements) {}

  /// @brief Returns the half that the host writes until the next flip.
  [[nodiscard]] std::span<Element> half() const { return {memory_.data() + (second_ ? size_ : 0), size_}; }
  /// @brief Fills the block of `to` from the elements of this half from `offset` on, in stream order.
  template <LayoutType L> void upload(std::size_t offset, ShardedTensor<L, Element, Target>& to) const {
    kernels::run("sw::upload", to.execution(), to.local_size(),
                 detail::UploadKernel<Element>{half().data() + offset, to.mutable_data()});
  }
  /// @brief Switches to the other half.
  void flip() noexcept { second_ = !second_; }

private:
  std::size_t size_;
  detail::SharedMemory<Element, Target> memory_;
  bool second_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
