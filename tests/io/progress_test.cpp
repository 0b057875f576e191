// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/io/progress.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <sstream>
#include <string>

namespace {

using namespace shardwright;
using namespace shardwright_test;
using Clock = Progress::Clock;

Clock::time_point at(double seconds) {
  return Clock::time_point(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

} // namespace

TEST_CASE("progress: times and rates are formatted for reading") {
  CHECK(readable_seconds(0.44) == "0.4 s");
  CHECK(readable_seconds(12.3) == "12 s");
  CHECK(readable_seconds(59.7) == "1 min 00 s");
  CHECK(readable_seconds(200) == "3 min 20 s");
  CHECK(readable_seconds(7500) == "2 h 05 min");
  CHECK(readable_seconds(std::numeric_limits<double>::infinity()) == "?");
  CHECK(readable_rate(812.4) == "812");
  CHECK(readable_rate(8140) == "8.1k");
  CHECK(readable_rate(123456) == "123k");
  CHECK(readable_rate(1.25e6) == "1.25M");
  CHECK(readable_rate(3.4e9) == "3.40G");
}

TEST_CASE("progress: the line holds step, loss, tokens per second, share of the machine and time left") {
  std::ostringstream out;
  Progress progress(
      out, {.steps = 200, .tokens_per_step = 3000, .flops_per_token = 1e6, .machine_flops_per_second = 1e10});
  progress.update(50, 2.34567, 0.5, at(0));
  CHECK(out.str() == "step  50/200  loss 2.3457  6.0k tokens/s  60% of matrix rate  ETA 1 min 15 s\n");
}

TEST_CASE("progress: a file is not a terminal") {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  REQUIRE(file != nullptr);
  CHECK_FALSE(is_terminal(file.get()));
}

TEST_CASE("progress: without a machine rate no share is shown") {
  std::ostringstream out;
  Progress progress(out, {.steps = 2, .tokens_per_step = 100});
  progress.update(1, 1.0, 1.0, at(0));
  CHECK_THAT(out.str(), !ContainsSubstring("matrix rate"));
}

TEST_CASE("progress: plain lines come first, last, and at intervals") {
  std::ostringstream out;
  {
    Progress progress(out, {.steps = 100, .tokens_per_step = 10, .plain_seconds = 10});
    for (int step = 1; step <= 100; ++step)
      progress.update(step, 1.0, 0.5, at(0.5 * step));
    progress.note("validation 1.5");
  }
  const std::string text = out.str();
  CHECK(std::count(text.begin(), text.end(), '\n') == 7);
  CHECK(text.find('\r') == std::string::npos);
  for (const char* step : {"step   1/100", "step  21/100", "step  41/100", "step 100/100"})
    CHECK_THAT(text, ContainsSubstring(step));
  CHECK_THAT(text, EndsWith("validation 1.5\n"));
}

TEST_CASE("progress: a terminal's line is rewritten, cleared to its end, and kept below notes") {
  std::ostringstream out;
  {
    Progress progress(out, {.steps = 3, .tokens_per_step = 10, .terminal = true});
    progress.update(1, 1.0, 10000.0, at(0));
    const std::string first = out.str();
    CHECK(first.front() == '\r');
    CHECK(first.find('\n') == std::string::npos);
    progress.update(2, 1.0, 1.0, at(0.01));
    CHECK(out.str() == first);
    progress.update(3, 1.0, 1.0, at(0.02));
    const std::string second = out.str().substr(first.size());
    CHECK(second.size() >= first.size());
    progress.note("validation 1.5");
    const std::string third = out.str().substr(first.size() + second.size());
    CHECK_THAT(third, ContainsSubstring("\rvalidation 1.5\n\rstep 3/3"));
  }
  CHECK(out.str().back() == '\n');
}

TEST_CASE("progress: ranks that do not report stay silent") {
  std::ostringstream out;
  {
    Progress progress(out, {.steps = 1, .terminal = true, .active = false});
    progress.update(1, 1.0, 1.0);
    progress.note("validation");
  }
  CHECK(out.str().empty());
}

TEST_CASE("progress: the time left follows a machine that slows down") {
  std::ostringstream out;
  Progress progress(out, {.steps = 1000, .tokens_per_step = 1});
  for (int step = 1; step <= 100; ++step)
    progress.update(step, 1.0, 1.0, at(step));
  for (int step = 101; step <= 200; ++step)
    progress.update(step, 1.0, 2.0, at(step));
  CHECK_THAT(progress.text(200, 1.0), EndsWith("ETA 26 min 40 s"));
}
