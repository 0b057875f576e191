// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The options of a run: their texts, and what must agree between them.

#include "options.hpp"
#include "schedules.hpp"

#include <command_line/words.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/schedule/named_schedule.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <locale>
#include <sstream>
#include <utility>

namespace trainer {

using namespace command_line;

int RunOptions::extent(std::string_view axis) const noexcept {
  for (const MeshAxis& entry : mesh)
    if (entry.name == axis)
      return entry.extent;
  return 1;
}

int RunOptions::mesh_ranks() const noexcept {
  int product = 1;
  for (const MeshAxis& axis : mesh)
    product *= axis.extent;
  return product;
}

std::string RunOptions::mesh_text() const {
  std::string out;
  for (const MeshAxis& axis : mesh)
    out.append(out.empty() ? "" : ",").append(axis.name).append("=").append(text(axis.extent));
  return out;
}

std::string RunOptions::wide_axes() const {
  std::string out;
  for (const char* name : {"pp", "dpr", "dp", "ep", "cp", "tp"})
    if (extent(name) > 1)
      out.append(out.empty() ? "" : ",").append(name);
  return out;
}

std::string RunOptions::recompute_text() const {
  const bool all = recompute.layers == shardwright::Recomputation{}.layers;
  return std::string(name_of(recompute.kind)) + (all ? std::string() : ":" + text(recompute.layers));
}

std::string RunOptions::run_text() const {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(17);
  out << "--model " << model << "\n--mesh " << mesh_text() << "\n--ranks " << ranks << "\n--precision "
      << name_of(precision) << "\n--zero " << zero << "\n--recompute " << recompute_text()
      << "\n--cuda-graph " << cuda_graph << "\n--batch " << batch << "\n--accumulation " << accumulation
      << "\n--schedule " << schedule << "\n--chunks " << chunks << "\n--balance " << balance
      << "\n--counting-pass " << counting_pass << "\n--steps " << steps << "\n--seed " << seed << "\n--lr "
      << learning_rate << "\n--min-lr " << least_learning_rate << "\n--warmup " << warmup
      << "\n--weight-decay " << weight_decay << "\n--clip " << clip << "\n--validate-every " << validate_every
      << "\n--patience " << patience << "\n--validation-batches " << validation_batches << "\n--non-finite "
      << static_cast<int>(non_finite) << "\n--empty-batch " << static_cast<int>(empty_batch)
      << "\n--check-replicas " << check_replicas << "\n--link-latency " << link.latency_seconds
      << "\n--link-bandwidth " << link.bytes_per_second << "\n--timeline " << records() << "\n--verify "
      << verify << "\n--reproducible " << reproducible << "\n--record-hashes " << record_hashes.string()
      << "\n--checkpoint " << checkpoint.directory.string() << "\n--save-every " << checkpoint.every
      << "\n--keep " << checkpoint.keep << "\n--resume " << checkpoint.resume << "\n--stop-after "
      << checkpoint.stop_after << "\n";
  return out.str();
}

void put_on_one_rank(RunOptions& options) {
  options.mesh = {{"dp", 1}, {"tp", 1}};
  options.ranks = 1;
  options.schedule = "1f1b";
  options.counting_pass = options.balance == "global";
  options.metrics.clear();
  options.tensorboard.clear();
  options.timeline.clear();
  options.timeline_svg.clear();
  options.record_hashes.clear();
  options.checkpoint = {};
  options.check_replicas = 0;
}

Environment current_environment() {
  Environment environment;
#ifdef SHARDWRIGHT_SOURCE_DIR
  environment.source_directory = SHARDWRIGHT_SOURCE_DIR;
#else
  environment.source_directory = ".";
#endif
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr)
      continue;
    const std::optional<int> ranks = whole_number<int>(value);
    if (!ranks || *ranks < 1)
      throw shardwright::InvalidArgument(std::string(name) + " must be a positive whole number, but it is '" +
                                         value + "' (start the program with mpirun, or unset the variable)");
    environment.launched_ranks = ranks;
    break;
  }
  return environment;
}

namespace {

/// Meshes of the program's axes with `ranks` ranks, the one nearest to `wanted` first.
std::vector<std::string> meshes_near(const std::vector<MeshAxis>& wanted, int ranks, std::size_t most) {
  std::vector<std::pair<double, std::string>> found;
  const auto extent = [&wanted](const std::string& name) {
    for (const MeshAxis& axis : wanted)
      if (axis.name == name)
        return static_cast<double>(axis.extent);
    return 1.0;
  };
  for (int pp = 1; pp <= ranks; ++pp)
    for (int tp = 1; tp <= ranks / pp; ++tp) {
      if (ranks % (pp * tp) != 0)
        continue;
      const int dp = ranks / (pp * tp);
      const double distance = std::abs(std::log(pp / extent("pp"))) + std::abs(std::log(dp / extent("dp"))) +
                              std::abs(std::log(tp / extent("tp")));
      found.emplace_back(distance,
                         (pp == 1 ? "" : "pp=" + text(pp) + ",") + "dp=" + text(dp) + ",tp=" + text(tp));
    }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (std::size_t i = 0; i < std::min(most, found.size()); ++i)
    out.push_back(found[i].second);
  return out;
}

} // namespace

