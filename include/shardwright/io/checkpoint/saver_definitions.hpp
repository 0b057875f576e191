// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Definitions of Saver: part of its header, or compiled once in shardwright::compiled.

#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/checkpoint/directory.hpp>
#include <shardwright/io/checkpoint/manifest_text.hpp>
#include <shardwright/io/checkpoint/part.hpp>
#include <shardwright/io/checkpoint/saver.hpp>
#include <shardwright/io/configuration_hash.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

namespace detail {

SHARDWRIGHT_INLINE std::string sentence_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

SHARDWRIGHT_INLINE void agree(const HostCommunicator& world, const std::string& own, SourceLocation where) {
  const auto all = gather_texts(world, own.empty() ? std::vector<std::string>() : std::vector{own}, where);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty())
      throw DataError("rank " + std::to_string(rank) + ": " + all[rank].front(),
                      {static_cast<int>(rank), world.name(), "checkpoint", 0, {}, where});
}

SHARDWRIGHT_INLINE std::vector<std::string> gather_on_first(HostCommunicator world, const std::string& own,
                                                            SourceLocation where) {
  const std::vector<std::uint64_t> size{own.size()};
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world.size()));
  world.all_gather(size, sizes, {}, where);
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

/// One piece of work at a time on a separate thread, or right here if none can be created. The thread calls
/// no communicator, since a transport may support one thread only. A std::future takes longer to compile.
class BackgroundTask {
public:
  BackgroundTask() = default;
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;
  ~BackgroundTask() { static_cast<void>(wait()); }

  void start(std::function<void()> work) {
    static_cast<void>(wait());
    done_ = false;
    sentence_.clear();
    const auto whole = [this, work = std::move(work)] {
      std::string sentence;
      try {
        work();
      } catch (const std::exception& error) {
        sentence = error.what();
      }
      const std::lock_guard lock(mutex_);
      sentence_ = std::move(sentence);
      done_ = true;
      ended_.notify_all();
    };
    try {
      thread_ = std::thread(whole);
    } catch (const std::system_error&) {
      whole();
    }
  }
  /// Whether it has ended, after a wait of at most some seconds.
  [[nodiscard]] bool done(double longest) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, std::chrono::duration<double>(longest), [this] { return done_; });
  }
  /// Waits for the end. @return the error sentence; empty if there was no error
  const std::string& wait() {
    if (thread_.joinable())
      thread_.join();
    return sentence_;
  }

private:
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = true;
  std::string sentence_;
};

} // namespace detail

struct Saver::UnderWay {
  Description about;
  std::span<const StagedBlock> blocks;
  std::size_t keep = 1;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  std::unique_ptr<UnfinishedSave> unfinished; // on rank 0
  std::filesystem::path path;
  std::string part; // the table of the blocks that this rank has written
  std::uint64_t bytes = 0;
  std::uint64_t own = 0; // bytes of this rank's blocks, and how many are written
  std::atomic<std::uint64_t> written{0};
  double reported = 0;         // seconds from the start
  bool commits = false;        // otherwise it writes parts
  detail::BackgroundTask task; // the last member, so that it ends before the others are destroyed

  /// Writes this rank's part.
  void write(std::uint64_t rank) {
    std::vector<Block> all;
    for (const StagedBlock& each : blocks) {
      all.push_back(each.block);
      all.back().bytes = each.memory; // the vector may have been moved
    }
    Manifest contents = write_part(path, rank, all, &written);
    contents.description = about;
    for (const auto& [name, saved] : contents.parts)
      bytes += saved.bytes;
    part = manifest_text(contents);
  }
  /// Joins the parts of all ranks in a manifest.
  void commit(const std::vector<std::string>& parts, Writer& writer) {
    Manifest contents{about, {}, {}};
    for (const std::string& text : parts)
      join(contents, detail::parse_contents(text, "a rank's part", false));
    bytes = 0;
    for (const auto& [name, saved] : contents.parts)
      bytes += saved.bytes;
    unfinished->commit(contents);
    writer.retain(keep);
  }
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
};

