// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/larger.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/pipeline/shared_parts.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using sw::axis::dp;

using Mesh = sw::DeviceMesh<dp>;
using Rows = sw::Layout<2, sw::Shard<0, dp>>;
using Square = sw::Parameter<sw::Layout<2>, sw::Layout<2, sw::Partial<sw::Sum, dp>>, double>;
using OverDp = sw::Layout<0, sw::Partial<sw::Sum, dp>>;

/// x times `first` times `second`, which may be one part.
struct TwoProducts {
  TwoProducts(const Mesh& mesh, const char* second_name)
      : first(tied(mesh, "table")), second(tied(mesh, second_name)) {}
  [[nodiscard]] sw::TiedParameter<Square> tied(const Mesh& mesh, const char* name) {
    return shared.tied<Square>(name, [&] {
      ++made;
      return Square(mesh, {4, 4}, sw::Initial::normal(0.5).keyed(3));
    });
  }
  auto members() { return sw::members("first", first, "second", second); }

  int made = 0;
  sw::SharedParts shared;
  sw::TiedParameter<Square> first, second;
};

/// Names and gradients after a step.
struct Step {
  std::string names;
  std::vector<std::vector<double>> gradients;
};
[[nodiscard]] Step step_of(const Mesh& mesh, const char* second_name) {
  TwoProducts model(mesh, second_name);
  sw::initialize(model, 1);
  sw::GradAccumulator accumulator(model);
  sw::ShardedTensor<Rows, double> x(mesh, {7, 4}), upstream(mesh, {7, 4});
  sw::fill_normal(x, {2, 1});
  sw::fill_normal(upstream, {2, 2});
  sw::Tape<> tape;
  tape.seed(sw::matmul(sw::matmul(tape.input(x), model.first), model.second), upstream.share());
  tape.backward(sw::PassPosition::last);
  accumulator.add(sw::LossSum<OverDp>{1}, sw::TokenCount<OverDp>{1});
  static_cast<void>(accumulator.finish());
  Step out;
  sw::for_each_parameter(model, [&](auto& parameter) {
    out.names += parameter.name() + " ";
    const auto& gradient = parameter.gradient();
    out.gradients.emplace_back(gradient.data(), gradient.data() + gradient.local_size());
  });
  return out;
}

} // namespace

TEST_CASE("a tied parameter is one object under its own name, and counts once") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh{world, sw::extent<dp>(1)};
          TwoProducts tied(mesh, "table");
          findings.expect(&*tied.first == &*tied.second && tied.made == 1, "one object, made once");
          findings.expect(tied.first.owns() && !tied.second.owns(), "one of both stands for it");
          TwoProducts apart(mesh, "other");
          findings.expect(&*apart.first != &*apart.second && apart.made == 2 && apart.second.owns(),
                          "two names");
          sw::initialize(tied, 1); // once, though listed twice
          findings.expect(tied.first->name() == "table" && tied.second.name() == "table",
                          "not the member's path");
          const auto angles = [&] {
            return tied.shared.get<std::vector<int>>("angles", [] { return std::vector<int>{1}; });
          };
          findings.expect(angles() == angles() && angles()->size() == 1, "constants are shared as well");
        }) == "");
}

TEST_CASE("its gradient is the sum over all uses, reduced once after the last of them") {
  for (const int ranks : {1, 2, 3})
    CHECK(on_ranks(ranks, [](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh{world, sw::extent<dp>(world.size())};
            const Step tied = step_of(mesh, "table"), apart = step_of(mesh, "other");
            findings.expect(tied.names == "table " && apart.names == "table other ", tied.names, "and ",
                            apart.names);
            double largest = 0;
            for (std::size_t i = 0; i < tied.gradients[0].size(); ++i)
              largest = shardwright_test::larger(
                  largest, std::abs(tied.gradients[0][i] - (apart.gradients[0][i] + apart.gradients[1][i])));
            findings.expect(largest < 1e-13, "differs by ", largest);
          }) == "");
}
