// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reads sparse matrices in Matrix Market's coordinate format.

#include <shardwright/core/error.hpp>
#include <shardwright/tensor/sparse/csr_matrix.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The entries of a file, one after another; those that symmetry implies follow the ones that imply them.
class MatrixMarketFile {
public:
  explicit MatrixMarketFile(const std::filesystem::path& path);

  /// Rows and columns.
  [[nodiscard]] const std::array<std::int64_t, 2>& shape() const noexcept { return shape_; }
  /// Reads one entry. @return false at the end
  [[nodiscard]] bool next(MatrixEntry<double>& entry);

private:
  enum class Symmetry : std::uint8_t { general, symmetric, skew };

  [[noreturn]] void reject(const std::string& sentence) const;
  /// The next line that is neither empty nor a comment, as words. @return false at the end
  [[nodiscard]] bool read_line();
  [[nodiscard]] std::string_view word();
  template <class Number> [[nodiscard]] Number number(const char* what);
  void read_banner();
  void read_sizes();
  void check_place(const MatrixEntry<double>& entry) const;

  std::filesystem::path path_;
  std::ifstream file_;
  std::string line_;
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

} // namespace detail

/// @brief The matrix in a Matrix Market file (coordinate; real, integer or pattern; general, symmetric or
/// skew-symmetric), such as `read_matrix_market<CsrMatrix<Rows>>(mesh, "poisson.mtx")`. Entries of a pattern
/// are 1.
///
/// Collective. Every rank reads the file and keeps the entries of its rows, so that no rank holds more;
/// cost: that, and CsrMatrix's.
/// Format: Boisvert, Pozo and Remington, The Matrix Market Exchange Formats: Initial Design, NISTIR 5935,
/// 1996.
/// @throws DataError naming the file and the line, for a file that cannot be read, is cut short, or breaks
/// the format; the errors of CsrMatrix.
template <AnyCsrMatrix Matrix, class... Axes>
[[nodiscard]] Matrix read_matrix_market(const DeviceMesh<Axes...>& mesh, const std::filesystem::path& path,
                                        SourceLocation where = SourceLocation::current()) {
  using Element = typename Matrix::value_type;
  detail::MatrixMarketFile file(path);
  const DimensionBlock rows = Matrix::row_block(mesh, file.shape()[0]);
  std::vector<MatrixEntry<Element>> own;
  for (MatrixEntry<double> entry; file.next(entry);)
    if (entry.row >= rows.offset && entry.row < rows.offset + rows.size)
      own.push_back({entry.row, entry.column, static_cast<Element>(entry.value)});
  return Matrix(mesh, file.shape(), own, where);
}

