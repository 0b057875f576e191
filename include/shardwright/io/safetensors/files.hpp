// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A model's tensors in one safetensors file, or in several with an index.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/io/read_text.hpp>
#include <shardwright/io/safetensors/file.hpp>
#include <shardwright/io/safetensors/header_events.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::safetensors {

/// @brief The maximum size of an index in bytes.
inline constexpr std::size_t most_index_bytes = 100'000'000;

namespace detail {

/// Accepts {"metadata": {anything}, "weight_map": {name: file}}.
class IndexEvents final : public RefusingEvents {
public:
  explicit IndexEvents(std::map<std::string, std::string>& file_of) : file_of_(file_of) {}

  bool null() override { return ignored() || misplaced("null"); }
  bool boolean(bool) override { return ignored() || misplaced("true or false"); }
  bool number_integer(number_integer_t) override { return ignored() || misplaced("a number"); }
  bool number_unsigned(number_unsigned_t) override { return ignored() || misplaced("a number"); }
  bool number_float(number_float_t, const string_t&) override { return ignored() || misplaced("a number"); }

  bool string(string_t& text) override {
    if (ignored())
      return true;
    if (depth_ != 2)
      return misplaced("a text");
    const std::filesystem::path file(text);
    if (text.empty() || text == "." || text == ".." || file.filename() != file ||
        text.find('\0') != text.npos)
      return fail("the file of tensor " + shardwright::detail::quoted_text(name_) +
                  " must be a name in the same directory, but is " + shardwright::detail::quoted_text(text) +
                  " (put the files beside the index)");
    file_of_.emplace(std::move(name_), std::move(text));
    return true;
  }
  bool start_object(std::size_t) override {
    if (!ignored() && depth_ == 2)
      return misplaced("an object");
    return deeper();
  }
  bool start_array(std::size_t) override { return ignored() ? deeper() : misplaced("a list"); }
  bool end_array() override { return end_object(); }
  bool end_object() override {
    --depth_;
    if (depth_ == 1)
      in_map_ = false;
    return depth_ > 0 || has_map_ ||
           fail("an index must have a weight_map from tensors to files (write it again)");
  }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      in_map_ = name == "weight_map";
      return !in_map_ || !std::exchange(has_map_, true) ||
             fail("an index must have one weight_map (write it again)");
    }
    if (ignored())
      return true;
    name_ = std::move(name);
    return !file_of_.contains(name_) ||
           fail("an index must name each tensor once, but " + shardwright::detail::quoted_text(name_) +
                " appears twice (write it again)");
  }

private:
  [[nodiscard]] bool ignored() const { return depth_ > 0 && !in_map_; }
  bool deeper() {
    constexpr int most = 16;
    return ++depth_ <= most || fail("an index must be nested at most 16 deep (remove levels)");
  }
  bool misplaced(const char* what) override {
    return fail(std::string(depth_ == 0 ? "an index must be an object"
                                        : "weight_map must name a file for each tensor") +
                ", but there is " + what + " (write it again)");
  }

  std::map<std::string, std::string>& file_of_;
  std::string name_;
  int depth_ = 0;
  bool in_map_ = false;
  bool has_map_ = false;
};

} // namespace detail

/// @brief The file of each tensor listed in an index (`model.safetensors.index.json`).
/// @param subject the index, for messages
/// @throws DataError if it is no such index, lists a tensor twice, or names a file by more than a plain name.
[[nodiscard]] inline std::map<std::string, std::string> parse_index(std::string_view text,
                                                                    const std::string& subject) {
  if (text.find('\0') != text.npos)
    detail::refuse(subject, "an index must be JSON, but has a zero byte (write it again)");
  std::map<std::string, std::string> file_of;
  detail::IndexEvents events(file_of);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &events))
    detail::refuse(subject, events.mistake());
  return file_of;
}

/// @brief The tensors of one model, whichever files they are in. All files stay open for its lifetime.
class Files {
public:
  /// @brief Opens a safetensors file, an index, or a directory that contains `model.safetensors.index.json`
  /// or `model.safetensors`, and checks that index and files list the same tensors.
  /// @throws DataError naming file and tensor if they do not, or if a file breaks a rule of the format.
  explicit Files(const std::filesystem::path& path) {
    std::error_code ignored;
    std::filesystem::path from = path;
    if (std::filesystem::is_directory(path, ignored)) {
      from = path / "model.safetensors.index.json";
      if (!std::filesystem::exists(from, ignored))
        from = path / "model.safetensors";
    }
    if (from.extension() == ".json")
      open_index(from);
    else
      open(from);
  }

  /// @brief The file that holds a tensor.
  /// @throws DataError if none does.
  [[nodiscard]] const File& file_of(std::string_view name) const {
    const auto at = place_of(name);
    if (at == places_.end())
      detail::refuse(files_.front().path().parent_path().string(),
                     "the model must hold the tensor " + shardwright::detail::quoted_text(name) +
                         ", but none of its " + std::to_string(places_.size()) +
                         " has that name (check the name)");
    return files_[at->second];
  }
  /// @brief Returns whether there is a tensor of that name.
  [[nodiscard]] bool contains(std::string_view name) const { return place_of(name) != places_.end(); }
  [[nodiscard]] const std::deque<File>& files() const noexcept { return files_; } ///< By name.
  /// @brief Names of all tensors, sorted.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const Place& place : places_)
      out.push_back(place.first);
    return out;
  }
  /// @brief Safetensors files next to an index that it does not list, such as those of an earlier export.
  [[nodiscard]] const std::vector<std::filesystem::path>& stray() const noexcept { return stray_; }

private:
  using Place = std::pair<std::string, std::size_t>;

  [[nodiscard]] std::vector<Place>::const_iterator place_of(std::string_view name) const {
    const auto at = std::lower_bound(places_.begin(), places_.end(), name,
                                     [](const Place& place, std::string_view n) { return place.first < n; });
    return at == places_.end() || at->first != name ? places_.end() : at;
  }

  void open(const std::filesystem::path& path) {
    files_.emplace_back(path);
    for (const Entry& entry : files_.back().header().tensors)
      places_.emplace_back(entry.name, files_.size() - 1);
    std::sort(places_.begin(), places_.end());
  }

  void open_index(const std::filesystem::path& path) {
    const auto file_of = parse_index(read_text(path, most_index_bytes), path.string());
    if (file_of.empty())
      detail::refuse(path.string(), "an index must name a tensor (write it again)");
    std::map<std::string, std::size_t> number;
    for (const auto& [tensor, file] : file_of)
      number.emplace(file, 0);
    for (auto& [file, i] : number) {
      i = files_.size();
      open(path.parent_path() / file);
      for (const Entry& entry : files_.back().header().tensors)
        if (const auto named = file_of.find(entry.name); named == file_of.end() || named->second != file)
          detail::refuse(path.string(), "it must name " + shardwright::detail::quoted_text(file) +
                                            " for tensor " + shardwright::detail::quoted_text(entry.name) +
                                            ", which that file holds (write the index again)");
    }
    for (const auto& [tensor, file] : file_of)
      (void)files_[number.at(file)].entry(tensor);
    std::error_code code;
    for (std::filesystem::directory_iterator at(path.has_parent_path() ? path.parent_path() : ".", code), end;
         !code && at != end; at.increment(code))
      if (at->path().extension() == ".safetensors" && !number.contains(at->path().filename().string()))
        stray_.push_back(at->path());
    std::sort(stray_.begin(), stray_.end());
  }

  std::deque<File> files_;    // which do not move
  std::vector<Place> places_; // sorted by name
  std::vector<std::filesystem::path> stray_;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::safetensors
