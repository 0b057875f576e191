// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Kernels of blocks on the host: the warps of a block are threads, so that a missing barrier is a
/// data race.

#include <shardwright/tensor/kernels/device/block.hpp>

#include <barrier>
#include <cstddef>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

namespace sw_test {

/// One warp of a block that runs on the host.
class HostBlock {
public:
  HostBlock(std::size_t index, unsigned warp, unsigned char* shared, std::barrier<>& barrier)
      : index_(index), warp_(warp), shared_(shared), barrier_(&barrier) {}

  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] unsigned warp() const { return warp_; }
  [[nodiscard]] unsigned char* shared() const { return shared_; }
  void barrier() const { barrier_->arrive_and_wait(); }

  /// Copies arrive when they are waited for and not before.
  template <std::size_t bytes> void copy(void* to, const void* from, bool inside) const {
    copies_.push_back({to, inside ? from : nullptr, bytes});
  }
  void end_copies() const { groups_.push_back(copies_.size()); }
  template <int under_way> void wait_for_copies() const {
    while (groups_.size() > under_way) {
      const std::size_t count = groups_.front();
      for (std::size_t i = 0; i < count; ++i) {
        if (copies_[i].from == nullptr)
          std::memset(copies_[i].to, 0, copies_[i].bytes);
        else
          std::memcpy(copies_[i].to, copies_[i].from, copies_[i].bytes);
      }
      copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(count));
      groups_.pop_front();
      for (std::size_t& end : groups_)
        end -= count;
    }
  }

private:
  std::size_t index_;
  unsigned warp_;
  unsigned char* shared_;
  std::barrier<>* barrier_;
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  mutable std::vector<Copy> copies_;
  mutable std::deque<std::size_t> groups_; // ends in copies_
};
static_assert(shardwright::kernels::detail::KernelBlock<HostBlock>);

/// Runs all blocks, one after the other; shared memory holds rubbish at first.
template <class Functor>
void run_host_blocks(std::size_t blocks, std::size_t shared_bytes, const Functor& functor) {
  struct alignas(128) Line {
    unsigned char bytes[128];
  };
  std::vector<Line> shared((shared_bytes + 127) / 128);
  for (Line& line : shared)
    for (unsigned char& byte : line.bytes)
      byte = 0xff; // a NaN
  std::barrier barrier(static_cast<std::ptrdiff_t>(Functor::warps));
  std::vector<std::thread> warps;
  for (unsigned warp = 0; warp < Functor::warps; ++warp) {
    warps.emplace_back([&, warp] {
      for (std::size_t index = 0; index < blocks; ++index) {
        functor(HostBlock(index, warp, shared.empty() ? nullptr : shared[0].bytes, barrier));
        barrier.arrive_and_wait();
      }
    });
  }
  for (std::thread& warp : warps)
    warp.join();
}

} // namespace sw_test
