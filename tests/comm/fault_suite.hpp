// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Faults of ranks and collectives, as checks that run on any transport: each rank checks which rank
/// is blamed, in which call, at which line and by what deadline.
///
/// Rank 1 is at fault, and all others are innocent. If a fault is found at a deadline, the deadline is short
/// at first (try_patiently), and its length is in the text; if ranks must be woken before it, it is a minute,
/// and DeadlineExceeded is always wrong.

#include "comm/communicator_suite.hpp"

#include <shardwright/comm/report.hpp>
#include <shardwright/comm/waiting.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace fault_suite {

namespace sw = shardwright;
using Numbers = std::vector<float>;

/// The exception of a call.
struct Report {
  enum class Kind { nothing, deadline, peer, mismatch, lifecycle, argument, other };
  Kind kind = Kind::nothing;
  std::string text = "nothing was thrown";
  sw::ErrorContext context;
  std::vector<int> blamed; ///< PeerFailed::peer(), DeadlineExceeded::missing().

  [[nodiscard]] bool says(const std::string& part) const { return text.find(part) != std::string::npos; }
};

template <class Call> [[nodiscard]] Report report_of(Call call) {
  using Kind = Report::Kind;
  const auto report = [](Kind kind, const sw::Error& error, std::vector<int> blamed = {}) {
    return Report{kind, error.what(), error.context(), std::move(blamed)};
  };
  try {
    call();
  } catch (const sw::DeadlineExceeded& error) {
    return report(Kind::deadline, error, error.missing());
  } catch (const sw::PeerFailed& error) {
    return report(Kind::peer, error, {error.peer()});
  } catch (const sw::CollectiveMismatch& error) {
    return report(Kind::mismatch, error);
  } catch (const sw::LifecycleError& error) {
    return report(Kind::lifecycle, error);
  } catch (const sw::InvalidArgument& error) {
    return report(Kind::argument, error);
  } catch (const sw::Error& error) {
    return report(Kind::other, error);
  }
  return {};
}

/// The exception of rank 1 when its program fails; not a std::exception, so that only launch() catches it.
struct DiskIsFull {};

