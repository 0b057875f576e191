// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Words and figures of a page: every figure is a number of the study, and records its position there.

#include <nlohmann/json.hpp>
#include <plan/short_text.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace plan_page {

using plan_example::short_text;

/// @brief A text escaped for HTML elements and attributes.
[[nodiscard]] std::string escaped(std::string_view text);

/// @brief A number of the study.
struct Figure {
  double value = 0;
  std::string path;  ///< Its JSON pointer.
  std::string exact; ///< As JSON writes it.

  /// @brief Attributes that identify it, so that a reader's script can find it: ` data-path="..."
  /// data-value="..."`.
  [[nodiscard]] std::string attributes() const;
};

/// @brief The study that a page shows.
class Document {
public:
  explicit Document(const nlohmann::ordered_json& study) : study_(study) {}

  [[nodiscard]] bool has(const std::string& path) const;
  [[nodiscard]] const nlohmann::ordered_json& at(const std::string& path) const;
  [[nodiscard]] Figure figure(const std::string& path) const;
  [[nodiscard]] std::string word(const std::string& path) const; ///< Not escaped.

  /// @brief A number as text with three or four digits in a unit, followed by the unit's name if it has one.
  [[nodiscard]] std::string number(const std::string& path, double unit = 1,
                                   std::string_view name = {}) const;
  /// @brief A fraction in percent.
  [[nodiscard]] std::string percent(const std::string& path) const;

private:
  const nlohmann::ordered_json& study_;
};

/// @brief A table with cells in HTML and a caption in plain text.
[[nodiscard]] std::string table(std::string_view caption, const std::vector<std::string>& head,
                                const std::vector<std::vector<std::string>>& rows);

} // namespace plan_page
