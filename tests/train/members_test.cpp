// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/layers/dropout.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/tape.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Names and initial values, which are derived from the lists of members.

namespace {

namespace sw = shardwright;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using sw::axis::dp;
using sw::axis::tp;

using Mesh = sw::DeviceMesh<dp, sw::axis::cp, tp>;
using Matrix = sw::Parameter<sw::Layout<2, sw::Shard<1, tp>>,
                             sw::Layout<2, sw::Shard<1, tp>, sw::Partial<sw::Sum, dp>>, double, sw::Zero3>;

[[nodiscard]] Matrix matrix(const Mesh& mesh, const sw::Initial& initial = sw::Initial::normal(0.5)) {
  return Matrix(mesh, {5, 7}, initial);
}

/// A module whose only parameter has the module's name.
struct Projection {
  explicit Projection(const Mesh& mesh, const sw::Initial& initial = sw::Initial::normal(0.5))
      : weight(matrix(mesh, initial)) {}
  auto members() { return sw::members("", weight); }
  Matrix weight;
};
struct Layer {
  explicit Layer(const Mesh& mesh) : up(mesh), down(mesh) {}
  auto members() { return sw::members("up", up, "down", down); }
  Projection up, down;
};
/// Every kind of member.
struct Model {
  explicit Model(const Mesh& mesh, std::size_t count = 2)
      : embedding(mesh), scale(mesh, sw::Initial::constant(0.25)), gate(mesh),
        head(std::make_unique<Projection>(mesh)) {
    for (std::size_t i = 0; i < count; ++i)
      layers.emplace_back(mesh);
  }
  auto members() {
    return sw::members("embedding", embedding, "layers", layers, "scale", scale, "gate", gate, "left_out",
                       left_out, "head", head, "tail", tail);
  }
  Projection embedding, scale;
  std::vector<Layer> layers;
  std::optional<Layer> gate, left_out;
  std::unique_ptr<Projection> head, tail;
};

struct Named {
  std::string name;
  std::vector<double> values; ///< Whole.
};
template <class Type> [[nodiscard]] std::vector<Named> parameters_of(Type& model) {
  std::vector<Named> out;
  sw::for_each_parameter(model, [&](auto& parameter) {
    const auto all = sw::redistribute<sw::Layout<2>>(parameter.stored());
    out.push_back({parameter.name(), {all.data(), all.data() + all.local_size()}});
  });
  return out;
}
[[nodiscard]] const std::vector<double>& values_of(const std::vector<Named>& all, const std::string& name) {
  for (const Named& each : all)
    if (each.name == name)
      return each.values;
  throw sw::InvalidArgument("no parameter " + name);
}

} // namespace

TEST_CASE("names are paths through modules, containers, optionals and pointers, in the order of the lists") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh{world, sw::extent<dp>(1), sw::extent<sw::axis::cp>(1), sw::extent<tp>(1)};
          const auto names_of = [](Model& model) {
            std::string names;
            for (const Named& each : parameters_of(model))
              names += each.name + " ";
            return names;
          };
          Model model(mesh);
          sw::initialize(model, 1);
          findings.expect(names_of(model) ==
                              "embedding layers.0.up layers.0.down layers.1.up layers.1.down scale gate.up "
                              "gate.down head ",
                          names_of(model));
          Model inner(mesh, 1);
          sw::initialize(inner, 1, "models.7");
          findings.expect(names_of(inner) ==
                              "models.7.embedding models.7.layers.0.up models.7.layers.0.down models.7.scale "
                              "models.7.gate.up models.7.gate.down models.7.head ",
                          names_of(inner));
        }) == "");
}

TEST_CASE("initial values depend only on seed and name, not on the mesh or on other parts of a rank") {
  std::vector<Named> one;
  CHECK(on_ranks(1, [&](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh{world, sw::extent<dp>(1), sw::extent<sw::axis::cp>(1), sw::extent<tp>(1)};
          Model model(mesh);
          sw::initialize(model, 11);
          one = parameters_of(model);
          findings.expect(one.size() == 9, one.size(), " parameters");
          for (std::size_t i = 0; i < one.size(); ++i)
            for (std::size_t k = 0; k < i; ++k)
              findings.expect(one[i].values != one[k].values, one[i].name, " and ", one[k].name,
                              " have equal values");
          findings.expect(values_of(one, "scale") == std::vector<double>(35, 0.25), "a constant");
        }) == "");
  for (const int tensor : {1, 2})
    CHECK(on_ranks(2 * tensor, [&](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh{world, sw::extent<dp>(2), sw::extent<sw::axis::cp>(1), sw::extent<tp>(tensor)};
            Model model(mesh);
            sw::initialize(model, 11);
            for (const Named& each : parameters_of(model))
              findings.expect(each.values == values_of(one, each.name), each.name, " on another mesh");
            Model longer(mesh, 3);
            sw::initialize(longer, 11);
            findings.expect(values_of(parameters_of(longer), "layers.1.down") ==
                                values_of(one, "layers.1.down"),
                            "in a longer model");
            Layer alone(mesh); // as in a stage of a pipeline
            sw::initialize(alone, 11, "layers.1");
            findings.expect(values_of(parameters_of(alone), "layers.1.up") == values_of(one, "layers.1.up"),
                            "of a part by itself");
            Model other(mesh);
            sw::initialize(other, 12);
            findings.expect(values_of(parameters_of(other), "head") != values_of(one, "head"),
                            "with another seed");
          }) == "");
}

