// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/scratch.hpp"

#include <shardwright/io/metrics.hpp>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <sys/stat.h>

namespace {

using namespace shardwright;
using namespace shardwright_test;
namespace fs = std::filesystem;

struct Collected {
  std::vector<std::string> warnings;
  [[nodiscard]] LogWarning take() {
    return [this](const std::string& sentence) { warnings.push_back(sentence); };
  }
};

} // namespace

TEST_CASE("metrics: every record is one line of JSON, appended, in a directory made for it") {
  const Scratch scratch;
  const fs::path path = scratch.root() / "runs" / "first.jsonl";
  Collected collected;
  {
    MetricsWriter metrics(path, {}, collected.take());
    CHECK(metrics.active());
    metrics.write({{"step", 1}, {"loss", 2.5}});
    metrics.write({{"step", 2}, {"loss", std::numeric_limits<double>::quiet_NaN()}});
  }
  {
    MetricsWriter metrics(path, {}, collected.take());
    metrics.write({{"step", 3}, {"sample", "bytes \xff that are\nnot UTF-8"}});
  }
  std::ifstream in(path);
  std::vector<nlohmann::json> records;
  for (std::string line; std::getline(in, line);)
    records.push_back(nlohmann::json::parse(line));
  REQUIRE(records.size() == 3);
  CHECK(records[0]["loss"] == 2.5);
  CHECK(records[1]["loss"].is_null());
  CHECK(records[2]["sample"] == "bytes \xef\xbf\xbd that are\nnot UTF-8");
  CHECK(collected.warnings.empty());
}

TEST_CASE("metrics: a file that cannot be opened causes one warning, and the run continues without it") {
  Collected collected;
  MetricsWriter metrics("/proc/absent/metrics.jsonl", {}, collected.take());
  for (int step = 0; step < 3; ++step)
    metrics.write({{"step", step}});
  CHECK_FALSE(metrics.active());
  REQUIRE(collected.warnings.size() == 1);
  CHECK_THAT(collected.warnings[0], ContainsSubstring("/proc/absent/metrics.jsonl cannot be opened") &&
                                        ContainsSubstring("training continues"));
}

TEST_CASE("metrics: a pipe without a reader causes a warning instead of a wait") {
  const Scratch scratch;
  const fs::path pipe = scratch.root() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  Collected collected;
  MetricsWriter metrics(pipe, {}, collected.take());
  CHECK_FALSE(metrics.active());
  REQUIRE(collected.warnings.size() == 1);
  CHECK_THAT(collected.warnings[0], ContainsSubstring("pipe cannot be opened"));
}

#ifdef __linux__
TEST_CASE("metrics: a full disk causes one warning, and the run continues without the file") {
  Collected collected;
  MetricsWriter metrics("/dev/full", {}, collected.take());
  REQUIRE(metrics.active());
  for (int step = 0; step < 3; ++step)
    metrics.write({{"step", step}});
  CHECK_FALSE(metrics.active());
  REQUIRE(collected.warnings.size() == 1);
  CHECK_THAT(collected.warnings[0],
             ContainsSubstring("/dev/full cannot be written") && ContainsSubstring("No space left"));
}
#endif

TEST_CASE("metrics: without a file nothing is written and there is no warning") {
  Collected collected;
  MetricsWriter metrics;
  MetricsWriter unnamed(std::filesystem::path(), {}, collected.take());
  metrics.write({{"step", 1}});
  unnamed.write({{"step", 1}});
  CHECK_FALSE(metrics.active());
  CHECK_FALSE(unnamed.active());
  CHECK(collected.warnings.empty());
}
