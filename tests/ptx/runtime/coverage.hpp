// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Which instructions of the kernels that ran were reached, and how much memory they moved.

#include "ptx/runtime/runtime.hpp"

#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
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
/// a line for each of those: its number, source line and text. `scripts/ptx_coverage` joins the files of
/// several runs.
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
    for (const std::size_t i : missed) {
      const ptx::Site site = kernel.site(i);
      std::fprintf(out, "%zu\t%s\t%s\n", i, site.source.c_str(), std::string(site.text).c_str());
    }
  }
  std::fclose(out);
}

/// @brief For each kernel that ran, a line with its launches, the bytes of global memory that they read and
/// wrote, and its name.
inline void write_traffic(const std::string& file, const std::map<const void*, Function>& functions) {
  std::FILE* const out = open_report(file, "PTX_TRAFFIC");
  for (const auto& [host, function] : functions)
    if (function.launches > 0)
      std::fprintf(out, "%zu %zu %zu %s\n", static_cast<std::size_t>(function.launches),
                   static_cast<std::size_t>(function.bytes_read),
                   static_cast<std::size_t>(function.bytes_written), function.kernel->name.c_str());
  std::fclose(out);
}

} // namespace ptx_runtime
