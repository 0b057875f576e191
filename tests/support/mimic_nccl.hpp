// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief MimicTarget with its ranks connected by the NCCL transport over a fake NCCL.

#include "support/fake_nccl.hpp"
#include "support/mimic_target.hpp"

#include <shardwright/device/nccl/transport.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace shardwright_test {

/// @brief NCCL's kernels run on separate streams, concurrently with the host. Those of MimicTarget run at
/// once, so a function that orders the rank's stream after a call also waits for the call here.
class SettledNccl final : public shardwright::Transport, public std::enable_shared_from_this<SettledNccl> {
  using Nccl = shardwright::detail::NcclTransport<FakeNccl, FakeRuntime>;

public:
  [[nodiscard]] static shardwright::DeviceCommunicator connect(const shardwright::HostCommunicator& group) {
    FakeRuntime runtime(static_cast<unsigned>(group.world_rank()) * 1000 + 1);
    auto stream = runtime.make_stream();
    return shardwright::DeviceCommunicator(std::make_shared<SettledNccl>(std::make_shared<Nccl>(
        group, FakeNccl(), std::move(runtime), std::move(stream), shardwright::NcclOptions{.check = true})));
  }
  explicit SettledNccl(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_->size(); }
  [[nodiscard]] int world_rank(int rank) const override { return inner_->world_rank(rank); }
  [[nodiscard]] std::string name() const override { return inner_->name(); }
  [[nodiscard]] std::chrono::nanoseconds deadline() const override { return inner_->deadline(); }
  void run(const shardwright::CollectiveCall& call) override {
    inner_->run(call);
    inner_->await_stream(call.where);
  }
  [[nodiscard]] shardwright::Pending start(const shardwright::CollectiveCall& call) override {
    return shardwright::Pending(
        std::make_shared<Started>(this->shared_from_this(), inner_->start(call), call.where));
  }
  [[nodiscard]] std::shared_ptr<Transport> split(const shardwright::GroupRule& rule, std::string name,
                                                 shardwright::SourceLocation where) override {
    auto part = inner_->split(rule, std::move(name), where);
    return part ? std::make_shared<SettledNccl>(std::move(part)) : nullptr;
  }
  [[nodiscard]] bool matches_in_order() const noexcept override { return inner_->matches_in_order(); }
  void begin_exchange() override { inner_->begin_exchange(); }
  void end_exchange() noexcept override { inner_->end_exchange(); }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  void require_alive(const shardwright::CollectiveCall& call) override { inner_->require_alive(call); }
  void await_stream(shardwright::SourceLocation where) override { inner_->await_stream(where); }

private:
  struct Started final : shardwright::PendingOperation {
    Started(std::shared_ptr<SettledNccl> of, shardwright::Pending call, shardwright::SourceLocation at)
        : transport(std::move(of)), inner(std::move(call)), where(at) {}
    [[nodiscard]] bool ready() override { return inner.ready(); }
    void wait() override {
      inner.wait();
      transport->await_stream(where);
    }
    void abandon() noexcept override { inner = {}; }

    std::shared_ptr<SettledNccl> transport;
    shardwright::Pending inner;
    shardwright::SourceLocation where;
  };

  std::shared_ptr<Transport> inner_;
};

/// @brief While it lives, ranks on MimicTarget are connected by NCCL.
class OverNccl {
public:
  OverNccl() { MimicTarget::connector() = SettledNccl::connect; }
  ~OverNccl() { MimicTarget::connector() = MimicTarget::by_peers; }
  OverNccl(const OverNccl&) = delete;
  OverNccl& operator=(const OverNccl&) = delete;
};

} // namespace shardwright_test
