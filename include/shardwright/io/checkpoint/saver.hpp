// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Saves and opens checkpoints on all ranks together: each rank writes a part, and all succeed or
/// none.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/checkpoint/background_task.hpp>
#include <shardwright/io/checkpoint/directory.hpp>
#include <shardwright/io/checkpoint/manifest.hpp>
#include <shardwright/io/checkpoint/manifest_text.hpp>
#include <shardwright/io/checkpoint/part.hpp>
#include <shardwright/io/checkpoint/reader.hpp>
#include <shardwright/io/checkpoint/save_report.hpp>
#include <shardwright/io/checkpoint/staged_block.hpp>
#include <shardwright/io/configuration_hash.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

namespace detail {

/// The message of an error of the library, or nothing.
template <class Function> [[nodiscard]] std::string sentence_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Throws on every rank if any has an error message. Collective.
inline void agree(const HostCommunicator& world, const std::string& own, SourceLocation where) {
  const auto all = gather_texts(world, own.empty() ? std::vector<std::string>() : std::vector{own}, where);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty())
      throw DataError("rank " + std::to_string(rank) + ": " + all[rank].front(),
                      {static_cast<int>(rank), world.name(), "checkpoint", 0, {}, where});
}

/// The texts of all ranks on rank 0; nothing on the others. Collective.
[[nodiscard]] inline std::vector<std::string> gather_on_first(HostCommunicator world, const std::string& own,
                                                              SourceLocation where) {
  const std::vector<std::uint64_t> size{own.size()};
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world.size()));
  world.all_gather(size, sizes, where);
  if (world.rank() != 0) {
    world.send(std::vector<std::uint8_t>(own.begin(), own.end()), 0, 0, where);
    return {};
  }
  std::vector<std::string> out{own};
  for (int rank = 1; rank < world.size(); ++rank) {
    std::vector<std::uint8_t> letters(sizes[static_cast<std::size_t>(rank)]);
    world.receive(letters, rank, 0, where);
    out.emplace_back(letters.begin(), letters.end());
  }
  return out;
}

} // namespace detail

/// @brief The ranks that save into one directory, whose lock rank 0 holds. Every rank makes one and calls it
/// together with the others.
///
/// A save runs concurrently with the caller: a thread on each rank writes its part, then one on rank 0 writes
/// the manifest. These threads call no communicator; poll() and finish() do. The destructor drops a save that
/// is not finished.
class Saver {
public:
  /// @brief Makes the directory if it is missing, and locks it. Collective.
  /// @throws DataError on every rank if another job holds it, or if it cannot be written.
  Saver(HostCommunicator world, std::filesystem::path directory,
        SourceLocation where = SourceLocation::current())
      : world_(std::move(world)), directory_(std::move(directory)) {
    detail::agree(world_, detail::sentence_of([&] {
                    if (world_.rank() == 0)
                      writer_ = std::make_unique<Writer>(directory_);
                  }),
                  where);
  }

  /// @brief Saves the blocks of all ranks as one checkpoint, which is durable when this returns, and removes
  /// all but the newest `keep`. Collective.
  ///
  /// Every rank writes one part; the manifest entries are sent to rank 0, about 100 bytes per block.
  /// @param about equal on all ranks
  /// @param blocks of this rank, from stage()
  /// @throws ConfigurationMismatch if `about` differs.
  /// @throws DataError on every rank if one cannot write, or the blocks do not cover each tensor once; the
  /// older checkpoints are then unchanged.
  void save(const Description& about, std::span<const StagedBlock> blocks, std::size_t keep,
            SourceLocation where = SourceLocation::current()) {
    finish(where);
    begin(about, blocks, keep, where);
    finish(where);
  }

  /// @brief The memory from which start() saves, emptied. All saves use the same memory, so this waits for
  /// the save in progress. Collective.
  /// @throws DataError as finish().
  [[nodiscard]] Staging& staging(SourceLocation where = SourceLocation::current()) {
    finish(where);
    staging_.clear();
    return staging_;
  }
  /// @brief Begins to save what staging() holds, and returns; parameters may change at once. Collective: some
  /// small messages, and a new directory.
  /// @throws as save(); poll() and finish() throw for later failures.
  void start(const Description& about, std::size_t keep, SourceLocation where = SourceLocation::current()) {
    finish(where);
    begin(about, staging_.blocks(), keep, where);
  }
  /// @brief Advances the save in progress without waiting. Collective if there is one: 24 bytes from each
  /// rank.
  /// @return whether none is left
  /// @throws DataError on every rank if one could not write; the older checkpoints are then unchanged.
  bool poll(SourceLocation where = SourceLocation::current()) { return advance(false, where); }
  /// @brief Waits until the save in progress is durable; the ranks meet once a second, so that none waits for
  /// another one beyond a deadline. Collective.
  /// @throws as poll().
  void finish(SourceLocation where = SourceLocation::current()) {
    while (!advance(true, where)) {
    }
  }

