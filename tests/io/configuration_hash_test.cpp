// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/launch_ranks.hpp"
#include "support/matchers.hpp"

#include <shardwright/io/configuration_hash.hpp>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace shardwright;
using namespace shardwright_test;

/// The error that each rank catches when rank r holds texts[r].
std::vector<std::string> sentences(const std::vector<std::string>& texts) {
  std::vector<std::string> caught(texts.size());
  const auto program = [&](HostCommunicator world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    try {
      require_same_configuration(world, texts[rank]);
    } catch (const ConfigurationMismatch& error) {
      caught[rank] = error.what();
    }
  };
  LaunchOptions options;
  options.ranks = static_cast<int>(texts.size());
  options.deadline = std::chrono::seconds(30);
  launch_ranks(options, program);
  return caught;
}

} // namespace

TEST_CASE("configuration_hash: equal texts have equal hashes, and known ones") {
  // Test vectors of FNV-1a's authors.
  CHECK(configuration_hash("") == 0xcbf29ce484222325ULL);
  CHECK(configuration_hash("a") == 0xaf63dc4c8601ec8cULL);
  CHECK(configuration_hash("foobar") == 0x85944171f73967e8ULL);
}

TEST_CASE("configuration_hash: ranks that agree pass") {
  for (const std::size_t ranks : {1u, 2u, 3u, 4u})
    for (const std::string& sentence : sentences(std::vector<std::string>(ranks, "--seed 1\n--lr 0.1\n")))
      CHECK(sentence.empty());
}

TEST_CASE("configuration_hash: the odd rank is named on every rank, with the line that differs") {
  for (std::size_t odd = 0; odd < 3; ++odd) {
    std::vector<std::string> texts(3, "--mesh dp=3\n--seed 1\n--lr 0.1\n");
    texts[odd] = "--mesh dp=3\n--seed 2\n--lr 0.1\n";
    const std::string name = "rank " + std::to_string(odd);
    for (const std::string& sentence : sentences(texts))
      CHECK_THAT(sentence, ContainsSubstring("but " + name + " differs from the others") &&
                               ContainsSubstring(name + " has \"--seed 2\"") &&
                               ContainsSubstring("has \"--seed 1\""));
  }
}

TEST_CASE("configuration_hash: several odd ranks are all named") {
  for (const std::string& sentence : sentences({"a", "b", "a", "c", "a"}))
    CHECK_THAT(sentence, ContainsSubstring("but ranks 1 and 3 differ from the others"));
}

TEST_CASE("configuration_hash: without a majority neither side is blamed") {
  for (const std::string& sentence : sentences({"--seed 1", "--seed 2"}))
    CHECK_THAT(sentence, ContainsSubstring("rank 1 differs from rank 0") && !ContainsSubstring("the others"));
}

TEST_CASE("configuration_hash: texts of unequal length, even empty ones, are compared") {
  for (const std::string& sentence : sentences({"--seed 1\n--tied 1", "--seed 1", "--seed 1"}))
    CHECK_THAT(sentence, ContainsSubstring("rank 0 has \"--tied 1\" where rank 1 has (nothing)"));
  for (const std::string& sentence : sentences({"x", "x", ""}))
    CHECK_THAT(sentence, ContainsSubstring("rank 2 has (nothing) where rank 0 has \"x\""));
}
