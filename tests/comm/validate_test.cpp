// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/comm/validate.hpp>

#include <string>
#include <vector>

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;

namespace {

struct Group {
  int rank() const { return 1; }
  int size() const { return 3; }
  int world_rank(int rank) const { return rank + 10; }
  std::string name() const { return "dp"; }
};

std::string refusal(const sw::CollectiveCall& call) {
  try {
    sw::detail::validate(call, Group{}, 4);
  } catch (const sw::InvalidArgument& error) {
    CHECK(error.context().rank == 11);
    CHECK(error.context().sequence == 4);
    return error.what();
  }
  return "";
}

} // namespace

TEST_CASE("blocks are checked one by one", "[comm]") {
  std::vector<float> in(30), out(30);
  std::vector<sw::StridedBlock> blocks{{0, 2, 3, 9}, {3, 2, 3, 9}, {6, 2, 3, 9}};
  sw::CollectiveCall call;
  call.operation = sw::Operation::all_gather;
  call.element = sw::ElementType::float32;
  call.count = 6;
  call.in = in.data();
  call.out = out.data();
  call.out_blocks = blocks;
  CHECK(refusal(call).empty());
  blocks[2].offset = 5;
  CHECK_THAT(refusal(call), ContainsSubstring("blocks 1 and 2 of the output must share no element"));
  blocks[2] = {6, 2, 3, 2};
  CHECK_THAT(refusal(call),
             ContainsSubstring("block 2 of the output must have a row stride of at least its row length"));
  blocks[2] = {6, 2, 3, 9};
  call.count = 5;
  CHECK_THAT(refusal(call),
             ContainsSubstring(
                 "this rank's own block must hold as many elements as the input, but it holds 6 and not 5"));
  call.count = 6;
  blocks.pop_back();
  call.out_blocks = blocks;
  CHECK_THAT(refusal(call), ContainsSubstring("one for each of the 3 ranks, but 2 were given"));
  call.in_blocks = blocks;
  CHECK_THAT(refusal(call), ContainsSubstring("the input must have no blocks"));
}

TEST_CASE("blocks that share elements or overlap the input are detected wherever they are", "[comm]") {
  std::vector<float> data(40);
  std::vector<sw::StridedBlock> blocks{{0, 1, 4, 4}, {4, 1, 4, 4}, {8, 1, 4, 4}};
  sw::CollectiveCall call;
  call.operation = sw::Operation::all_gather;
  call.element = sw::ElementType::float32;
  call.count = 4;
  call.in = data.data() + 20;
  call.out = data.data();
  call.out_blocks = blocks;
  CHECK(refusal(call).empty());
  call.in = data.data() + 9;
  CHECK_THAT(refusal(call), ContainsSubstring("input and output must not overlap"));
  call.in = data.data() + 20;
  blocks[1].offset = 3;
  CHECK_THAT(refusal(call), ContainsSubstring("blocks 0 and 1 of the output must share no element"));
}

TEST_CASE("the check for shared elements is exact for equal strides", "[comm]") {
  const auto brute = [](const sw::StridedBlock& a, const sw::StridedBlock& b) {
    for (std::size_t i = 0; i < a.count(); ++i)
      for (std::size_t j = 0; j < b.count(); ++j)
        if (a.offset + i / a.row_length * a.row_stride + i % a.row_length ==
            b.offset + j / b.row_length * b.row_stride + j % b.row_length)
          return true;
    return false;
  };
  for (std::size_t offset = 0; offset < 14; ++offset)
    for (std::size_t length = 1; length < 5; ++length)
      for (std::size_t rows = 1; rows < 4; ++rows) {
        const sw::StridedBlock a{4, 3, 2, 5};
        const sw::StridedBlock b{offset, rows, length, rows == 1 ? length : 5};
        // No clash is missed; blocks of equal strides whose rows interleave are not taken for one.
        if (brute(a, b))
          CHECK(sw::detail::share_elements(a, b));
        if (rows == 3 && offset == 6 && length <= 3)
          CHECK_FALSE(sw::detail::share_elements(a, b));
      }
}

TEST_CASE("a reduction order must visit every rank once", "[comm]") {
  const auto order = [](std::vector<sw::ReductionOrder::Level> levels) {
    sw::ReductionOrder out;
    for (const auto& level : levels)
      out.levels[static_cast<std::size_t>(out.count++)] = level;
    return out;
  };
  CHECK(sw::detail::covers({}, 7));
  CHECK(sw::detail::covers(order({{7, 1}}), 7));
  CHECK(sw::detail::covers(order({{2, 1}, {3, 2}}), 6));
  CHECK(sw::detail::covers(order({{3, 2}, {2, 1}, {1, 6}}), 6));
  CHECK_FALSE(sw::detail::covers(order({{3, 2}, {2, 2}}), 6));
  CHECK_FALSE(sw::detail::covers(order({{3, 1}, {2, 2}}), 6));
  CHECK_FALSE(sw::detail::covers(order({{3, 1}}), 6));
  CHECK_FALSE(sw::detail::covers(order({{0, 1}, {6, 1}}), 6));
}
