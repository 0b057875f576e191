// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Adapts any communicator to a transport, and the base of transports that decorate another one.

#include <shardwright/comm/communicator_handle.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Forwards everything that the communicator below supports, groups and errors included. A decorator
/// overrides `run` and `start`, and in `around` decorates the groups that are split off.
template <class C, class Interface> class DecoratedTransport : public Interface {
public:
  explicit DecoratedTransport(C below) : below_(std::move(below)) {}
  [[nodiscard]] int rank() const noexcept override { return below_.rank(); }
  [[nodiscard]] int size() const noexcept override { return below_.size(); }
  [[nodiscard]] int world_rank(int rank) const override { return below_.world_rank(rank); }
  [[nodiscard]] std::string name() const override { return std::string(below_.name()); }
  [[nodiscard]] std::chrono::nanoseconds deadline() const override { return below_.deadline(); }
  void run(const CollectiveCall& call) override { below_.run(call); }
  [[nodiscard]] Pending start(const CollectiveCall& call) override { return below_.start(call); }
  [[nodiscard]] std::shared_ptr<Interface> split(int colour, int key, std::string name,
                                                 SourceLocation where) override {
    C part = below_.split(colour, key, std::move(name), where);
    return part.valid() ? around(std::move(part)) : nullptr;
  }
  [[nodiscard]] std::shared_ptr<Interface> split_by(const GroupRule& rule, std::string name,
                                                    SourceLocation where) override {
    if constexpr (requires { below_.split_by(rule, name, where); }) {
      C part = below_.split_by(rule, std::move(name), where);
      return part.valid() ? around(std::move(part)) : nullptr;
    } else {
      return Interface::split_by(rule, std::move(name), where);
    }
  }
  void abort(const std::string& reason) override { below_.abort(reason); }
  void require_alive(const CollectiveCall& call) override {
    if constexpr (requires { below_.require_alive(call); })
      below_.require_alive(call);
  }
  void await_stream(SourceLocation where) override {
    if constexpr (requires { below_.await_stream(where); })
      below_.await_stream(where);
  }
  [[nodiscard]] std::shared_ptr<ThreadWorld> thread_world() const override {
    if constexpr (requires { below_.thread_world(); })
      return below_.thread_world();
    else
      return nullptr;
  }
  [[nodiscard]] GroupClock clock() const override {
    if constexpr (requires { below_.clock(); })
      return below_.clock();
    else
      return {};
  }
  [[nodiscard]] Interface& undecorated() noexcept override {
    if constexpr (requires { below_.undecorated(); })
      return below_.undecorated();
    else
      return *this;
  }

protected:
  [[nodiscard]] virtual std::shared_ptr<Interface> around(C part) const = 0;
  [[nodiscard]] C& below() noexcept { return below_; }

private:
  C below_;
};

/// Adapts any communicator to a transport interface.
template <class C, class Interface> class TransportOf final : public DecoratedTransport<C, Interface> {
public:
  using DecoratedTransport<C, Interface>::DecoratedTransport;
  /// Null for a handle without a group.
  [[nodiscard]] static std::shared_ptr<Interface> made_of(C communicator) {
    return communicator.valid() ? std::make_shared<TransportOf>(std::move(communicator)) : nullptr;
  }

private:
  [[nodiscard]] std::shared_ptr<Interface> around(C part) const override { return made_of(std::move(part)); }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
