// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The sizes of a training step whose kernels are measured.

#include <cstddef>

namespace step_kernels {

/// @brief A decoder and a batch.
struct Sizes {
  std::size_t width = 512;
  std::size_t layers = 6;
  std::size_t heads = 8;
  std::size_t kv_heads = 8;
  std::size_t sequence = 256;
  std::size_t batch = 8;
  std::size_t hidden = 1536;
  std::size_t vocabulary = 256;
};

} // namespace step_kernels
