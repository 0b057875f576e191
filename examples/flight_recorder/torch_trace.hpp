// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A rank's dump as PyTorch's fr_trace reads it.

#include "pickle_text.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace flight_recorder {

/// fr_trace's name for an operation; it has none for a split.
[[nodiscard]] inline std::string_view torch_name(std::string_view operation) {
  if (operation == "all_gather")
    return "nccl:_all_gather_base";
  if (operation == "reduce_scatter")
    return "nccl:_reduce_scatter_base";
  if (operation == "barrier" || operation == "split")
    return "nccl:all_reduce_barrier";
  if (operation == "broadcast")
    return "nccl:broadcast";
  return operation == "all_to_all" ? "nccl:all_to_all" : "nccl:all_reduce";
}

/// A dump of version 2.10 as torch.distributed.flight_recorder reads it, with the collectives only: that tool
/// pairs messages by sequence numbers which both sides share, and here each side has its own. Sizes are not
/// recorded; the ones written are consistent, as the tool requires.
[[nodiscard]] inline std::string torch_trace(const nlohmann::json& dump) {
  PickleText out;
  out.begin_dictionary().text("version").text("2.10").text("pg_config").begin_dictionary();
  for (const auto& [name, members] : dump.at("groups").items()) {
    std::string ranks;
    for (const nlohmann::json& rank : members)
      ranks += (ranks.empty() ? "[" : ", ") + std::to_string(rank.get<int>());
    out.text(name).begin_dictionary().text("name").text(name).text("desc").text(name);
    out.text("ranks").text(ranks.empty() ? "[]" : ranks + "]").end_dictionary();
  }
  out.end_dictionary().text("pg_status").begin_dictionary().end_dictionary().text("entries").begin_list();
  for (const nlohmann::json& call : dump.at("calls")) {
    const auto operation = call.at("operation").get<std::string>();
    if (operation == "send" || operation == "receive")
      continue;
    const auto group = call.at("group").get<std::string>();
    const std::size_t members = dump.at("groups").at(group).size();
    const auto number = call.at("number").get<std::int64_t>();
    const bool inside = call.at("state") == "inside";
    const auto sizes = [&](bool larger) {
      const auto size = static_cast<std::int64_t>(larger ? members : 1);
      out.begin_list().begin_list().number(size).end_list().end_list();
    };
    out.begin_dictionary().text("record_id").number(number).text("pg_id").number(0);
    out.text("process_group").text(group).text(group).pair();
    out.text("collective_seq_id").number(call.at("sequence").get<std::int64_t>());
    out.text("p2p_seq_id").number(0).text("op_id").number(number).text("is_p2p").truth(false);
    out.text("profiling_name").text(torch_name(operation)).text("time_created_ns").number(0);
    out.text("input_sizes");
    sizes(operation == "reduce_scatter");
    out.text("output_sizes");
    sizes(operation == "all_gather");
    for (const char* const types : {"input_dtypes", "output_dtypes"})
      out.text(types).begin_list().text("unknown").end_list();
    out.text("state").text(inside ? "started" : "completed").text("retired").truth(!inside);
    for (const char* const times : {"time_discovered_started_ns", "time_discovered_completed_ns"})
      out.text(times).none();
    out.text("frames").begin_list().begin_dictionary().text("name").text(operation);
    out.text("filename").text(call.at("file").get<std::string>());
    out.text("line").number(call.at("line").get<std::int64_t>()).end_dictionary().end_list();
    out.end_dictionary();
  }
  return out.end_list().end_dictionary().file();
}

} // namespace flight_recorder
