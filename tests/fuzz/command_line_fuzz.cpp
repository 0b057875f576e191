// SPDX-License-Identifier: Apache-2.0

#include "harness.hpp"

#include <command_line/mesh.hpp>
#include <command_line/words.hpp>
#include <plan/options.hpp>
#include <plan/simulation.hpp>
#include <schedule_viewer/options.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/schedule/pipeline_schedule.hpp>

#include <sstream>
#include <vector>

namespace sw = shardwright;

namespace {

/// Parses the lines of a text as words; a mistake is a sentence and a code.
template <class Parse> void parse_words(const std::string& text, const Parse& parse) {
  std::vector<std::string> words{"fuzz"};
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && words.size() < 64;)
    words.push_back(line.substr(0, line.find('\0')));
  std::vector<const char*> arguments;
  for (const std::string& word : words)
    arguments.push_back(word.c_str());
  const auto result = parse(static_cast<int>(arguments.size()), arguments.data());
  fuzz::require(result.options.has_value() == result.message.empty(), "options or a message");
}

template <class Read> void parse_word(const Read& read) {
  try {
    read();
  } catch (const command_line::UsageError& error) {
    fuzz::require(std::string_view(error.what()).size() > 10, "a mistake has a sentence");
  }
}

} // namespace

/// Words of command lines; the first byte selects the parser.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const unsigned kind = input.number(6);
  const std::string rest = input.rest();
  const std::string word = rest.substr(0, rest.find('\0')); // where words of a command line end
  if (kind == 0) {
    parse_words(rest, schedule_viewer::parse);
  } else if (kind == 1) {
    parse_words(rest, plan_example::parse);
  } else if (kind == 2) {
    parse_word([&] {
      std::int64_t product = 1;
      for (const command_line::MeshAxis& axis : command_line::parse_mesh(word)) {
        fuzz::require(axis.extent > 0, "an extent is positive");
        product *= axis.extent;
        fuzz::require(product < std::int64_t{1} << 31, "ranks have numbers");
      }
    });
  } else if (kind == 3) {
    parse_word([&] { (void)plan_example::parse_straggler(word); });
  } else if (kind == 4) {
    if (const auto cluster = sw::cluster_of_name(word))
      fuzz::require(cluster->chips() > 0, "a cluster has chips");
  } else {
    const auto byte = [&] { return static_cast<int>(input.number(256)); };
    const int ranks = (byte() << 16 | byte() << 8 | byte()) - 1000, chunks = byte() % 8;
    const int microbatches = (byte() << 16 | byte() << 8 | byte()) - 1000;
    const std::string name = input.rest();
    if (std::int64_t{ranks} * microbatches < 100'000) // others take long
      (void)fuzz::accepted([&] {
        fuzz::require(prove(sw::make_schedule(name, ranks, microbatches, chunks)).holds(),
                      "a policy is proven");
      });
  }
  return 0;
}
