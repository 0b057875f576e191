// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The base of transports that decorate another one.

#include <shardwright/comm/communicator_handle.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Forwards everything to the communicator below. A decorator overrides `run` and `start`, and in `around`
/// decorates the groups that are split off.
template <class Handle> class DecoratedTransport : public Transport {
public:
  explicit DecoratedTransport(Handle below) : below_(std::move(below)) {}
  [[nodiscard]] int rank() const noexcept override { return below_.rank(); }
  [[nodiscard]] int size() const noexcept override { return below_.size(); }
  [[nodiscard]] int world_rank(int rank) const override { return below_.world_rank(rank); }
  [[nodiscard]] std::string name() const override { return below_.name(); }
  [[nodiscard]] std::chrono::nanoseconds deadline() const override { return below_.deadline(); }
  void run(const CollectiveCall& call) override { below_.run(call); }
  [[nodiscard]] Pending start(const CollectiveCall& call) override { return below_.start(call); }
  [[nodiscard]] std::shared_ptr<Transport> split(const GroupRule& rule, std::string name,
                                                 SourceLocation where) override {
    Handle part = below_.split_by(rule, std::move(name), where);
    return part.valid() ? around(std::move(part)) : nullptr;
  }
  void abort(const std::string& reason) override { below_.abort(reason); }
  void require_alive(const CollectiveCall& call) override { below_.require_alive(call); }
  void await_stream(SourceLocation where) override { below_.await_stream(where); }
  [[nodiscard]] GroupClock clock() const override { return below_.clock(); }
  [[nodiscard]] Transport& undecorated() noexcept override { return below_.undecorated(); }

protected:
  [[nodiscard]] virtual std::shared_ptr<Transport> around(Handle part) const = 0;
  [[nodiscard]] Handle& below() noexcept { return below_; }

private:
  Handle below_;
};

/// A decorator that adds something to each call.
///
/// It makes an `Observer::Call` of each: `passed(call)` is what the communicator below gets; `end(wait)`
/// calls wait(), which returns when the call below has ended; `over()` says, after that, whether the call has
/// ended here too. `Observer::of(name)` is the observer of a group that is split off.
template <class Handle, class Observer>
class ObservedTransport final : public DecoratedTransport<Handle>,
                                public std::enable_shared_from_this<ObservedTransport<Handle, Observer>> {
public:
  ObservedTransport(Handle below, Observer observer)
      : DecoratedTransport<Handle>(std::move(below)), observer_(std::move(observer)) {}

  void run(const CollectiveCall& call) override {
    typename Observer::Call observed(observer_, this->below(), call);
    observed.end([&] { this->below().run(observed.passed(call)); });
  }
  [[nodiscard]] Pending start(const CollectiveCall& call) override {
    auto started = std::make_shared<Started>(this->shared_from_this(), call);
    started->pending = this->below().start(started->observed.passed(call));
    return Pending(std::move(started));
  }
  [[nodiscard]] GroupClock clock() const override {
    if constexpr (requires { observer_.clock(); })
      return observer_.clock();
    else
      return DecoratedTransport<Handle>::clock();
  }

private:
  struct Started final : PendingOperation {
    Started(std::shared_ptr<ObservedTransport> owner, const CollectiveCall& call)
        : transport(std::move(owner)), observed(transport->observer_, transport->below(), call) {}
    [[nodiscard]] bool ready() override { return pending.ready() && observed.over(); }
    void wait() override {
      observed.end([this] { pending.wait(); });
    }
    void abandon() noexcept override { pending = Pending(); }

    std::shared_ptr<ObservedTransport> transport; // first, for all that follows refers to it
    typename Observer::Call observed;
    Pending pending; // last, so that a call that is dropped ends before what observes it
  };

  [[nodiscard]] std::shared_ptr<Transport> around(Handle part) const override {
    Observer observer = observer_.of(part.name());
    return std::make_shared<ObservedTransport>(std::move(part), std::move(observer));
  }

  Observer observer_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
