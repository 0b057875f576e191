// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/mpi/node.hpp>
#include <shardwright/comm/wait_graph.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace sw = shardwright;
using sw::detail::HoldUp;
using Ranks = std::vector<int>;

namespace {

constexpr std::chrono::seconds deadline{10};

/// The ranks of a node, all in this process.
class Ranked {
public:
  explicit Ranked(int ranks) {
    const std::string name = "/shardwright-wait-test-" + std::to_string(::getpid());
    Ranks all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    for (const int rank : all)
      nodes_.emplace_back(name, ranks, rank, all, rank == 0).beat(begin_);
  }

  /// A rank has begun a collective, or a message with a peer under a tag.
  void enter(int rank, std::uint64_t group, std::uint64_t sequence, int peer = -1,
             sw::Operation operation = sw::Operation::barrier) {
    sw::detail::MpiLastCall record{};
    record.group_id = group;
    record.sequence = sequence;
    record.peer = peer;
    record.operation = operation;
    record.stage = sw::detail::MpiLastCall::Stage::inside;
    node(rank).publish(record);
    begun_[{rank, group}].push_back(record);
  }
  /// A rank waits in a barrier for others, and has calls in flight that wait for more.
  void wait(int rank, std::uint64_t group, const Ranks& others, const Ranks& in_flight = {}) {
    enter(rank, group, 1);
    wait_for(rank, others, in_flight);
  }
  void wait_for(int rank, const Ranks& others, const Ranks& in_flight = {}) {
    Ranks all = others;
    all.insert(all.end(), in_flight.begin(), in_flight.end());
    node(rank).publish_waits(others, all);
  }
  void is_silent_for(int rank, std::chrono::seconds time) { node(rank).beat(begin_ - time); }

  [[nodiscard]] sw::detail::MpiNode& node(int rank) { return nodes_[static_cast<std::size_t>(rank)]; }
  /// A rank that stays inside its call answers those that wait for it: it has begun what it has entered.
  void answer(int rank) {
    node(rank).answer_waits([&](const sw::detail::MpiLastCall& call, int) {
      for (const sw::detail::MpiLastCall& begun : begun_[{rank, call.group_id}])
        if (call.peer < 0 ? begun.sequence >= call.sequence : begun.operation != call.operation)
          return false;
      return true;
    });
  }
  /// The finding of rank 0, which waits for some ranks.
  [[nodiscard]] HoldUp found(const Ranks& first) {
    for (int rank = 0; rank < static_cast<int>(nodes_.size()); ++rank)
      if (node(rank).at(rank).state == sw::detail::RankWait::State::waits)
        answer(rank);
    return sw::detail::HoldUpSearch(node(0), 0, deadline).follow(first);
  }

private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::deque<sw::detail::MpiNode> nodes_;
  std::map<std::pair<int, std::uint64_t>, std::vector<sw::detail::MpiLastCall>>
      begun_; ///< By rank and group.
};

} // namespace

TEST_CASE("a waiting rank is not blamed, but the one at the end of the chain of waits", "[comm]") {
  Ranked on(4);
  on.wait(0, 1, {1});
  on.wait(1, 2, {2});
  on.wait(2, 3, {3});
  const HoldUp found = on.found({1});
  CHECK(found.ranks == Ranks{3});
  CHECK(found.between == Ranks{1, 2});
  CHECK(found.ring.empty());
  CHECK_FALSE(found.sure);
  on.is_silent_for(3, deadline);
  CHECK(on.found({1}).sure);
}

TEST_CASE("a rank that has given up waiting is still not blamed", "[comm]") {
  Ranked on(3);
  on.wait(1, 2, {2});
  on.node(1).give_up();
  on.is_silent_for(1, 2 * deadline);
  CHECK(on.found({1}).ranks == Ranks{2});
  // Until it continues.
  on.enter(1, 4, 1);
  CHECK(on.found({1}).ranks == Ranks{1});
}

TEST_CASE("of the ranks in no call, the silent ones are blamed, the longest silent first", "[comm]") {
  Ranked on(4);
  CHECK(on.found({1, 2, 3}).ranks == Ranks{1, 2, 3});
  on.is_silent_for(2, deadline);
  on.is_silent_for(3, 2 * deadline);
  CHECK(on.found({1, 2, 3}).ranks == Ranks{3, 2});
}

