// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Saves and opens checkpoints on all ranks together: each rank writes a part, and all succeed or
/// none.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/io/checkpoint/manifest.hpp>
#include <shardwright/io/checkpoint/reader.hpp>
#include <shardwright/io/checkpoint/staged_block.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

class UnfinishedSave;
class Writer;

namespace detail {

/// The message of an error of the library, or nothing.
[[nodiscard]] std::string sentence_of(const std::function<void()>& function);

/// Throws on every rank if any has an error message. Collective.
void agree(const HostCommunicator& world, const std::string& own, SourceLocation where);

/// The texts of all ranks on rank 0; nothing on the others. Collective.
[[nodiscard]] std::vector<std::string> gather_on_first(HostCommunicator world, const std::string& own,
                                                       SourceLocation where);

[[nodiscard]] inline double rate(std::uint64_t bytes, double seconds) noexcept {
  return static_cast<double>(bytes) / std::max(seconds, 1e-9);
}

} // namespace detail

/// @brief A checkpoint that is durable.
struct SaveReport {
  std::uint64_t step = 0;
  std::uint64_t bytes = 0; ///< On rank 0 those of all parts, on any other rank those of its part.
  double seconds = 0;      ///< From its start, after the copy, until the ranks knew that it is durable.

  /// @brief Its rate.
  [[nodiscard]] double bytes_per_second() const noexcept { return detail::rate(bytes, seconds); }
};

/// @brief The progress of a save.
struct SaveProgress {
  std::uint64_t step = 0;
  std::uint64_t bytes = 0; ///< Of blocks, written so far by all ranks.
  std::uint64_t total = 0; ///< Of all blocks; once these are written, the manifest remains.
  double seconds = 0;      ///< Since its start, after the copy.

  /// @brief The mean rate since the start.
  [[nodiscard]] double bytes_per_second() const noexcept { return detail::rate(bytes, seconds); }
};

/// @brief The ranks that save into one directory, whose lock rank 0 holds. Every rank makes one and calls it
/// together with the others.
///
/// A save runs concurrently with the caller: a thread on each rank writes its part, then one on rank 0 writes
/// the manifest. These threads call no communicator; poll() and finish() do. The destructor drops a save that
/// is not finished.
class Saver {
public:
  /// @brief Makes the directory if it is missing, and locks it. Collective; waits for rank 0.
  /// @throws DataError on every rank if another job holds it, or if it cannot be written.
  Saver(HostCommunicator world, std::filesystem::path directory,
        SourceLocation where = SourceLocation::current());
  ~Saver();

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
            SourceLocation where = SourceLocation::current());

  /// @brief The memory from which start() saves, emptied. All saves use the same memory, so this waits for
  /// the save in progress. Collective.
  /// @throws DataError as finish().
  [[nodiscard]] Staging& staging(SourceLocation where = SourceLocation::current());
  /// @brief Begins to save what staging() holds, and returns; parameters may change at once. Collective: some
  /// small messages, and a new directory.
  /// @throws as save(); poll() and finish() throw for later failures.
  void start(const Description& about, std::size_t keep, SourceLocation where = SourceLocation::current());
  /// @brief Advances the save in progress without waiting. Collective if there is one: 24 bytes from each
  /// rank.
  /// @return whether none is left
  /// @throws DataError on every rank if one could not write; the older checkpoints are then unchanged.
  bool poll(SourceLocation where = SourceLocation::current()) { return advance(false, where); }
  /// @brief Waits until the save in progress is durable; the ranks meet once a second, so that none waits for
  /// another one beyond a deadline. Collective.
  /// @throws as poll().
  void finish(SourceLocation where = SourceLocation::current());

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
  static constexpr double shortest_wait = 0.01, longest_wait = 1; // seconds between meetings

  struct UnderWay;

  void begin(const Description& about, std::span<const StagedBlock> blocks, std::size_t keep,
             SourceLocation where);

  /// Proceeds to the next stage if all ranks have finished theirs. @return whether no save is in progress
  [[nodiscard]] bool advance(bool waits, SourceLocation where);

  /// Whether the tasks of all ranks have ended; reports their progress.
  [[nodiscard]] bool all_done(SourceLocation where);

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
/// none. Collective; cost: each rank reads its share of the blocks of each checkpoint that is tried, to
/// compare their hashes.
/// @param refused receives a sentence for each newer one that does not pass
/// @throws DataError on every rank if the directory cannot be read.
[[nodiscard]] std::unique_ptr<const Reader> open_newest(const HostCommunicator& world,
                                                        const std::filesystem::path& directory,
                                                        std::vector<std::string>& refused,
                                                        SourceLocation where = SourceLocation::current());

/// @brief Throws on every rank unless the checkpoint has exactly the tensors that the ranks name. Collective;
/// cost: gather_texts() of the names.
/// @param names of the tensors that this rank loads a block of
/// @throws DataError naming a tensor that is missing or left over.
void require_same_names(const HostCommunicator& world, const Reader& reader,
                        const std::vector<std::string>& names,
                        SourceLocation where = SourceLocation::current());

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint

#if !defined(SHARDWRIGHT_COMPILED_CHECKPOINTS)
#include <shardwright/io/checkpoint/saver_definitions.hpp>
#endif
