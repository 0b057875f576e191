// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Prints, verifies and compares checkpoints, and writes their tensors into one file.

#include "options.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/io/checked_output.hpp>
#include <shardwright/io/checkpoint/differences.hpp>
#include <shardwright/io/checkpoint/directory.hpp>
#include <shardwright/io/checkpoint/one_file.hpp>
#include <shardwright/io/checkpoint/reader.hpp>
#include <shardwright/train/dry_run/memory_text.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
namespace cp = shardwright::checkpoint;
namespace fs = std::filesystem;

bool is_checkpoint(const fs::path& path) { return fs::exists(path / "manifest.json"); }

/// The checkpoint itself, or the newest one in a directory that passes verification; prints a line for each
/// that does not.
fs::path found(const fs::path& path) {
  if (is_checkpoint(path))
    return path;
  const cp::Newest newest = cp::newest(path, cp::Check::headers);
  for (const std::string& sentence : newest.refused)
    std::cerr << "checkpoint: skipped: " << sentence << "\n";
  if (!newest.path)
    throw sw::DataError(path.string() +
                        " must be a checkpoint or hold one, but it is neither (name a directory step-N)");
  return *newest.path;
}

std::uint64_t bytes_of(const cp::SavedTensor& tensor) {
  std::uint64_t out = 0;
  for (const cp::SavedBlock& block : tensor.blocks)
    out += block.bytes;
  return out;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text + "  ";
}

bool wanted(const std::string& name, const checkpoint_tool::Options& options) {
  return !options.weights || !name.starts_with("optimizer/");
}

void inspect(const checkpoint_tool::Options& options) {
  const cp::Reader reader(found(options.path));
  const cp::Manifest& contents = reader.manifest();
  std::cout << reader.path().string() << ": step " << contents.description.step << ", saved on "
            << contents.description.mesh << ", configuration " << contents.description.configuration_hash
            << "\n";
  for (const auto& [name, value] : contents.description.more)
    if (value.find('\n') == std::string::npos)
      std::cout << "  " << name << ": " << sw::detail::printable(value, false) << "\n";
  std::size_t width = 6;
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : contents.tensors)
    if (wanted(name, options))
      width = std::max(width, name.size());
  std::cout << padded("tensor", width) << padded("type", 5) << padded("shape", 16) << padded("blocks", 6)
            << padded("size", 10) << "layout\n";
  for (const auto& [name, tensor] : contents.tensors) {
    if (!wanted(name, options))
      continue;
    std::cout << padded(sw::detail::printable(name, false), width)
              << padded(std::string(sw::safetensors::name_of(tensor.dtype)), 5)
              << padded(sw::safetensors::detail::shape_text(tensor.shape), 16)
              << padded(std::to_string(tensor.blocks.size()), 6)
              << padded(sw::bytes_text(static_cast<double>(bytes_of(tensor))), 10)
              << sw::detail::printable(tensor.layout, false) << "\n";
    bytes += bytes_of(tensor);
  }
  std::cout << contents.tensors.size() << " tensors in " << contents.parts.size() << " parts, "
            << sw::bytes_text(static_cast<double>(bytes)) << "\n";
}

/// Each checkpoint of a directory, or the one named. @return whether all are complete
bool verify(const checkpoint_tool::Options& options) {
  std::vector<fs::path> paths;
  if (is_checkpoint(options.path))
    paths.push_back(options.path);
  else
    for (const std::uint64_t step : cp::saved_steps(options.path))
      paths.push_back(options.path / ("step-" + std::to_string(step)));
  if (paths.empty())
    throw sw::DataError(options.path.string() +
                        " must be a checkpoint or hold one, but it is neither (name a directory step-N)");
  bool whole = true;
  for (const fs::path& path : paths) {
    try {
      const auto begin = std::chrono::steady_clock::now();
      const cp::Reader reader(path);
      reader.verify();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      double bytes = 0;
      for (const auto& [name, tensor] : reader.manifest().tensors)
        bytes += static_cast<double>(bytes_of(tensor));
      std::cout << path.string() << ": whole, " << reader.manifest().tensors.size() << " tensors, "
                << sw::bytes_text(bytes) << " at " << sw::bytes_text(bytes / taken.count()) << "/s\n";
    } catch (const sw::DataError& error) {
      whole = false;
      std::cout << "damaged: " << error.what() << "\n";
    }
  }
  return whole;
}

/// @return whether they are equal
bool diff(const checkpoint_tool::Options& options) {
  const cp::Reader left(found(options.path)), right(found(options.other));
  std::size_t shown = 0;
  for (const cp::TensorDifference& each : cp::differences(left, right)) {
    if (!wanted(each.name, options))
      continue;
    ++shown;
    std::cout << sw::detail::printable(each.name, false) << ": ";
    if (!each.sentence.empty()) {
      std::cout << each.sentence << "\n";
      continue;
    }
    char line[160];
    std::snprintf(line, sizeof line, "%llu of %llu elements differ, by at most %.3g, in the norm by %.3g\n",
                  static_cast<unsigned long long>(each.elements), static_cast<unsigned long long>(each.all),
                  each.largest, each.relative);
    std::cout << line;
  }
  std::cout << left.path().string() << " and " << right.path().string()
            << (shown == 0 ? " are bitwise equal\n" : " differ in " + std::to_string(shown) + " tensors\n");
  return shown == 0;
}

void reshard(const checkpoint_tool::Options& options) {
  const cp::Reader reader(found(options.path));
  reader.verify();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : reader.manifest().tensors)
    if (wanted(name, options))
      names.push_back(name);
  cp::write_one_file(reader, options.other, names);
  std::cout << "wrote " << names.size() << " tensors of " << reader.path().string() << " into "
            << options.other.string() << "\n";
}

int run(const checkpoint_tool::Options& options) {
  if (options.command == "verify")
    return verify(options) ? 0 : 1;
  if (options.command == "diff")
    return diff(options) ? 0 : 1;
  options.command == "inspect" ? inspect(options) : reshard(options);
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  try {
    const checkpoint_tool::ParseResult parsed = checkpoint_tool::parse(argc, argv);
    if (!parsed.options) {
      (parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.message << std::endl;
      return sw::checked_output("checkpoint", parsed.exit_code);
    }
    return sw::checked_output("checkpoint", run(*parsed.options));
  } catch (const std::exception& error) {
    std::cerr << "checkpoint: " << error.what() << std::endl;
    return 1;
  }
}
