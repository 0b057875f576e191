// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "train/toy_model.hpp"

#include <shardwright/train/checks/replica_check.hpp>
#include <shardwright/train/optimizer/adamw.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace train_test;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

/// Flips the lowest bit of one element of a tensor.
template <class Tensor> void flip_bit(const Tensor& tensor, std::size_t index) {
  auto* const bytes = reinterpret_cast<unsigned char*>(const_cast<Tensor&>(tensor).mutable_data() + index);
  bytes[0] ^= 1u;
}

/// The same in the optimizer state of a parameter.
template <class P>
void flip_bit(sw::AdamW& optimizer, const P& parameter, std::string_view part, std::size_t index) {
  optimizer.for_each_state(parameter, [&](std::string_view name, auto& state) {
    if (name == part)
      flip_bit(state, index);
  });
}

template <class Model> void take_step(Model& model, sw::AdamW& optimizer, int rank) {
  sw::GradAccumulator accumulator(model);
  add_random_gradients(model, 1, rank);
  using Over = typename Model::OverTokens;
  accumulator.add(sw::LossSum<Over>{1}, sw::TokenCount<Over>{2});
  const sw::GradientSummary summary = accumulator.finish();
  optimizer.step(model, summary, 0.01);
}

std::string text_of(const std::vector<sw::ReplicaDifference>& found) {
  std::string out;
  for (const sw::ReplicaDifference& each : found)
    out += each.text() + "\n";
  return out;
}

/// One narrow matrix under ZeRO-1 with replicas of the shard group.
struct Sharded {
  using target = sw::DefaultTarget;
  using Mesh = sw::DeviceMesh<sw::axis::dpr, dp, sw::axis::cp>;
  using OverTokens = sw::Layout<0, sw::Partial<sw::Sum, sw::axis::dpr, dp, sw::axis::cp>>;
  using Matrix =
      sw::Parameter<sw::Layout<2>, sw::Layout<2, sw::Partial<sw::Sum, sw::axis::dpr, dp, sw::axis::cp>>,
                    sw::bfloat16, sw::Zero1>;

  explicit Sharded(const Mesh& mesh) : matrix("matrix", random(mesh)) {}
  static sw::ShardedTensor<sw::Layout<2>, float> random(const Mesh& mesh) {
    sw::ShardedTensor<sw::Layout<2>, float> out(mesh, {5, 3});
    sw::fill_normal(out, {1, 1});
    return out;
  }
  template <class Visitor> void for_each_parameter(Visitor&& visit) { visit(matrix); }
  Matrix matrix;
};

} // namespace

TEST_CASE("equal copies pass the replica check, before a step and after it") {
  for (const int tensor : {1, 2})
    CHECK(on_ranks(3 * tensor, [&](sw::HostCommunicator world, Findings& findings) {
            const sw::DeviceMesh mesh{world, sw::extent<dp>(3), sw::extent<tp>(tensor)};
            ToyModel<float> model(mesh);
            sw::AdamW optimizer;
            findings.expect(sw::find_odd_replicas(model, optimizer, world).empty(), "fresh weights");
            take_step(model, optimizer, mesh.rank());
            findings.expect(sw::find_odd_replicas(model, optimizer, world).empty(), "after a step");
            sw::require_equal_replicas(model, optimizer, world, 1);
          }) == "");
}

