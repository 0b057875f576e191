// SPDX-License-Identifier: Apache-2.0
//
// A tensor in memory that the program owns, and its block as a std::mdspan.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>

namespace sw = shardwright;
using namespace sw::axis;

using Rows = sw::Layout<2, sw::Shard<0, dp>>;

#if defined(__cpp_lib_mdspan)
//! [mdspan]
/// Sum of the first column of a rank's block.
template <class Layout> float sum_of_column(const sw::ShardedTensor<Layout>& x) {
  const auto block = sw::local_mdspan(x); // std::mdspan<const float, std::dextents<std::int64_t, 2>>
  float sum = 0;
  for (std::int64_t i = 0; i < block.extent(0); ++i)
    sum += block[i, 0];
  return sum;
}
//! [mdspan]
#else
template <class Layout> float sum_of_column(const sw::ShardedTensor<Layout>& x) {
  float sum = 0;
  for (std::size_t i = 0; i < x.local().extent(0); ++i)
    sum += x.local()(i, 0);
  return sum;
}
#endif

bool scaled(const sw::HostCommunicator& world) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size())};
  //! [over]
  // The solver's field: this rank's rows of a [37, 19] matrix.
  const auto block = sw::block_shape<Rows>(mesh, {37, 19});
  const Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> field(
      "field", static_cast<std::size_t>(block[0]), static_cast<std::size_t>(block[1]));

  auto x = sw::tensor_over<Rows>(mesh, field, {37, 19}); // no copy
  sw::fill_uniform(x, {.seed = 3, .tensor = 0});         // writes the field
  const auto row_sums = sw::sum<1>(x);                   // reads it; the result is in the mesh's pool
  //! [over]
  float first = 0;
  for (std::size_t i = 0; i < field.extent(0); ++i)
    first += field(i, 0);
  return x.data() == field.data() && first == sum_of_column(x) && row_sums.local_size() == field.extent(0);
}

int main(int argc, char** argv) {
  const auto program = [](const sw::HostCommunicator& world) { return scaled(world) ? 0 : 1; };
  return sw::run(argc, argv, program, {.ranks = 3});
}
