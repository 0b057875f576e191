// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The entries of a file in Matrix Market's coordinate format, one after another.

#include <shardwright/core/error.hpp>
#include <shardwright/core/foreign_text.hpp>
#include <shardwright/tensor/sparse/matrix_entry.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief Limits on the size of a matrix in a file of Matrix Market's format.
struct MatrixMarketLimits {
  /// Rows, and columns, beyond the number of entries: they take memory, but no bytes of the file.
  std::int64_t empty = std::int64_t{1} << 24;
};

namespace detail {

/// The entries of a file, one after another; those that symmetry implies follow the ones that imply them.
class MatrixMarketFile {
public:
  explicit MatrixMarketFile(const std::filesystem::path& path, const MatrixMarketLimits& limits = {});

  /// Rows and columns.
  [[nodiscard]] const std::array<std::int64_t, 2>& shape() const noexcept { return shape_; }
  /// Reads one entry. @return false at the end
  [[nodiscard]] bool next(MatrixEntry<double>& entry);
  /// Throws an error that names the file and the line.
  [[noreturn]] void reject(const std::string& sentence) const;

private:
  enum class Symmetry : std::uint8_t { general, symmetric, skew };

  /// The format allows lines of 1024 characters; these may end in a carriage return, too.
  static constexpr std::streamsize line_bytes = 1026;

  /// The next line. @return false at the end
  [[nodiscard]] bool next_line();
  /// The next line that is neither empty nor a comment, as words. @return false at the end
  [[nodiscard]] bool read_line();
  [[nodiscard]] std::string_view word();
  template <class Number> [[nodiscard]] Number number(const char* what);
  void read_banner();
  void read_sizes(const MatrixMarketLimits& limits);
  /// Of an entry as the file gives it, counted from 1.
  void check_place(std::int64_t row, std::int64_t column) const;

  std::filesystem::path path_;
  std::ifstream file_;
  std::array<char, line_bytes> line_{};
  std::string_view rest_; // of the line
  std::int64_t lines_ = 0;
  std::array<std::int64_t, 2> shape_{};
  std::int64_t entries_ = 0;
  std::int64_t read_ = 0;
  Symmetry symmetry_ = Symmetry::general;
  bool pattern_ = false;
  bool mirrored_ = true; // whether the last entry has no mirror image that is still to come
  MatrixEntry<double> last_;
};

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE MatrixMarketFile::MatrixMarketFile(const std::filesystem::path& path,
                                                      const MatrixMarketLimits& limits)
    : path_(path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) // opening a FIFO would wait for a writer
    reject("it must be a file that can be read (check the name)");
  file_.open(path, std::ios::binary);
  if (!file_)
    reject("it must be a file that can be read (check its permissions)");
  read_banner();
  read_sizes(limits);
}

SHARDWRIGHT_INLINE void MatrixMarketFile::reject(const std::string& sentence) const {
  throw DataError("Matrix Market file " + path_.string() +
                  (lines_ > 0 ? ", line " + std::to_string(lines_) : std::string()) + ": " + sentence);
}

SHARDWRIGHT_INLINE bool MatrixMarketFile::next_line() {
  file_.getline(line_.data(), line_bytes);
  const auto read = static_cast<std::size_t>(file_.gcount()); // with a line's end, but not the file's
  if (file_.bad())
    reject("it must be read to its end (check the disk)");
  if (read == 0 && file_.eof())
    return false;
  ++lines_;
  if (file_.fail())
    reject("a line must have at most 1024 characters (give a file in Matrix Market's format)");
  rest_ = {line_.data(), file_.eof() ? read : read - 1};
  return true;
}

SHARDWRIGHT_INLINE bool MatrixMarketFile::read_line() {
  while (next_line())
    if (const std::size_t first = rest_.find_first_not_of(" \t\r");
        first != std::string_view::npos && rest_[first] != '%')
      return true;
  return false;
}

SHARDWRIGHT_INLINE std::string_view MatrixMarketFile::word() {
  rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size()));
  const std::string_view out = rest_.substr(0, rest_.find_first_of(" \t\r"));
  rest_.remove_prefix(out.size());
  return out;
}

template <class Number> Number MatrixMarketFile::number(const char* what) {
  std::string_view text = word();
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') // which from_chars does not take
    text.remove_prefix(1);
  Number out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  const bool whole = end == text.data() + text.size();
  if constexpr (std::is_floating_point_v<Number>) {
    if (whole && error == std::errc::result_out_of_range) {
      std::istringstream again{std::string(text)}; // which fails only if the number is too large
      again.imbue(std::locale::classic());
      if (again >> out)
        return out;
    }
    if (whole && (error == std::errc::result_out_of_range || !std::isfinite(out)))
      reject(std::string("the ") + what + " must be a finite number that a double can hold, but it is " +
             quoted_text(text) + " (correct it, or scale the matrix)");
  }
  if (!whole || error != std::errc())
    reject(std::string("the ") + what + " must be a number" +
           (error == std::errc::result_out_of_range ? " of at most 64 bits" : "") + ", but it is " +
           quoted_text(text) + " (correct the line; the file may be cut short)");
  return out;
}

