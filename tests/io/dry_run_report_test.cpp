// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/io/dry_run_report.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace shardwright;
using namespace shardwright_test;

/// Rank 2, with three gathers over tp, two of them from one place, and a message.
DryRun run() {
  DryRun out;
  out.rank = 2;
  out.memory.bytes[static_cast<std::size_t>(MemoryKind::activations)] = 3 << 20;
  out.memory.bytes[static_cast<std::size_t>(MemoryKind::parameters)] = 1536;
  out.memory.rounding = 512;
  out.holders = {{MemoryKind::activations, "layers.0 matmul", 2 << 20},
                 {MemoryKind::parameters, "head", 1536}};
  RecordedCall gather;
  gather.group = "tp";
  gather.operation = Operation::all_gather;
  gather.element = ElementType::float32;
  gather.bytes = 4096;
  gather.where = {"model.cpp", 7, "step"};
  RecordedCall elsewhere = gather;
  elsewhere.where.line = 9;
  RecordedCall send;
  send.group = "pp";
  send.operation = Operation::send;
  send.element = ElementType::float32;
  send.bytes = 100;
  send.peer = 6;
  out.calls = {send, gather, elsewhere, gather};
  out.kernel_bytes = {{"sw::odd", 0}, {"sw::fill", 1024}, {"sw::swiglu", 3072}};
  out.flops = 2.5e9;
  return out;
}

} // namespace

TEST_CASE("calls are summed up by source line, those with most bytes first") {
  const std::vector<CallTotal> totals = call_totals(run());
  REQUIRE(totals.size() == 3);
  CHECK(totals[0].calls == 2);
  CHECK(totals[0].bytes == 8192);
  CHECK(totals[0].where.find("model.cpp:7") != std::string::npos);
  CHECK(totals[1].bytes == 4096);
  CHECK(totals[2].operation == "send");
  CHECK(totals[2].where.empty());
}

TEST_CASE("a dry run is shown with its memory, holders, calls, kernels and operations") {
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1536) == "1.50 KiB");
  CHECK(bytes_text(25.0 * (1 << 20)) == "25.0 MiB");
  const std::array<DryRun, 1> runs{run()};
  const std::array<NamedMemory, 1> memory{{{"rank 2", runs[0].memory}}};
  const std::string table = memory_text(memory);
  CHECK_THAT(table, ContainsSubstring("3.00 MiB") && ContainsSubstring("rounded up in the pool"));
  CHECK_THAT(table, ContainsSubstring("parameters"));
  CHECK_THAT(table, !ContainsSubstring("gradients")); // none, so no row
  const std::string text = dry_run_text(runs, 1);
  CHECK(text.starts_with(table));
  CHECK_THAT(text, ContainsSubstring("layers.0 matmul") && ContainsSubstring("8.00 KiB") &&
                       ContainsSubstring("2.5e+09 floating-point operations"));
  const std::size_t kernels = text.find("kernels of rank 2");
  REQUIRE(kernels != std::string::npos);
  const std::size_t most = text.find("sw::swiglu ", kernels), least = text.find("sw::odd ", kernels);
  CHECK(most < text.find("sw::fill ", kernels));
  CHECK(text.find("3.00 KiB", most) < least);
  CHECK(text.find("not stated", least) < text.find("4.00 KiB", least)); // in all
  CHECK_THAT(text, !ContainsSubstring("head")); // only the largest holder was requested
}

TEST_CASE("ranks that share few groups are not said to make the same calls on the others") {
  const auto gathers = [](std::uint64_t id, const std::string& group, std::size_t count, DryRun& out) {
    out.groups.push_back({id, group});
    for (std::size_t i = 0; i < count; ++i)
      out.calls.push_back(
          {group, id, Operation::all_gather, ReduceOp::sum, ElementType::float32, -1, 0, 64, false, {}});
  };
  std::array<DryRun, 2> runs{};
  runs[1].rank = 9000;
  for (DryRun& each : runs)
    gathers(1, "world", 3, each);
  gathers(2, "dp", 508, runs[0]);
  gathers(3, "dp", 444, runs[1]);
  gathers(4, "pp", 0, runs[1]);
  runs[1].calls.push_back(
      {"pp", 4, Operation::send, ReduceOp::sum, ElementType::float32, 9008, 0, 64, false, {}});
  REQUIRE(call_differences(runs).empty());
  const std::string not_compared = "not compared, as no other rank of the group was run: ";
  CHECK(comparison_text(runs) == "ranks 0 and 9000 make the same 3 calls in the same order on world\n" +
                                     not_compared + "rank 0, 508 calls on dp\n" + not_compared +
                                     "rank 9000, 444 calls on dp, 1 message on pp\n");
  for (DryRun& each : runs)
    each.calls.erase(each.calls.begin(), each.calls.begin() + 2);
  CHECK(comparison_text(runs).starts_with("ranks 0 and 9000 make the same call on world\n" + not_compared));
  runs[0].groups.erase(runs[0].groups.begin());
  runs[0].calls.erase(runs[0].calls.begin());
  CHECK(comparison_text(runs).starts_with("no calls were compared: no group has two of these ranks\n" +
                                          not_compared));
}

TEST_CASE("a dry run as JSON keeps the calls in their order") {
  const nlohmann::json json = dry_run_json(run());
  CHECK(json["rank"] == 2);
  CHECK(json["memory"]["activations"] == 3 << 20);
  CHECK(json["memory"]["total"] == (3 << 20) + 1536 + 512);
  CHECK(json["holders"].size() == 2);
  CHECK(json["kernels"]["sw::swiglu"] == 3072);
  REQUIRE(json["calls"].size() == 4);
  CHECK(json["calls"][0]["peer"] == 6);
  CHECK(!json["calls"][0].contains("where"));
  CHECK(json["calls"][1]["bytes"] == 4096);
  CHECK(!json["calls"][1].contains("peer"));
}
