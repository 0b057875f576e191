// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A directory of checkpoints with one writer: complete ones are called `step-N`, others have other
/// names.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/checkpoint/cover.hpp>
#include <shardwright/io/checkpoint/manifest.hpp>
#include <shardwright/io/checkpoint/manifest_text.hpp>
#include <shardwright/io/new_file.hpp>
#include <shardwright/io/read_text.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint {

namespace detail {

/// N of "step-N"; nothing for other names, such as "step-7.tmp-1-0" or "step-07".
[[nodiscard]] inline std::optional<std::uint64_t> step_of(std::string_view name) {
  constexpr std::string_view begin = "step-";
  if (!name.starts_with(begin))
    return std::nullopt;
  name.remove_prefix(begin.size());
  std::uint64_t step = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (code != std::errc() || end != name.data() + name.size() || std::to_string(step) != name)
    return std::nullopt;
  return step;
}

[[nodiscard]] inline bool is_unfinished(std::string_view name) {
  const std::size_t at = name.find(".tmp-");
  return at != name.npos && step_of(name.substr(0, at)).has_value();
}

/// Calls `visit(path, name)` for each entry.
template <class Visit> void for_each_entry(const std::filesystem::path& directory, const Visit& visit) {
  std::error_code code;
  for (std::filesystem::directory_iterator at(directory, code), end; !code && at != end; at.increment(code))
    visit(at->path(), at->path().filename().string());
  if (code)
    throw DataError(directory.string() + " must be a directory that can be read, but " + code.message() +
                    " (name the directory of checkpoints)");
}

/// Renames a directory and then removes it, so that it is never incomplete under its own name.
inline void remove_checkpoint(const std::filesystem::path& path, const std::filesystem::path& unfinished) {
  if (::rename(path.c_str(), unfinished.c_str()) != 0)
    shardwright::detail::reject_unwritable(path, errno);
  std::error_code code;
  std::filesystem::remove_all(unfinished, code);
  if (code)
    shardwright::detail::reject_unwritable(path, code.value());
}

/// Held by one process; the system releases it when that process ends, however it ends.
class WriterLock {
public:
  explicit WriterLock(const std::filesystem::path& directory)
      : file_(::open((directory / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) {
    if (file_.get() < 0)
      shardwright::detail::reject_unwritable(directory / "lock", errno);
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      const int code = errno;
      if (code != EWOULDBLOCK)
        throw DataError(directory.string() + " must be on a file system that supports locks, but " +
                        std::generic_category().message(code) + " (save to another one)");
      throw DataError(directory.string() + " must have one writer at a time, but another one holds it:" +
                      owner() + " (give each job a separate directory, or wait until that one has ended)");
    }
    char host[128] = "";
    (void)::gethostname(host, sizeof host - 1);
    const std::string text = " process " + std::to_string(::getpid()) + " on " + host + "\n";
    // Only for the message: a full disk here must not keep a program from saving there.
    if (::ftruncate(file_.get(), 0) == 0)
      (void)!::pwrite(file_.get(), text.data(), text.size(), 0);
  }

private:
  [[nodiscard]] std::string owner() const {
    char text[256];
    const ssize_t got = ::pread(file_.get(), text, sizeof text, 0);
    std::string out(text, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    out.resize(std::min(out.find('\n'), out.size()));
    return shardwright::detail::printable(out, false);
  }

  shardwright::detail::OpenFile file_;
};

} // namespace detail

/// @brief Steps of the checkpoints of a directory, ascending: those whose names mark them as complete.
/// @throws DataError if the directory cannot be read.
[[nodiscard]] inline std::vector<std::uint64_t> saved_steps(const std::filesystem::path& directory) {
  std::vector<std::uint64_t> out;
  detail::for_each_entry(directory, [&](const auto&, const std::string& name) {
    if (const auto step = detail::step_of(name))
      out.push_back(*step);
  });
  std::sort(out.begin(), out.end());
  return out;
}

/// @brief A checkpoint that is being written, while its Writer lives. Unless commit() succeeds it is removed,
/// and the directory is as it was.
class UnfinishedSave {
public:
  UnfinishedSave(const UnfinishedSave&) = delete;
  UnfinishedSave& operator=(const UnfinishedSave&) = delete;
  ~UnfinishedSave() {
    std::error_code ignored;
    if (!path_.empty())
      std::filesystem::remove_all(path_, ignored);
    saving_ = false;
  }

  /// @brief The directory for the parts.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// @brief Writes the manifest, waits until it is on the disk, and gives the checkpoint its name.
  /// @param contents tensors and parts, as write_part() returned them, joined
  /// @throws InvalidArgument if blocks do not cover a tensor once.
  /// @throws DataError if it cannot be written.
  void commit(const Manifest& contents) {
    for (const auto& [name, tensor] : contents.tensors)
      if (const std::string fault = cover_fault(tensor); !fault.empty())
        throw InvalidArgument("checkpoint: tensor " + shardwright::detail::quoted_text(name) + ": " + fault +
                              " (save each block once)");
    if (contents.description.step != step_)
      throw InvalidArgument("checkpoint: the manifest must be of step " + std::to_string(step_) +
                            ", but it is of step " + std::to_string(contents.description.step));
    shardwright::detail::NewFile file(path_ / "manifest.json");
    file.write(manifest_text(contents));
    file.commit();
    const std::filesystem::path target = path_.parent_path() / ("step-" + std::to_string(step_));
    if (::rename(path_.c_str(), target.c_str()) != 0)
      shardwright::detail::reject_unwritable(target, errno);
    path_.clear();
    if (const int failed = shardwright::detail::sync_directory(target.parent_path()); failed != 0)
      shardwright::detail::reject_unwritable(target, failed);
  }

private:
  friend class Writer;
  UnfinishedSave(std::filesystem::path path, std::uint64_t step, bool& saving)
      : path_(std::move(path)), step_(step), saving_(saving) {
    saving_ = true;
  }