SHARDWRIGHT_INLINE void MatrixMarketFile::read_banner() {
  if (next_line())
    for (char& letter : line_)
      if (letter >= 'A' && letter <= 'Z')
        letter = static_cast<char>(letter - 'A' + 'a');
  const std::string_view line = rest_;
  if (word() != "%%matrixmarket" || word() != "matrix")
    reject("the file must begin with '%%MatrixMarket matrix', but it begins with " +
           quoted_text(line.substr(0, 40)) + " (give an unpacked file in Matrix Market's format)");
  const std::string_view format = word(), field = word(), symmetry = word();
  if (format != "coordinate")
    reject("the matrix must be sparse, in the format 'coordinate', but it is " + quoted_text(format) +
           " (convert it)");
  pattern_ = field == "pattern";
  if (!pattern_ && field != "real" && field != "integer")
    reject("the entries must be 'real', 'integer' or 'pattern', but they are " + quoted_text(field) +
           " (convert them)");
  if (symmetry == "symmetric")
    symmetry_ = Symmetry::symmetric;
  else if (symmetry == "skew-symmetric" && !pattern_)
    symmetry_ = Symmetry::skew;
  else if (symmetry != "general")
    reject("the symmetry must be 'general', 'symmetric' or, with values, 'skew-symmetric', but it is " +
           quoted_text(symmetry) + " (convert the file)");
}

SHARDWRIGHT_INLINE void MatrixMarketFile::read_sizes(const MatrixMarketLimits& limits) {
  if (!read_line())
    reject(
        "a line with rows, columns and entries must follow the comments (fetch the file again, as it is cut short)");
  shape_ = {number<std::int64_t>("number of rows"), 0};
  shape_[1] = number<std::int64_t>("number of columns");
  entries_ = number<std::int64_t>("number of entries");
  if (shape_[0] < 0 || shape_[1] < 0 || entries_ < 0 || !word().empty())
    reject("the sizes must be three numbers of at least 0: rows, columns and entries (check the line)");
  for (const std::int64_t extent : shape_)
    if (extent > entries_ && extent - entries_ > limits.empty)
      reject("the rows, and the columns, must be at most " + std::to_string(limits.empty) +
             " more than the entries, which are " + std::to_string(entries_) + ", but they are " +
             std::to_string(extent) +
             " (set MatrixMarketLimits::empty, if the matrix has so many empty ones)");
  if (symmetry_ != Symmetry::general && shape_[0] != shape_[1])
    reject("a symmetric matrix must be square, but it has " + std::to_string(shape_[0]) + " rows and " +
           std::to_string(shape_[1]) + " columns (check the line)");
}

SHARDWRIGHT_INLINE void MatrixMarketFile::check_place(std::int64_t row, std::int64_t column) const {
  const auto place = [&] { return "row " + std::to_string(row) + ", column " + std::to_string(column); };
  if (row < 1 || row > shape_[0] || column < 1 || column > shape_[1])
    reject("the entry must be inside the matrix of " + std::to_string(shape_[0]) + " rows and " +
           std::to_string(shape_[1]) + " columns, but it is in " + place() + " (the format counts from 1)");
  if (symmetry_ != Symmetry::general && (column > row || (symmetry_ == Symmetry::skew && column == row)))
    reject(std::string("a ") + (symmetry_ == Symmetry::skew ? "skew-symmetric" : "symmetric") +
           " matrix must be given by its entries below the diagonal" +
           (symmetry_ == Symmetry::skew ? "" : " and on it") + ", but one is in " + place() +
           " (leave out the others)");
}

SHARDWRIGHT_INLINE bool MatrixMarketFile::next(MatrixEntry<double>& entry) {
  if (!mirrored_) {
    mirrored_ = true;
    entry = {last_.column, last_.row, symmetry_ == Symmetry::skew ? -last_.value : last_.value};
    return true;
  }
  if (!read_line()) {
    if (read_ != entries_)
      reject("the file must hold " + std::to_string(entries_) + " entries, but it ends after " +
             std::to_string(read_) + " (fetch it again, as it is cut short)");
    return false;
  }
  if (read_ == entries_)
    reject("the file must end after its " + std::to_string(entries_) +
           " entries, but another line follows (check the number in the line of sizes)");
  const auto row = number<std::int64_t>("row"), column = number<std::int64_t>("column");
  const double value = pattern_ ? 1.0 : number<double>("value");
  if (!word().empty())
    reject("an entry must be a row, a column" + std::string(pattern_ ? "" : " and a value") +
           ", but more follows (check the line)");
  check_place(row, column);
  entry = {row - 1, column - 1, value};
  ++read_;
  mirrored_ = symmetry_ == Symmetry::general || entry.row == entry.column;
  last_ = entry;
  return true;
}

#endif

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
