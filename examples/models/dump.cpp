// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The index and the files of a dump.

#include "dump.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/io/write_text.hpp>

#include <nlohmann/json.hpp>

#include <bit>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <system_error>

namespace models {
namespace {

nlohmann::json write(const std::filesystem::path& directory, const std::string& prefix,
                     const std::vector<NamedTensor>& tensors) {
  nlohmann::json out = nlohmann::json::array();
  for (const NamedTensor& each : tensors) {
    const std::string name = prefix + each.name + ".bin";
    shardwright::write_text(directory / name,
                            std::string_view(reinterpret_cast<const char*>(each.values.data()),
                                             each.values.size() * sizeof(double)));
    out.push_back({{"name", each.name}, {"shape", each.shape}, {"file", name}});
  }
  return out;
}

} // namespace

void dump(const std::filesystem::path& directory, const Options& options, const RunResult& result) {
  std::error_code code;
  std::filesystem::create_directories(directory, code);
  if (code)
    throw shardwright::DataError(directory.string() + " must be a directory, but " + code.message() +
                                 " (give --dump another one)");
  std::vector<double> losses, norms;
  for (const trainer::StepRecord& step : result.steps) {
    losses.push_back(step.loss);
    norms.push_back(step.gradient_norm);
  }
  const nlohmann::json index{{"model", options.model},
                             {"heads", result.heads},
                             {"experts", nlohmann::json(result.rule)},
                             {"steps", options.steps},
                             {"batch", options.batch},
                             {"learning_rate", options.learning_rate},
                             {"weight_decay", options.weight_decay},
                             {"max_norm", options.clip},
                             {"losses", losses},
                             {"gradient_norms", norms},
                             {"initial", write(directory, "initial.", result.initial)},
                             {"final", write(directory, "final.", result.parameters)},
                             {"data", write(directory, "data.", result.data)}};
  shardwright::write_text(directory / "index.json", index.dump(1) + "\n");
}

std::string parameter_text(std::span<const NamedTensor> parameters) {
  double squares = 0;
  std::uint64_t hash = 0;
  std::size_t count = 0;
  for (const NamedTensor& each : parameters)
    for (const double value : each.values) {
      squares += value * value;
      hash = shardwright::detail::mixed(hash, std::bit_cast<std::uint64_t>(value));
      ++count;
    }
  char line[128];
  std::snprintf(line, sizeof line, "%zu parameters, norm %.15e, hash %016llx", count, std::sqrt(squares),
                static_cast<unsigned long long>(hash));
  return line;
}

} // namespace models