/// One rank's side of a fault: its communicator, and a meeting point of all ranks outside of it.
template <class Place> class Scene {
public:
  /// @param depart tells the meeting point that this rank does not come.
  /// @param begun waits until all ranks have begun: an abort may otherwise find a rank that still waits for
  /// its first operation, which others know to be over.
  Scene(Place place, std::function<void()> meet, std::function<void()> depart = nullptr,
        std::function<void()> begun = nullptr)
      : place_(std::move(place)), meet_(std::move(meet)), depart_(std::move(depart)),
        begun_(std::move(begun)) {}
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;
  ~Scene() { meet(); }

  [[nodiscard]] auto& comm() { return place_->comm; }
  [[nodiscard]] bool guilty() { return comm().rank() == 1; }
  [[nodiscard]] auto put(Numbers numbers) { return place_->put(std::move(numbers)); }
  [[nodiscard]] Numbers get(const auto& numbers) { return place_->get(numbers); }

  /// The first operation of each rank; all ranks have been here.
  void begin() {
    auto data = put(Numbers(4, 1));
    began_ = __LINE__ + 1;
    comm().all_reduce_in_place(data);
    settle();
    if (begun_)
      begun_();
  }
  /// The exception of the call, thrown at once or when the host waits for its stream.
  template <class Call> [[nodiscard]] Report report(Call call) {
    return report_of([&] {
      call();
      settle();
    });
  }
  /// Returns once all others are done with the fault.
  void stay_away() { meet(); }

  /// Ends this rank's program with an exception that nothing here catches.
  [[noreturn]] void fail() {
    meet_ = nullptr;
    depart_();
    throw DiskIsFull{};
  }

  /// The error is of this rank's call: operation, number and line. A call that was rejected before it was
  /// issued may have no number.
  void require_call(const Report& told, const char* operation, std::uint64_t sequence, int line,
                    bool issued = true) {
    const sw::ErrorContext& at = told.context;
    const bool right = at.rank == comm().world_rank() && at.group == comm().name() &&
                       at.operation == operation &&
                       (at.sequence == sequence || (!issued && at.sequence == 0)) && at.where.line == line &&
                       std::string_view(at.where.file).ends_with("fault_suite.hpp");
    require(right, std::string("the context must be ") + operation + " #" + std::to_string(sequence) +
                       " at line " + std::to_string(line) + ": " + told.text);
  }
  /// Whether the hosts compare the calls before the device receives them: then a rank's last operation may be
  /// one of the host's, and no rank knows which rank another one waits for.
  static constexpr bool on_hosts = requires { typename Place::compares_on_hosts; };
  /// Whether a rank that drops a handle is missed only at the deadline.
  static constexpr bool deaf_to_handles = requires { typename Place::hears_of_no_handles; };

  /// Rank 1 did not arrive: this rank's own deadline has passed, or it heard from a rank whose deadline
  /// passed before.
  void require_late(const Report& told, const std::string& last_operation) {
    require_deadline(told);
    require(told.says("rank 1 did not arrive: rank 1: its last operation was " +
                      (on_hosts ? std::string() : last_operation + " on group world at ")),
            "rank 1 must be late after " + last_operation + ": " + told.text);
    require(told.says("fault_suite.hpp:" + std::to_string(began_)),
            "no line of the last operation: " + told.text);
    if (told.kind == Report::Kind::deadline)
      require(told.blamed == std::vector<int>{1}, "rank 1 and no other must be missing: " + told.text);
  }
  /// The text names the deadline, and the error is that of a deadline.
  void require_deadline(const Report& told) {
    require(told.kind == Report::Kind::deadline ||
                (told.kind == Report::Kind::peer && told.says("gave up waiting")) ||
                (told.kind == Report::Kind::peer && told.says("called abort")), // of a device group
            "a deadline must have passed: " + told.text);
    require(told.says("within " + sw::detail::time_text(comm().deadline())), "no deadline in: " + told.text);
  }
  /// Rank 1 and no other is the cause, and no deadline had to pass.
  void require_peer(const Report& told, const std::string& cause) {
    require(told.kind == Report::Kind::peer && told.blamed == std::vector<int>{1},
            "rank 1 must be blamed: " + told.text);
    require(told.says("rank 1 " + cause), "the cause must be that rank 1 " + cause + ": " + told.text);
  }
  /// The group has ended, and says why.
  void require_over() {
    const Report told = report_of([&] { comm().barrier(); });
    require(told.kind == Report::Kind::lifecycle && told.says("must not be used after it has failed"),
            "a group that has failed must say so: " + told.text);
  }
  void require(bool holds, const std::string& what) { communicator_suite::require(holds, what); }
  /// "rank 0", or "ranks 0 and 2", of all but rank 1.
  [[nodiscard]] std::string innocent() {
    std::vector<int> ranks;
    for (int rank = 0; rank < comm().size(); ++rank)
      if (rank != 1)
        ranks.push_back(rank);
    return sw::detail::ranks_text(ranks);
  }

private:
  void settle() {
    if constexpr (requires { comm().await_stream(); })
      comm().await_stream();
  }
  void meet() {
    if (const auto once = std::exchange(meet_, nullptr))
      once();
  }

  std::optional<Place> place_;
  std::function<void()> meet_, depart_, begun_;
  int began_ = 0;
};

/// 4. A frozen rank is named with its last operation at the deadline.
template <class Place> void frozen(Scene<Place>& on) {
  on.begin();
  if (on.guilty())
    return on.stay_away();
  auto data = on.put(Numbers(8, 1));
  int line = 0;
  const Report told = on.report([&] {
    line = __LINE__ + 1;
    on.comm().all_reduce_in_place(data);
  });
  on.require_call(told, "all_reduce", 2, line);
  on.require_late(told, "all_reduce #1");
  on.require_over();
}

/// 5. A rank that is late but below the deadline changes no number.
template <class Place> void slow(Scene<Place>& on) {
  on.begin();
  if (on.guilty())
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  auto data = on.put(Numbers{static_cast<float>(on.comm().rank() + 1)});
  on.comm().all_reduce_in_place(data);
  const int ranks = on.comm().size();
  on.require(on.get(data) == Numbers{static_cast<float>(ranks * (ranks + 1) / 2)}, "the sum of a late rank");
}

