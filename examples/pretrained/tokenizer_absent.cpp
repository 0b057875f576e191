// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Replaces the tokenizer if the build has not found ICU.

#include "tokenizer.hpp"

#include <shardwright/core/error.hpp>

namespace pretrained {

std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path&) {
  throw shardwright::InvalidArgument(
      "--prompt needs a build with ICU, which splits text into words (install ICU's "
      "development files and build again, or give --prompt-ids)");
}
bool has_tokenizer() noexcept { return false; }

} // namespace pretrained
