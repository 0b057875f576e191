// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The figures that a run measured, each with the minimum that it must reach, if there is one.

#include <string>
#include <utility>
#include <vector>

namespace gpu {

/// @brief One measured number.
struct Figure {
  std::string part;
  std::string name;
  double value = 0;
  std::string unit;
  double least = 0;     ///< 0: no limit.
  double predicted = 0; ///< At the card's measured rates, in the unit of the value; 0: not known.
  [[nodiscard]] bool reached() const noexcept { return value >= least; }
};

/// @brief Collects figures and facts of one run.
class Report {
public:
  void add(Figure figure) { figures_.push_back(std::move(figure)); }
  /// @brief A fact about the machine, or about how something was counted, in words.
  void note(std::string name, std::string text) { notes_.emplace_back(std::move(name), std::move(text)); }
  [[nodiscard]] const std::vector<Figure>& figures() const noexcept { return figures_; }
  /// @brief {"notes": {...}, "figures": [{"part", "name", "value", "unit", "least", "predicted"}]}.
  [[nodiscard]] std::string json() const;
  /// @throws std::runtime_error if the file cannot be written.
  void write(const std::string& path) const;

private:
  std::vector<Figure> figures_;
  std::vector<std::pair<std::string, std::string>> notes_;
};

} // namespace gpu
