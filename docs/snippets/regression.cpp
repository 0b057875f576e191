// SPDX-License-Identifier: Apache-2.0
//
// The second half of the tutorial: linear regression by gradient descent on a mesh. By default the ranks are
// threads (one per core, or `--ranks N`); under mpirun they are processes.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <utility>
#include <vector>

//! [layouts]
namespace sw = shardwright;
using namespace sw::axis;

using Samples = sw::Layout<2, sw::Shard<0, dp>>; // each rank along dp has some of the rows
using Weights = sw::Layout<2, sw::Shard<1, tp>>; // each rank along tp has some of the columns
using Answers = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>; // the layout of their product
using Number = sw::Layout<0>;                                      // one number, the same on every rank
//! [layouts]

/// One step of gradient descent on |x w - y|^2 / samples; returns the loss before the step.
double descend(const sw::ShardedTensor<Samples>& x, const sw::ShardedTensor<Answers>& y,
               sw::ShardedTensor<Weights>& w, double rate) {
  const auto samples = static_cast<double>(x.shape()[0]);
  //! [forward]
  auto error = sw::matmul(x, w); // no communication
  static_assert(std::is_same_v<decltype(error)::layout, Answers>);
  sw::add.into(error, error, sw::scale(y, -1.0));
  const auto loss = sw::redistribute<Number>(sw::reduce_all<sw::Sum>(sw::square(error)));
  //! [forward]

  //! [backward]
  auto part = sw::matmul_weight_gradient(x, error); // Layout<2, Shard<1, tp>, Partial<Sum, dp>>
  auto gradient = sw::redistribute<sw::Gradient<Weights>>(std::move(part)); // one all_reduce over dp
  sw::scale_in_place(gradient, -2.0 * rate / samples);
  sw::add.into(w, w, gradient);
  //! [backward]
  return static_cast<double>(sw::item(loss)) / samples;
}

int program(sw::HostCommunicator world) {
  //! [mesh]
  const int columns = world.size() % 2 == 0 ? 2 : 1;
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size() / columns), sw::extent<tp>(columns)};
  //! [mesh]

  //! [data]
  sw::ShardedTensor<Samples> x(mesh, {1000, 12});
  sw::ShardedTensor<Weights> truth(mesh, {12, 5});
  sw::fill_normal(x, {.seed = 1, .tensor = 0});
  sw::fill_normal(truth, {.seed = 1, .tensor = 1});
  const auto y = sw::matmul(x, truth);

  sw::ShardedTensor<Weights> w(mesh, {12, 5});
  sw::fill(w, 0.0F);
  //! [data]

  //! [loop]
  for (int step = 0; step < 30; ++step) {
    const double loss = descend(x, y, w, 0.4);
    if (world.rank() == 0 && step % 5 == 0)
      std::printf("step %2d  loss %.2e\n", step, loss);
  }
  //! [loop]

  //! [check]
  const std::vector<float> found = sw::gather(w, 0); // on rank 0; empty on the others
  const std::vector<float> wanted = sw::gather(truth, 0);
  float largest = 0.0F;
  for (std::size_t i = 0; i < found.size(); ++i)
    largest = std::max(largest, std::abs(found[i] - wanted[i]));
  if (world.rank() == 0)
    std::printf("largest error of a weight on %d ranks: %s\n", world.size(),
                largest < 1e-4F ? "below 1e-4" : "too large");
  return largest < 1e-4F ? 0 : 1;
  //! [check]
}

//! [main]
int main(int argc, char** argv) { return sw::run(argc, argv, program); }
//! [main]
