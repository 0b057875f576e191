// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Which instructions of the kernels that ran were reached, and how much memory they moved.

#include "ptx/runtime/runtime.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ptx_runtime {

/// @brief The file that `variable` of the environment names, opened to write.
inline std::FILE* open_report(const std::string& file, const char* variable) {
  std::FILE* const out = std::fopen(file.c_str(), "w"); // the program is ending, and streams with it
  if (out == nullptr)
    Runtime::get().end(std::string(variable) + " must name a file that can be written, but it is " + file);
  return out;
}

/// @brief For each kernel that ran, a line with its instructions and how many of them no warp executed, then
/// a line for each of those: its number, those of the instructions after which it may run, source line and
/// text. `scripts/ptx_coverage` joins the files of several runs.
inline void write_coverage(const std::string& file, const std::map<const void*, Function>& functions) {
  std::FILE* const out = open_report(file, "PTX_COVERAGE");
  for (const auto& [host, function] : functions) {
    if (function.launches == 0)
      continue;
    const ptx::Kernel& kernel = *function.kernel;
    const std::size_t count = kernel.instructions();
    std::vector<std::size_t> missed;
    for (std::size_t i = 0; i < count; ++i)
      if (kernel.executed(i) == 0)
        missed.push_back(i);
    std::fprintf(out, "kernel %zu %zu %zu %s\n", count, missed.size(),
                 static_cast<std::size_t>(function.warp_instructions), kernel.name.c_str());
    const std::vector<std::vector<std::size_t>> predecessors = kernel.predecessors();
    for (const std::size_t i : missed) {
      const ptx::Site site = kernel.site(i);
      std::string before;
      for (const std::size_t j : predecessors[i])
        before.append(before.empty() ? "" : ",").append(std::to_string(j));
      std::fprintf(out, "%zu\t%s\t%s\t%s\n", i, before.c_str(), site.source.c_str(), site.text.c_str());
    }
  }
  std::fclose(out);
}

/// @brief A JSON object: under "launches", an object for each label and kernel with what they moved; under
/// "stated", what the program said that each label moves.
inline void write_traffic(const std::string& file,
                          const std::map<std::pair<std::string, const Function*>, Traffic>& traffic,
                          const std::map<std::string, double>& stated) {
  std::FILE* const out = open_report(file, "PTX_TRAFFIC");
  const char* comma = "";
  std::fputs("{\"launches\": [", out);
  for (const auto& [key, moved] : traffic) {
    std::fprintf(out,
                 "%s\n  {\"label\": \"%s\", \"kernel\": \"%s\", \"launches\": %ju, \"lanes_read\": %ju, "
                 "\"lanes_wrote\": %ju, \"read\": %ju, \"wrote\": %ju}",
                 comma, key.first.c_str(), key.second->kernel->name.c_str(),
                 static_cast<std::uintmax_t>(moved.launches), static_cast<std::uintmax_t>(moved.lanes_read),
                 static_cast<std::uintmax_t>(moved.lanes_wrote), static_cast<std::uintmax_t>(moved.read),
                 static_cast<std::uintmax_t>(moved.wrote));
    comma = ",";
  }
  std::fputs("],\n \"stated\": {", out);
  comma = "";
  for (const auto& [label, bytes] : stated) {
    std::fprintf(out, "%s\n  \"%s\": %.0f", comma, label.c_str(), bytes);
    comma = ",";
  }
  std::fputs("}}\n", out);
  std::fclose(out);
}

} // namespace ptx_runtime