TEST_CASE("a flipped bit names the odd rank and the parameter on every rank") {
  CHECK(
      on_ranks(6, [](sw::HostCommunicator world, Findings& findings) {
        // Rank 2 * dp + tp; the matrix has copies along dp, the vector on all ranks, and the spread matrix
        // has none.
        const sw::DeviceMesh mesh{world, sw::extent<dp>(3), sw::extent<tp>(2)};
        ToyModel<float> model(mesh);
        sw::AdamW optimizer;
        take_step(model, optimizer, mesh.rank());
        if (world.rank() == 3)
          flip_bit(model.matrix.stored(), 2);
        findings.expect(text_of(sw::find_odd_replicas(model, optimizer, world)) ==
                            "weights of matrix: rank 3 differs from the others of ranks 1, 3 and 5\n",
                        text_of(sw::find_odd_replicas(model, optimizer, world)));
        if (world.rank() == 3)
          flip_bit(model.matrix.stored(), 2);
        findings.expect(sw::find_odd_replicas(model, optimizer, world).empty(), "mended");

        if (world.rank() == 0 || world.rank() == 4)
          flip_bit(optimizer, model.vector, "second moment", 6);
        if (world.rank() == 5)
          flip_bit(model.spread.stored(), 0);
        const auto found = sw::find_odd_replicas(model, optimizer, world);
        findings.expect(found.size() == 1 && found[0].parameter == "vector" &&
                            found[0].part == "second moment" && found[0].odd == std::vector<int>{0, 4} &&
                            found[0].ranks == std::vector<int>{0, 1, 2, 3, 4, 5},
                        text_of(found));
        try {
          sw::require_equal_replicas(model, optimizer, world, 7);
          findings.expect(false, "differences must throw");
        } catch (const sw::ReplicaMismatch& error) {
          const std::string what = error.what();
          findings.expect(
              error.differences().size() == 1 &&
                  what.find(
                      "after step 7 second moment of vector: ranks 0 and 4 differ from the others of ranks 0, 1, 2, 3, 4 and 5") !=
                      std::string::npos,
              what);
        }
      }) == "");
}

TEST_CASE("of two differing copies neither is blamed, and swapped elements are detected") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(1)};
          ToyModel<double> model(mesh);
          sw::AdamW optimizer;
          if (world.rank() == 1)
            model.vector.fill_weights(
                [](auto& weights) { std::swap(weights.mutable_data()[0], weights.mutable_data()[5]); });
          findings.expect(
              text_of(sw::find_odd_replicas(model, optimizer, world)) ==
                  "weights of vector: rank 1 differs from rank 0 and nobody can say which is right\n",
              text_of(sw::find_odd_replicas(model, optimizer, world)));
        }) == "");
}

TEST_CASE("copies on the meshes of a pipeline are compared, and equal names elsewhere are not") {
  CHECK(on_ranks(6, [](sw::HostCommunicator world, Findings& findings) {
          // Three meshes of two ranks; the vector has copies on the outer two.
          const int number = world.rank() / 2;
          const sw::DeviceMesh mesh{world.split(number, world.rank()), sw::extent<dp>(1), sw::extent<tp>(2)};
          sw::HostCommunicator copies = world.split(number == 1 ? -1 : world.rank() % 2, number);
          ToyModel<float> model(mesh);
          sw::AdamW optimizer;
          if (copies.valid())
            model.vector.set_copies(copies);
          // Tensors that belong to one mesh may have any value.
          if (number == 2)
            flip_bit(model.matrix.stored(), 0);
          if (number == 1)
            model.vector.fill_weights([](auto& weights) { sw::fill(weights, 3.0F); });
          findings.expect(sw::find_odd_replicas(model, optimizer, world).empty(), "no copies, no difference");
          if (world.rank() == 4)
            flip_bit(model.vector.stored(), 1);
          const auto found = sw::find_odd_replicas(model, optimizer, world);
          // One block on four ranks: both ranks of each of two meshes.
          findings.expect(found.size() == 1 && found[0].odd == std::vector<int>{4} &&
                              found[0].ranks == std::vector<int>{0, 1, 4, 5},
                          text_of(found));
        }) == "");
}

