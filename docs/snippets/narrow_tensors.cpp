// SPDX-License-Identifier: Apache-2.0
//
// 16-bit elements: products computed in float, and how they are stored.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <cmath>
#include <cstddef>

namespace sw = shardwright;
using namespace sw::axis;

/// Whether 16-bit sums lose additions that float sums keep.
bool products(const sw::DeviceMesh<dp>& mesh) {
  //! [products]
  using Rows = sw::Layout<2, sw::Shard<0, dp>>;
  sw::ShardedTensor<Rows, sw::bfloat16> x(mesh, {64, 32}), dy(mesh, {64, 16});
  sw::fill_normal(x, {.seed = 1, .tensor = 0});
  sw::fill_normal(dy, {.seed = 1, .tensor = 1});

  auto rounded = sw::matmul_weight_gradient(x, dy); // bfloat16: sums of floats, rounded once
  sw::ShardedTensor<sw::Layout<2, sw::Partial<sw::Sum, dp>>> sums(mesh, {32, 16});
  sw::matmul_weight_gradient_into(sums, x, dy);      // float: the sums as they are
  sw::matmul_weight_gradient_into(sums, x, dy, 1.0); // adds another microbatch's in float

  const auto wide = sw::convert<float>(rounded); // conversions are never implicit
  //! [products]
  bool near = true;
  for (std::size_t i = 0; i < wide.local_size(); ++i)
    near =
        near && std::abs(2 * wide.data()[i] - sums.data()[i]) <= 0x1p-8f * std::abs(sums.data()[i]) + 1e-4f;
  return near;
}

int program(const sw::HostCommunicator& world) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size())};
  return products(mesh) ? 0 : 1;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 2}); }
