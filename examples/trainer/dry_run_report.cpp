// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The output of --dry-run.

#include "dry_run_report.hpp"

#include <shardwright/io/dry_run_report.hpp>
#include <shardwright/io/write_text.hpp>

#include <ostream>
#include <string>
#include <vector>

namespace trainer {

namespace sw = shardwright;

int report_dry_run(std::ostream& out, const RunOptions& options, const std::string& about,
                   const std::function<sw::DryRun(int rank)>& dry_run) {
  std::vector<sw::DryRun> runs;
  for (const int rank : options.dry_run_ranks)
    runs.push_back(dry_run(rank));
  const std::vector<std::string> differences = sw::call_differences(runs);
  out << "dry run of one step, nothing is trained: " << options.ranks << " ranks as " << options.mesh_text()
      << ", model " << options.model << about << ", schedule " << options.schedule << "\n\n"
      << sw::dry_run_text(runs);
  if (runs.size() > 1 && differences.empty())
    out << "\n" << sw::comparison_text(runs);
  for (const std::string& difference : differences)
    out << "\ndifferent calls: " << difference << "\n";
  if (!options.dry_run_json.empty()) {
    nlohmann::json ranks = nlohmann::json::array();
    for (const sw::DryRun& run : runs)
      ranks.push_back(sw::dry_run_json(run));
    sw::write_text(options.dry_run_json, nlohmann::json{{"mesh", options.mesh_text()},
                                                        {"world", options.ranks},
                                                        {"model", options.model},
                                                        {"batch", options.batch},
                                                        {"ranks", std::move(ranks)},
                                                        {"differences", differences}}
                                             .dump(1));
  }
  return differences.empty() ? 0 : 1;
}

} // namespace trainer
