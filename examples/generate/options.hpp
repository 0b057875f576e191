// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The options of generate.

#include "generation.hpp"
#include "model.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace generate {

/// @brief The model, the prompts and the mesh of a run.
struct Options {
  std::filesystem::path model;   ///< Directory with config.json, safetensors files and tokenizer.json.
  std::filesystem::path adapter; ///< Directory of PEFT's files; empty: none.
  std::vector<std::string> prompts;
  std::vector<std::string> chats; ///< Questions, instead of prompts.
  std::string system;             ///< Message before each question; empty: the template's, if it has one.
  std::string chat_template;      ///< Name; empty: that of the model.
  std::vector<std::vector<std::int32_t>> prompt_ids; ///< Instead of prompts.
  Extents extents;
  std::int64_t tokens = 100; ///< The most new tokens.
  Sampling sampling;
  bool ignores_end = false;
  pretrained::Accepted accepted;
  std::filesystem::path dump;      ///< File for ids and scores; empty: none.
  std::filesystem::path export_to; ///< Directory for the model as float; empty: none.

  /// @brief Everything that must agree between ranks, one line per option.
  [[nodiscard]] std::string text() const;
};

/// @brief Options, or what to print instead: the help or an error message.
struct ParseResult {
  std::optional<Options> options;
  std::string message;
  int exit_code = 0;
};

[[nodiscard]] ParseResult parse(int argc, const char* const* argv);

} // namespace generate
