// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The kernels that a piece of work runs on the device, with their times and kinds.

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gpu {

/// @brief Seconds by the name of the kernel.
using KernelTimes = std::map<std::string, double>;

/// @brief Records every kernel of the process between begin() and end(), including cuBLAS's. One at a time.
class KernelTrace {
public:
  /// @brief Whether this build can record kernels: it needs CUPTI.
  [[nodiscard]] static bool available() noexcept;
  /// @throws std::runtime_error if CUPTI refuses, with its reason.
  static void begin();
  /// @brief Waits for the device and returns the kernels that ran.
  [[nodiscard]] static KernelTimes end();
};

/// @brief The kind of a kernel of this library, of PyTorch or of NVIDIA's libraries, derived from its name.
[[nodiscard]] std::string_view kind_of_kernel(std::string_view name);

/// @brief One row of a comparison: seconds of a step spent on one kind of work.
struct KindTimes {
  std::string_view kind;
  double ours = 0;
  double theirs = 0;
};
/// @brief The kinds of both sides, first those in which we lose most time to the other side. The rest of the
/// steps' times is "between kernels".
[[nodiscard]] std::vector<KindTimes> compare(const KernelTimes& ours, double our_step,
                                             const KernelTimes& theirs, double their_step);

} // namespace gpu
