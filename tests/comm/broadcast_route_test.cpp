// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/broadcast_route.hpp>

#include <bit>
#include <vector>

using shardwright::detail::BroadcastRoute;

TEST_CASE("a broadcast reaches every rank once, from the rank that it expects") {
  for (int ranks = 1; ranks <= 17; ++ranks)
    for (int root = 0; root < ranks; ++root)
      for (const bool tree : {false, true}) {
        CAPTURE(ranks, root, tree);
        std::vector<int> steps(static_cast<std::size_t>(ranks), -1); // after which a rank has the data
        steps[static_cast<std::size_t>(root)] = 0;
        std::vector<int> reached{root};
        for (std::size_t i = 0; i < reached.size(); ++i) {
          const int from = reached[i];
          int step = steps[static_cast<std::size_t>(from)];
          BroadcastRoute(from, ranks, root, tree).for_each_child([&](int to) {
            CHECK(BroadcastRoute(to, ranks, root, tree).parent() == from);
            CHECK(steps[static_cast<std::size_t>(to)] == -1);
            steps[static_cast<std::size_t>(to)] = ++step;
            reached.push_back(to);
          });
          CHECK(BroadcastRoute(from, ranks, root, tree).begins() == (from == root));
        }
        CHECK(reached.size() == static_cast<std::size_t>(ranks));
        const int least = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
        for (const int step : steps)
          CHECK(step <= (tree ? least : ranks - 1));
      }
}
