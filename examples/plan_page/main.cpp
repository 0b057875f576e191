// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Makes a page with charts of what the program plan found.

#include "page.hpp"

#include <CLI/CLI.hpp>

#include <plan/json_text.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/io/checked_output.hpp>
#include <shardwright/io/read_text.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <iostream>
#include <string>

namespace {

namespace sw = shardwright;

constexpr std::size_t most_bytes = std::size_t{1} << 26;

/// The page of a study; its figures are those that the JSON has.
std::string page_of(const std::string& text, const std::string& file) {
  plan_example::check_json(text, file);
  const auto not_a_study = [&file](const std::exception& error) {
    return sw::DataError(file + ": it must be what plan --json prints for a run (" + error.what() + ")");
  };
  try {
    return plan_page::page_of(nlohmann::ordered_json::parse(text));
  } catch (const nlohmann::json::exception& missing) {
    throw not_a_study(missing);
  } catch (const sw::Error& wrong) {
    throw not_a_study(wrong);
  }
}

/// All of standard input, which may be a pipe.
std::string standard_input() {
  std::string out;
  std::array<char, 1 << 16> chunk;
  while (std::cin.read(chunk.data(), chunk.size()) || std::cin.gcount() > 0) {
    out.append(chunk.data(), static_cast<std::size_t>(std::cin.gcount()));
    if (out.size() > most_bytes)
      throw sw::DataError("standard input: it must hold at most " + std::to_string(most_bytes) +
                          " bytes (give a shorter one)");
  }
  return out;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app{"Makes a self-contained page with charts of what plan --json prints.", "plan_page"};
  std::string file;
  app.add_option("study", file, "The file that plan --json printed. Default: standard input.")
      ->type_name("FILE");
  app.footer(
      "Example:\n  plan --model deepseek-v3 --cluster h800x2048 --tokens 62.9M --json | plan_page > report.html");
  CLI11_PARSE(app, argc, argv);
  try {
    std::cout << page_of(file.empty() ? standard_input() : sw::read_text(file, most_bytes),
                         file.empty() ? "standard input" : file);
  } catch (const std::exception& error) {
    std::cerr << "plan_page: " << error.what() << std::endl;
    return 1;
  }
  return sw::checked_output("plan_page", 0);
}