/// All ranks learn that rank 1's second collective is another one, before data moves.
template <class Place, class Guilty, class Innocent>
void differs(Scene<Place>& on, const std::string& difference, const std::string& guilty_call,
             const std::string& innocent_call, Guilty guilty, Innocent innocent) {
  on.begin();
  const Numbers before(6, 1.5F);
  auto data = on.put(before);
  int line = 0;
  const Report told = on.report([&] { on.guilty() ? guilty(on, data, line) : innocent(on, data, line); });
  const std::string& own = on.guilty() ? guilty_call : innocent_call;
  on.require_call(told, own.substr(0, own.find('(')).c_str(), 2, line);
  on.require(told.kind == Report::Kind::mismatch, "all ranks must see the mismatch: " + told.text);
  for (const std::string& part : {difference, "rank 1 issued " + guilty_call + " #2 at ",
                                  on.innocent() + " issued " + innocent_call + " #2 at "})
    on.require(told.says(part), "the mismatch must say \"" + part + "\": " + told.text);
  on.require(on.get(data) == before, "buffers of calls that differ must stay as they are");
  on.require_over();
}

inline constexpr auto sum_of_six = [](auto& on, auto& data, int& line) {
  line = __LINE__ + 1;
  on.comm().all_reduce_in_place(data);
};
inline const std::string sum_call = "all_reduce(sum, 6 float32)";

/// 6. Another operation.
template <class Place> void other_operation(Scene<Place>& on) {
  const auto barrier = [](auto& on, auto&, int& line) {
    line = __LINE__ + 1;
    on.comm().barrier();
  };
  differs(on, "the operations differ", "barrier()", sum_call, barrier, sum_of_six);
}

/// 7. Two operations swapped on one rank are found on the first of them.
template <class Place> void swapped(Scene<Place>& on) {
  const auto second_first = [](auto& on, auto& data, int& line) {
    line = __LINE__ + 1;
    on.comm().broadcast(data, 0);
    on.comm().all_reduce_in_place(data);
  };
  const auto in_order = [](auto& on, auto& data, int& line) {
    line = __LINE__ + 1;
    on.comm().all_reduce_in_place(data);
    on.comm().broadcast(data, 0);
  };
  differs(on, "the operations differ", "broadcast(6 float32, root 0)", sum_call, second_first, in_order);
}

/// 8. Another count.
template <class Place> void other_count(Scene<Place>& on) {
  const auto five = [](auto& on, auto& data, int& line) {
    const std::span<float> all(data.data(), data.size());
    line = __LINE__ + 1;
    on.comm().all_reduce_in_place(all.first(5));
  };
  differs(on, "the counts differ", "all_reduce(sum, 5 float32)", sum_call, five, sum_of_six);
}

/// 9. Another element type of the same size.
template <class Place> void other_element(Scene<Place>& on) {
  const auto words = [](auto& on, auto&, int& line) {
    std::vector<std::int32_t> same_bytes(6, 7);
    line = __LINE__ + 1;
    on.comm().all_reduce_in_place(std::span(same_bytes));
  };
  differs(on, "the element types differ", "all_reduce(sum, 6 int32)", sum_call, words, sum_of_six);
}

/// 10. Another reduce operation.
template <class Place> void other_reduction(Scene<Place>& on) {
  const auto maximum = [](auto& on, auto& data, int& line) {
    line = __LINE__ + 1;
    on.comm().all_reduce_in_place(data, sw::ReduceOp::maximum);
  };
  differs(on, "the reduce operations differ", "all_reduce(maximum, 6 float32)", sum_call, maximum,
          sum_of_six);
}

/// 11. Another root.
template <class Place> void other_root(Scene<Place>& on) {
  const auto from = [](int root) {
    return [root](auto& on, auto& data, int& line) {
      line = __LINE__ + 1;
      on.comm().broadcast(data, root);
    };
  };
  differs(on, "the roots differ", "broadcast(6 float32, root 1)", "broadcast(6 float32, root 0)", from(1),
          from(0));
}

/// 12. A rank in another group is missing from this one.
template <class Place> void other_group(Scene<Place>& on) {
  on.begin();
  auto other = on.comm().split(0, on.comm().rank(), "other");
  int line = 0;
  const Report told = on.report([&] {
    if (on.guilty())
      return other.barrier();
    line = __LINE__ + 1;
    on.comm().barrier();
  });
  on.stay_away(); // no rank drops its handles while another one still waits
  on.require_deadline(told);
  if (!on.guilty()) {
    on.require(told.context.operation == "barrier" && told.context.where.line == line,
               "the call that waits must be named: " + told.text);
    on.require(told.says("rank 1"), "rank 1 must be named: " + told.text);
  }
  on.require(told.says(on.guilty() ? "group world" : "on group other"),
             "the other group must be named: " + told.text);
}

