// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Byte-level BPE from a tokenizer.json, as Hugging Face's tokenizers writes it.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pretrained {

/// @brief Text to tokens and back.
class Tokenizer {
public:
  virtual ~Tokenizer() = default;

  /// @brief The tokens of a UTF-8 text; names of special tokens in it become those tokens.
  /// @param adds_special whether to add the tokens that the file puts around every text, such as the begin
  /// token
  /// @throws sw::InvalidArgument for text that is not UTF-8.
  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text,
                                                         bool adds_special = true) const = 0;
  /// @brief The bytes of tokens, without special ones; may end within a character.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// @brief The bytes of a token, special or not; empty for a number that is none.
  [[nodiscard]] virtual std::string bytes(std::int32_t id) const = 0;
};

/// @brief Reads `tokenizer.json`.
/// @throws sw::DataError naming a field that is missing or not supported.
[[nodiscard]] std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& path);

/// @brief Returns whether the program has been built with ICU, without which read_tokenizer throws.
[[nodiscard]] bool has_tokenizer() noexcept;

} // namespace pretrained
