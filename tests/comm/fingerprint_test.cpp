// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/comm/call_account.hpp>
#include <shardwright/comm/fingerprint.hpp>

#include <initializer_list>
#include <vector>

namespace sw = shardwright;

TEST_CASE("a fingerprint changes with everything that ranks must agree on", "[comm]") {
  sw::CollectiveCall base;
  base.operation = sw::Operation::all_reduce;
  base.element = sw::ElementType::float32;
  base.count = 8;
  const auto hash = [](const sw::CollectiveCall& call, std::uint64_t sequence = 3) {
    return sw::fingerprint(call, 0, 2, sequence).common;
  };
  CHECK(hash(base) == sw::fingerprint(base, 1, 2, 3).common);
  std::vector<std::uint64_t> hashes{hash(base), hash(base, 4)};
  auto changed = base;
  changed.count = 9;
  hashes.push_back(hash(changed));
  changed = base;
  for (const auto element : {sw::ElementType::int32, sw::ElementType::bfloat16, sw::ElementType::float16}) {
    changed.element = element;
    hashes.push_back(hash(changed));
  }
  changed = base;
  changed.reduce_op = sw::ReduceOp::maximum;
  hashes.push_back(hash(changed));
  changed = base;
  changed.operation = sw::Operation::broadcast;
  hashes.push_back(hash(changed));
  changed.root = 1;
  hashes.push_back(hash(changed));
  changed = base;
  changed.order.count = 1;
  changed.order.levels[0] = {2, 1};
  hashes.push_back(hash(changed));
  for (std::size_t i = 0; i < hashes.size(); ++i)
    for (std::size_t j = i + 1; j < hashes.size(); ++j)
      CHECK(hashes[i] != hashes[j]);
  changed = base;
  changed.in = &changed;
  changed.where = {"elsewhere.cpp", 1, ""};
  CHECK(hash(changed) == hash(base));
}

TEST_CASE("blocks count by their elements, not by their places", "[comm]") {
  const std::vector<sw::StridedBlock> rows{{0, 1, 4, 4}, {4, 1, 4, 4}}, columns{{0, 2, 2, 4}, {2, 2, 2, 4}},
      uneven{{0, 1, 3, 3}, {3, 1, 5, 5}};
  sw::CollectiveCall call;
  call.operation = sw::Operation::all_gather;
  call.count = 4;
  const auto even = sw::fingerprint(call, 0, 2, 1).common;
  call.out_blocks = rows;
  CHECK(sw::fingerprint(call, 0, 2, 1).common == even);
  call.out_blocks = columns;
  CHECK(sw::fingerprint(call, 0, 2, 1).common == even);
  call.out_blocks = uneven;
  CHECK(sw::fingerprint(call, 0, 2, 1).common != even);
}

TEST_CASE("all_to_all blocks pair up or do not", "[comm]") {
  const std::vector<std::vector<std::size_t>> sent{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  const auto unpaired = [&](std::size_t wrong) {
    std::uint64_t sum = 0;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      std::vector<sw::StridedBlock> in, out;
      for (std::size_t r = 0; r < 3; ++r) {
        in.push_back(sw::contiguous_block(0, sent[rank][r]));
        out.push_back(sw::contiguous_block(0, sent[r][rank] + (rank == 1 && r == 2 ? wrong : 0)));
      }
      sw::CollectiveCall call;
      call.operation = sw::Operation::all_to_all;
      call.in_blocks = in;
      call.out_blocks = out;
      const sw::Fingerprint print = sw::fingerprint(call, static_cast<int>(rank), 3, 1);
      sum += print.sent - print.received;
    }
    return sum;
  };
  CHECK(unpaired(0) == 0);
  CHECK(unpaired(1) != 0);
}

TEST_CASE("the account of a call keeps its words and the counts of its blocks", "[comm]") {
  const std::vector<sw::StridedBlock> in{sw::contiguous_block(0, 1), sw::contiguous_block(1, 2),
                                         sw::contiguous_block(3, 0)};
  const std::vector<sw::StridedBlock> out{sw::contiguous_block(0, 4), sw::contiguous_block(4, 5),
                                          sw::contiguous_block(9, 6)};
  sw::CollectiveCall call;
  call.operation = sw::Operation::all_to_all;
  call.in_blocks = in;
  call.out_blocks = out;
  const std::vector<std::byte> packed = sw::detail::CallAccount::pack(call, 3, 3);
  const sw::detail::CallAccount account(packed.data(), 3);
  CHECK(account.text() == sw::describe(call, 3));
  const auto counts = [](std::span<const sw::StridedBlock> blocks) {
    std::vector<std::size_t> numbers;
    for (const sw::StridedBlock& block : blocks)
      numbers.push_back(block.count());
    return numbers;
  };
  CHECK(counts(account.call().in_blocks) == std::vector<std::size_t>{1, 2, 0});
  CHECK(counts(account.call().out_blocks) == std::vector<std::size_t>{4, 5, 6});
}

TEST_CASE("the first difference of two broadcasts is named", "[comm]") {
  sw::CollectiveCall one;
  one.operation = sw::Operation::broadcast;
  one.count = 8;
  auto other = one;
  CHECK(sw::detail::difference(one, other, 2).empty());
  other.count = 9;
  CHECK(sw::detail::difference(one, other, 2) == "the counts differ");
  other.root = 1;
  CHECK(sw::detail::difference(one, other, 2) == "the roots differ");
}

TEST_CASE("calls in words", "[comm]") {
  sw::CollectiveCall call;
  call.operation = sw::Operation::all_reduce;
  call.element = sw::ElementType::float32;
  call.count = 1024;
  call.where = {"train.cpp", 12, "step"};
  CHECK(sw::describe(call, 7) == "all_reduce(sum, 1024 float32) #7 at train.cpp:12");
  call.operation = sw::Operation::receive;
  call.root = 2;
  call.tag = 5;
  CHECK(sw::describe(call, 1) == "receive(1024 float32, from rank 2, tag 5) #1 at train.cpp:12");
}

TEST_CASE("fingerprints are compared over all ranks, pairs of blocks by their sum", "[comm]") {
  const auto agree = [](std::initializer_list<sw::Fingerprint> ranks) {
    sw::detail::FingerprintComparison calls;
    for (const sw::Fingerprint& rank : ranks)
      calls.add(rank.common, rank.unpaired());
    return calls.agree();
  };
  CHECK(agree({}));
  CHECK(agree({{0, 0, 0}}));
  CHECK(agree({{7, 0, 0}, {7, 0, 0}, {7, 0, 0}}));
  CHECK_FALSE(agree({{7, 0, 0}, {8, 0, 0}, {7, 0, 0}}));
  CHECK_FALSE(agree({{7, 0, 0}, {7, 0, 0}, {8, 0, 0}}));
  CHECK(agree({{7, 5, 2}, {7, 2, 5}}));
  CHECK_FALSE(agree({{7, 5, 2}, {7, 2, 4}}));
}
