// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/threads/core_balance.hpp>
#include <shardwright/comm/threads/wait_point.hpp>

#if defined(__linux__)

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace detail = shardwright::detail;

namespace {
[[nodiscard]] cpu_set_t usable_cores(int thread = 0) {
  cpu_set_t out;
  CPU_ZERO(&out);
  REQUIRE(sched_getaffinity(thread, sizeof(out), &out) == 0);
  return out;
}
/// Two or more; otherwise a warning.
[[nodiscard]] bool several(const cpu_set_t& cores) {
  if (CPU_COUNT(&cores) >= 2)
    return true;
  WARN("needs two cores");
  return false;
}
} // namespace

TEST_CASE("a rank leaves a core that has more than its share, and may run anywhere later", "[comm]") {
  const cpu_set_t before = usable_cores();
  if (!several(before))
    return;
  const int cores = CPU_COUNT(&before);
  // Two ranks for each core, all on one core.
  detail::CoreBalance balance(2 * cores, cores);
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(sched_getcpu(), &here);
  REQUIRE(sched_setaffinity(0, sizeof(here), &here) == 0);
  balance.settle(0);
  balance.settle(1);
  CHECK(balance.together(0, 1));
  REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
  balance.settle(2);
  CHECK_FALSE(balance.together(0, 2));

  const cpu_set_t after = usable_cores();
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("a rank that shares a core with the one it waits for moves away, but not again at once", "[comm]") {
  using namespace std::chrono_literals;
  const cpu_set_t before = usable_cores();
  if (!several(before))
    return;
  detail::CoreBalance balance(2, 2);
  const int core = sched_getcpu();
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(core, &here);
  REQUIRE(sched_setaffinity(0, sizeof(here), &here) == 0);
  CHECK_FALSE(balance.beside(0, 1)); // no rank has seen rank 1
  balance.note(1);
  CHECK(balance.beside(0, 1));
  CHECK_FALSE(balance.beside(1, 1));

  detail::WaitClock::time_point now{1s};
  CHECK_FALSE(balance.depart(0, now)); // may run nowhere else
  REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
  CHECK_FALSE(balance.depart(0, now + 1us));
  // On a busy machine the scheduler may move the thread before it can move itself.
  bool left = false;
  for (int attempt = 0; attempt < 20 && !left; ++attempt) {
    REQUIRE(sched_setaffinity(0, sizeof(here), &here) == 0);
    REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
    left = balance.depart(0, now += detail::CoreBalance::between_departures);
  }
  CHECK(left);
  CHECK_FALSE(balance.together(0, 1));

  const cpu_set_t after = usable_cores();
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("a rank that may use only one core stays there", "[comm]") {
  const cpu_set_t before = usable_cores();
  const int core = sched_getcpu();
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(core, &here);
  REQUIRE(sched_setaffinity(0, sizeof(here), &here) == 0);
  detail::CoreBalance balance(4, 2);
  for (int rank = 0; rank < 4; ++rank)
    balance.settle(rank);
  CHECK(sched_getcpu() == core);
  CHECK(sched_setaffinity(0, sizeof(before), &before) == 0);
}

namespace {
/// A thread that publishes its core, as rank 1, until the end.
class PeerThread {
public:
  explicit PeerThread(detail::CoreBalance& balance) : thread_([this, &balance] { run(balance); }) {
    while (core.load() < 0)
      std::this_thread::yield();
  }
  ~PeerThread() {
    over_.store(true);
    thread_.join();
  }
  PeerThread(const PeerThread&) = delete;
  PeerThread& operator=(const PeerThread&) = delete;

  std::atomic<bool> asleep{false};
  std::atomic<int> core{-1};
  std::atomic<int> id{0};

private:
  void run(detail::CoreBalance& balance) {
    balance.thread_begins(1);
    id.store(detail::this_thread());
    while (!over_.load()) {
      core.store(sched_getcpu());
      if (asleep.load())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    balance.thread_ends(1);
  }
  std::atomic<bool> over_{false};
  std::thread thread_;
};
} // namespace

TEST_CASE("a rank that is about to sleep fetches the one it waits for, unless that runs", "[comm]") {
  using namespace std::chrono_literals;
  const cpu_set_t before = usable_cores();
  if (!several(before))
    return;
  detail::CoreBalance balance(2, 2);
  const detail::WaitClock::time_point now = detail::WaitClock::now();
  balance.note(0);
  CHECK_FALSE(balance.fetch(0, 1, now)); // first wait: how often the ranks meet is unknown
  balance.note(0);
  CHECK_FALSE(balance.fetch(0, 1, now)); // no thread yet
  {
    PeerThread peer(balance);
    CHECK_FALSE(balance.fetch(0, 0, now));
    // The peer runs, though on a busy machine not at each moment, and not on the core of this thread.
    bool stayed = false;
    for (int attempt = 0; attempt < 10000 && !stayed; ++attempt) {
      cpu_set_t elsewhere = before;
      CPU_CLR(sched_getcpu(), &elsewhere);
      REQUIRE(sched_setaffinity(peer.id.load(), sizeof(elsewhere), &elsewhere) == 0);
      REQUIRE(sched_setaffinity(peer.id.load(), sizeof(before), &before) == 0);
      std::this_thread::sleep_for(1ms);
      stayed = !balance.fetch(0, 1, now);
    }
    CHECK(stayed);

    // Asleep, or waiting for the core that this thread occupies.
    peer.asleep.store(true);
    bool fetched = false;
    for (int attempt = 0; attempt < 1000 && !fetched; ++attempt) {
      fetched = balance.fetch(0, 1, now);
      std::this_thread::sleep_for(1ms);
    }
    CHECK(fetched);
    balance.note(0);
    CHECK_FALSE(balance.fetch(0, 1, now + 5ms)); // ranks that meet seldom
    const cpu_set_t after = usable_cores(peer.id.load());
    CHECK(CPU_EQUAL(&before, &after));
  }
  CHECK_FALSE(balance.fetch(0, 1, now)); // the thread has ended
}

TEST_CASE("ranks of which one fetched the other stay together for half as long as they were apart",
          "[comm]") {
  using namespace std::chrono_literals;
  const cpu_set_t before = usable_cores();
  if (!several(before))
    return;
  struct Case {
    std::chrono::microseconds apart, together;
  };
  for (const Case& one : {Case{5ms, 2500us}, Case{10us, detail::CoreBalance::shortest_stay},
                          Case{10s, detail::CoreBalance::longest_stay}}) {
    INFO(one.apart.count());
    detail::CoreBalance balance(2, 2);
    PeerThread peer(balance);
    peer.asleep.store(true);
    const detail::WaitClock::time_point left{100s};
    balance.note(0);
    static_cast<void>(balance.fetch(0, 1, left + one.apart));
    balance.note(0);
    static_cast<void>(balance.depart(0, left));
    const detail::WaitClock::time_point fetched = left + one.apart;
    bool done = false;
    for (int attempt = 0; attempt < 1000 && !done; ++attempt) {
      done = balance.fetch(0, 1, fetched);
      std::this_thread::sleep_for(1ms);
    }
    REQUIRE(done);
    CHECK_FALSE(balance.depart(0, fetched + one.together - 1us));
    CHECK(balance.next_departure(0) == fetched + one.together);
    CHECK(balance.next_departure(1) == fetched + one.together);
  }
}

#endif