  std::filesystem::path path_;
  std::uint64_t step_;
  bool& saving_;
};

/// @brief The one writer of a directory of checkpoints, from construction to destruction or the end of the
/// process.
class Writer {
public:
  /// @brief Makes the directory if it is missing, and locks it.
  /// @throws DataError if another writer holds it, or if it cannot be written.
  explicit Writer(std::filesystem::path directory)
      : directory_(made(std::move(directory))), lock_(directory_) {
    detail::for_each_entry(directory_, [this](const auto& path, const std::string& name) {
      if (detail::is_unfinished(name))
        stale_.push_back(path);
    });
  }

  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; } ///< Absolute.
  /// @brief Saves that never got their names because their run ended. The next begin() removes them.
  [[nodiscard]] const std::vector<std::filesystem::path>& stale() const noexcept { return stale_; }

  /// @brief Begins a checkpoint, which appears as `step-N` only at its commit().
  /// @throws LifecycleError while another save of this writer is unfinished.
  /// @throws InvalidArgument if this step or a later one is saved already.
  /// @throws DataError if the directory cannot be written.
  [[nodiscard]] UnfinishedSave begin(std::uint64_t step) {
    if (saving_)
      throw LifecycleError("checkpoint: one save must end before the next begins (wait for it)");
    if (const auto steps = saved_steps(directory_); !steps.empty() && steps.back() >= step)
      throw InvalidArgument("checkpoint: a step must come after all that are saved, but step " +
                            std::to_string(step) + " does not come after " +
                            (directory_ / ("step-" + std::to_string(steps.back()))).string() +
                            " (set that one aside, or give another directory)");
    for (const std::filesystem::path& path : std::exchange(stale_, {})) {
      std::error_code ignored; // they cost space, and nothing else
      std::filesystem::remove_all(path, ignored);
    }
    const std::filesystem::path path = unfinished(step);
    if (::mkdir(path.c_str(), 0777) != 0)
      shardwright::detail::reject_unwritable(path, errno);
    return UnfinishedSave(path, step, saving_);
  }

  /// @brief Renames an unusable checkpoint, so that a run that resumes from an older one can save again:
  /// `step-N` becomes `step-N.aside-0`, or the next number that is free.
  /// @returns the new path
  /// @throws DataError if that fails.
  std::filesystem::path set_aside(std::uint64_t step) {
    const std::filesystem::path from = directory_ / ("step-" + std::to_string(step));
    std::filesystem::path to;
    std::error_code ignored;
    for (unsigned i = 0; to.empty() || std::filesystem::exists(to, ignored); ++i)
      to = from.string() + ".aside-" + std::to_string(i);
    if (::rename(from.c_str(), to.c_str()) != 0)
      shardwright::detail::reject_unwritable(from, errno);
    return to;
  }

  /// @brief Removes all checkpoints but the newest `keep`; call it after a commit().
  /// @throws InvalidArgument for 0.
  /// @throws DataError if one cannot be removed.
  void retain(std::size_t keep) {
    if (keep == 0)
      throw InvalidArgument("checkpoint: at least one must be kept, but 0 were requested (give 1 or more)");
    const std::vector<std::uint64_t> steps = saved_steps(directory_);
    for (std::size_t i = 0; i + keep < steps.size(); ++i)
      detail::remove_checkpoint(directory_ / ("step-" + std::to_string(steps[i])), unfinished(steps[i]));
  }

private:
  [[nodiscard]] static std::filesystem::path made(const std::filesystem::path& directory) {
    const bool is_new = shardwright::detail::make_directories(directory);
    std::error_code code;
    std::filesystem::path out = std::filesystem::canonical(directory, code);
    if (code)
      shardwright::detail::reject_unwritable(directory, code.value());
    if (const int failed = is_new ? shardwright::detail::sync_directory(out.parent_path()) : 0; failed != 0)
      shardwright::detail::reject_unwritable(directory, failed);
    return out;
  }

  [[nodiscard]] std::filesystem::path unfinished(std::uint64_t step) {
    std::filesystem::path path;
    std::error_code ignored;
    do
      path = directory_ / ("step-" + std::to_string(step) + ".tmp-" + std::to_string(::getpid()) + "-" +
                           std::to_string(count_++));
    while (std::filesystem::exists(path, ignored)); // left by a process of the same number
    return path;
  }

  std::filesystem::path directory_;
  detail::WriterLock lock_;
  std::vector<std::filesystem::path> stale_;
  unsigned count_ = 0;
  bool saving_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::checkpoint
