// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reads text files, named one by one or found in directories, into one run of bytes.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/mix.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
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

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

/// The result of reading one file: its bytes, or the sentence of what is wrong with it.
struct FileText {
  std::string bytes;
  std::string fault;
};

/// Reads until the end instead of trusting the size, so that pipes and special files end in a sentence, too.
inline FileText read_text(const std::filesystem::path& path) {
  const auto fault = [&path](std::size_t offset, const std::string& what) {
    return FileText{{}, path.string() + " at offset " + std::to_string(offset) + ": " + what};
  };
  errno = 0;
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  if (!file)
    return fault(0, "can not be opened, " + std::generic_category().message(errno));
  FileText text;
  constexpr std::size_t chunk = std::size_t{1} << 16;
  for (;;) {
    const std::size_t before = text.bytes.size();
    text.bytes.resize(before + chunk);
    errno = 0;
    const std::size_t got = std::fread(text.bytes.data() + before, 1, chunk, file.get());
    text.bytes.resize(before + got);
    const std::size_t zero = text.bytes.find('\0', before);
    if (zero != std::string::npos)
      return fault(zero, "a zero byte, so this is not text");
    if (got == chunk)
      continue;
    if (std::ferror(file.get()) != 0)
      return fault(before + got, "can not be read, " + std::generic_category().message(errno));
    break;
  }
  if (text.bytes.empty())
    return fault(0, "the file is empty");
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

inline void list_directory(const std::filesystem::path& directory,
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
  }
  for (const std::filesystem::path& below : directories)
    if (!skipped_directory(below))
      list_directory(below, found);
}

} // namespace detail

/// @brief Reads `paths` in their order: files as they are named, directories recursively in sorted order.
///
/// A walk leaves out hidden names, symbolic links, build trees, and files that are empty, unreadable or
/// binary (a zero byte). A file named directly must be readable text. The same bytes are taken only once, so
/// that a copy of a training file can not end up in the held-out part. The result depends on names and
/// contents only.
///
/// @throws DataError with file and offset, where a path is missing, a named file is empty, unreadable or
/// binary, or a
///   directory holds no text.
[[nodiscard]] inline TextFiles read_text_files(const std::vector<std::filesystem::path>& paths) {
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
      const detail::FileText text = detail::read_text(path);
      if (!text.fault.empty())
        throw DataError("Data: a named file must be readable text (" + text.fault + ")");
      take(path, text.bytes);
      continue;
    }
    std::vector<std::filesystem::path> found;
    detail::list_directory(path, found);
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.generic_string() < b.generic_string(); });
    bool any = false;
    for (const std::filesystem::path& file : found) {
      const detail::FileText text = detail::read_text(file);
      if (text.fault.empty()) {
        any = true;
        take(file, text.bytes);
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
