// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A device communicator behind the interface of a host one, so that checks that were written for host
/// memory run on it: buffers are staged, and every call waits for its stream.

#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace shardwright_test {

/// @brief Staging where device memory is the host's.
struct SameMemory {
  struct Staged {};
  /// @brief The call over device memory.
  [[nodiscard]] shardwright::CollectiveCall in(const shardwright::CollectiveCall& call, Staged&, int, int) {
    return call;
  }
  /// @brief Brings results back, once the stream is done.
  void out(const shardwright::CollectiveCall&, Staged&) {}
};

/// @brief The adapter. Stage has the members of SameMemory.
template <class Stage>
class DeviceAsHost final : public shardwright::HostTransport,
                           public std::enable_shared_from_this<DeviceAsHost<Stage>> {
  using Call = shardwright::CollectiveCall;
  using Where = shardwright::SourceLocation;

public:
  explicit DeviceAsHost(shardwright::DeviceCommunicator below, Stage stage = {})
      : below_(std::move(below)), stage_(std::move(stage)) {}

  /// @brief The adapted communicator.
  [[nodiscard]] static shardwright::HostCommunicator of(shardwright::DeviceCommunicator below,
                                                        Stage stage = {}) {
    return shardwright::HostCommunicator(std::make_shared<DeviceAsHost>(std::move(below), std::move(stage)));
  }

  [[nodiscard]] int rank() const noexcept override { return below_.rank(); }
  [[nodiscard]] int size() const noexcept override { return below_.size(); }
  [[nodiscard]] int world_rank(int rank) const override { return below_.world_rank(rank); }
  [[nodiscard]] std::string name() const override { return below_.name(); }
  [[nodiscard]] std::chrono::nanoseconds deadline() const override { return below_.deadline(); }
  void run(const Call& call) override {
    typename Stage::Staged staged;
    below_.run(stage_.in(call, staged, rank(), size()));
    below_.await_stream(call.where);
    stage_.out(call, staged);
  }
  [[nodiscard]] shardwright::Pending start(const Call& call) override {
    auto started = std::make_shared<Started>();
    started->owner = this->shared_from_this();
    started->call = call;
    started->below = below_.start(stage_.in(call, started->staged, rank(), size()));
    return shardwright::Pending(std::move(started));
  }
  [[nodiscard]] std::shared_ptr<shardwright::HostTransport> split(int colour, int key, std::string name,
                                                                  Where where) override {
    shardwright::DeviceCommunicator part = below_.split(colour, key, std::move(name), where);
    return part.valid() ? std::make_shared<DeviceAsHost>(std::move(part), stage_) : nullptr;
  }
  void abort(const std::string& reason) override { below_.abort(reason); }
  void require_alive(Where where) override { below_.require_alive(where); }

private:
  struct Started final : shardwright::PendingOperation {
    [[nodiscard]] bool ready() override { return below.ready(); }
    void wait() override {
      below.wait();
      owner->below_.await_stream(call.where);
      owner->stage_.out(call, staged);
    }
    void abandon() noexcept override { below = {}; }

    std::shared_ptr<DeviceAsHost> owner;
    Call call{};
    typename Stage::Staged staged;
    shardwright::Pending below;
  };

  shardwright::DeviceCommunicator below_;
  Stage stage_;
};

} // namespace shardwright_test