TEST_CASE("a rank that has started a call waits for its ranks in any other call", "[comm]") {
  Ranked on(3);
  on.wait(1, 2, {0}, {2});
  CHECK(on.found({1}).ranks == Ranks{2});
}

TEST_CASE("a rank that has stopped polling inside a call is blamed if all others wait", "[comm]") {
  Ranked on(3);
  on.wait(1, 1, {2});
  on.wait(2, 1, {0});
  on.is_silent_for(2, deadline);
  const HoldUp found = on.found({1});
  CHECK(found.ranks == Ranks{2});
  CHECK(found.sure);
}

TEST_CASE("a ring consists only of futile waits", "[comm]") {
  Ranked on(4);
  // In one barrier, messages are in flight.
  on.wait(0, 1, {1});
  on.wait(1, 1, {2});
  on.wait(2, 1, {0});
  CHECK(on.found({1}).ring.empty());
  on.wait(1, 2, {2});
  CHECK(on.found({1}).ring.empty()); // rank 2 waits for rank 0, which has begun the call that they share
  on.wait(2, 3, {0});
  CHECK(on.found({1}).ring.empty()); // rank 1 has begun, before its own call, what rank 0 needs
  on.enter(0, 1, 2);
  on.wait_for(0, {1});
  CHECK(on.found({1}).ring == Ranks{0, 1, 2});
  CHECK(on.found({1}).ranks == Ranks{1});
  // Also if another rank is about to arrive.
  on.wait(2, 3, {0, 3});
  CHECK(on.found({1}).ring == Ranks{0, 1, 2});
}

TEST_CASE("a ring of others is to blame if no rank that is about to arrive is", "[comm]") {
  Ranked on(4);
  on.wait(0, 1, {1});
  on.wait(1, 2, {2});
  on.wait(2, 3, {1});
  CHECK(on.found({1}).ring == Ranks{1, 2});
  CHECK(on.found({1}).ranks == Ranks{1, 2});
  on.wait(2, 3, {1, 3});
  CHECK(on.found({1}).ring.empty());
  CHECK(on.found({1}).ranks == Ranks{3});
}

TEST_CASE("a rank of a ring that it sees late does not blame itself", "[comm]") {
  // Ranks 0 and 1 wait for one another; rank 1 gives up between the first two looks at it.
  struct GivingUp final : sw::detail::WaitGraph {
    [[nodiscard]] int ranks() const noexcept override { return 2; }
    [[nodiscard]] sw::detail::RankWait at(int rank) const override {
      const std::uint64_t version = rank == 1 && ++looks_ > 1 ? 2 : 1;
      return {sw::detail::RankWait::State::waits, version, {1 - rank}, {1 - rank}};
    }
    [[nodiscard]] bool in_vain(int, int) const override { return true; }
    mutable int looks_ = 0;
  };
  const HoldUp found = sw::detail::HoldUpSearch(GivingUp(), 0, deadline).follow({1});
  CHECK(found.ring == Ranks{0, 1});
  CHECK(found.ranks == Ranks{1});
}

TEST_CASE("a ring is one of calls that ranks are inside now", "[comm]") {
  const auto ringed = [](auto&& change) {
    Ranked on(2);
    on.wait(0, 1, {1});
    on.wait(1, 2, {0});
    CHECK(on.found({1}).ring == Ranks{0, 1});
    change(on);
    return sw::detail::ring_through(on.node(0), 0) == Ranks{0, 1};
  };
  CHECK(ringed([](Ranked&) {}));
  CHECK(ringed([](Ranked& on) { on.node(1).give_up(); }));
  // Without a new answer of the other rank, and until that has waited again.
  CHECK_FALSE(ringed([](Ranked& on) { on.wait(0, 1, {1}); }));
  CHECK_FALSE(ringed([](Ranked& on) { on.enter(1, 3, 1); }));
  CHECK_FALSE(ringed([](Ranked& on) { on.wait(1, 3, {0}); }));
  CHECK_FALSE(ringed([](Ranked& on) { on.node(1).publish_end(); }));
  CHECK_FALSE(ringed([](Ranked& on) { on.node(1).withdraw_answers(); }));
  CHECK(ringed([](Ranked& on) {
    on.wait(1, 3, {0});
    on.answer(0);
    on.answer(1);
  }));
}

