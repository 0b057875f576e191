// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Models and clusters by name, or out of JSON files.

#include <shardwright/plan/spec/cluster.hpp>
#include <shardwright/plan/spec/model.hpp>

#include <cstdint>
#include <string>

namespace plan_example {

/// @brief A model of the catalogue, or of a file whose name ends with .json and whose fields are those of
/// ModelSpec.
/// @throws shardwright::DataError naming file, line and field.
[[nodiscard]] shardwright::ModelSpec read_model(const std::string& name);

/// @brief A cluster such as "h800x2048", or of a file: {"chip": "h100", "domains": [{"chips": 8, ...}]}.
/// @param domain chips of its innermost domains; 0 leaves them as they are.
/// @throws shardwright::DataError naming file, line and field, and where chips do not fill whole domains.
[[nodiscard]] shardwright::ClusterSpec read_cluster(const std::string& name, std::int64_t domain = 0);

/// @brief The model of a JSON text; `name` is that of its file, for messages and where the text has none.
/// @throws shardwright::DataError naming file, line and field.
[[nodiscard]] shardwright::ModelSpec model_of_json(const std::string& text, const std::string& name);
/// @brief The same of a cluster. That chips fill whole domains is for read_cluster to say.
/// @throws shardwright::DataError naming file, line and field.
[[nodiscard]] shardwright::ClusterSpec cluster_of_json(const std::string& text, const std::string& name);

} // namespace plan_example
