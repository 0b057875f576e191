// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Models and clusters by name or from JSON files.

#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/model.hpp>

#include <cstdint>
#include <string>

namespace plan_example {

/// @brief A model from the catalogue, or from a file whose name ends in .json and whose fields are those of
/// ModelSpec.
/// @throws shardwright::DataError naming file, line and field.
[[nodiscard]] shardwright::ModelSpec read_model(const std::string& name);

/// @brief A cluster such as "h800x2048", or from a file: {"chip": "h100", "domains": [{"chips": 8, ...}]}.
/// The chip may be defined there, too: {"name": ..., "peak_bf16": ..., "memory_bytes": ...,
/// "memory_bandwidth": ...}, and if it has them "peak_fp8", "peak_fp4" and the "generation" whose constants
/// it takes.
/// @param domain chips per innermost domain; 0 leaves them unchanged.
/// @throws shardwright::DataError naming file, line and field, or if chips do not fill whole domains.
[[nodiscard]] shardwright::ClusterSpec read_cluster(const std::string& name, std::int64_t domain = 0);

/// @brief The model in a JSON text; `name` is that of its file, for messages and if the text has none.
/// @throws shardwright::DataError naming file, line and field.
[[nodiscard]] shardwright::ModelSpec model_of_json(const std::string& text, const std::string& name);
/// @brief The same for a cluster. read_cluster checks that chips fill whole domains.
/// @throws shardwright::DataError naming file, line and field.
[[nodiscard]] shardwright::ClusterSpec cluster_of_json(const std::string& text, const std::string& name);

} // namespace plan_example