TEST_CASE("a ring counts once it has lasted, with all of its ranks alive", "[comm]") {
  using Verdict = sw::detail::RingWatch::Verdict;
  Ranked on(2);
  on.wait(0, 1, {1});
  on.wait(1, 2, {0});
  sw::detail::RingWatch watch;
  const auto begin = std::chrono::steady_clock::now();
  const auto at = [&](int milliseconds, bool alive = true) {
    static_cast<void>(on.found({1}));
    const auto now = begin + std::chrono::milliseconds(milliseconds);
    on.node(0).beat(now);
    if (alive)
      on.node(1).beat(now);
    return watch.look(on.node(0), 0, now);
  };
  CHECK(at(0) == Verdict::young);
  CHECK(at(150) == Verdict::young);
  on.wait(1, 3, {0}); // in its next call
  CHECK(at(210) == Verdict::young);
  CHECK(at(380, false) == Verdict::young);
  CHECK(at(420, false) == Verdict::young); // it may be stopped
  CHECK(at(430) == Verdict::lasting);
  CHECK(watch.found().ranks == Ranks{1});
  CHECK(watch.found().ring == Ranks{0, 1});
  on.node(1).publish_end();
  CHECK(at(440) == Verdict::none);
  on.wait(1, 4, {0});
  CHECK(at(450) == Verdict::young);
}

TEST_CASE("messages are matched by peer and tag, and by nothing else", "[comm]") {
  Ranked on(2);
  const auto wait = [&](int rank, sw::Operation operation) {
    on.enter(rank, 1, 1, 1 - rank, operation);
    on.wait_for(rank, {1 - rank});
  };
  wait(0, sw::Operation::send);
  wait(1, sw::Operation::receive);
  CHECK(on.found({1}).ring.empty());
  Ranked crossed(2);
  for (const int rank : {0, 1}) {
    crossed.enter(rank, 1, 1, 1 - rank, sw::Operation::send);
    crossed.wait_for(rank, {1 - rank});
  }
  CHECK(crossed.found({1}).ring == Ranks{0, 1});
}

TEST_CASE("ranks of other nodes are named beside those that may still arrive", "[comm]") {
  const std::string name = "/shardwright-wait-test-" + std::to_string(::getpid()) + "-far";
  sw::detail::MpiNode here(name, 3, 0, {0, 1}, true), other(name, 3, 1, {0, 1}, false);
  other.beat(std::chrono::steady_clock::now());
  CHECK(sw::detail::HoldUpSearch(here, 0, deadline).follow({1, 2}).ranks == Ranks{1, 2});
  other.beat(std::chrono::steady_clock::now() - deadline);
  CHECK(sw::detail::HoldUpSearch(here, 0, deadline).follow({1, 2}).ranks == Ranks{1});
}

TEST_CASE("uncertain blame is reported once nothing moves, and late if something does", "[comm]") {
  using Verdict = sw::detail::SecondLook::Verdict;
  Ranked on(2);
  on.wait(0, 1, {1});
  on.wait(1, 2, {0});
  HoldUp found = on.found({1});
  REQUIRE(found.ring == Ranks{0, 1});
  sw::detail::SecondLook second;
  const auto at = [&](int milliseconds) {
    return second.look(on.node(0), found,
                       std::chrono::steady_clock::time_point(std::chrono::milliseconds(milliseconds)));
  };
  CHECK(at(1000) == Verdict::not_yet);
  CHECK(at(1030) == Verdict::not_yet);
  on.wait(1, 2, {0}); // in its next call
  CHECK(at(1050) == Verdict::not_yet);
  CHECK(at(1080) == Verdict::not_yet);
  CHECK(at(1090) == Verdict::lasting);
  found.ring.clear();
  CHECK(at(1095) == Verdict::not_yet);
  on.wait(1, 2, {0});
  CHECK(at(1500) == Verdict::moving);
  found.sure = true;
  CHECK(at(1500) == Verdict::lasting);
}
