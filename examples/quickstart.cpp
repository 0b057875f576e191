// SPDX-License-Identifier: Apache-2.0
//
// A two-layer product on a mesh of two data-parallel and four tensor-parallel ranks. No collective is named:
// the layouts determine which one runs. Run it directly (eight threads), or with mpirun -n 8.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

//! [layouts]
namespace sw = shardwright;
using namespace sw::axis; // dp, tp, pp, cp, ep, ...; programs add their own tags

using Tokens = sw::Layout<2, sw::Shard<0, dp>>; // rank 2, rows split over dp, replicated over the rest
using Column = sw::Layout<2, sw::Shard<1, tp>>;
using Row = sw::Layout<2, sw::Shard<0, tp>>;
//! [layouts]

int compare(const sw::ShardedTensor<Tokens>& x, const sw::ShardedTensor<Column>& w1,
            const sw::ShardedTensor<Row>& w2, const sw::ShardedTensor<Tokens>& y);

//! [program]
int program(sw::HostCommunicator world) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(4)};

  sw::ShardedTensor<Tokens> x(mesh, {4096, 512});
  sw::ShardedTensor<Column> w1(mesh, {512, 2048});
  sw::ShardedTensor<Row> w2(mesh, {2048, 512});
  sw::fill_normal(x, {.seed = 1, .tensor = 0});
  sw::fill_normal(w1, {.seed = 1, .tensor = 1}, 0.0, 0.05);
  sw::fill_normal(w2, {.seed = 1, .tensor = 2}, 0.0, 0.05);

  auto h = sw::matmul(x, w1); // Layout<2, Shard<0, dp>, Shard<1, tp>>: no communication
  auto p = sw::matmul(h, w2); // Layout<2, Shard<0, dp>, Partial<Sum, tp>>: none either
  // sw::gelu_tanh(p);           does not compile: the input must not be Partial, an incomplete sum
  static_assert(sw::Transition<decltype(p)::layout, Tokens>::count<sw::AllReduce> == 1);
  static_assert(sw::Transition<decltype(p)::layout, Tokens>::collectives == 1);
  auto y = sw::redistribute<Tokens>(std::move(p)); // the types say: one all_reduce over tp
  return compare(x, w1, w2, y);
}
//! [program]

/// Computes one row of the result again on rank 0, in double precision.
int compare(const sw::ShardedTensor<Tokens>& x, const sw::ShardedTensor<Column>& w1,
            const sw::ShardedTensor<Row>& w2, const sw::ShardedTensor<Tokens>& y) {
  const std::vector<float> all_x = sw::gather(x, 0);
  const std::vector<float> all_w1 = sw::gather(w1, 0);
  const std::vector<float> all_w2 = sw::gather(w2, 0);
  const std::vector<float> all_y = sw::gather(y, 0);
  if (all_y.empty())
    return 0; // not rank 0
  const std::size_t row = 2500;
  std::vector<double> h(2048, 0.0);
  std::vector<double> wanted(512, 0.0);
  for (std::size_t k = 0; k < 512; ++k)
    for (std::size_t j = 0; j < 2048; ++j)
      h[j] += double(all_x[row * 512 + k]) * double(all_w1[k * 2048 + j]);
  for (std::size_t k = 0; k < 2048; ++k)
    for (std::size_t j = 0; j < 512; ++j)
      wanted[j] += h[k] * double(all_w2[k * 512 + j]);
  double error = 0.0;
  for (std::size_t j = 0; j < 512; ++j)
    error = std::max(error, std::abs(wanted[j] - double(all_y[row * 512 + j])));
  std::printf("y is [%lld, %lld]; largest error of one row against a serial product: %.2e\n",
              static_cast<long long>(y.shape()[0]), static_cast<long long>(y.shape()[1]), error);
  return error < 1e-4 ? 0 : 1;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 8}); }
