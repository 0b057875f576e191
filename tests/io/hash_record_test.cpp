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
  CHECK(!sw::first_difference(record, record));

  sw::HashRecord other = record;
  other[2][1].hash ^= 1;
  other[2][2].hash ^= 1;
  const auto found = sw::first_difference(record, other);
  REQUIRE(found);
  CHECK(found->text() == "step 2: gradient of layers.0.up; then 1 more, such as weights of layers.0.up");
  other[1][2].hash ^= std::uint64_t{1} << 63;
  CHECK(sw::first_difference(other, record)->text() == "step 1: weights of layers.0.up");
}

TEST_CASE("what only one record has is not compared, but something must be", "[hash_record]") {
  const sw::HashRecord record = record_of(three);
  CHECK(!sw::first_difference(
      record, record_of("2 0000000000000005 gradient of layers.0.up\n2 07 loss of microbatch 1\n")));
  for (const std::string text : {"", "3 0000000000000001 loss\n", "1 0000000000000001 another\n"})
    CHECK(has(
        failure_of<sw::DataError>([&] { static_cast<void>(sw::first_difference(record, record_of(text))); }),
        "the two records must have steps and names in common"));
}
