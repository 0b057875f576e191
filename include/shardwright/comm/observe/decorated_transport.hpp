// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The base of transports that put something around another communicator's calls.

#include <shardwright/comm/host_communicator.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Forwards everything to the communicator below, groups and errors included; a decorator overrides `run` and
/// `start`, and says in `around` how the groups that split off are decorated.
template <class Handle, class Interface>
class BasicDecoratedTransport : public Interface {
public:
  explicit BasicDecoratedTransport(Handle below) : below_(std::move(below)) {}
  [[nodiscard]] int rank() const noexcept override { return below_.rank(); }
  [[nodiscard]] int size() const noexcept override { return below_.size(); }
  [[nodiscard]] int world_rank(int rank) const override { return below_.world_rank(rank); }
  [[nodiscard]] std::string name() const override { return below_.name(); }
  [[nodiscard]] std::chrono::nanoseconds deadline() const override { return below_.deadline(); }
  [[nodiscard]] std::shared_ptr<Interface> split(int colour, int key, std::string name,
                                                 SourceLocation where) override {
    Handle part = below_.split(colour, key, std::move(name), where);
    return part.valid() ? around(std::move(part)) : nullptr;
  }
  [[nodiscard]] std::shared_ptr<Interface> split_by(const GroupRule& rule, std::string name,
                                                    SourceLocation where) override {
    Handle part = below_.split_by(rule, std::move(name), where);
    return part.valid() ? around(std::move(part)) : nullptr;
  }
  void abort(const std::string& reason) override { below_.abort(reason); }
  void require_alive(const CollectiveCall& call) override { below_.require_alive(call); }
  [[nodiscard]] std::shared_ptr<ThreadWorld> thread_world() const override { return below_.thread_world(); }
  [[nodiscard]] GroupClock clock() const override { return below_.clock(); }
  [[nodiscard]] Interface& undecorated() noexcept override { return below_.undecorated(); }
  void await_stream(SourceLocation where) override {
    if constexpr (requires { below_.await_stream(where); })
      below_.await_stream(where);
  }

protected:
  [[nodiscard]] virtual std::shared_ptr<Interface> around(Handle part) const = 0;
  [[nodiscard]] Handle& below() noexcept { return below_; }

private:
  Handle below_;
};

/// Of host memory.
class DecoratedTransport : public BasicDecoratedTransport<HostCommunicator, HostTransport> {
public:
  using BasicDecoratedTransport::BasicDecoratedTransport;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