/// 13, 15. Arguments that no rank may pass are rejected there; the error names the call, and nothing moves.
template <class Place> void bad_arguments(Scene<Place>& on) {
  on.begin();
  const Numbers before(8, 2);
  auto data = on.put(before), small = on.put(Numbers(7, 2));
  const std::span<float> all(data.data(), data.size());
  int line = 0;
  const auto refused = [&](const char* operation, const std::string& part, auto call) {
    const Report told = on.report(call);
    on.require(told.kind == Report::Kind::argument && told.says(part), part + ": " + told.text);
    on.require(told.context.operation == operation && told.context.where.line == line &&
                   told.context.rank == on.comm().world_rank() && told.context.group == "world",
               "the call must be named: " + told.text);
  };
  auto& comm = on.comm();
  refused("broadcast", "the root must be at least 0 and below", [&] {
    line = __LINE__ + 1;
    comm.broadcast(data, comm.size());
  });
  refused("broadcast", "but it is -1", [&] {
    line = __LINE__ + 1;
    comm.broadcast(data, -1);
  });
  refused("all_reduce", "must not be null for 4 elements", [&] {
    line = __LINE__ + 1;
    comm.all_reduce_in_place(std::span<float>(static_cast<float*>(nullptr), 4));
  });
  refused("all_reduce", "the output must hold 8 elements, but it holds 7", [&] {
    line = __LINE__ + 1;
    comm.all_reduce(data, small);
  });
  refused("send", "the peer must be another rank", [&] {
    line = __LINE__ + 1;
    comm.send(data, comm.rank());
  });
  refused("send", "the tag must be at least 0 and below 268435456, but it is -1", [&] {
    line = __LINE__ + 1;
    comm.send(data, (comm.rank() + 1) % comm.size(), -1);
  });
  refused("receive", "but it is 268435456", [&] {
    line = __LINE__ + 1;
    comm.receive(data, (comm.rank() + 1) % comm.size(), sw::message_tags);
  });
  refused("all_reduce", "must not overlap", [&] {
    line = __LINE__ + 1;
    comm.all_reduce(all.first(5), all.last(5));
  });
  on.require(on.get(data) == before, "a refused call must not touch its buffers");
  auto one = on.put(Numbers{1});
  comm.all_reduce_in_place(one);
  on.require(on.get(one) == Numbers{static_cast<float>(comm.size())},
             "refused calls must leave the group alive");
}

/// 16. A receive whose send never comes.
template <class Place> void receive_alone(Scene<Place>& on) {
  on.begin();
  auto data = on.put(Numbers(4));
  if (on.comm().rank() != 0)
    return on.stay_away();
  int line = 0;
  const Report told = on.report([&] {
    line = __LINE__ + 1;
    on.comm().receive(data, 1, 6);
  });
  on.require_call(told, "receive", 1, line);
  on.require_deadline(told);
  on.require(told.kind == Report::Kind::deadline && told.blamed == std::vector<int>{1},
             "rank 1 must be missing: " + told.text);
  on.require(told.says("receive(4 float32, from rank 1, tag 6) #1"),
             "the message must be named: " + told.text);
}

/// A program that polls for a call which rank 1 does not join is told at the deadline, as if it had waited.
template <class Place, class Start> void polled(Scene<Place>& on, bool polls, Start start) {
  on.begin();
  if (!polls)
    return on.stay_away();
  const Report told = on.report([&] {
    sw::Pending pending = start();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!pending.ready() && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    on.require(pending.done(), "a poll must end the call at the deadline");
    pending.wait();
  });
  on.stay_away(); // no rank drops its handles while another one still waits
  on.require_deadline(told);
  on.require(told.says("rank 1"), "rank 1 must be named: " + told.text);
  on.require_over();
}

/// 16. A receive that is polled, and whose send never comes.
template <class Place> void polled_receive(Scene<Place>& on) {
  auto data = on.put(Numbers(4));
  polled(on, on.comm().rank() == 0, [&] { return on.comm().async().receive(data, 1, 6); });
}

/// 4. A collective that is polled, and that a frozen rank does not join.
template <class Place> void polled_collective(Scene<Place>& on) {
  auto data = on.put(Numbers(8, 1));
  polled(on, !on.guilty(), [&] { return on.comm().async().all_reduce_in_place(data); });
}