TEST_CASE("a key of the program's choice replaces that of the name") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh{world, sw::extent<dp>(1), sw::extent<sw::axis::cp>(1), sw::extent<tp>(1)};
          const auto values = [&](const sw::Initial& initial, const char* path) {
            Projection module(mesh, initial);
            sw::initialize(module, 3, path);
            return parameters_of(module).front().values;
          };
          const auto keyed = values(sw::Initial::normal(0.5).keyed(17), "a");
          findings.expect(keyed == values(sw::Initial::normal(0.5).keyed(17), "b"), "another name");
          findings.expect(keyed != values(sw::Initial::normal(0.5).keyed(18), "a"), "another key");
          findings.expect(values(sw::Initial::normal(0.5), "a") != values(sw::Initial::normal(0.5), "b"),
                          "by name");
          std::vector<double> twice = values(sw::Initial::normal(1).keyed(17), "a");
          for (double& each : twice)
            each *= 0.5;
          findings.expect(twice == keyed, "the deviation");
        }) == "");
}

TEST_CASE("two parts with the same path are an error, uses of a tied parameter are one part") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh{world, sw::extent<dp>(1), sw::extent<sw::axis::cp>(1), sw::extent<tp>(1)};
          struct Alike {
            Projection left, right;
            auto members() { return sw::members("w", left, "w", right); }
          };
          struct Below { // one path by different routes
            std::vector<Projection> layers;
            Projection other;
            auto members() { return sw::members("layers", layers, "layers.0", other); }
          };
          const auto said = [&](auto&& model) {
            return failure_of<sw::InvalidArgument>([&] { sw::initialize(model, 1, "block"); });
          };
          const std::string sentence =
              "members: every part of a model must have a unique path, but two have block.";
          Alike alike{Projection(mesh), Projection(mesh)};
          findings.expect(has(said(alike), sentence + "w (give them different names"), said(alike));
          Below below{{}, Projection(mesh)};
          below.layers.emplace_back(mesh);
          findings.expect(has(said(below), sentence + "layers.0 "), said(below));
          findings.expect(!alike.left.weight.initialized(), "before anything has values");
          struct Tied {
            sw::TiedParameter<Matrix> in, out;
            Projection own;
            auto members() { return sw::members("in", in, "out", out, "table", own); }
          };
          sw::SharedParts shared;
          const auto tie = [&] { return shared.tied<Matrix>("table", [&] { return matrix(mesh); }); };
          Tied tied{tie(), tie(), Projection(mesh)};
          sw::initialize(tied.in, 1);
          findings.expect(
              has(failure_of<sw::InvalidArgument>([&] { sw::initialize(tied, 1); }), "but two have table "),
              "a part with the name of a tied parameter");
        }) == "");
}

TEST_CASE(
    "a parameter that a GradAccumulator holds cannot be moved, and others keep their number when moved") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh{world, sw::extent<dp>(1), sw::extent<sw::axis::cp>(1), sw::extent<tp>(1)};
          Layer layer(mesh);
          sw::initialize(layer, 1, "layer");
          const std::uint64_t number = layer.up.weight.number();
          findings.expect(number != layer.down.weight.number(), "a number of its own");
          {
            const sw::GradAccumulator accumulator(layer);
            const std::string said =
                failure_of<sw::LifecycleError>([&] { const Layer moved = std::move(layer); });
            findings.expect(has(said, "Parameter layer.up: it must stay where it is while a GradAccumulator "
                                      "holds its gradient (construct the model where it stays"),
                            said);
            findings.expect(layer.up.weight.initialized() && layer.up.weight.name() == "layer.up",
                            "nothing has been moved");
            Matrix other = matrix(mesh);
            findings.expect(
                has(failure_of<sw::LifecycleError>([&] { layer.up.weight = std::move(other); }),
                    "must stay where it is") &&
                    has(failure_of<sw::LifecycleError>([&] { other = std::move(layer.up.weight); }),
                        "must stay where it is"),
                "assignments");
          }
          Layer moved = std::move(layer);
          findings.expect(moved.up.weight.number() == number && layer.up.weight.number() != number,
                          "the number goes with it");
          const sw::GradAccumulator again(moved);
        }) == "");
}

TEST_CASE("a part that is initialized twice is named, and so is one without a position") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh{world, sw::extent<dp>(1), sw::extent<sw::axis::cp>(1), sw::extent<tp>(1)};
          struct Twice {
            Projection shared;
            auto members() { return sw::members("first", shared, "second", shared); }
          };
          Twice twice{Projection(mesh)};
          const std::string said = failure_of<sw::LifecycleError>([&] { sw::initialize(twice, 1); });
          findings.expect(
              has(said, "Parameter first: it must be initialized once, but it is listed again as second"),
              said);

          sw::Dropout nowhere(0.1);
          sw::Tape<> tape;
          const auto x = tape.input(sw::ShardedTensor<sw::Layout<1>, double>(mesh, {4}));
          const std::string place = failure_of<sw::LifecycleError>([&] { static_cast<void>(nowhere(x)); });
          findings.expect(has(place, "Dropout: it must have a place in the model before it is used"), place);
          struct Thinned {
            sw::Dropout dropout{0.1};
            auto members() { return sw::members("dropout", dropout); }
          };
          Thinned thinned;
          sw::initialize(thinned, 1);
          const std::string origin =
              failure_of<sw::LifecycleError>([&] { static_cast<void>(thinned.dropout(x)); });
          findings.expect(
              has(origin, "dropout: a tape in training must know the position of its microbatch in the run"),
              origin);
          sw::Tape<> placed(sw::Recording::training, sw::BatchOrigin{2, 1, 4});
          static_cast<void>(thinned.dropout(placed.input(x.value())));
          sw::Tape<> evaluation(sw::Recording::evaluation);
          findings.expect(thinned.dropout(evaluation.input(x.value())).value().data() == x.value().data(),
                          "an evaluation needs none");
          findings.expect(sw::Dropout(0.0)(x).value().data() == x.value().data(), "rate 0 needs none");
        }) == "");
}
