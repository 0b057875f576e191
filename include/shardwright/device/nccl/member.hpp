// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The control side of one rank of an NCCL group: the host group through which ranks learn of one
/// another, waits with deadlines, and the end of the group with its typed errors.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/report.hpp>
#include <shardwright/comm/threads/ranks.hpp>
#include <shardwright/comm/threads/world.hpp>
#include <shardwright/comm/validate.hpp>
#include <shardwright/comm/waiting.hpp>
#include <shardwright/device/driven_transports.hpp>
#include <shardwright/device/graphs.hpp>
#include <shardwright/device/nccl/channel.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The options of an nccl_communicator, equal on all ranks.
struct NcclOptions {
  /// Whether the ranks compare the fingerprints of their collectives, and both ends those of a message, over
  /// the host group, before they are enqueued. This costs one small all-gather between hosts for each
  /// collective (a few microseconds for thread ranks, about ten for MPI) and synchronises the hosts. Without
  /// it a mismatch is detected only at the deadline, and messages of one size that two ranks issue in
  /// different orders are taken for each other.
#if defined(NDEBUG)
  bool check = false;
#else
  bool check = true;
#endif
};

namespace detail {

template <class Api> class NcclMember {
public:
  NcclMember(Api api, HostCommunicator host, NcclOptions options)
      : api_(std::move(api)), host_(std::move(host)), options_(options),
        of_rank_(NcclRankChannels<Api>::of_this_rank()), driven_(DrivenTransports::of_this_rank()),
        name_(host_.name()) {}

  /// The condition for a call to reach its stream, for late().
  static constexpr const char* to_be_issued = "be issued by all its ranks";

  [[nodiscard]] int rank() const { return host_.rank(); }
  [[nodiscard]] int size() const { return host_.size(); }
  [[nodiscard]] int world_rank(int rank) const { return host_.world_rank(rank); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::chrono::nanoseconds deadline() const { return host_.deadline(); }
  [[nodiscard]] const NcclOptions& options() const noexcept { return options_; }
  [[nodiscard]] HostCommunicator& host() noexcept { return host_; }
  [[nodiscard]] Api& api() noexcept { return api_; }
  [[nodiscard]] std::unique_ptr<NcclChannel<Api>> new_channel() {
    return std::make_unique<NcclChannel<Api>>(api_, of_rank_);
  }
  [[nodiscard]] DrivenTransports& driven() noexcept { return *driven_; }
  [[nodiscard]] bool ended() const noexcept { return !failure_.empty(); }

  [[nodiscard]] ErrorContext context(const CollectiveCall& call, std::uint64_t sequence) const {
    return {world_rank(rank()), name_, std::string(name_of(call.operation)), sequence, {}, call.where};
  }

  /// Collective. Two ranks on one GPU would wait for each other forever, and NCCL's own error does not name
  /// them.
  /// @throws ConfigurationMismatch, which names them.
  void require_own_devices(const CollectiveCall& forming) {
    using Device = typename Api::Device;
    const std::vector<Device> own{api_.device()};
    const auto devices = guarded([&] { return all_gather_v(host_, own, forming.where); });
    for (int a = 0; a < size(); ++a)
      for (int b = a + 1; b < size(); ++b)
        if (devices[static_cast<std::size_t>(a)] == devices[static_cast<std::size_t>(b)])
          throw ConfigurationMismatch(
              "nccl_communicator: every rank must have a separate GPU, but ranks " +
                  std::to_string(world_rank(a)) + " and " + std::to_string(world_rank(b)) +
                  " share one (start at most as many processes as there are GPUs and make a different one visible to each with CUDA_VISIBLE_DEVICES, or run the ranks as threads of one process, which may share)",
              context(forming, 0));
  }

  /// The checks before a call is accepted.
  /// @throws LifecycleError after the group's end or in a captured step; the host group's error if that has
  /// ended; InvalidArgument.
  void admit(const CollectiveCall& call, std::uint64_t sequence) {
    require_open(call, sequence);
    // The graph would also own memory that the call allocates, and could be launched only once.
    if (CaptureMark::spoil())
      throw LifecycleError(
          std::string(name_of(call.operation)) +
              ": a call of NCCL must not be part of a captured step, since the hosts of the ranks take part in it (run without capture)",
          context(call, sequence));
    look(call, sequence);
    validate(call, *this, sequence);
  }

  /// @throws LifecycleError after the group's end.
  void require_open(const CollectiveCall& call, std::uint64_t sequence) const {
    if (ended())
      throw LifecycleError(used_after_failure(call.operation, failure_), context(call, sequence));
  }

  /// Checks for the end of other ranks through the host group. @throws its error.
  void look(const CollectiveCall& call, std::uint64_t sequence) {
    on_hosts(call, sequence, [&] { host_.require_alive(call); });
  }

  /// Checks for the end of other ranks, for a call that has been waiting since a given time. A rank that
  /// exits normally has already posted its part, which may still be in flight: the call gets some time from
  /// then on.
  void look_patiently(const CollectiveCall& call, std::uint64_t sequence,
                      std::chrono::steady_clock::time_point since) {
    on_hosts(call, sequence, [&] {
      try {
        host_.require_alive(call);
      } catch (const Error&) {
        const auto now = std::chrono::steady_clock::now();
        if (!left_)
          left_ = now;
        if (world_has_ended() ||
            now - std::max(*left_, since) > std::min<std::chrono::nanoseconds>(deadline() / 2, grace))
          throw;
      }
    });
  }

  /// Runs a step that may throw, in which case the group has ended for this rank.
  template <class Step> decltype(auto) guarded(Step&& step) {
    try {
      return step();
    } catch (const InvalidArgument&) {
      throw;
    } catch (const std::exception& error) {
      end(error.what(), false);
      throw;
    }
  }

  /// The same for a step of the host group on behalf of a call: errors name the call, not the step.
  template <class Step>
  decltype(auto) on_hosts(const CollectiveCall& call, std::uint64_t sequence, Step&& step) {
    return guarded([&]() -> decltype(auto) {
      try {
        return step();
      } catch (const DeadlineExceeded& error) {
        throw DeadlineExceeded(error.missing(), said_for(call, sequence, error), context(call, sequence));
      } catch (const PeerFailed& error) {
        throw PeerFailed(error.peer(), said_for(call, sequence, error), context(call, sequence));
      }
    });
  }

  /// Returns if a result is not a failure; otherwise ends the group. @throws the typed error of the result.
  void check(NcclResult result, const NcclChannel<Api>& channel, const char* what, const CollectiveCall& call,
             std::uint64_t sequence) {
    if (!failed(result))
      return;
    const std::string text =
        channel.aborted().empty() ? channel.text(result) : "aborted because " + channel.aborted();
    end(describe(call, sequence) + ": " + what + " reported \"" + text + "\"", true);
    throw_nccl(result, what, text, context(call, sequence));
  }

  /// Polls `done()` until it is true; meanwhile drives the rank's communicators and checks the host group.
  /// @throws DeadlineExceeded, whose sentence says that `what` must happen; whatever `done()`, the host group
  /// or another communicator throw.
  template <class Done>
  void await(Done&& done, const char* what, const CollectiveCall& call, std::uint64_t sequence) {
    const auto begin = std::chrono::steady_clock::now();
    Waiting waiting(deadline() +
                    deadline() / 16); // the host group times out first: it names the missing ranks
    while (!done()) {
      driven_->drive(waiting.slow());
      waiting.pause();
      if (waiting.slow())
        look_patiently(call, sequence, begin);
      if (waiting.expired())
        late(what, call, sequence);
    }
  }

  /// Ends the group because something has not happened within the deadline.
  [[noreturn]] void late(const char* what, const CollectiveCall& call, std::uint64_t sequence) {
    const bool message = sends_or_receives(call.operation);
    std::vector<int> missing;
    for (int other = 0; other < size(); ++other)
      if (other != rank() && (!message || other == call.root))
        missing.push_back(world_rank(other));
    std::string who;
    if (!missing.empty())
      who = (missing.size() == 1 ? ": " : ": one of ") + ranks_text(missing) + " may not have arrived";
    const std::string sentence =
        describe(call, sequence) + " on group " + name_ + " must " + what + " within " +
        time_text(deadline()) + ", but it did not" + who +
        (message
             ? " (let both ranks issue their calls in one order, and start messages that cross in one exchange())"
             : std::string(same_order_advice));
    end(sentence, true);
    throw DeadlineExceeded(std::move(missing), std::string(name_of(call.operation)) + ": " + sentence,
                           context(call, sequence));
  }

  /// Ends the group for this rank: all its kernels leave, and, if `tell`, the other ranks wake.
  void end(const std::string& why, bool tell) noexcept {
    if (ended())
      return;
    try {
      failure_ = why.empty() ? "it was aborted" : why;
      of_rank_->abort(failure_);
      // A propagating exception reaches launch(), and is the original cause.
      if (tell && std::uncaught_exceptions() == 0)
        host_.abort(failure_);
    } catch (...) { // the host group has already ended, or there is no memory left for a message
    }
  }

private:
  /// The sentence of an error of the host group, for the call that needed the hosts.
  [[nodiscard]] static std::string said_for(const CollectiveCall& call, std::uint64_t sequence,
                                            const Error& error) {
    const std::string what = error.what();
    const std::string sentence = what.substr(0, what.rfind(" [" + error.context().text() + "]"));
    if (error.context().operation == name_of(call.operation))
      return sentence;
    return std::string(name_of(call.operation)) + ": the hosts must compare " + describe(call, sequence) +
           " before it is enqueued; " + sentence;
  }

  [[nodiscard]] bool world_has_ended() const {
    const ThreadRanks* const threads = ThreadRanks::of(host_);
    return threads != nullptr && threads->world()->failure();
  }

  static constexpr std::chrono::seconds grace{5};

  Api api_;
  HostCommunicator host_;
  NcclOptions options_;
  std::shared_ptr<NcclRankChannels<Api>> of_rank_;
  std::shared_ptr<DrivenTransports> driven_;
  std::string name_;
  std::string failure_;
  std::optional<std::chrono::steady_clock::time_point> left_; ///< When it was noticed that a rank is gone.
};

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