#if !defined(SHARDWRIGHT_COMPILED)
namespace detail {

SHARDWRIGHT_INLINE MatrixMarketFile::MatrixMarketFile(const std::filesystem::path& path) : path_(path) {
  if (!std::filesystem::is_regular_file(path)) // opening a FIFO would wait for a writer
    reject("it must be a file that can be read (check the name)");
  file_.open(path, std::ios::binary);
  if (!file_)
    reject("it must be a file that can be read (check its permissions)");
  read_banner();
  read_sizes();
}

SHARDWRIGHT_INLINE void MatrixMarketFile::reject(const std::string& sentence) const {
  throw DataError("Matrix Market file " + path_.string() +
                  (lines_ > 0 ? ", line " + std::to_string(lines_) : std::string()) + ": " + sentence);
}

SHARDWRIGHT_INLINE bool MatrixMarketFile::read_line() {
  while (std::getline(file_, line_)) {
    ++lines_;
    rest_ = line_;
    if (const std::size_t first = rest_.find_first_not_of(" \t\r");
        first != std::string_view::npos && rest_[first] != '%')
      return true;
  }
  if (file_.bad())
    reject("it must be read to its end (check the disk)");
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
  if (error != std::errc() || end != text.data() + text.size())
    reject(std::string("the ") + what + " must be a number, but it is '" + std::string(text.substr(0, 40)) +
           "' (the file may be cut short)");
  return out;
}

SHARDWRIGHT_INLINE void MatrixMarketFile::read_banner() {
  std::getline(file_, line_);
  lines_ = 1;
  for (char& letter : line_)
    if (letter >= 'A' && letter <= 'Z')
      letter = static_cast<char>(letter - 'A' + 'a');
  rest_ = line_;
  if (word() != "%%matrixmarket" || word() != "matrix")
    reject("the file must begin with '%%MatrixMarket matrix' (give a file in Matrix Market's format)");
  const std::string_view format = word(), field = word(), symmetry = word();
  if (format != "coordinate")
    reject("the matrix must be sparse, in the format 'coordinate', but it is '" + std::string(format) +
           "' (convert it)");
  pattern_ = field == "pattern";
  if (!pattern_ && field != "real" && field != "integer")
    reject("the entries must be 'real', 'integer' or 'pattern', but they are '" + std::string(field) +
           "' (convert them)");
  if (symmetry == "symmetric")
    symmetry_ = Symmetry::symmetric;
  else if (symmetry == "skew-symmetric" && !pattern_)
    symmetry_ = Symmetry::skew;
  else if (symmetry != "general")
    reject("the symmetry must be 'general', 'symmetric' or, with values, 'skew-symmetric', but it is '" +
           std::string(symmetry) + "' (convert the file)");
}

SHARDWRIGHT_INLINE void MatrixMarketFile::read_sizes() {
  if (!read_line())
    reject("a line with rows, columns and entries must follow the comments (the file is cut short)");
  shape_ = {number<std::int64_t>("number of rows"), 0};
  shape_[1] = number<std::int64_t>("number of columns");
  entries_ = number<std::int64_t>("number of entries");
  if (shape_[0] < 0 || shape_[1] < 0 || entries_ < 0 || !word().empty())
    reject("the sizes must be three numbers of at least 0: rows, columns and entries (check the line)");
  if (symmetry_ != Symmetry::general && shape_[0] != shape_[1])
    reject("a symmetric matrix must be square, but it has " + std::to_string(shape_[0]) + " rows and " +
           std::to_string(shape_[1]) + " columns (check the line)");
}

SHARDWRIGHT_INLINE void MatrixMarketFile::check_place(const MatrixEntry<double>& entry) const {
  if (entry.row < 0 || entry.row >= shape_[0] || entry.column < 0 || entry.column >= shape_[1])
    reject("the entry must be inside the matrix of " + std::to_string(shape_[0]) + " rows and " +
           std::to_string(shape_[1]) + " columns, but it is in row " + std::to_string(entry.row + 1) +
           ", column " + std::to_string(entry.column + 1) + " (the format counts from 1)");
  if (symmetry_ != Symmetry::general &&
      (entry.column > entry.row || (symmetry_ == Symmetry::skew && entry.column == entry.row)))
    reject(std::string("a ") + (symmetry_ == Symmetry::skew ? "skew-symmetric" : "symmetric") +
           " matrix must be given by its entries below the diagonal" +
           (symmetry_ == Symmetry::skew ? "" : " and on it") + ", but one is in row " +
           std::to_string(entry.row + 1) + ", column " + std::to_string(entry.column + 1) +
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
             std::to_string(read_) + " (it is cut short)");
    return false;
  }
  if (read_ == entries_)
    reject("the file must end after its " + std::to_string(entries_) +
           " entries, but another line follows (check the number in the line of sizes)");
  entry.row = number<std::int64_t>("row") - 1;
  entry.column = number<std::int64_t>("column") - 1;
  entry.value = pattern_ ? 1.0 : number<double>("value");
  if (!word().empty())
    reject("an entry must be a row, a column" + std::string(pattern_ ? "" : " and a value") +
           ", but more follows (check the line)");
  check_place(entry);
  ++read_;
  mirrored_ = symmetry_ == Symmetry::general || entry.row == entry.column;
  last_ = entry;
  return true;
}

} // namespace detail
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
