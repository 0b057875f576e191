// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Combines the dumps that the flight recorders of all ranks wrote at a failure, and says which rank
/// stopped first; or writes them as PyTorch's fr_trace reads them.

#include "torch_trace.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The call that a rank was in, as comm/observe/flight_dump.hpp writes it.
struct Dump {
  json all;
  int ranks = 0;
  std::string kind;
  int failed = -1;
  std::string sentence;
  std::string doing;
  std::vector<int> waits_for;
};
using Dumps = std::map<int, Dump>;

Dump read(const fs::path& path, int rank) {
  std::ifstream file(path);
  const json text = json::parse(file);
  if (text.at("version") != 1 || text.at("rank") != rank)
    throw std::runtime_error("it must be of version 1 and of rank " + std::to_string(rank));
  Dump out;
  out.all = text;
  out.ranks = text.at("ranks").get<int>();
  const json& failure = text.at("failure");
  out.kind = failure.at("kind").get<std::string>();
  out.failed = failure.at("rank").get<int>();
  out.sentence = failure.at("sentence").get<std::string>();
  out.doing = text.at("doing").get<std::string>();
  out.waits_for = text.at("waits_for").get<std::vector<int>>();
  return out;
}

Dumps read_all(const fs::path& directory) {
  Dumps out;
  std::error_code code;
  const fs::directory_iterator files(directory, code);
  if (code)
    throw std::runtime_error(directory.string() + " must be a directory of dumps, but " + code.message() +
                             " (give the one that SHARDWRIGHT_FLIGHT_RECORDER named in the run)");
  for (const fs::directory_entry& each : files) {
    int rank = -1, end = 0;
    const std::string name = each.path().filename().string();
    if (std::sscanf(name.c_str(), "rank-%d.json%n", &rank, &end) != 1 ||
        static_cast<std::size_t>(end) != name.size())
      continue;
    try {
      out.emplace(rank, read(each.path(), rank));
    } catch (const std::exception& error) {
      throw std::runtime_error(each.path().string() +
                               " must be a dump of the flight recorder, but: " + error.what());
    }
  }
  if (out.empty())
    throw std::runtime_error(
        directory.string() +
        " must hold rank-0.json and so on, but holds none (run the program with SHARDWRIGHT_FLIGHT_RECORDER naming that directory)");
  return out;
}

/// The ranks at the ends of the chains of waiting ranks, which wait for no other rank. Empty if all chains
/// are cycles.
std::vector<int> held_up_by(const Dumps& dumps) {
  std::vector<int> out;
  for (const auto& [rank, dump] : dumps)
    for (const int awaited : dump.waits_for) {
      const auto at = dumps.find(awaited);
      if ((at == dumps.end() || at->second.waits_for.empty()) &&
          std::find(out.begin(), out.end(), awaited) == out.end())
        out.push_back(awaited);
    }
  std::sort(out.begin(), out.end());
  return out;
}

std::string doing(const Dumps& dumps, int rank) {
  const auto at = dumps.find(rank);
  return at == dumps.end() ? "it has left no dump" : at->second.doing;
}

/// "rank 1 stopped first: ..."
std::string verdict(const Dumps& dumps) {
  const Dump& any = dumps.begin()->second;
  const std::string failed = "rank " + std::to_string(any.failed);
  if (any.kind == "mismatch")
    return "the ranks disagree, as " + failed + " found: " + any.sentence;
  if (any.kind != "deadline") {
    const std::string place = doing(dumps, any.failed);
    const std::string call = place.substr(std::min(place.find("its last"), place.size()));
    const bool told = !call.empty() && any.sentence.find(call) != std::string::npos;
    return failed + " stopped first: " + any.sentence + (told ? "" : "; " + place);
  }
  const std::vector<int> ranks = held_up_by(dumps);
  if (ranks.empty())
    return "the ranks wait for one another in a ring: " + any.sentence;
  std::string out;
  for (const int rank : ranks)
    out += (out.empty() ? "rank " : "\nrank ") + std::to_string(rank) +
           " stopped first, and others wait for it: " + doing(dumps, rank);
  return out;
}

void tell(const fs::path& directory) {
  const Dumps dumps = read_all(directory);
  for (const auto& [rank, dump] : dumps) {
    std::cout << "rank " << rank << ": " << dump.doing;
    for (std::size_t i = 0; i < dump.waits_for.size(); ++i)
      std::cout << (i == 0 ? "; waits for " : ", ") << dump.waits_for[i];
    std::cout << "\n";
  }
  for (int rank = 0; rank < dumps.begin()->second.ranks; ++rank)
    if (!dumps.contains(rank))
      std::cout << "rank " << rank << ": no dump (on a node that did not learn of the failure)\n";
  std::cout << verdict(dumps) << "\n";
}

/// Writes `trace_rank_N` beside each dump.
void trace(const fs::path& directory) {
  for (const auto& [rank, dump] : read_all(directory)) {
    const fs::path path = directory / ("trace_rank_" + std::to_string(rank));
    std::ofstream file(path, std::ios::binary);
    if (!(file << flight_recorder::torch_trace(dump.all) << std::flush))
      throw std::runtime_error(path.string() +
                               " must be writable, but it is not (give a directory of your own)");
  }
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app{"Says which rank stopped first, in which call, at which source line.", "flight_recorder"};
  std::string directory;
  CLI::App* const join = app.add_subcommand("join", "Joins the dumps of all ranks.");
  CLI::App* const traces =
      app.add_subcommand("trace", "Writes the dumps as trace_rank_N too, for PyTorch's fr_trace.");
  for (CLI::App* const command : {join, traces})
    command
        ->add_option("directory", directory,
                     "The directory that SHARDWRIGHT_FLIGHT_RECORDER named when the program failed")
        ->required();
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  try {
    traces->parsed() ? trace(directory) : tell(directory);
  } catch (const std::exception& error) {
    std::cerr << "flight_recorder: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
