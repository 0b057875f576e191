// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The settings of low-rank adapters, from PEFT's adapter_config.json.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pretrained {

/// @brief What adapter_config.json says.
struct AdapterSettings {
  static constexpr std::int64_t most_rank = 65536;

  std::int64_t rank = 16;
  double alpha = 32;
  bool kaiming = false; ///< New ones begin as those of PEFT by default, and not as normal numbers.
  bool rank_stabilized = false;
  double dropout = 0;
  std::vector<std::string> targets{}; ///< Last names of the modules, such as "q_proj", from the tensors.

  /// @brief Of the product of both matrices.
  [[nodiscard]] double factor() const;
};

/// @brief Reads the text of an adapter_config.json.
/// @param subject the file, for messages
/// @throws shardwright::DataError naming the field that is missing, unknown, out of range, or asks for
/// something else than y = W x + factor B (A x).
[[nodiscard]] AdapterSettings parse_adapter_settings(std::string_view text, const std::string& subject);

} // namespace pretrained