  /// @brief Calls `report` with the progress of all ranks, from poll(), finish() and the calls that wait as
  /// finish() does: at most once in `every` seconds for each save, and no sooner than that after its start.
  /// Not collective; an empty function ends it.
  void on_progress(std::function<void(const SaveProgress&)> report, double every) {
    report_ = std::move(report);
    every_ = every;
  }
  /// @brief The last save that succeeded.
  [[nodiscard]] const std::optional<SaveReport>& last() const noexcept { return last_; }
  /// @brief The writer that holds the lock, on rank 0; null on the others.
  [[nodiscard]] Writer* writer() noexcept { return writer_.get(); }

private:
  using Clock = std::chrono::steady_clock;
  static constexpr double shortest_wait = 0.01, longest_wait = 1; // seconds between meetings

  struct UnderWay {
    Description about;
    std::span<const StagedBlock> blocks;
    std::size_t keep = 1;
    Clock::time_point begin = Clock::now();
    std::unique_ptr<UnfinishedSave> unfinished; // on rank 0
    std::filesystem::path path;
    std::string part; // the table of the blocks that this rank has written
    std::uint64_t bytes = 0;
    std::uint64_t own = 0; // bytes of this rank's blocks, and how many are written
    std::atomic<std::uint64_t> written{0};
    double reported = 0;         // seconds from the start
    bool commits = false;        // otherwise it writes parts
    detail::BackgroundTask task; // the last member, so that it ends before the others are destroyed
  };

  void begin(const Description& about, std::span<const StagedBlock> blocks, std::size_t keep,
             SourceLocation where) {
    require_same_configuration(world_, manifest_text({about, {}, {}}), where);
    auto next = std::make_unique<UnderWay>();
    next->about = about;
    next->blocks = blocks;
    next->keep = keep;
    for (const StagedBlock& each : blocks)
      next->own += each.memory.size();
    detail::agree(world_, detail::sentence_of([&] {
                    if (writer_)
                      next->unfinished.reset(new UnfinishedSave{writer_->begin(about.step)}); // nvcc: braces
                  }),
                  where);
    next->path = path_of(next->unfinished.get(), where);
    next->task.start(
        [save = next.get(), rank = static_cast<std::uint64_t>(world_.rank())] { write_own(*save, rank); });
    under_way_ = std::move(next);
  }

  /// Proceeds to the next stage if all ranks have finished theirs. @return whether no save is in progress
  [[nodiscard]] bool advance(bool waits, SourceLocation where) {
    if (!under_way_)
      return true;
    if (waits)
      static_cast<void>(under_way_->task.wait_for(std::chrono::duration<double>(
          report_ ? std::clamp(every_, shortest_wait, longest_wait) : longest_wait)));
    if (!all_done(where))
      return false;
    auto save = std::move(under_way_); // destroyed if something below throws
    detail::agree(world_, save->task.wait(), where);
    if (save->commits) {
      last_ = {save->about.step, save->bytes, seconds_of(*save)};
      return true;
    }
    const std::vector<std::string> parts = detail::gather_on_first(world_, save->part, where);
    save->commits = true;
    if (writer_)
      save->task.start([&writer = *writer_, save = save.get(), parts] { commit(*save, parts, writer); });
    under_way_ = std::move(save);
    return false;
  }

