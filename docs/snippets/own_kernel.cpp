// SPDX-License-Identifier: Apache-2.0
//
// A custom kernel on the block of a sharded tensor, and a check that results do not depend on the mesh.
#include <shardwright/launch.hpp>
#include <shardwright/shardwright.hpp>

#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

namespace sw = shardwright;
using namespace sw::axis;

using Rows = sw::Layout<2, sw::Shard<0, dp>>;
using Blocks = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>;

//! [kernel]
// A named functor on plain views: it compiles for every backend of Kokkos.
template <class Input, class Output> struct Softplus {
  Input in;
  Output out;
  KOKKOS_FUNCTION void operator()(std::size_t i) const {
    for (std::size_t j = 0; j < in.extent(1); ++j)
      out(i, j) = std::log1p(std::exp(in(i, j)));
  }
};

template <class Layout> sw::ShardedTensor<Layout> softplus(const sw::ShardedTensor<Layout>& input) {
  static_assert(!Layout::value.has_partial(),
                "softplus: the input must not be Partial (redistribute it first)");
  sw::ShardedTensor<Layout> out(input.resources(), input.shape());
  using Kernel = Softplus<decltype(input.local()), decltype(out.mutable_local())>;
  using Policy = Kokkos::RangePolicy<typename sw::ShardedTensor<Layout>::target::execution_space>;
  Kokkos::parallel_for("softplus", Policy(input.execution(), 0, input.local().extent(0)),
                       Kernel{input.local(), out.mutable_local()});
  return out;
}
//! [kernel]

//! [result]
/// The whole result on rank 0 of a mesh of `ranks` thread ranks.
std::vector<float> result(int ranks) {
  std::vector<float> whole;
  sw::launch({.ranks = ranks}, [&whole](sw::HostCommunicator world) {
    const int columns = world.size() % 2 == 0 ? 2 : 1;
    const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size() / columns), sw::extent<tp>(columns)};
    sw::ShardedTensor<Rows> x(mesh, {37, 19});
    sw::ShardedTensor<sw::Layout<2, sw::Shard<1, tp>>> w(mesh, {19, 11});
    sw::fill_normal(x, {.seed = 3, .tensor = 0});
    sw::fill_normal(w, {.seed = 3, .tensor = 1});
    const auto y = softplus(sw::matmul(x, w));
    const std::vector<float> gathered = sw::gather(y, 0);
    if (world.rank() == 0)
      whole = gathered;
  });
  return whole;
}
//! [result]

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  try {
    //! [compare]
    const std::vector<float> one_rank = result(1);
    bool agree = !one_rank.empty();
    for (const int ranks : {2, 3, 4, 6}) {
      const std::vector<float> many = result(ranks);
      agree = agree && many == result(ranks); // bit for bit: the order of every reduction is fixed
      for (std::size_t i = 0; i < one_rank.size(); ++i)
        agree = agree && std::abs(many[i] - one_rank[i]) <= 1e-5F * (1.0F + std::abs(one_rank[i]));
    }
    //! [compare]
    std::printf("%s\n", agree ? "all meshes agree" : "a mesh differs from one rank");
    return agree ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