/// 16. A message under another tag than the one that is waited for.
template <class Place> void other_tag(Scene<Place>& on) {
  on.begin();
  auto data = on.put(Numbers(4));
  sw::Pending sent;
  if (on.guilty())
    sent = on.comm().async().send(data, 0, 7);
  if (on.comm().rank() != 0) {
    on.stay_away();
    const Report late = on.report([&] { on.guilty() ? sent.wait() : on.comm().barrier(); });
    return on.require(late.kind != Report::Kind::nothing, "a send without its receive must fail");
  }
  int line = 0;
  const Report told = on.report([&] {
    line = __LINE__ + 1;
    on.comm().receive(data, 1, 8);
  });
  on.require_call(told, "receive", 1, line);
  if (!on.comm().matches_in_order()) // else the two meet, and differ
    on.require_deadline(told);
  on.require(told.says("tag 7") && told.says("tag 8"), "both tags must be named: " + told.text);
}

/// 16. Receives that wait for one another in a ring.
template <class Place> void receive_cycle(Scene<Place>& on) {
  on.begin();
  auto data = on.put(Numbers(4));
  int line = 0;
  const Report told = on.report([&] {
    line = __LINE__ + 1;
    on.comm().receive(data, (on.comm().rank() + 1) % on.comm().size(), 3);
  });
  on.require_call(told, "receive", 1, line);
  on.require_deadline(told);
  const std::string own =
      "rank " + std::to_string(on.comm().world_rank()) + ": waiting in receive from rank ";
  on.require(on.on_hosts || (told.says("they wait in a cycle: rank ") && told.says(own)),
             "the cycle must be told: " + told.text);
}

/// 17. A started call that rank 1 drops; the others hear of it in the call or at the next one.
template <class Place> void dropped(Scene<Place>& on) {
  on.begin();
  auto data = on.put(Numbers(4, 1));
  if (on.guilty()) {
    { const sw::Pending pending = on.comm().async().all_reduce_in_place(data); }
    return on.require_over();
  }
  const Report told = on.report([&] {
    on.comm().async().all_reduce_in_place(data).wait();
    on.comm().barrier();
  });
  on.require(told.kind == Report::Kind::peer && told.blamed == std::vector<int>{1},
             "rank 1 must be blamed: " + told.text);
  on.require(told.says("the handle of all_reduce(sum, 4 float32)") &&
                 told.says("was dropped (keep it, and call wait() once)"),
             "the dropped call must be named: " + told.text);
  on.require(std::string_view(told.context.where.file).ends_with("fault_suite.hpp") &&
                 told.context.where.line > 0,
             "the own call must be named: " + told.text);
  on.require_over();
}

/// 17. A started call that is waited for twice.
template <class Place> void waited_twice(Scene<Place>& on) {
  on.begin();
  sw::Pending pending = on.comm().async().barrier();
  pending.wait();
  const Report told = on.report([&] { pending.wait(); });
  on.require(told.kind == Report::Kind::lifecycle && told.says("Pending: wait() was called twice"),
             told.text);
  on.comm().barrier();
}

/// 18. Two groups that rank 1 enters in the opposite order.
template <class Place> void opposite_groups(Scene<Place>& on) {
  auto rows = on.comm().split(0, on.comm().rank(), "rows");
  auto columns = on.comm().split(0, on.comm().rank(), "columns");
  const Report told = on.report([&] {
    (on.guilty() ? columns : rows).barrier();
    (on.guilty() ? rows : columns).barrier();
  });
  on.stay_away(); // no rank drops its handles while another one still waits
  on.require_deadline(told);
  on.require(told.context.operation == "barrier" && told.context.where.line > 0 &&
                 told.context.group == (on.guilty() ? "columns" : "rows"),
             "the call that waits must be named: " + told.text);
  on.require(told.says("group rows") && told.says("group columns"),
             "both groups must be named: " + told.text);
}

/// 1, 20. An abort of rank 1 wakes all others, who wait in a collective, long before the deadline.
template <class Place> void aborted(Scene<Place>& on) {
  on.begin();
  if (on.guilty()) {
    on.comm().abort("the disk is full");
    return on.require_over();
  }
  int line = 0;
  auto data = on.put(Numbers(4, 1));
  const Report told = on.report([&] {
    line = __LINE__ + 1;
    on.comm().all_reduce_in_place(data);
  });
  on.require_call(told, "all_reduce", 2, line, false);
  on.require_peer(told, "called abort: the disk is full");
  on.require_over();
}

