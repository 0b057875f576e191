// SPDX-License-Identifier: Apache-2.0
//
// Halos as transitions, on a ring, and their adjoint.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <cmath>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace sw = shardwright;

struct x : sw::axis_tag<x> {
  static constexpr std::string_view name = "x";
};
struct y : sw::axis_tag<y> {
  static constexpr std::string_view name = "y";
};

//! [two]
// Two axes on one dimension: the one that is named first is the outer one, whether in one Shard or in two.
static_assert(std::is_same_v<sw::Layout<1, sw::Shard<0, x>, sw::Shard<0, y>>, //
                             sw::Layout<1, sw::Shard<0, x, y>>>);
static_assert(!std::is_same_v<sw::Layout<1, sw::Shard<0, y, x>>, sw::Layout<1, sw::Shard<0, x, y>>>);
//! [two]

//! [types]
using Line = sw::Layout<1, sw::Shard<0, x>>;
using Ring = sw::Layout<1, sw::Shard<0, x, sw::PeriodicHalo<1>>>;
static_assert(std::is_same_v<sw::WithoutHalos<Ring>, Line>);
static_assert(sw::Transition<Line, Ring>::count<sw::ExchangeHalos> == 1); // with the neighbours
static_assert(sw::Transition<Ring, Line>::collectives == 0);              // a copy of the rank's own elements
//! [types]

int program(sw::HostCommunicator world) {
  const sw::DeviceMesh mesh{world, sw::extent<x>(world.size())};
  sw::ShardedTensor<Line, double> u(mesh, {16});
  sw::fill_uniform(u, {.seed = 1, .tensor = 0});

  //! [difference]
  const auto with = sw::redistribute<Ring>(u);
  sw::ShardedTensor<Line, double> difference(mesh, u.shape());
  for (std::size_t i = 0; i < difference.local_size(); ++i)
    difference.mutable_local()(i) = with.local()(i + 2) - with.local()(i); // its halo shifts indices by one
  //! [difference]

  //! [adjoint]
  // The gradient of sum(w * difference): every block also adds to its halos, and the owners sum these
  // contributions.
  sw::ShardedTensor<Line, double> w(mesh, u.shape());
  sw::fill_uniform(w, {.seed = 1, .tensor = 1});
  sw::ShardedTensor<Ring, double> slope(mesh, u.shape());
  sw::fill(slope, 0.0);
  for (std::size_t i = 0; i < w.local_size(); ++i) {
    slope.mutable_local()(i + 2) += w.local()(i);
    slope.mutable_local()(i) -= w.local()(i);
  }
  sw::add_halos(slope);
  const auto gradient = sw::redistribute<Line>(slope);
  //! [adjoint]
  const double forward = sw::dot_value(w, difference);
  const double backward = sw::dot_value(gradient, u);
  return std::abs(forward - backward) <= 1e-14 * sw::norm1_value(w) ? 0 : 1;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
