// SPDX-License-Identifier: Apache-2.0
//
// A matrix product on a mesh of any number of ranks, compared with a plain loop. Started directly, the ranks
// are threads: program --ranks 6; under mpirun -n 6 they are processes.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <utility>
#include <vector>

namespace sw = shardwright;
using namespace sw::axis; // dp, tp, ...; a program may add axes of its own

//! [layouts]
using Input = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>; // rows split over dp, columns over tp
using Weights = sw::Layout<2, sw::Shard<0, tp>>;                 // the rows that these columns meet
using Output = sw::Layout<2, sw::Shard<0, dp>>;
//! [layouts]

/// The largest difference from a product of whole matrices; 0 on ranks other than 0.
double error_of(const sw::ShardedTensor<Input>& x, const sw::ShardedTensor<Weights>& w,
                const sw::ShardedTensor<Output>& y) {
  const std::vector<float> all_x = sw::gather(x, 0), all_w = sw::gather(w, 0), all_y = sw::gather(y, 0);
  const auto rows = static_cast<std::size_t>(x.shape()[0]), inner = static_cast<std::size_t>(x.shape()[1]),
             columns = static_cast<std::size_t>(w.shape()[1]);
  double largest = 0;
  for (std::size_t i = 0; i < rows && !all_y.empty(); ++i)
    for (std::size_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < inner; ++k)
        sum += double(all_x[i * inner + k]) * double(all_w[k * columns + j]);
      largest = std::max(largest, std::abs(sum - double(all_y[i * columns + j])));
    }
  return largest;
}

//! [program]
int program(sw::HostCommunicator world) {
  const int across = world.size() % 2 == 0 ? 2 : 1;
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size() / across), sw::extent<tp>(across)};

  sw::ShardedTensor<Input> x(mesh, {60, 32});
  sw::ShardedTensor<Weights> w(mesh, {32, 8});
  sw::fill_normal(x, {.seed = 1, .tensor = 0});
  sw::fill_normal(w, {.seed = 1, .tensor = 1});

  auto p = sw::matmul(x, w); // each rank along tp holds one summand: Partial<Sum, tp>
  // sw::gelu_tanh(p);          does not compile: try it
  const auto y = sw::redistribute<Output>(std::move(p)); // one all_reduce over tp

  const double error = error_of(x, w, y);
  if (world.rank() == 0)
    std::printf("%d x %d ranks: %s\n", mesh.extent<dp>(), mesh.extent<tp>(),
                error < 1e-4 ? "equal to one rank" : "wrong");
  return error < 1e-4 ? 0 : 1;
}
//! [program]

int main(int argc, char** argv) { return sw::run(argc, argv, program); }
