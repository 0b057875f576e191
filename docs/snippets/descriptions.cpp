// SPDX-License-Identifier: Apache-2.0
//
// Layouts and transitions as values, compiled without Kokkos and MPI. Prints their descriptions.
#include <shardwright/layout/block.hpp>
#include <shardwright/layout/describe.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/layout/mesh_shape.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <type_traits>

namespace sw = shardwright;

//! [propagation]
using namespace sw::axis;

using Tokens = sw::Layout<2, sw::Shard<0, dp>>;
using Column = sw::Layout<2, sw::Shard<1, tp>>;
using Row = sw::Layout<2, sw::Shard<0, tp>>;

using Hidden = sw::MatmulLayout<Tokens, Column>;
static_assert(std::is_same_v<Hidden, sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>>);

using Unfinished = sw::MatmulLayout<Hidden, Row>;
static_assert(std::is_same_v<Unfinished, sw::Layout<2, sw::Shard<0, dp>, sw::Partial<sw::Sum, tp>>>);
//! [propagation]

//! [transition]
using Finish = sw::Transition<Unfinished, Tokens>;
static_assert(Finish::collectives == 1 && Finish::count<sw::AllReduce> == 1);

// The bytes that a rank sends for a tensor of 4096 x 512 floats on dp = 2, tp = 4, before anything runs.
constexpr std::array extents{2, 4};
constexpr std::array<std::int64_t, 2> shape{4096, 512};
static_assert(Finish::bytes(extents, shape, sizeof(float)) == 6 * 1024 * 1024);
//! [transition]

//! [adjoint]
// A value that is gathered in the forward pass: its gradient comes back through the transition between the
// gradients' layouts, which nobody has to write.
using Gathered = sw::Layout<2, sw::Shard<0, dp>>;
using Scattered = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>;
static_assert(sw::Transition<Scattered, Gathered>::count<sw::AllGather> == 1);

using ArrivesAs =
    sw::Layout<2, sw::Shard<0, dp>, sw::Partial<sw::Sum, tp>>; // each rank's part of the gradient
using Backward = sw::Transition<ArrivesAs, sw::Gradient<Scattered>>;
static_assert(Backward::count<sw::ReduceScatter> == 1 && Backward::collectives == 1);
//! [adjoint]

//! [order]
// Two axes of a mesh: what the order of the names means, and which transfers merge into one collective.
using Flattened = sw::Layout<1, sw::Shard<0, dp, tp>>; // dp is the major axis, tp the minor one
static_assert(sw::Transition<Flattened, sw::Layout<1>>::collectives == 1);
//! [order]

int main() {
  //! [describe]
  std::printf("%s\n", sw::describe<Unfinished>().c_str());
  std::printf("%s\n", sw::describe<Finish>().c_str());
  std::printf("%s\n", sw::describe<Backward>().c_str());
  std::printf("%s\n", (sw::describe<sw::Transition<Flattened, sw::Layout<1>>>().c_str()));
  std::printf("%s\n", (sw::describe<sw::Transition<Tokens, sw::Layout<2, sw::Shard<1, dp>>>>().c_str()));
  //! [describe]
}
