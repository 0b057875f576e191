// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The kernels that a piece of work runs on the device, with their times, and what each is about.

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gpu {

/// @brief Seconds by the name of the kernel.
using KernelTimes = std::map<std::string, double>;

/// @brief Records every kernel of the process between begin() and end(), cuBLAS's among them. One at a time.
class KernelTrace {
public:
  /// @brief Whether this build can: it needs CUPTI.
  [[nodiscard]] static bool available() noexcept;
  /// @throws std::runtime_error where CUPTI refuses, with its reason.
  static void begin();
  /// @brief Waits for the device and gives what ran.
  [[nodiscard]] static KernelTimes end();
};

/// @brief What a kernel of this library, of PyTorch or of NVIDIA's libraries is about, told by its name.
[[nodiscard]] std::string_view kind_of_kernel(std::string_view name);

/// @brief One row of a comparison: seconds of a step spent on one kind of work.
struct KindTimes {
  std::string_view kind;
  double ours = 0;
  double theirs = 0;
};
/// @brief Kinds of both sides; what costs us most over the other side first. What is left of the steps' times
/// is "between kernels".
[[nodiscard]] std::vector<KindTimes> compare(const KernelTimes& ours, double our_step,
                                             const KernelTimes& theirs, double their_step);

} // namespace gpu