void settle_ranks(RunOptions& options, const IsGiven& given, const Environment& environment) {
  const bool ranks_given = given("--ranks");
  if (environment.launched_ranks && ranks_given && options.ranks != *environment.launched_ranks)
    throw UsageError("--ranks says " + text(options.ranks) + ", but the launcher started " +
                     text(*environment.launched_ranks) + " (leave --ranks out, or start " +
                     text(options.ranks) + ")");
  if (environment.launched_ranks && options.transport == Transport::threads &&
      *environment.launched_ranks > 1)
    throw UsageError("--transport threads runs all ranks in one process, but the launcher started " +
                     text(*environment.launched_ranks) + " processes (start one, or leave --transport out)");
  if (environment.launched_ranks)
    options.ranks = *environment.launched_ranks;
  if (!given("--mesh"))
    options.mesh = {{"dp", options.ranks}};
  const int product = options.mesh_ranks();
  if (!ranks_given && !environment.launched_ranks)
    options.ranks = product;
  if (!environment.launched_ranks && options.transport == Transport::mpi && options.ranks > 1)
    throw UsageError("--transport mpi needs an MPI launcher for " + text(options.ranks) +
                     " ranks (start it as mpirun -n " + text(options.ranks) + " " +
                     std::string(options.program) + " ..., or leave --transport out for threads)");
  if (product == options.ranks)
    return;
  const std::string who =
      ranks_given ? "--ranks says " + text(options.ranks) : "the launcher started " + text(options.ranks);
  const std::string fix = ranks_given ? "give --ranks " + text(product) : "start " + text(product);
  throw UsageError("--mesh " + options.mesh_text() + " is " + text(product) + " ranks, but " + who + " (" +
                   fix + ", or a mesh of " + text(options.ranks) + " such as " +
                   joined(meshes_near(options.mesh, options.ranks, 2), " or ") + ")");
}

void settle_dry_run_ranks(RunOptions& options, const std::string& ranks, const IsGiven& given) {
  if (!options.dry_run) {
    for (const char* name : {"--rank", "--dry-run-json"})
      if (given(name))
        throw UsageError(std::string(name) + " is only for dry runs (add --dry-run, or leave it out)");
    return;
  }
  if (given("--rank"))
    options.dry_run_ranks.clear();
  for (std::size_t begin = 0; given("--rank") && begin <= ranks.size();) {
    const std::size_t end = std::min(ranks.find(',', begin), ranks.size());
    const std::string word = ranks.substr(begin, end - begin);
    const std::optional<int> rank = whole_number<int>(word);
    if (!rank || *rank < 0 || *rank >= options.ranks)
      throw UsageError("--rank must name ranks from 0 to " + text(options.ranks - 1) + " of the mesh " +
                       options.mesh_text() + ", with commas between them, but it has '" + word +
                       "' (give --rank " + text(options.ranks - 1) + ")");
    options.dry_run_ranks.push_back(*rank);
    begin = end + 1;
  }
}

void check_schedule(const RunOptions& options, const IsGiven& given) {
  if (given("--chunks") && !shardwright::schedule_takes_chunks(options.schedule))
    throw UsageError("--chunks belongs to the interleaved schedules, but --schedule is " + options.schedule +
                     " (give --schedule interleaved or interleavedzb, or leave --chunks out)");
  if (given("--schedule") && options.extent("pp") == 1)
    throw UsageError("--schedule " + options.schedule + " orders the passes of a pipeline, but the mesh " +
                     options.mesh_text() +
                     " has pp=1 (leave it out, or give a mesh with pp such as --mesh pp=2)");
  try {
    static_cast<void>(schedule_of(options));
  } catch (const shardwright::Error& error) {
    throw UsageError("--schedule " + std::string(error.what()));
  }
}

void check_rate(const RunOptions& options) {
  if (options.least_learning_rate > options.learning_rate)
    throw UsageError("--min-lr " + text(options.least_learning_rate) +
                     " must not be above the learning rate " + text(options.learning_rate) +
                     " (give --min-lr " + text(options.learning_rate / 10) + ")");
  if (options.warmup > options.steps)
    throw UsageError("--warmup " + text(options.warmup) + " must not be longer than the run, which has " +
                     text(options.steps) + " steps (give --warmup " + text(options.steps / 10) + ")");
}

void check_validation(const RunOptions& options) {
  if (options.patience > 0 && options.validate_every == 0)
    throw UsageError(
        "--patience " + text(options.patience) +
        " counts the validations of --validate-every (add --validate-every 50, or leave it out)");
}

void check_checkpoints(const RunOptions& options, const IsGiven& given) {
  const CheckpointOptions& checkpoint = options.checkpoint;
  if (!checkpoint.on())
    for (const char* name :
         {"--save-every", "--keep", "--resume", "--stop-after", "--save-progress", "--stop-limit"})
      if (given(name))
        throw UsageError(std::string(name) +
                         " belongs to --checkpoint (add --checkpoint DIR, or leave it out)");
  if (options.verify && (checkpoint.resume || checkpoint.stop_after > 0))
    throw UsageError(
        "--verify repeats a whole run, which --resume and --stop-after are not (leave one of them out)");
}

} // namespace trainer
