// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common part of the handles for host and device memory: the typed operations on a transport
/// chosen at run time.

#include <shardwright/comm/communicator.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

class CommunicationClock;

/// @brief A clock that times a group's calls, and the name of the group in it.
struct GroupClock {
  std::shared_ptr<CommunicationClock> clock; ///< Null: calls are not timed.
  std::string label;
};

/// @brief The group of a split that a rank joins, and its key for the order there.
struct GroupPlace {
  int colour = 0; ///< Negative: none.
  int key = 0;
};
/// @brief A function that returns every rank's colour and key in a split; the same on all ranks.
using GroupRule = std::function<GroupPlace(int rank)>;

/// @brief The interface of a transport to its handle, with one virtual call per communication.
class Transport {
public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual int world_rank(int rank) const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::chrono::nanoseconds deadline() const = 0;
  virtual void run(const CollectiveCall& call) = 0;
  [[nodiscard]] virtual Pending start(const CollectiveCall& call) = 0;
  /// @brief The group of the ranks with this rank's colour; null if that is negative. Only transports without
  /// peers ask the rule about other ranks.
  [[nodiscard]] virtual std::shared_ptr<Transport> split(const GroupRule& rule, std::string name,
                                                         SourceLocation where) = 0;
  /// @brief Returns whether two ranks' messages match in the order in which each of them issues its calls,
  /// whatever their tags, and a call begins after all earlier ones of the group have ended.
  [[nodiscard]] virtual bool matches_in_order() const noexcept { return false; }
  /// @brief Messages that are started between these two calls begin together; see MessageExchange.
  virtual void begin_exchange() {}
  virtual void end_exchange() noexcept {}
  virtual void abort(const std::string& reason) = 0;
  /// @brief Throws the error that the call would throw because the group has ended; does not wait.
  virtual void require_alive(const CollectiveCall& call) = 0;
  /// @brief Waits on the host for the stream to which the transport is bound, if any.
  virtual void await_stream(SourceLocation) {}
  /// @brief Advances the started calls of a stream as far as possible without waiting.
  /// @param closely also checks whether their ranks are alive.
  /// @return whether every call on a stream is done.
  /// @throws the error of one that cannot end.
  virtual bool drive([[maybe_unused]] bool closely) { return true; }
  /// @brief Returns the clock that times the calls.
  [[nodiscard]] virtual GroupClock clock() const { return {}; }
  /// @brief Returns the transport below all decorators.
  [[nodiscard]] virtual Transport& undecorated() noexcept { return *this; }
};

/// @brief During its lifetime, messages that are started on a group begin together, so that none waits for
/// another: a ring in which every rank sends and receives needs it where messages match in order. Elsewhere
/// it has no effect.
class [[nodiscard]] MessageExchange {
public:
  explicit MessageExchange(Transport& transport) : transport_(transport) { transport_.begin_exchange(); }
  ~MessageExchange() { transport_.end_exchange(); }
  MessageExchange(const MessageExchange&) = delete;
  MessageExchange& operator=(const MessageExchange&) = delete;

private:
  Transport& transport_;
};

namespace detail {

/// @throws LifecycleError: a handle was used that has no group.
[[noreturn]] void reject_handle(std::string_view handle_name);
#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void reject_handle(std::string_view handle_name) {
  throw LifecycleError(
      std::string(handle_name) +
      ": the handle must have a group (use what launch(), split() or subgroup() returned to a member)");
}
#endif

} // namespace detail