SHARDWRIGHT_INLINE Saver::Saver(HostCommunicator world, std::filesystem::path directory, SourceLocation where)
    : world_(std::move(world)), directory_(std::move(directory)) {
  detail::agree(world_, detail::sentence_of([&] {
                  if (world_.rank() == 0)
                    writer_ = std::make_unique<Writer>(directory_);
                }),
                where);
}

SHARDWRIGHT_INLINE Saver::~Saver() = default;

SHARDWRIGHT_INLINE void Saver::save(const Description& about, std::span<const StagedBlock> blocks,
                                    std::size_t keep, SourceLocation where) {
  finish(where);
  begin(about, blocks, keep, where);
  finish(where);
}

SHARDWRIGHT_INLINE Staging& Saver::staging(SourceLocation where) {
  finish(where);
  staging_.clear();
  return staging_;
}

SHARDWRIGHT_INLINE void Saver::start(const Description& about, std::size_t keep, SourceLocation where) {
  finish(where);
  begin(about, staging_.blocks(), keep, where);
}

SHARDWRIGHT_INLINE void Saver::finish(SourceLocation where) {
  while (!advance(true, where)) {
  }
}

SHARDWRIGHT_INLINE void Saver::begin(const Description& about, std::span<const StagedBlock> blocks,
                                     std::size_t keep, SourceLocation where) {
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
  next->path = gather_texts(world_,
                            next->unfinished ? std::vector{next->unfinished->path().string()}
                                             : std::vector<std::string>(),
                            where)
                   .front()
                   .front();
  next->task.start(
      [save = next.get(), rank = static_cast<std::uint64_t>(world_.rank())] { save->write(rank); });
  under_way_ = std::move(next);
}

SHARDWRIGHT_INLINE bool Saver::advance(bool waits, SourceLocation where) {
  if (!under_way_)
    return true;
  if (waits)
    static_cast<void>(
        under_way_->task.done(report_ ? std::clamp(every_, shortest_wait, longest_wait) : longest_wait));
  if (!all_done(where))
    return false;
  auto save = std::move(under_way_); // destroyed if something below throws
  detail::agree(world_, save->task.wait(), where);
  if (save->commits) {
    last_ = {save->about.step, save->bytes, save->seconds()};
    return true;
  }
  const std::vector<std::string> parts = detail::gather_on_first(world_, save->part, where);
  save->commits = true;
  if (writer_)
    save->task.start([&writer = *writer_, save = save.get(), parts] { save->commit(parts, writer); });
  under_way_ = std::move(save);
  return false;
}

SHARDWRIGHT_INLINE bool Saver::all_done(SourceLocation where) {
  UnderWay& save = *under_way_;
  const std::array<std::uint64_t, 3> own{save.task.done(0) ? 0U : 1U, save.own,
                                         save.written.load(std::memory_order_relaxed)};
  std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(world_.size()));
  world_.all_gather(own, all, {}, where);
  std::array<std::uint64_t, 3> sum{};
  for (std::size_t i = 0; i < all.size(); ++i)
    sum[i % sum.size()] += all[i];
  const double seconds = save.seconds();
  if (report_ && seconds - save.reported >= every_) {
    save.reported = seconds;
    report_({save.about.step, sum[2], sum[1], seconds});
  }
  return sum[0] == 0;
}

SHARDWRIGHT_INLINE std::unique_ptr<const Reader> open_newest(const HostCommunicator& world,
                                                             const std::filesystem::path& directory,
                                                             std::vector<std::string>& refused,
                                                             SourceLocation where) {
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

SHARDWRIGHT_INLINE void require_same_names(const HostCommunicator& world, const Reader& reader,
                                           const std::vector<std::string>& names, SourceLocation where) {
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
