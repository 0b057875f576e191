// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "train/toy_model.hpp"

#include <shardwright/layout/zero.hpp>
#include <shardwright/train/grad_accumulator.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

// The norm of a step is that of the gathered gradients, whichever axes replicate or shard them.

namespace {

using namespace train_test;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using sw::axis::cp;
using sw::axis::dpr;

/// A column, a row, a table and a gain of a decoder, in the layouts of tensor parallelism. The column has
/// several blocks of a reduction, which replicas share.
template <class Zero> struct FourKinds {
  using target = sw::DefaultTarget;
  using Mesh = sw::DeviceMesh<dpr, dp, cp, tp>;
  using Column =
      sw::Parameter<sw::Layout<2, sw::Shard<1, tp>>,
                    sw::Layout<2, sw::Shard<1, tp>, sw::Partial<sw::Sum, dpr, dp, cp>>, double, Zero>;
  using Row = sw::Parameter<sw::Layout<2, sw::Shard<0, tp>>,
                            sw::Layout<2, sw::Shard<0, tp>, sw::Partial<sw::Sum, dpr, dp, cp>>, double, Zero>;
  using Gain =
      sw::Parameter<sw::Layout<1>, sw::Layout<1, sw::Partial<sw::Sum, dpr, dp, cp, tp>>, double, Zero>;

  explicit FourKinds(const Mesh& mesh)
      : column("column", {mesh, {131, 256}}), row("row", {mesh, {6, 3}}), table("table", {mesh, {7, 2}}),
        gain("gain", {mesh, {5}}) {}
  template <class Visitor> void for_each_parameter(Visitor&& visit) {
    visit(column);
    visit(row);
    visit(table);
    visit(gain);
  }
  Column column;
  Row row, table;
  Gain gain;
};

/// The norm of one step with random gradients, compared with the norm of the gathered ones; `copies` hold the
/// same table.
template <class Zero>
void check(sw::HostCommunicator world, const std::array<int, 4>& extents, int meshes, Findings& findings) {
  const int ranks = world.size() / meshes;
  const int number = world.rank() / ranks;
  const typename FourKinds<Zero>::Mesh mesh{world.split(number, world.rank()), sw::extent<dpr>(extents[0]),
                                            sw::extent<dp>(extents[1]), sw::extent<cp>(extents[2]),
                                            sw::extent<tp>(extents[3])};
  FourKinds<Zero> model(mesh);
  if (meshes > 1)
    model.table.set_copies(world.split(mesh.rank(), number));
  sw::GradAccumulator accumulator(model, world);
  add_random_gradients(model, 3, world.rank());
  using Over = sw::Layout<0, sw::Partial<sw::Sum, dpr, dp, cp>>;
  accumulator.add(sw::LossSum<Over>{1}, sw::TokenCount<Over>{1});
  const sw::GradientSummary summary = accumulator.finish();
  long double squares = 0;
  model.for_each_parameter([&](auto& parameter) {
    const bool counts = mesh.rank() == 0 && (number == 0 || &parameter.name() != &model.table.name());
    for (const double each : whole(parameter.gradient()))
      squares += counts ? static_cast<long double>(each) * each : 0;
  });
  std::vector<double> total{static_cast<double>(squares)};
  world.all_reduce_in_place(total);
  const double norm = std::sqrt(total[0]) / static_cast<double>(summary.tokens);
  findings.expect(std::abs(summary.gradient_norm / norm - 1) < 1e-14, "norm ", summary.gradient_norm,
                  " instead of ", norm);
}

} // namespace

TEST_CASE("every element counts once in the norm, over replicas, data, context and tensor ranks") {
  for (const std::array<int, 4> extents : {std::array<int, 4>{1, 1, 1, 1},
                                           {1, 3, 1, 1},
                                           {2, 1, 1, 1},
                                           {1, 1, 2, 1},
                                           {1, 1, 1, 2},
                                           {2, 2, 1, 1},
                                           {1, 2, 2, 2},
                                           {2, 1, 1, 2}}) {
    const int ranks = extents[0] * extents[1] * extents[2] * extents[3];
    INFO("dpr, dp, cp, tp = " << extents[0] << extents[1] << extents[2] << extents[3]);
    for (const int meshes : {1, 2}) {
      if (ranks * meshes > 8)
        continue;
      INFO(meshes << " meshes with one table");
      CHECK(on_ranks(ranks * meshes, [&](sw::HostCommunicator world, Findings& findings) {
              check<sw::DataParallel>(world, extents, meshes, findings);
              check<sw::Zero1>(world, extents, meshes, findings);
            }) == "");
    }
  }
}
