// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reads text files, named one by one or found in directories, into one sequence of bytes.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/io/read_text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The bytes of several text files, one after the other, and where each file begins.
struct TextFiles {
  /// @brief One file and the position of its first byte in `bytes`.
  struct File {
    std::filesystem::path path;
    std::size_t begin = 0;
  };

  std::string bytes;
  std::vector<File> files; ///< By ascending `begin`.
  std::size_t skipped =
      0; ///< Files of directories left out: binary, empty, unreadable, or a copy of another.

  /// @brief "path at offset N" of the byte at `position`, for messages.
  [[nodiscard]] std::string locate(std::size_t position) const {
    if (files.empty())
      return "offset " + std::to_string(position);
    const auto after = std::upper_bound(files.begin(), files.end(), position,
                                        [](std::size_t p, const File& file) { return p < file.begin; });
    const File& file = after == files.begin() ? files.front() : *(after - 1);
    return file.path.string() + " at offset " + std::to_string(position - file.begin);
  }
};

namespace detail {

/// Reads a text file: a zero byte is an error, and so is an empty file.
inline FileText read_data_file(const std::filesystem::path& path, std::size_t most_bytes) {
  std::size_t zero = std::string::npos;
  FileText text = read_regular_file(path, most_bytes, [&zero](const std::string& bytes, std::size_t from) {
    zero = bytes.find('\0', from);
    return zero != std::string::npos;
  });
  if (text.fault.empty() && zero != std::string::npos)
    text = {{}, "a zero byte, so this is not text", zero, false};
  if (text.fault.empty() && text.bytes.empty())
    text.fault = "the file is empty";
  return text;
}

/// Directories that a walk does not enter: hidden ones, build trees, and caches of interpreters and package
/// managers.
inline bool skipped_directory(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (name.empty() || name.front() == '.')
    return true;
  for (const std::string_view stem : {"build", "_build", "cmake-build"})
    if (name == stem || (name.size() > stem.size() && name.starts_with(stem) &&
                         (name[stem.size()] == '-' || name[stem.size()] == '_')))
      return true;
  if (name == "node_modules" || name == "__pycache__")
    return true;
  std::error_code ignored;
  return std::filesystem::exists(path / "CMakeCache.txt", ignored);
}

/// @throws DataError for more files than `most`.
inline void list_directory(const std::filesystem::path& directory, std::size_t most,
                           std::vector<std::filesystem::path>& found) {
  std::error_code code;
  std::vector<std::filesystem::path> directories;
  std::filesystem::directory_iterator entry(directory,
                                            std::filesystem::directory_options::skip_permission_denied, code);
  for (const std::filesystem::directory_iterator end; !code && entry != end; entry.increment(code)) {
    std::error_code status_code;
    const std::filesystem::file_status status = entry->symlink_status(status_code);
    if (status_code)
      continue;
    if (std::filesystem::is_directory(status))
      directories.push_back(entry->path());
    else if (std::filesystem::is_regular_file(status) && entry->path().filename().string().front() != '.')
      found.push_back(entry->path());
    if (found.size() > most)
      throw DataError("Data: a directory must hold at most " + std::to_string(most) +
                      " files, but there are " + "more up to " + directory.string() +
                      " (name fewer directories, or join the files)");
  }
  for (const std::filesystem::path& below : directories)
    if (!skipped_directory(below))
      list_directory(below, most, found);
}

} // namespace detail

/// @brief Upper limits on the data.
struct TextLimits {
  std::size_t bytes = std::size_t{1} << 36; ///< Of all files together, which are held in memory.
  std::size_t files = 1'000'000;            ///< Found in one directory, recursively.
};

/// @brief Reads `paths` in the order given: files as named, directories recursively in sorted order.
///
/// A walk leaves out hidden names, symbolic links, build trees, and files that are empty, unreadable or
/// binary (a zero byte). A file named directly must be readable text in a regular file: a pipe without a
/// writer would block forever. Identical files are read only once, so that a copy of a training file cannot
/// end up in the held-out part. The result depends only on names and contents.
///
/// @throws DataError with file and offset, if a path is missing, a named file is empty, unreadable, binary or
/// no regular file, a directory holds no text, or there is more than `limits` allows.
[[nodiscard]] inline TextFiles read_text_files(const std::vector<std::filesystem::path>& paths,
                                               const TextLimits& limits = {}) {
  if (paths.empty())
    throw DataError("Data: at least one file or directory must be given (name one with --data)");
  TextFiles all;
  std::unordered_set<std::string> seen;
  const auto take = [&](const std::filesystem::path& path, const std::string& bytes) {
    if (!seen.insert(std::to_string(bytes.size()) + ":" + std::to_string(detail::Fnv1a().add(bytes).value()))
             .second) {
      ++all.skipped;
      return;
    }
    if (bytes.size() > limits.bytes - all.bytes.size())
      throw DataError("Data: all files together must hold at most " + std::to_string(limits.bytes) +
                      " bytes, but " + path.string() + " is beyond that (name less data)");
    all.files.push_back({path, all.bytes.size()});
    all.bytes += bytes;
  };
  for (const std::filesystem::path& path : paths) {
    std::error_code code;
    const std::filesystem::file_status status = std::filesystem::status(path, code);
    if (!std::filesystem::exists(status))
      throw DataError("Data: " + path.string() + " must exist (" +
                      (code ? code.message() : std::string("no such file or directory")) + ")");
    if (!std::filesystem::is_directory(status)) {
      const detail::FileText text = detail::read_data_file(path, limits.bytes);
      if (!text.fault.empty())
        throw DataError("Data: a named file must be readable text (" + text.fault_at(path) + ")");
      take(path, text.bytes);
      continue;
    }
    std::vector<std::filesystem::path> found;
    detail::list_directory(path, limits.files, found);
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.generic_string() < b.generic_string(); });
    bool any = false;
    for (const std::filesystem::path& file : found) {
      const detail::FileText text = detail::read_data_file(file, limits.bytes);
      if (text.fault.empty()) {
        any = true;
        take(file, text.bytes);
      } else if (text.too_long) {
        throw DataError("Data: " + file.string() + ": " + text.fault);
      } else {
        ++all.skipped;
      }
    }
    if (!any)
      throw DataError("Data: the directory " + path.string() + " must hold readable text (" +
                      std::to_string(found.size()) + " files seen, none of them text)");
  }
  return all;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
