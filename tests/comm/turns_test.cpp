// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/ranks.hpp"

#include <shardwright/comm/turns.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;

/// Two functions that write down their steps, with an all_to_all after each step but the last.
struct Pair {
  sw::HostCommunicator ranks;
  std::string steps{};

  void go(char name, int count) {
    const std::vector<int> in(static_cast<std::size_t>(ranks.size()), ranks.rank());
    std::vector<int> out(in.size());
    for (int i = 0; i < count; ++i) {
      steps += name;
      if (i + 1 < count)
        ranks.all_to_all(in, out);
    }
    steps += out.back() == ranks.size() - 1 || count == 1 ? '.' : '?';
  }
};

} // namespace

TEST_CASE("two functions take turns at their all_to_alls, until one ends", "[comm]") {
  CHECK(on_ranks(3, [](const sw::HostCommunicator& world, Findings& findings) {
          const auto turns = std::make_shared<sw::Turns>();
          Pair pair{sw::in_turns(world, turns).split(0, world.rank())};
          const auto run = [&](int first, int second) {
            pair.steps.clear();
            turns->run([&] { pair.go('a', first); }, [&] { pair.go('b', second); });
            return pair.steps;
          };
          for (int step = 0; step < 2; ++step) {
            findings.expect(run(3, 3) == "ababa.b.", pair.steps);
            findings.expect(run(2, 4) == "aba.bbb.", pair.steps);
            findings.expect(run(4, 1) == "ab.aaa.", pair.steps);
          }
          pair.steps.clear();
          pair.go('c', 3); // with no other function to take a turn
          findings.expect(pair.steps == "ccc.", pair.steps);
        }) == "");
}

TEST_CASE("an exception of one of two functions ends the other at its next all_to_all, and is rethrown",
          "[comm]") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const auto turns = std::make_shared<sw::Turns>();
          Pair pair{sw::in_turns(world, turns)};
          const auto fail = [&](char name) {
            pair.go(name, 2);
            throw std::runtime_error(std::string("error of ") + name);
          };
          const auto first = failure_of<std::runtime_error>(
              [&] { turns->run([&] { fail('a'); }, [&] { pair.go('b', 9); }); });
          findings.expect(first == "error of a" && pair.steps == "aba.", first, pair.steps);
          pair.steps.clear();
          const auto second = failure_of<std::runtime_error>(
              [&] { turns->run([&] { pair.go('a', 9); }, [&] { fail('b'); }); });
          findings.expect(second == "error of b" && pair.steps == "abab.", second, pair.steps);
          const auto early = failure_of<std::runtime_error>(
              [&] { turns->run([] { throw std::runtime_error("at once"); }, [&] { pair.go('b', 1); }); });
          findings.expect(early == "at once" && pair.steps == "abab.", early, pair.steps);
          const auto inside =
              failure_of<sw::LifecycleError>([&] { turns->run([&] { turns->run([] {}, [] {}); }, [] {}); });
          findings.expect(has(inside, "Turns: run() must not be called from inside a turn"), inside);
          pair.steps.clear();
          turns->run([&] { pair.go('a', 2); }, [&] { pair.go('b', 2); });
          findings.expect(pair.steps == "aba.b.", pair.steps);
        }) == "");
}