/// @brief A handle to a group of ranks; copies refer to the same group. `Self` derives from it.
template <class Self> class CommunicatorHandle : public TypedOperations<Self, Self> {
public:
  /// @brief A handle without a group: `valid()` is false and every use throws LifecycleError.
  CommunicatorHandle() = default;
  /// @brief Wraps a transport; null gives a handle without a group.
  explicit CommunicatorHandle(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}

  /// @brief Returns whether the handle has a group.
  [[nodiscard]] bool valid() const noexcept { return transport_ != nullptr; }
  /// @brief This rank in the group, from 0.
  [[nodiscard]] int rank() const { return transport().rank(); }
  /// @brief Ranks in the group.
  [[nodiscard]] int size() const { return transport().size(); }
  /// @brief Rank in the world of a rank of this group.
  [[nodiscard]] int world_rank(int rank) const { return transport().world_rank(rank); }
  /// @brief This rank in the world.
  [[nodiscard]] int world_rank() const { return world_rank(rank()); }
  /// @brief Name of the group for messages, such as "world" or "dp,tp".
  [[nodiscard]] std::string name() const { return transport_ ? transport_->name() : std::string(); }
  /// @brief The longest time for which a call may wait.
  [[nodiscard]] std::chrono::nanoseconds deadline() const { return transport().deadline(); }

  /// @brief The typed operations in their asynchronous form, such as `ranks.async().all_reduce(in, out)`.
  [[nodiscard]] AsyncOperations<Self> async() noexcept { return AsyncOperations<Self>(handle()); }

  /// @brief Executes a call. @throws the typed errors of the transport.
  void run(const CollectiveCall& call) { transport().run(call); }
  /// @brief Starts a call; its buffers stay untouched until the Pending is waited for.
  [[nodiscard]] Pending start(const CollectiveCall& call) { return transport().start(call); }

  /// @brief Returns whether messages match in the order of the calls, not by their tags: over NCCL.
  [[nodiscard]] bool matches_in_order() const { return undecorated().matches_in_order(); }
  /// @brief Begins an exchange of messages, which ends with the returned object.
  [[nodiscard]] MessageExchange exchange() const { return MessageExchange(undecorated()); }

  /// @brief Collective: the ranks of one colour form a group, ordered by key, then by rank; a negative colour
  /// joins none. Waits for all ranks of this group.
  /// @throws InvalidArgument in a world without peers, where split_by() is needed; the errors of the
  /// transport.
  [[nodiscard]] Self split(int colour, int key, std::string name = {},
                           SourceLocation where = SourceLocation::current()) {
    const auto rule = [&, own = rank()](int other) -> GroupPlace {
      if (other != own)
        throw InvalidArgument(
            "split: in a world without peers, all colours must follow from a rule (use split_by)",
            context(where));
      return {colour, key};
    };
    return split_by(rule, std::move(name), where);
  }

  /// @brief The same by a rule that returns the colour and key of every rank, not only of this one.
  [[nodiscard]] Self split_by(const GroupRule& rule, std::string name = {},
                              SourceLocation where = SourceLocation::current()) {
    return Self(transport().split(rule, std::move(name), where));
  }

  /// @brief Collective over this whole group: the group of `ranks`, in that order; invalid on ranks outside
  /// it.
  ///
  /// Different ranks may name different, disjoint lists in one call, so that all rows of a mesh are formed at
  /// once. Waits for them all.
  /// @throws InvalidArgument for a rank out of range or named twice; CollectiveMismatch on a rank whose list
  /// is not the group that the lists of all ranks form.
  [[nodiscard]] Self subgroup(std::span<const int> ranks, std::string name = {},
                              SourceLocation where = SourceLocation::current()) {
    check_list(ranks, where);
    const auto own = std::find(ranks.begin(), ranks.end(), rank());
    if (own == ranks.end())
      return split(-1, 0, std::move(name), where);
    const int colour = *std::min_element(ranks.begin(), ranks.end());
    Self part = split(colour, static_cast<int>(own - ranks.begin()), std::move(name), where);
    const auto all = [&](int count, auto&& member) { // "0, 2", as ranks of this group
      std::string out;
      for (int at = 0; at < count; ++at)
        out += (at == 0 ? "" : ", ") + std::to_string(member(at));
      return out;
    };
    const std::string named =
        all(static_cast<int>(ranks.size()), [&](int at) { return ranks[static_cast<std::size_t>(at)]; });
    const std::string formed = all(part.size(), [&](int at) { return rank_of(part.world_rank(at)); });
    if (named == formed)
      return part;
    part = Self(); // before the exception, during which its end would count as a failure
    throw CollectiveMismatch("subgroup: all ranks of a list must name the same list, but rank " +
                                 std::to_string(rank()) + " named {" + named + "} and its group became {" +
                                 formed + "} by the others' lists (compute the list only from the mesh)",
                             context(where));
  }

  /// @brief Ends the whole world with a reason: every waiting rank wakes with PeerFailed.
  void abort(const std::string& reason) { transport().abort(reason); }
  /// @brief Throws the error that the call would throw because the group has ended: a rank failed, left or
  /// aborted. Issues no call and does not wait.
  void require_alive(const CollectiveCall& call) { transport().require_alive(call); }
  /// @brief Waits on the host until everything on the stream of a communicator of device memory is done. Use
  /// this to wait for a stream that may contain calls.
  /// @throws the error of a call that cannot end, at its deadline.
  void await_stream(SourceLocation where = SourceLocation::current()) { transport().await_stream(where); }

  /// @brief Returns the transport below all decorators, for what only one kind of transport offers.
  [[nodiscard]] Transport& undecorated() const { return transport().undecorated(); }

  /// @brief Returns the clock that times the calls, or an empty one.
  [[nodiscard]] GroupClock clock() const { return transport().clock(); }

protected:
  friend class TypedOperations<Self, Self>;
  ~CommunicatorHandle() = default;
  CommunicatorHandle(const CommunicatorHandle&) = default;
  CommunicatorHandle(CommunicatorHandle&&) noexcept = default;
  CommunicatorHandle& operator=(const CommunicatorHandle&) = default;
  CommunicatorHandle& operator=(CommunicatorHandle&&) noexcept = default;

  void issue(const CollectiveCall& call) { run(call); }
  [[nodiscard]] Self& handle() noexcept { return static_cast<Self&>(*this); }

  [[nodiscard]] Transport& transport() const {
    if (!transport_)
      detail::reject_handle(Self::handle_name);
    return *transport_;
  }

private:
  [[nodiscard]] ErrorContext context(SourceLocation where) const {
    return {world_rank(), name(), "split", 0, {}, where};
  }

  /// The rank in this group of a rank of the world.
  [[nodiscard]] int rank_of(int world_rank) const {
    int out = 0;
    while (this->world_rank(out) != world_rank)
      ++out;
    return out;
  }

  void check_list(std::span<const int> ranks, SourceLocation where) const {
    const auto fail = [&](const std::string& sentence) {
      throw InvalidArgument("subgroup: " + sentence, context(where));
    };
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] < 0 || ranks[i] >= size())
        fail("every rank must be at least 0 and below " + std::to_string(size()) + ", but " +
             std::to_string(ranks[i]) + " was given (name ranks of this group)");
      if (std::find(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(i), ranks[i]) !=
          ranks.begin() + static_cast<std::ptrdiff_t>(i))
        fail("every rank must be named once, but " + std::to_string(ranks[i]) +
             " is named twice (remove one)");
    }
  }

  std::shared_ptr<Transport> transport_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI
