// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/comm/observe/flight_dump.hpp>
#include <shardwright/comm/observe/flight_recorder.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;

TEST_CASE("a recorder reports the operation that a rank is in, else its last one", "[comm]") {
  sw::FlightRecorder recorder;
  CHECK(recorder.describe() == "it has called no operation yet");
  sw::FlightEntry entry;
  entry.operation = sw::Operation::all_reduce;
  entry.group = "dp";
  entry.sequence = 7;
  entry.where = {"train.cpp", 12, "step"};
  const auto ticket = recorder.begin(entry);
  CHECK(recorder.describe() == "waiting in all_reduce #7 on group dp at train.cpp:12");
  recorder.end(ticket);
  CHECK(recorder.describe() == "its last operation was all_reduce #7 on group dp at train.cpp:12");
  entry.operation = sw::Operation::receive;
  entry.peer = 3;
  entry.tag = 5;
  const auto waiting = recorder.begin(entry);
  entry.operation = sw::Operation::barrier;
  entry.peer = -1;
  recorder.end(recorder.begin(entry));
  CHECK_THAT(recorder.describe(),
             ContainsSubstring("waiting in receive from rank 3 under tag 5 #7 on group dp"));
  recorder.end(waiting);
}

TEST_CASE("a rank that has started a call is computing until it waits for it", "[comm]") {
  sw::FlightRecorder recorder;
  sw::FlightEntry entry;
  entry.operation = sw::Operation::all_reduce;
  entry.group = "dp";
  entry.group_id = &entry;
  entry.waited = false;
  entry.sequence = 1;
  const auto first = recorder.begin(entry);
  entry.sequence = 2;
  const auto second = recorder.begin(entry);
  CHECK(recorder.describe() == "computing, with all_reduce #2 on group dp started");
  recorder.wait(first);
  CHECK(recorder.describe() == "waiting in all_reduce #1 on group dp");
  recorder.end(first);
  CHECK(recorder.describe() == "computing, with all_reduce #2 on group dp started");
  recorder.wait_for_group(&recorder);
  CHECK(recorder.describe() == "computing, with all_reduce #2 on group dp started");
  recorder.wait_for_group(&entry);
  CHECK(recorder.describe() == "waiting in all_reduce #2 on group dp");
  recorder.wait_for_group(nullptr);
  recorder.end(second);
  CHECK(recorder.describe() == "its last operation was all_reduce #2 on group dp");
  recorder.wait(second); // too late
  CHECK(recorder.describe() == "its last operation was all_reduce #2 on group dp");
}

TEST_CASE("a recorder keeps the newest entries and forgets old tickets", "[comm]") {
  sw::FlightRecorder recorder;
  sw::FlightEntry entry;
  const auto first = recorder.begin(entry);
  for (std::size_t i = 0; i < sw::FlightRecorder::kept; ++i) {
    entry.sequence = i + 1;
    recorder.end(recorder.begin(entry));
  }
  CHECK_FALSE(recorder.entry(first).has_value());
  recorder.end(first);
  CHECK_THAT(recorder.describe(), ContainsSubstring("#" + std::to_string(sw::FlightRecorder::kept)));
}

TEST_CASE("a reader never sees a mixture of two entries", "[comm]") {
  sw::FlightRecorder recorder;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    sw::FlightEntry entry;
    for (int i = 1; !stop.load(); ++i) {
      entry.sequence = static_cast<std::uint64_t>(i);
      entry.tag = i;
      entry.peer = i;
      entry.where.line = i;
      recorder.end(recorder.begin(entry));
    }
  });
  int found = 0;
  bool whole = true;
  while (found < 2000) {
    const auto entry = recorder.entry(recorder.newest() - 1);
    if (!entry || entry->sequence == 0)
      continue;
    ++found;
    const auto line = static_cast<std::uint64_t>(entry->where.line);
    whole = whole && line == entry->sequence && entry->tag == entry->peer && entry->tag == entry->where.line;
  }
  stop.store(true);
  writer.join();
  CHECK(whole);
}

TEST_CASE("a dump has every group under a name of its own", "[comm]") {
  namespace detail = sw::detail;
  const int ids[2] = {};
  detail::FlightDump dump;
  CHECK(detail::add_group(dump, &ids[0], {0, "dp", {0, 1}}) == 0);
  CHECK(detail::add_group(dump, &ids[1], {0, "dp", {0, 2}}) == 1);
  CHECK(detail::add_group(dump, &ids[0], {0, "dp", {0, 1}}) == 0);
  dump.calls.resize(2);
  dump.calls[1].group = 1;
  const std::string json = detail::flight_json(dump, {});
  CHECK_THAT(json, ContainsSubstring(R"("groups": {"dp": [0, 1], "dp.2": [0, 2]})"));
  CHECK_THAT(json, ContainsSubstring(R"("group": "dp.2")"));
}
