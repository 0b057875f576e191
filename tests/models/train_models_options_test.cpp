// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <models/options.hpp>

#include <string>
#include <vector>

namespace {

using shardwright_test::ContainsSubstring;

models::ParseResult parsed(std::vector<const char*> words) {
  words.insert(words.begin(), "train_models");
  return models::parse(static_cast<int>(words.size()), words.data(), {});
}

} // namespace

TEST_CASE("options: a dump is of a whole run at one learning rate") {
  CHECK(parsed({"--dump", "there", "--lr", "0.001", "--min-lr", "0.001", "--checkpoint", "run"}).options);
  const std::vector<std::vector<const char*>> others{{"--resume", "--checkpoint", "run"},
                                                     {"--stop-after", "3", "--checkpoint", "run"},
                                                     {"--warmup", "2"},
                                                     {"--min-lr", "0.001"}};
  for (std::vector<const char*> words : others) {
    CHECK(parsed(words).options);
    const std::string name = words.front();
    words.insert(words.end(), {"--dump", "there"});
    const models::ParseResult refused = parsed(words);
    CHECK(refused.exit_code == 2);
    CHECK_THAT(
        refused.message,
        ContainsSubstring("--dump writes a whole run at one learning rate, and cannot be combined with " +
                          name + " (leave one of them out)"));
  }
}
