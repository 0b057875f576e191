// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Nanoseconds of operations on tensors of 4 x 4 floats on one rank, with layouts in their types and
/// in plain loops.
///
/// benchmarks/price_of_types.py starts it beside PyTorch: for each line that it reads it measures all
/// operations once, and writes a line `OPERATION SIDE NANOSECONDS` for each, then `end`.
#include "timing.hpp"

#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using sw::axis::dp;
using sw::axis::tp;

constexpr std::size_t side = 4;
using Matrix = std::vector<float>;
using Rows = sw::Layout<2, sw::Shard<0, dp>>;
using Weights = sw::Layout<2, sw::Shard<1, tp>>;

// Not inlined, as the calls of a library are not.
[[gnu::noinline]] Matrix plain_sum(const Matrix& x, const Matrix& y) {
  Matrix sum(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    sum[i] = x[i] + y[i];
  return sum;
}
[[gnu::noinline]] void plain_axpy(float a, const Matrix& x, Matrix& y) {
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] += a * x[i];
}
[[gnu::noinline]] Matrix plain_product(const Matrix& x, const Matrix& y) {
  Matrix product(side * side);
  for (std::size_t i = 0; i < side; ++i)
    for (std::size_t k = 0; k < side; ++k)
      for (std::size_t j = 0; j < side; ++j)
        product[i * side + j] += x[i * side + k] * y[k * side + j];
  return product;
}

template <class Call> void measure(const char* operation, const char* name, const Call& call) {
  constexpr int warm = 200, times = 20000;
  for (int i = 0; i < warm; ++i)
    call();
  const auto begin = benchmark::Clock::now();
  for (int i = 0; i < times; ++i)
    call();
  std::cout << operation << ' ' << name << ' ' << benchmark::seconds_since(begin) / times * 1e9 << '\n';
}

int program(sw::HostCommunicator world) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size()), sw::extent<tp>(1)};
  constexpr auto extent = static_cast<std::int64_t>(side);
  sw::ShardedTensor<Rows> x(mesh, {extent, extent}), y(mesh, {extent, extent});
  sw::ShardedTensor<Weights> w(mesh, {extent, extent});
  sw::fill_normal(x, {.seed = 1, .tensor = 0});
  sw::fill_normal(y, {.seed = 1, .tensor = 1});
  sw::fill_normal(w, {.seed = 1, .tensor = 2});
  Matrix plain_x(side * side, 0.5F), plain_y(side * side, 0.25F);
  std::string line;
  while (std::getline(std::cin, line)) {
    measure("sum", "plain", [&] { static_cast<void>(plain_sum(plain_x, plain_y)); });
    measure("sum", "typed", [&] { static_cast<void>(x + y); });
    // The factor keeps y of one size however often it is called.
    measure("axpy", "plain", [&] { plain_axpy(1e-6F, plain_x, plain_y); });
    measure("axpy", "typed", [&] { sw::axpy(1e-6, x, y); });
    measure("product", "plain", [&] { static_cast<void>(plain_product(plain_x, plain_y)); });
    measure("product", "typed", [&] { static_cast<void>(sw::matmul(x, w)); });
    measure("redistribute", "typed", [&] { y = sw::redistribute<Rows>(std::move(y)); });
    std::cout << "end" << std::endl;
  }
  return 0;
}

} // namespace

int main(int argc, char** argv) { return sw::run(argc, argv, program); }