/// 1. A rank that throws wakes all others with the first cause.
template <class Place> void thrown(Scene<Place>& on) {
  on.begin();
  if (on.guilty())
    on.fail();
  int line = 0;
  auto data = on.put(Numbers(4, 1));
  const Report told = on.report([&] {
    line = __LINE__ + 1;
    on.comm().all_reduce_in_place(data);
  });
  on.require_call(told, "all_reduce", 2, line, false);
  on.require_peer(told, "failed: an exception that is not a std::exception");
}

/// 3. A rank that drops its handle of a group makes the others' collectives there fail: at once or, if ranks
/// do not learn of one another's handles, at the deadline.
template <class Place> void leaves(Scene<Place>& on) {
  on.begin();
  auto part = on.comm().split(0, on.comm().rank(), "part");
  if (on.guilty()) {
    part = {};
    return on.stay_away();
  }
  int line = 0;
  auto data = on.put(Numbers(4, 1));
  const Report told = on.report([&] {
    line = __LINE__ + 1;
    part.all_reduce_in_place(data);
  });
  on.stay_away(); // no rank drops its handles while another one still waits
  on.require(told.context.operation == "all_reduce" && told.context.where.line == line &&
                 told.context.group == "part",
             "the call must be named: " + told.text);
  if (on.deaf_to_handles)
    on.require(told.kind == Report::Kind::deadline && told.blamed == std::vector<int>{1},
               "rank 1 must be late: " + told.text);
  else
    on.require_peer(told, "left: it dropped its handle to group part");
}

/// 19. A handle that never had a group.
template <class Place> void no_group(Scene<Place>& on) {
  std::remove_cvref_t<decltype(on.comm())> nowhere;
  const Report told = on.report([&] { nowhere.barrier(); });
  on.require(told.kind == Report::Kind::lifecycle && told.says("the handle must have a group"), told.text);
  on.comm().barrier();
}

/// A fault, and whether it is found at the deadline, which then is short.
template <class Place> struct FaultOn {
  const char* name;
  bool at_deadline;
  void (*run)(Scene<Place>&);
};

/// All of them; each needs a separate world of two ranks or more.
template <class Place> [[nodiscard]] const std::vector<FaultOn<Place>>& faults() {
  static const std::vector<FaultOn<Place>> all{{"frozen", true, frozen<Place>},
                                               {"slow", false, slow<Place>},
                                               {"other operation", false, other_operation<Place>},
                                               {"swapped", false, swapped<Place>},
                                               {"other count", false, other_count<Place>},
                                               {"other element", false, other_element<Place>},
                                               {"other reduction", false, other_reduction<Place>},
                                               {"other root", false, other_root<Place>},
                                               {"other group", true, other_group<Place>},
                                               {"bad arguments", false, bad_arguments<Place>},
                                               {"receive alone", true, receive_alone<Place>},
                                               {"polled receive", true, polled_receive<Place>},
                                               {"polled collective", true, polled_collective<Place>},
                                               {"other tag", true, other_tag<Place>},
                                               {"receive cycle", true, receive_cycle<Place>},
                                               {"dropped", false, dropped<Place>},
                                               {"waited twice", false, waited_twice<Place>},
                                               {"opposite groups", true, opposite_groups<Place>},
                                               {"aborted", false, aborted<Place>},
                                               {"leaves", true, leaves<Place>},
                                               {"no group", false, no_group<Place>}};
  return all;
}

/// For ranks whose launch a test may fail.
template <class Place> inline constexpr FaultOn<Place> throws{"throws", false, thrown<Place>};

/// Runs a fault on one rank. @return the errors found, or an empty text.
template <class Place> [[nodiscard]] std::string try_fault(const FaultOn<Place>& fault, Scene<Place>& on) {
  try {
    fault.run(on);
    return {};
  } catch (const std::exception& error) {
    return std::string(error.what()) + "\n";
  }
}

/// The errors of `attempt(deadline)`, or an empty text; `brief` is the deadline of a fault that must reach
/// it. On a busy machine a rank may have no core for as long, and miss what it should see: errors count if
/// they stay with deadlines that are four and sixteen times longer.
template <class Place, class Attempt>
[[nodiscard]] std::string try_patiently(const FaultOn<Place>& fault, std::chrono::nanoseconds brief,
                                        Attempt attempt) {
  if (!fault.at_deadline)
    return attempt(std::chrono::minutes(1));
  std::string wrong;
  for (const int times : {1, 4, 16})
    if (wrong = attempt(times * brief); wrong.empty())
      break;
  return wrong;
}

} // namespace fault_suite
