// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A device communicator over the fake runtime with buffers that follow the rank's stream, for the
/// communicator suite and for tests of order.

#include "support/fake_runtime.hpp"

#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/device/device_clock.hpp>
#include <shardwright/device/peers/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace shardwright_test {

/// @brief Device memory that a stream writes, and that is freed in stream order.
template <class E> class FakeBuffer {
public:
  FakeBuffer(FakeRuntime::Stream stream, std::vector<E> numbers)
      : stream_(std::move(stream)), memory_(std::make_shared<std::vector<E>>(numbers.size())) {
    stream_.run(
        [to = memory_, from = std::move(numbers)] { std::copy(from.begin(), from.end(), to->begin()); });
  }
  FakeBuffer(FakeBuffer&&) noexcept = default;
  FakeBuffer& operator=(FakeBuffer&&) = delete;
  ~FakeBuffer() {
    if (memory_)
      stream_.run([last = std::move(memory_)] {});
  }

  [[nodiscard]] E* data() noexcept { return memory_->data(); }
  [[nodiscard]] const E* data() const noexcept { return memory_->data(); }
  [[nodiscard]] std::size_t size() const noexcept { return memory_->size(); }
  /// @brief Runs `kernel(numbers)` on the stream.
  template <class Kernel> void run(Kernel kernel) {
    stream_.run([numbers = memory_, kernel] { kernel(*numbers); });
  }

private:
  FakeRuntime::Stream stream_;
  std::shared_ptr<std::vector<E>> memory_;
};

/// @brief A rank's stream, and the memory that follows it.
struct FakeDevice {
  explicit FakeDevice(FakeRuntime runtime)
      : runtime(std::move(runtime)), stream(this->runtime.make_stream()) {}

  template <class E> [[nodiscard]] FakeBuffer<E> put(std::vector<E> numbers) const {
    return {stream, std::move(numbers)};
  }
  template <class E> [[nodiscard]] std::vector<E> get(const FakeBuffer<E>& numbers) const {
    std::vector<E> out;
    FakeRuntime::Stream own = stream;
    own.run([&out, &numbers] { out.assign(numbers.data(), numbers.data() + numbers.size()); });
    own.finish();
    return out;
  }

  FakeRuntime runtime;
  FakeRuntime::Stream stream;
};

/// @brief A rank that shares its device with the others of its group: the communicator suite runs on it. If
/// the group has a clock, it also counts the device's calls.
struct FakePlace : FakeDevice {
  FakePlace(const shardwright::HostCommunicator& group, FakeRuntime runtime)
      : FakeDevice(std::move(runtime)),
        comm(shardwright::timed_like(
            group,
            shardwright::DeviceCommunicator(
                shardwright::PeerTransport<FakeRuntime>::connect(group, this->runtime, stream)),
            this->runtime, stream)) {}

  shardwright::DeviceCommunicator comm;
};

} // namespace shardwright_test
