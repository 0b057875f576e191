// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The communicator that programs and meshes hold: any transport for
/// host memory, chosen at run time.

#include <shardwright/comm/communicator.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief What HostCommunicator asks of a transport; one virtual call per
/// communication.
class HostTransport {
public:
  virtual ~HostTransport() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual int world_rank(int rank) const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::chrono::nanoseconds deadline() const = 0;
  virtual void run(const CollectiveCall& call) = 0;
  [[nodiscard]] virtual Pending start(const CollectiveCall& call) = 0;
  /// @brief Null for a negative colour.
  [[nodiscard]] virtual std::shared_ptr<HostTransport> split(int colour, int key, std::string name,
                                                             SourceLocation where) = 0;
  virtual void abort(const std::string& reason) = 0;
};

/// @brief A handle on a group of ranks over thread ranks, MPI, or a decorator
/// of either; copies name the same group.
class HostCommunicator : public TypedOperations<HostCommunicator> {
public:
  /// @brief A handle without a group: `valid()` is false and every use throws
  /// LifecycleError.
  HostCommunicator() = default;

  /// @brief Wraps any communicator for host memory.
  template <Communicator C>
  requires(!std::derived_from<C, HostCommunicator>)
      HostCommunicator(C communicator); // NOLINT(google-explicit-constructor):
                                        // a run-time choice of transport

  /// @brief Wraps a transport; null gives a handle without a group.
  explicit HostCommunicator(std::shared_ptr<HostTransport> transport) : transport_(std::move(transport)) {}

  /// @brief Whether the handle has a group.
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
  /// @brief The longest time that a call may wait.
  [[nodiscard]] std::chrono::nanoseconds deadline() const { return transport().deadline(); }

  /// @brief Executes a call. @throws the typed errors of the transport.
  void run(const CollectiveCall& call) { transport().run(call); }
  /// @brief Starts a call; its buffers stay untouched until the Pending is
  /// waited for.
  [[nodiscard]] Pending start(const CollectiveCall& call) { return transport().start(call); }

  /// @brief Collective: the ranks of one colour form a group, ordered by key,
  /// then by rank; a negative colour joins none.
  [[nodiscard]] HostCommunicator split(int colour, int key, std::string name = {},
                                       SourceLocation where = SourceLocation::current()) {
    return HostCommunicator(transport().split(colour, key, std::move(name), where));
  }

  /// @brief Collective over this whole group: the group of `ranks`, in that
  /// order; invalid on ranks outside it.
  ///
  /// Different ranks may name different, disjoint lists in one call, so that
  /// all rows of a mesh form at once.
  /// @throws InvalidArgument for a rank out of range or named twice.
  [[nodiscard]] HostCommunicator subgroup(std::span<const int> ranks, std::string name = {},
                                          SourceLocation where = SourceLocation::current());

  /// @brief Ends the whole world with a reason: every waiting rank wakes with
  /// PeerFailed.
  void abort(const std::string& reason) { transport().abort(reason); }

private:
  [[nodiscard]] HostTransport& transport() const {
    if (!transport_)
      throw LifecycleError("HostCommunicator: the handle must have a group (use what launch(), "
                           "split() or subgroup() returned to a member)");
    return *transport_;
  }

  std::shared_ptr<HostTransport> transport_;
};

namespace detail {

template <Communicator C>
class TransportOf final : public HostTransport {
public:
  explicit TransportOf(C communicator) : communicator_(std::move(communicator)) {}
  [[nodiscard]] int rank() const noexcept override { return communicator_.rank(); }
  [[nodiscard]] int size() const noexcept override { return communicator_.size(); }
  [[nodiscard]] int world_rank(int rank) const override { return communicator_.world_rank(rank); }
  [[nodiscard]] std::string name() const override { return std::string(communicator_.name()); }
  [[nodiscard]] std::chrono::nanoseconds deadline() const override { return communicator_.deadline(); }
  void run(const CollectiveCall& call) override { communicator_.run(call); }
  [[nodiscard]] Pending start(const CollectiveCall& call) override { return communicator_.start(call); }
  [[nodiscard]] std::shared_ptr<HostTransport> split(int colour, int key, std::string name,
                                                     SourceLocation where) override {
    C part = communicator_.split(colour, key, std::move(name), where);
    return part.valid() ? std::make_shared<TransportOf>(std::move(part)) : nullptr;
  }
  void abort(const std::string& reason) override { communicator_.abort(reason); }

private:
  C communicator_;
};

} // namespace detail

template <Communicator C>
requires(!std::derived_from<C, HostCommunicator>) HostCommunicator::HostCommunicator(C communicator)
    : transport_(communicator.valid() ? std::make_shared<detail::TransportOf<C>>(std::move(communicator))
                                      : nullptr) {}

inline HostCommunicator HostCommunicator::subgroup(std::span<const int> ranks, std::string name,
                                                   SourceLocation where) {
  const auto fail = [&](const std::string& sentence) {
    throw InvalidArgument("subgroup: " + sentence, {world_rank(), this->name(), "split", 0, {}, where});
  };
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size())
      fail("every rank must be at least 0 and below " + std::to_string(size()) + ", but " +
           std::to_string(ranks[i]) + " was given (name ranks of this group)");
    if (std::find(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(i), ranks[i]) !=
        ranks.begin() + static_cast<std::ptrdiff_t>(i))
      fail("every rank must be named once, but " + std::to_string(ranks[i]) + " is named twice (remove one)");
  }
  const auto own = std::find(ranks.begin(), ranks.end(), rank());
  if (own == ranks.end())
    return split(-1, 0, std::move(name), where);
  const int colour = *std::min_element(ranks.begin(), ranks.end());
  HostCommunicator part = split(colour, static_cast<int>(own - ranks.begin()), std::move(name), where);
  if (part.size() != static_cast<int>(ranks.size()))
    throw CollectiveMismatch("subgroup: all " + std::to_string(ranks.size()) +
                                 " ranks of the list must name the same list, but " +
                                 std::to_string(part.size()) + " did (compute the list from the mesh alone)",
                             {world_rank(), this->name(), "split", 0, {}, where});
  return part;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
