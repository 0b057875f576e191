// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"

#include <shardwright/schedule/stage_placement.hpp>
#include <shardwright/schedule/stage_table.hpp>

#include <vector>

using namespace shardwright;

TEST_CASE("a loop, a V and both directions", "[placement]") {
  STATIC_REQUIRE(StagePlacement::loop(3, 2).stages() == 6);
  STATIC_REQUIRE(StagePlacement::loop(3, 2).rank_of(4, 0) == 1);
  STATIC_REQUIRE(StagePlacement::v_shape(3).stage_of(0, 1) == 5);
  STATIC_REQUIRE(StagePlacement::v_shape(3).rank_of(3, 0) == 2);
  STATIC_REQUIRE(StagePlacement::bidirectional(4, 8).stages() == 4);
  STATIC_REQUIRE(StagePlacement::bidirectional(4, 8).rank_of(0, 3) == 0);
  STATIC_REQUIRE(StagePlacement::bidirectional(4, 8).rank_of(0, 4) == 3);
  STATIC_REQUIRE(StagePlacement::bidirectional(4, 8).direction_of(4) == 1);
  STATIC_REQUIRE(StagePlacement::loop(4).direction_of(4) == 0);
}

TEST_CASE("stage_of inverts rank_of and chunk_of, and the table agrees", "[placement]") {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (const int microbatches : {2, 7, 8}) {
      std::vector<StagePlacement> placements{StagePlacement::v_shape(ranks),
                                             StagePlacement::bidirectional(ranks, microbatches)};
      for (int chunks = 1; chunks <= 4; ++chunks)
        placements.push_back(StagePlacement::loop(ranks, chunks));
      for (const StagePlacement& placement : placements) {
        const StageTable table(placement, microbatches);
        REQUIRE(table.stages() == placement.stages());
        std::vector<int> held(static_cast<std::size_t>(ranks), 0);
        for (int stage = 0; stage < placement.stages(); ++stage)
          for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
            const int rank = placement.rank_of(stage, microbatch);
            const int chunk = placement.chunk_of(stage, microbatch);
            REQUIRE((rank >= 0 && rank < ranks && chunk >= 0 && chunk < placement.chunks));
            REQUIRE(placement.stage_of(rank, chunk) == stage);
            ++held[static_cast<std::size_t>(rank)];

            const StagePlace* place = table.find({Pass::forward, stage, microbatch});
            REQUIRE(place != nullptr);
            REQUIRE(place->rank == rank);
            REQUIRE(place[-1].rank == (stage == 0 ? -1 : placement.rank_of(stage - 1, microbatch)));
            REQUIRE(place[1].rank ==
                    (stage == placement.stages() - 1 ? -1 : placement.rank_of(stage + 1, microbatch)));
          }
        // Every rank runs the same number of stages of every microbatch; with a bidirectional placement, of
        // every pair of microbatches.
        if (placement.order != StageOrder::bidirectional || microbatches % 2 == 0)
          for (const int count : held)
            REQUIRE(count * ranks == placement.stages() * microbatches);
        for (const Action& unknown :
             {Action{Pass::forward, -1, 0}, Action{Pass::forward, placement.stages(), 0},
              Action{Pass::forward, 0, -1}, Action{Pass::forward, 0, microbatches}})
          REQUIRE(table.find(unknown) == nullptr);
      }
    }
}
