// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The index and the files of a dump.

#include "dump.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/mix.hpp>

#include <nlohmann/json.hpp>

#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>

namespace models {
namespace {

void require_written(const std::ofstream& file, const std::filesystem::path& path) {
  if (!file)
    throw shardwright::DataError(path.string() +
                                 ": the file must be writable (give --dump another directory)");
}

nlohmann::json write(const std::filesystem::path& directory, const std::string& prefix,
                     const std::vector<NamedTensor>& tensors) {
  nlohmann::json out = nlohmann::json::array();
  for (const NamedTensor& each : tensors) {
    const std::string name = prefix + each.name + ".bin";
    std::ofstream file(directory / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(each.values.data()),
               static_cast<std::streamsize>(each.values.size() * sizeof(double)));
    file.flush();
    require_written(file, directory / name);
    out.push_back({{"name", each.name}, {"shape", each.shape}, {"file", name}});
  }
  return out;
}

} // namespace

void dump(const std::filesystem::path& directory, const Options& options, const RunResult& result) {
  std::filesystem::create_directories(directory);
  const nlohmann::json index{{"model", options.model},
                             {"heads", result.heads},
                             {"steps", options.steps},
                             {"batch", options.batch},
                             {"learning_rate", options.learning_rate},
                             {"weight_decay", options.weight_decay},
                             {"max_norm", options.clip},
                             {"losses", result.losses},
                             {"gradient_norms", result.gradient_norms},
                             {"initial", write(directory, "initial.", result.initial)},
                             {"final", write(directory, "final.", result.parameters)},
                             {"data", write(directory, "data.", result.data)}};
  std::ofstream file(directory / "index.json");
  file << index.dump(1) << std::endl;
  require_written(file, directory / "index.json");
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
