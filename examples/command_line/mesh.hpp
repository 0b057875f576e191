// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A mesh on the command line: axes with their extents.

#include <command_line/words.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace command_line {

/// @brief An axis of --mesh.
struct MeshAxis {
  std::string name;
  int extent = 1;

  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

/// @brief Reads "dp=2,tp=2".
/// @throws UsageError for anything but known axes with extents, or for more ranks than fit in an int.
inline std::vector<MeshAxis> parse_mesh(const std::string& word) {
  const std::string help = " (write axes and extents such as --mesh dp=2,tp=2)";
  static const std::vector<std::string> known{"pp", "dpr", "dp", "ep", "cp", "tp"};
  std::vector<MeshAxis> mesh;
  std::int64_t product = 1;
  std::istringstream parts(word);
  std::string part;
  if (word.empty() || word.back() == ',')
    throw UsageError("--mesh '" + word + "' must not end empty" + help);
  while (std::getline(parts, part, ',')) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const std::string number = equals == std::string::npos ? std::string() : part.substr(equals + 1);
    if (name.empty())
      throw UsageError("--mesh '" + word + "' has a part without a name" + help);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const std::string_view near = nearest(name, known);
      throw UsageError(
          "--mesh has the unknown axis '" + name + "'" +
          (near.empty() ? std::string() : "; did you mean " + std::string(near) + "?") +
          " (this program has pp for pipeline stages, dp for data, dpr for its replicas, ep for experts, cp for sequences and tp for tensors)");
    }
    if (std::any_of(mesh.begin(), mesh.end(), [&](const MeshAxis& axis) { return axis.name == name; }))
      throw UsageError("--mesh names the axis " + name + " twice (give each axis once)");
    const std::optional<std::int64_t> extent = whole_number<std::int64_t>(number);
    const bool digits = !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
    if (!extent && !digits)
      throw UsageError("--mesh needs a whole number after " + name + "=, but has '" + number + "'" + help);
    if (extent && *extent <= 0)
      throw UsageError("--mesh needs extents of at least 1, but has " + name + "=" + number + " (leave " +
                       name + " out, or give " + name + "=1)");
    constexpr std::int64_t limit = std::numeric_limits<int>::max();
    if (!extent || *extent > limit || product > limit / *extent)
      throw UsageError("--mesh " + word + " is more than " + text(limit) + " ranks (give smaller extents)");
    product *= *extent;
    mesh.push_back({name, static_cast<int>(*extent)});
  }
  return mesh;
}

} // namespace command_line