TEST_CASE("optimizer state that is sharded over data ranks has copies only along the replicas") {
  CHECK(on_ranks(4, [](sw::HostCommunicator world, Findings& findings) {
          // Rank 2 * dpr + dp.
          const Sharded::Mesh mesh{world, sw::extent<sw::axis::dpr>(2), sw::extent<dp>(2),
                                   sw::extent<sw::axis::cp>(1)};
          Sharded model(mesh);
          sw::AdamW optimizer;
          take_step(model, optimizer, mesh.rank());
          findings.expect(sw::find_odd_replicas(model, optimizer, world).empty(), "equal copies");
          if (world.rank() == 3)
            flip_bit(optimizer, model.matrix, "first moment", 0);
          auto found = sw::find_odd_replicas(model, optimizer, world);
          findings.expect(found.size() == 1 && found[0].part == "first moment" &&
                              found[0].ranks == std::vector<int>{1, 3},
                          text_of(found));
          if (world.rank() == 3)
            flip_bit(optimizer, model.matrix, "first moment", 0);
          // The lowest bit of a master is lost in the narrow weights.
          model.matrix.update_weights([&](auto& master) {
            if (world.rank() == 3)
              flip_bit(master, 0);
          });
          found = sw::find_odd_replicas(model, optimizer, world);
          findings.expect(found.size() == 1 && found[0].part == "master weights" &&
                              found[0].ranks == std::vector<int>{1, 3},
                          text_of(found));
          if (world.rank() == 2)
            flip_bit(model.matrix.stored(), 4);
          found = sw::find_odd_replicas(model, optimizer, world);
          findings.expect(found.size() == 2 && found[0].part == "weights" &&
                              found[0].odd == std::vector<int>{2} &&
                              found[0].ranks == std::vector<int>{0, 1, 2, 3},
                          text_of(found));
        }) == "");
}

namespace {

/// A gain whose gradient each rank computes from rows of its own.
template <class Raw, class Zero> struct Gain {
  using target = sw::DefaultTarget;
  using Over = sw::Layout<0, sw::Partial<sw::Sum, dp>>;
  sw::Parameter<sw::Layout<1>, Raw, double, Zero> gain;
  explicit Gain(const sw::DeviceMesh<dp, tp>& mesh) : gain("gain", {mesh, {6}}) {
    gain.fill_weights([](auto& weights) { sw::fill_zero(weights); });
  }
  auto members() { return sw::members("gain", gain); }
};

/// What the comparison says of gradients of numbers that differ along dp.
template <class Raw, class Zero> std::string compared(const sw::HostCommunicator& world) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
  Gain<Raw, Zero> model(mesh);
  sw::GradAccumulator accumulator(model);
  const sw::CompareRawGradients copies(accumulator);
  std::string said;
  for (int step = 0; step < 2; ++step) {
    for (int pass = 0; pass < 2; ++pass) {
      auto slot = model.gain.gradient_slot();
      for (std::size_t i = 0; i < slot.tensor.local_size(); ++i)
        slot.tensor.mutable_data()[i] = static_cast<double>(i) + mesh.template coordinate<dp>();
      model.gain.gradient_state().end_pass(sw::position_of_pass(static_cast<std::size_t>(pass), 2));
    }
    accumulator.add(sw::LossSum<typename Gain<Raw, Zero>::Over>{1},
                    sw::TokenCount<typename Gain<Raw, Zero>::Over>{2});
    static_cast<void>(accumulator.finish());
    try {
      copies.require_equal(world);
    } catch (const sw::ReplicaMismatch& error) {
      said += error.what();
    }
    accumulator.restart();
  }
  return said;
}

} // namespace

TEST_CASE("a gradient that is a sum over an axis, and is declared to be replicated, is named on every rank") {
  CHECK(on_ranks(4, [](sw::HostCommunicator world, Findings& findings) {
          using Sum = sw::Layout<1, sw::Partial<sw::Sum, dp>>;
          const std::string sentence = "gradient of gain: ranks 2 and 3 differ from rank 0";
          for (const std::string& said : {compared<sw::Layout<1>, sw::DataParallel>(world),
                                          compared<sw::Layout<1>, sw::Zero3>(world)}) {
            const auto first = said.find(sentence);
            findings.expect(first != said.npos && said.find(sentence, first + 1) != said.npos, said);
          }
          findings.expect(compared<Sum, sw::DataParallel>(world) + compared<Sum, sw::Zero3>(world) == "",
                          "sums may differ");
        }) == "");
}