  /// Whether the tasks of all ranks have ended; reports their progress.
  [[nodiscard]] bool all_done(SourceLocation where) {
    UnderWay& save = *under_way_;
    const std::array<std::uint64_t, 3> own{save.task.done() ? 0U : 1U, save.own,
                                           save.written.load(std::memory_order_relaxed)};
    std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(world_.size()));
    world_.all_gather(own, all, where);
    std::array<std::uint64_t, 3> sum{};
    for (std::size_t i = 0; i < all.size(); ++i)
      sum[i % sum.size()] += all[i];
    const double seconds = seconds_of(save);
    if (report_ && seconds - save.reported >= every_) {
      save.reported = seconds;
      report_({save.about.step, sum[2], sum[1], seconds});
    }
    return sum[0] == 0;
  }
  [[nodiscard]] static double seconds_of(const UnderWay& save) {
    return std::chrono::duration<double>(Clock::now() - save.begin).count();
  }

  [[nodiscard]] std::filesystem::path path_of(const UnfinishedSave* unfinished, SourceLocation where) {
    std::vector<std::string> own;
    if (unfinished != nullptr)
      own.push_back(unfinished->path().string());
    return gather_texts(world_, own, where).front().front();
  }

  static void write_own(UnderWay& save, std::uint64_t rank) {
    std::vector<Block> blocks;
    for (const StagedBlock& each : save.blocks) {
      blocks.push_back(each.block);
      blocks.back().bytes = each.memory; // the vector may have been moved
    }
    Manifest contents = write_part(save.path, rank, blocks, &save.written);
    contents.description = save.about;
    for (const auto& [name, part] : contents.parts)
      save.bytes += part.bytes;
    save.part = manifest_text(contents);
  }

  static void commit(UnderWay& save, const std::vector<std::string>& parts, Writer& writer) {
    Manifest contents{save.about, {}, {}};
    for (const std::string& text : parts)
      join(contents, detail::parse_contents(text, "a rank's part", false));
    save.bytes = 0;
    for (const auto& [name, part] : contents.parts)
      save.bytes += part.bytes;
    save.unfinished->commit(contents);
    writer.retain(save.keep);
  }

  HostCommunicator world_;
  std::filesystem::path directory_;
  std::unique_ptr<Writer> writer_;
  Staging staging_;
  std::optional<SaveReport> last_;
  std::function<void(const SaveProgress&)> report_;
  double every_ = 0;
  std::unique_ptr<UnderWay> under_way_; // after the writer and the memory that it uses
};

/// @brief The newest checkpoint of a directory that passes every check, on every rank; null if there is
/// none. Collective; each rank compares the hashes of its share of the blocks.
/// @param refused receives a sentence for each newer one that does not pass
/// @throws DataError on every rank if the directory cannot be read.
[[nodiscard]] inline std::unique_ptr<const Reader>
open_newest(const HostCommunicator& world, const std::filesystem::path& directory,
            std::vector<std::string>& refused, SourceLocation where = SourceLocation::current()) {
  // What rank 0 sees, since a file system may show other ranks an older list.
  std::vector<std::uint64_t> steps;
  detail::agree(world, detail::sentence_of([&] {
                  if (world.rank() == 0)
                    steps = saved_steps(directory);
                }),
                where);
  steps = all_gather_v(world, steps, where).front();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    std::unique_ptr<const Reader> reader;
    const std::string own = detail::sentence_of([&] {
      reader = std::make_unique<const Reader>(directory / ("step-" + std::to_string(*step)));
      reader->verify(static_cast<std::size_t>(world.rank()), static_cast<std::size_t>(world.size()));
    });
    const auto all = gather_texts(world, own.empty() ? std::vector<std::string>() : std::vector{own}, where);
    const auto wrong = std::find_if(all.begin(), all.end(), [](const auto& texts) { return !texts.empty(); });
    if (wrong == all.end())
      return reader;
    refused.push_back(wrong->front());
  }
  return nullptr;
}

/// @brief Throws on every rank unless the checkpoint has exactly the tensors that the ranks name. Collective.
/// @param names of the tensors that this rank loads a block of
/// @throws DataError naming a tensor that is missing or left over.
inline void require_same_names(const HostCommunicator& world, const Reader& reader,
                               const std::vector<std::string>& names,
                               SourceLocation where = SourceLocation::current()) {
  std::set<std::string> left;
  for (const auto& [name, tensor] : reader.manifest().tensors)
    left.insert(name);
  for (const auto& rank : gather_texts(world, names, where))
    for (const std::string& name : rank) {
      (void)reader.tensor(name);
      left.erase(name);
    }
  if (!left.empty())
    throw DataError(reader.path().string() +
                    ": every tensor of the checkpoint must have a place in the model, but " +
                    shardwright::detail::quoted_text(*left.begin()) +
                    (left.size() == 1 ? "" : " and " + std::to_string(left.size() - 1) + " more") +
                    " have none (load it into the model that it was saved from)");
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
