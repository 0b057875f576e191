// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/call_record.hpp>

#include <stdexcept>
#include <vector>

namespace sw = shardwright;
namespace detail = shardwright::detail;

TEST_CASE("a kept call has its own copies of the blocks", "[comm]") {
  std::vector<sw::StridedBlock> blocks{sw::contiguous_block(0, 3), sw::contiguous_block(3, 4)};
  sw::CollectiveCall call;
  call.operation = sw::Operation::all_gather;
  call.out_blocks = blocks;
  detail::KeptCall kept;
  kept.copy(call);
  blocks.assign(2, {});
  REQUIRE(kept.call.out_blocks.size() == 2);
  CHECK(kept.call.out_block(1).count() == 4);
  CHECK(kept.call.in_blocks.empty());
  call.out_blocks = {};
  kept.copy(call);
  CHECK(kept.call.out_blocks.empty());
}

TEST_CASE("records are reused, and given back by return and by exception unless released", "[comm]") {
  struct Record {
    explicit Record(int value) : number(value) {}
    int number;
  };
  detail::RecordPool<Record> pool;
  Record& first = pool.take(1);
  Record& second = pool.take(2);
  CHECK(pool.size() == 2);
  { const detail::RecordPool<Record>::Return back(pool, first); }
  CHECK(&pool.take(3) == &first);
  CHECK(first.number == 1);
  CHECK_THROWS([&] {
    const detail::RecordPool<Record>::Return back(pool, second);
    throw std::runtime_error("a wait that fails");
  }());
  CHECK(&pool.take(4) == &second);
  {
    detail::RecordPool<Record>::Return back(pool, first);
    CHECK(back.release() == &first);
  }
  CHECK(pool.take(5).number == 5);
  CHECK(pool.size() == 3);
}
