// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/io/run_summary.hpp>
#include <shardwright/nn/experts/report.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace {

using namespace shardwright;
using namespace shardwright_test;

RunSummary summary() {
  RunSummary out;
  out.steps = 40;
  out.seconds = 8;
  out.tokens = 32'000;
  out.flops_per_token = 3e6;
  out.machine_flops_per_second = 48e9;
  out.first_loss = 5.5;
  out.last_loss = 2.25;
  out.validation_loss = 2.5;
  out.ranks = 4;
  out.communication = {{"dp", Operation::all_reduce, {80, 4e9, 3, 2, 2.5}},
                       {"tp", Operation::all_gather, {400, 2.5e6, 1, 0, 0}}};
  out.pool_peak_bytes = 61'440'000;
  out.process_peak_bytes = 1'234'000'000;
  return out;
}

} // namespace

TEST_CASE("a summary contains speed, communication, memory and loss") {
  const std::string text = summary().text();
  CHECK_THAT(text, ContainsSubstring("summary: 40 steps in 8.00 s\n"));
  CHECK_THAT(text, ContainsSubstring("5.5000 at first, 2.2500 at last, held out 2.5000"));
  CHECK_THAT(text, ContainsSubstring("4.0k tokens/s, 25.0% of the matrix rate of 48.0 GFLOP/s"));
  CHECK_THAT(
      text,
      ContainsSubstring(
          "25.0% of the time: exposed 2.00 s, hidden 2.00 s, waited for peers 500 ms (mean of 4 ranks)"));
  CHECK_THAT(text, ContainsSubstring(
                       "dp all_reduce                 80 calls, 3.73 GiB: exposed 2.00 s, hidden 1.00 s"));
  CHECK_THAT(text, ContainsSubstring("tensors 58.6 MiB on the rank with most, process 1.15 GiB at most"));
  CHECK_THAT(text, !ContainsSubstring("skipped") && !ContainsSubstring("spike"));

  RunSummary eventful = summary();
  eventful.skipped_steps = 2;
  eventful.spikes = 1;
  eventful.communication.clear();
  CHECK_THAT(eventful.text(), ContainsSubstring("40 steps in 8.00 s, 2 of them skipped, 1 spike\n") &&
                                  !ContainsSubstring("communication"));
}

TEST_CASE(
    "a summary of a run without steps, such as a finished one that is resumed, has no loss or speed of steps") {
  RunSummary resumed;
  resumed.validation_loss = 2.5;
  resumed.pool_peak_bytes = 1024;
  CHECK_THAT(resumed.text(), ContainsSubstring("  loss           held out 2.5000\n  memory "));
  CHECK(resumed.record()["last_loss"].is_null());
  resumed.steps = resumed.skipped_steps = 2; // neither has a loss
  CHECK_THAT(resumed.text(), ContainsSubstring("  loss           held out 2.5000\n"));
  CHECK(resumed.record()["first_loss"].is_null());
  CHECK(summary().record()["last_loss"] == 2.25);

  RunSummary stopped = summary(); // after its last validation
  stopped.validation_loss.reset();
  CHECK_THAT(stopped.text(), ContainsSubstring("  loss           5.5000 at first, 2.2500 at last\n"));
  CHECK(!stopped.record().contains("validation_loss"));
  CHECK(summary().record()["validation_loss"] == 2.5);
  stopped.steps = 0;
  CHECK_THAT(stopped.text(), ContainsSubstring("  loss           none\n"));
}

TEST_CASE("the record of a summary contains the numbers of the text") {
  const nlohmann::json record = summary().record();
  CHECK(record["tokens_per_second"] == 4000.0);
  CHECK(record["matrix_rate_share"] == 0.25);
  CHECK(record["communication"]["total"]["exposed_seconds"] == 2.0);
  CHECK(record["communication"]["total"]["hidden_seconds"] == 2.0);
  CHECK(record["communication"]["dp all_reduce"]["hidden_seconds"] == 1.0);
  CHECK(record["communication"]["tp all_gather"]["calls"] == 400.0);
  CHECK(record["pool_peak_bytes"] == 61'440'000);
  // A run that has not begun does not divide by zero.
  CHECK(RunSummary{}.record()["tokens_per_second"] == 0.0);
}

TEST_CASE("loads of experts are in text and record, each layer by itself") {
  std::vector<ExpertLoadReport> layers{{"layers.1.load", {6, 2}, {-0.5f, 0.25f}, 0},
                                       {"layers.2.load", {3, 5}, {0, 0}, 4}};
  RunSummary experts = summary();
  experts.experts = summary_of(layers);
  CHECK_THAT(
      experts.text(),
      ContainsSubstring("  experts        busiest expert 75.0% of a layer's choices, bias -0.5 to 0.25, "
                        "25.00% dropped\n"));
  CHECK(experts.record()["experts"]["dropped_share"] == 0.25);
  CHECK_FALSE(summary().record().contains("experts"));
  const nlohmann::json record = expert_record(layers);
  CHECK(record["busiest_share"] == 0.75);
  CHECK(record["least_bias"] == -0.5);
  CHECK(record["load"]["layers.1.load"]["1"] == 0.25);
  CHECK(record["load"]["layers.2.load"]["0"] == 0.375);
  CHECK(record["balance_loss"] == 0.0);
  layers[0].balance_loss = 0.0125;
  layers[1].balance_loss = 0.25;
  layers[1].z_loss = 0.5;
  CHECK_THAT(summary_of(layers).text(), ContainsSubstring("25.00% dropped, balance loss 0.263, z-loss 0.5"));
  CHECK(expert_record(layers)["balance_loss"] == 0.2625);
  CHECK(expert_record(layers)["z_loss"] == 0.5);
  // Before the first step nothing is known.
  CHECK(summary_of(std::vector<ExpertLoadReport>{{"layers.1.load", {0, 0}, {0, 0}, 0}}).busiest_share == 0);
}

TEST_CASE("times are shown in seconds, milliseconds and microseconds") {
  CHECK(readable_time(75.26) == "75.3 s");
  CHECK(readable_time(1) == "1.00 s");
  CHECK(readable_time(0.9992) == "999 ms");
  CHECK(readable_time(0.00456) == "4.56 ms");
  CHECK(readable_time(0) == "0 us");
}

TEST_CASE("the peak of the process grows with what it uses") {
  const std::size_t before = process_peak_bytes();
  CHECK(before > 1'000'000);
  const std::size_t more = before + 50'000'000; // a peak, so only memory beyond it shows
  const std::vector<unsigned char> memory(more, 1);
  CHECK(process_peak_bytes() >= before + 40'000'000);
  CHECK(memory.back() == 1);
}
