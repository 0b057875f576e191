// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/matchers.hpp"

#include <shardwright/io/hash_record.hpp>

#include <sstream>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using shardwright_test::failure_of;
using shardwright_test::has;

sw::HashRecord record_of(const std::string& text) {
  std::istringstream in(text);
  return sw::read_hashes(in, "run.txt");
}

const std::string three = "1 0000000000000001 loss\n"
                          "1 fedcba9876543210 gradient of layers.0.up\n"
                          "1 0000000000000003 weights of layers.0.up\n"
                          "2 0000000000000004 loss of microbatch 0\n"
                          "2 0000000000000005 gradient of layers.0.up\n"
                          "2 0000000000000006 weights of layers.0.up\n";

} // namespace

TEST_CASE("hashes are written as lines and read again", "[hash_record]") {
  const std::vector<sw::HashedValue> values{{"loss", 1}, {"gradient of layers.0.up", 0xfedcba9876543210}};
  std::ostringstream out;
  sw::write_hashes(out, 12, values);
  CHECK(out.str() == "12 0000000000000001 loss\n12 fedcba9876543210 gradient of layers.0.up\n");
  CHECK(record_of(out.str()) == sw::HashRecord{{12, values}});
  for (const std::string bad :
       {"loss", "1", "1 5", "1 xyz loss", "1 0000000000000001", "1 0000000000000001 "})
    CHECK(has(failure_of<sw::DataError>([&] { static_cast<void>(record_of(three + bad + "\n")); }),
              "run.txt: line 7 must be a step, a hash and a name, but it is '" + bad + "'"));
}

TEST_CASE("the first step that differs is named, and what differs in it", "[hash_record]") {
  const sw::HashRecord record = record_of(three);
  const sw::HashComparison same = sw::compare_hashes(record, record);
  CHECK(!same.difference);
  CHECK(same.text() == "6 values of 2 steps compared");

  sw::HashRecord other = record;
  other[2][1].hash ^= 1;
  other[2][2].hash ^= 1;
  const auto found = sw::compare_hashes(record, other).difference;
  REQUIRE(found);
  CHECK(found->text() == "step 2: gradient of layers.0.up; then 1 more, such as weights of layers.0.up");
  other[1][2].hash ^= std::uint64_t{1} << 63;
  CHECK(sw::compare_hashes(other, record).difference->text() == "step 1: weights of layers.0.up");
}

TEST_CASE("what only one record has is named, and something must be compared", "[hash_record]") {
  const sw::HashRecord record = record_of(three);
  const sw::HashRecord part =
      record_of("2 0000000000000005 gradient of layers.0.up\n2 07 loss of microbatch 1\n");
  CHECK(!sw::compare_hashes(record, part).difference);
  CHECK(sw::compare_hashes(record, part).text() ==
        "1 values of 1 steps compared; step 1: loss is in one run only");
  CHECK(sw::compare_hashes(part, record).unmatched == "step 1: loss");
  sw::HashRecord other = record; // of other microbatches
  CHECK(sw::of_microbatch(other[2][0]));
  CHECK_FALSE(sw::of_microbatch(other[1][0]));
  other[2][0].name = "loss of microbatch 1";
  CHECK(sw::compare_hashes(record, other).text() == "5 values of 2 steps compared");
  for (const std::string text : {"", "3 0000000000000001 loss\n", "1 0000000000000001 another\n"})
    CHECK(has(
        failure_of<sw::DataError>([&] { static_cast<void>(sw::compare_hashes(record, record_of(text))); }),
        "the two records must have steps and names in common"));
}

TEST_CASE("a line that a killed run has not ended is left out", "[hash_record]") {
  for (const std::string cut : {"3", "3 00000", "3 0000000000000001 lo"})
    CHECK(record_of(three + cut) == record_of(three));
}
