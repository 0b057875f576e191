// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/experts/route.hpp>
#include <shardwright/nn/experts/router_options.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using sw::RouterOptions;
using sw::RouterScores;

using Tokens = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, tp>>; // [sequences, positions, experts]
using Integers = std::vector<std::int32_t>;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// The choice and the gates of one row by definition, in plain loops.
struct Routed {
  Integers experts;
  Vector gates;
};
Routed plain_route(const double* z, std::size_t count, const RouterOptions& options, const Vector& bias) {
  Vector scores(z, z + count);
  double sum = 0;
  for (std::size_t e = 0; e < count; ++e)
    sum += std::exp(z[e]);
  for (std::size_t e = 0; e < count; ++e)
    if (options.scores != RouterScores::chosen_softmax)
      scores[e] = options.scores == RouterScores::softmax ? std::exp(z[e]) / sum : 1 / (1 + std::exp(-z[e]));
  Vector biased = scores;
  for (std::size_t e = 0; e < count; ++e)
    biased[e] += bias.empty() ? 0 : bias[e];
  const auto best = [](const Vector& values, std::size_t first, std::size_t size, std::size_t wanted) {
    std::vector<std::size_t> order(size);
    std::iota(order.begin(), order.end(), first);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return values[a] > values[b]; });
    order.resize(wanted);
    return order;
  };
  const auto groups = static_cast<std::size_t>(options.groups);
  const std::size_t size = count / groups;
  const std::size_t terms = options.group_score == sw::GroupScore::largest ? 1
                            : options.group_score == sw::GroupScore::two_largest
                                ? 2
                                : static_cast<std::size_t>(options.chosen / options.kept_groups);
  Vector group(groups);
  for (std::size_t g = 0; g < groups; ++g)
    for (const std::size_t e : best(biased, g * size, size, terms))
      group[g] += biased[e];
  const auto kept = best(group, 0, groups, static_cast<std::size_t>(options.kept_groups));
  for (std::size_t e = 0; e < count; ++e)
    if (std::find(kept.begin(), kept.end(), e / size) == kept.end())
      biased[e] = -infinity;
  Routed out;
  double total = 0;
  for (const std::size_t e : best(biased, 0, count, static_cast<std::size_t>(options.chosen))) {
    out.experts.push_back(static_cast<std::int32_t>(e));
    out.gates.push_back(options.scores == RouterScores::chosen_softmax ? std::exp(z[e]) : scores[e]);
    total += out.gates.back();
  }
  const bool plain = options.scores == RouterScores::softmax
                         ? !options.renormalise
                         : options.scores == RouterScores::sigmoid && options.chosen == 1;
  for (double& gate : out.gates)
    gate *= options.scale / (plain ? 1 : total);
  return out;
}

/// One row of logits on one rank.
template <class Element = double>
Routed route_row(const std::vector<Element>& logits, const RouterOptions& options,
                 const std::vector<float>& bias = {}) {
  Routed out;
  const std::string failed = on_ranks(1, [&](const sw::HostCommunicator& world, Findings& findings) {
    const Mesh mesh = mesh_of(world, {});
    const auto experts = static_cast<std::int64_t>(logits.size());
    sw::ShardedTensor<sw::Layout<2>, Element> z(mesh, {1, experts});
    std::copy(logits.begin(), logits.end(), z.mutable_data());
    sw::RouteWith<sw::Layout<2>> with;
    if (!bias.empty()) {
      sw::ShardedTensor<sw::Layout<1>, float> b(mesh, {experts});
      std::copy(bias.begin(), bias.end(), b.mutable_data());
      with.bias = b.share();
    }
    auto routing = sw::route(sw::Tape<>(sw::Recording::evaluation).input(z), options, with);
    const auto gates = routing.gates.value();
    out.experts.assign(routing.experts.data(), routing.experts.data() + routing.experts.size());
    out.gates.assign(gates.data(), gates.data() + gates.size());
    findings.expect(!out.experts.empty(), "no experts");
  });
  if (!failed.empty())
    throw std::runtime_error(failed);
  return out;
}

const std::vector<RouterOptions>& rules() {
  static const std::vector<RouterOptions> all{
      {.chosen = 2},
      {.chosen = 3, .scores = RouterScores::softmax},
      {.chosen = 3, .scores = RouterScores::softmax, .renormalise = true, .scale = 2.5},
      {.chosen = 8, .scores = RouterScores::sigmoid},
      {.chosen = 1, .scores = RouterScores::sigmoid, .scale = 1.5},
      {.chosen = 4, .scores = RouterScores::sigmoid, .scale = 2.5, .groups = 4, .kept_groups = 2},
      {.chosen = 3,
       .scores = RouterScores::sigmoid,
       .groups = 4,
       .kept_groups = 2,
       .group_score = sw::GroupScore::two_largest},
      {.chosen = 2,
       .scores = RouterScores::softmax,
       .groups = 4,
       .kept_groups = 3,
       .group_score = sw::GroupScore::largest}};
  return all;
}

void check_on(const sw::HostCommunicator& world, Findings& findings, Extents extents) {
  constexpr std::int64_t experts = 8;
  const Mesh mesh = mesh_of(world, extents);
  const auto logits = random_tensor<Tokens>(mesh, {3, 5, experts}, 1);
  const Vector z = whole_of(logits);
  sw::ShardedTensor<sw::Layout<1>, float> bias(mesh, {experts});
  for (std::size_t e = 0; e < experts; ++e)
    bias.mutable_data()[e] = (e % 3 == 0 ? -0.75f : 0.25f) * static_cast<float>(e + 1) / 8;
  sw::ShardedTensor<sw::TokenLayout<Tokens>, std::int32_t> padding(mesh, {3, 5});
  const auto offset = padding.local_offset();
  for (std::size_t i = 0; i < padding.local_size(); ++i) {
    const auto columns = static_cast<std::size_t>(padding.local_shape()[1]);
    const std::size_t token = (static_cast<std::size_t>(offset[0]) + i / columns) * 5 +
                              static_cast<std::size_t>(offset[1]) + i % columns;
    padding.mutable_data()[i] = token % 7 == 3 ? -1 : 0;
  }
  for (std::size_t rule = 0; rule < rules().size(); ++rule) {
    const RouterOptions& options = rules()[rule];
    const sw::RouteWith<Tokens> with{bias.share(), padding.share()};
    sw::Tape<> tape;
    const auto routing = sw::route(tape.variable(logits), options, with);
    const auto chosen = sw::redistribute<sw::Layout<3>>(routing.experts);
    const Vector gates = whole_of(routing.gates.value());
    const auto slots = static_cast<std::size_t>(options.chosen);
    for (std::size_t token = 0; token < 15; ++token) {
      Routed wanted =
          plain_route(&z[token * experts], experts, options, Vector(bias.data(), bias.data() + experts));
      if (token % 7 == 3)
        wanted = {Integers(slots, -1), Vector(slots, 0.0)};
      for (std::size_t k = 0; k < slots; ++k) {
        findings.expect(chosen.data()[token * slots + k] == wanted.experts[k], "rule ", rule, " token ",
                        token, " slot ", k, ": ", chosen.data()[token * slots + k], " for ",
                        wanted.experts[k]);
        findings.expect(std::abs(gates[token * slots + k] - wanted.gates[k]) < 1e-14, "rule ", rule, " gate ",
                        gates[token * slots + k], " for ", wanted.gates[k]);
      }
    }
    const auto worst =
        sw::check_gradients([&](auto x) { return sw::route(std::move(x), options, with).gates; },
                            sw::members("logits", logits), {.directions = 1, .elements = 2});
    findings.expect(worst.error < 1e-6, "rule ", rule, " is off by ", worst.error);
  }
}

} // namespace

TEST_CASE(
    "experts and gates agree with the formulas, and gradients of gates with their slopes, on every mesh") {
  for (const Extents extents : {Extents{1, 1}, Extents{2, 1}, Extents{1, 3}, Extents{2, 2}}) {
    INFO("dp " << extents.data << " tp " << extents.tensor);
    CHECK(on_ranks(extents.data * extents.tensor, [&](const sw::HostCommunicator& world, Findings& findings) {
            check_on(world, findings, extents);
          }) == "");
  }
}

TEST_CASE(
    "groups that are not kept are masked with minus infinity, and equal scores go to the first expert") {
  // s + b = (-.2, -.3 | -.5, -.6), of which a mask of 0 would choose 2 and 3.
  const Vector z{0.1, 0.2, 0.3, 0.4};
  std::vector<float> bias(4);
  const Vector wanted{-0.2, -0.3, -0.5, -0.6};
  for (std::size_t e = 0; e < 4; ++e)
    bias[e] = static_cast<float>(wanted[e] - 1 / (1 + std::exp(-z[e])));
  const RouterOptions limited{.chosen = 2, .scores = RouterScores::sigmoid, .groups = 2, .kept_groups = 1};
  CHECK(route_row(z, limited, bias).experts == Integers{0, 1});
  for (const auto scores : {RouterScores::chosen_softmax, RouterScores::softmax, RouterScores::sigmoid}) {
    CHECK(route_row(Vector(6, 0.5), {.chosen = 3, .scores = scores}).experts == Integers{0, 1, 2});
    CHECK(route_row({0.5, 1, 1, 0.5, 1, 1}, {.chosen = 5, .scores = scores, .groups = 3, .kept_groups = 3})
              .experts == Integers{1, 2, 4, 5, 0});
    CHECK(route_row({-infinity, 2, -infinity, -5}, {.chosen = 2, .scores = scores}, {9, 0, 9, 0}).experts ==
          Integers{1, 3});
  }
}

TEST_CASE("sigmoid gates stay accurate even if every score underflows") {
  const auto routed =
      route_row<float>({-200, -201, -300, -202}, {.chosen = 2, .scores = RouterScores::sigmoid, .scale = 2});
  const double first = 2 / (1 + std::exp(-1.0));
  CHECK(routed.experts == Integers{0, 1}); // all scores are 0, and hence equal
  CHECK(std::abs(routed.gates[0] - first) < 1e-6);
  CHECK(std::abs(routed.gates[1] - (2 - first)) < 1e-6);
}

TEST_CASE("a logit that is not finite is an error with its token and expert, but not in padding") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {1, 2});
          const auto sentence = [&](double odd, bool padded) -> std::string {
            auto logits = random_tensor<Tokens>(mesh, {2, 4, 4}, 3);
            sw::ShardedTensor<sw::TokenLayout<Tokens>, std::int32_t> padding(mesh, {2, 4});
            sw::fill(padding, 0);
            double* const row = logits.mutable_data() + (2 + 1) * 4; // sequence 1, the rank's second position
            row[2] = odd;
            row[3] = odd;
            if (padded)
              padding.mutable_data()[3] = -1;
            try {
              static_cast<void>(sw::choose_experts(logits, {.chosen = 3}, {.padding = padding.share()}));
              return {};
            } catch (const sw::InvalidArgument& error) {
              return error.what();
            }
          };
          const std::string token = "token [1, " + std::to_string(2 * world.rank() + 1) + "] has";
          const auto named = [&](double odd, const std::string& words) {
            const std::string text = sentence(odd, false);
            findings.expect(text.find("route: ") == 0 && text.find(token + words) != std::string::npos, text);
            findings.expect(sentence(odd, true).empty(), "padding is read");
          };
          named(std::numeric_limits<double>::quiet_NaN(), " another for expert 2");
          named(infinity, " another for expert 2");
          named(-infinity, " fewer");
        }) == "");
}

TEST_CASE("a backward pass that recomputes gates reads the choice of the forward pass") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {1, 2});
          const auto logits = random_tensor<Tokens>(mesh, {2, 3, 8}, 4);
          const auto gradient = [&](sw::Recompute kind) {
            sw::ShardedTensor<sw::Layout<1>, float> bias(mesh, {8});
            sw::fill(bias, 0.0f);
            sw::Tape<> tape;
            auto z = tape.variable(logits);
            auto square = sw::recompute(
                [&](auto x) {
                  auto gates = sw::route(x * 1.5, {.chosen = 3, .scores = RouterScores::sigmoid},
                                         {.bias = bias.share()})
                                   .gates;
                  return gates * gates;
                },
                kind)(z);
            for (std::size_t e = 0; e < 8; ++e) // as if an optimizer step came in between
              bias.mutable_data()[e] = static_cast<float>(e) * 10;
            sw::ShardedTensor<Tokens, double> seed(mesh, square.shape());
            sw::fill(seed, 1.0);
            tape.seed(square, std::move(seed));
            tape.backward();
            return whole_of(tape.gradient(z));
          };
          findings.expect(gradient(sw::Recompute::none) == gradient(sw::Recompute::full), "full");
          findings.expect(gradient(sw::Recompute::none) == gradient(sw::Recompute::selective), "selective");
        }) == "");
}

TEST_CASE("logits of 16 bits are routed in float, and ranks without tokens take part") {
  CHECK(on_ranks(3, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {3, 1});
          using Rows = sw::Layout<2, sw::Shard<0, dp>>;
          sw::ShardedTensor<Rows> numbers(mesh, {2, 4}); // none on the last rank
          sw::fill_normal(numbers, {5, 6});
          const auto narrow = sw::convert<sw::bfloat16>(numbers);
          const auto wide = sw::convert<float>(narrow);
          sw::Tape<> tape;
          auto z = tape.variable(narrow);
          const auto routing = sw::route(z, {.chosen = 2, .scores = RouterScores::softmax});
          const auto same = sw::route(tape.input(wide), {.chosen = 2, .scores = RouterScores::softmax});
          static_assert(std::is_same_v<decltype(routing.gates)::element, float>);
          findings.expect(whole_of(routing.gates.value()) == whole_of(same.gates.value()), "gates");
          for (std::size_t i = 0; i < routing.experts.local_size(); ++i)
            findings.expect(routing.experts.data()[i] == same.experts.data()[i], "choice");
        }) == "");
}

TEST_CASE(
    "a bias and padding of another mesh, and options and biases that differ between ranks, are errors") {
  CHECK(
      on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
        const Mesh mesh = mesh_of(world, {1, 2}), other = mesh_of(world, {1, 2});
        const auto logits = random_tensor<Tokens>(mesh, {2, 4, 4}, 3);
        sw::ShardedTensor<sw::Layout<1>> bias(other, {4});
        sw::fill(bias, 0);
        sw::ShardedTensor<sw::TokenLayout<Tokens>, std::int32_t> padding(other, {2, 4});
        sw::fill(padding, 0);
        const auto says = [&](const auto& program, const char* sentence) {
          try {
            program();
            findings.expect(false, "no error instead of ", sentence);
          } catch (const sw::Error& error) {
            const std::string text = error.what();
            findings.expect(text.find(sentence) != std::string::npos, text);
          }
        };
        const char* const meshes = "route: the tensors must be on one mesh, but they are on two";
        says([&] { static_cast<void>(sw::choose_experts(logits, {}, {.bias = bias.share()})); }, meshes);
        says([&] { static_cast<void>(sw::choose_experts(logits, {}, {.padding = padding})); }, meshes);

        const auto routed = [&](std::int64_t kept, float more) {
          sw::ShardedTensor<sw::Layout<1>> own(mesh, {4});
          for (std::size_t e = 0; e < 4; ++e)
            own.mutable_data()[e] = more;
          sw::Tape<> tape;
          tape.check_inputs(true);
          static_cast<void>(
              sw::route(tape.input(logits), {.groups = 2, .kept_groups = kept}, {.bias = own.share()}));
        };
        routed(1, 1);
        says(
            [&] { routed(1 + world.rank(), 1); },
            "route: all ranks along tp must give the same number of kept groups, but it is 1 on rank 0 and 2");
        says([&] { routed(1, static_cast<float>(world.rank())); },
             "Bias of the experts: ranks along tp, over which its layout replicates, must have equal values, "
             "but rank 1 differs from the first rank along it (update it from the counts of all ranks");
      }) == "");
}

TEST_CASE("inconsistent options of a router are errors") {
  const auto sentence = [](const RouterOptions& options) -> std::string {
    try {
      static_cast<void>(sw::detail::routing_rule(options, 8));
      return {};
    } catch (const sw::InvalidArgument& error) {
      return error.what();
    }
  };
  using Catch::Matchers::StartsWith;
  CHECK_THAT(sentence({.chosen = 9}), StartsWith("route: each token must choose at least 1"));
  CHECK_THAT(sentence({.groups = 3}), StartsWith("route: 1 to 64 groups must divide the experts"));
  CHECK_THAT(sentence({.groups = sw::kernels::most_expert_groups + 1}),
             StartsWith("route: 1 to 64 groups must divide the experts"));
  CHECK_THAT(sentence({.chosen = 3, .groups = 4, .kept_groups = 1}),
             StartsWith("route: the kept groups must hold the chosen experts"));
  CHECK_THAT(sentence({.scale = 0}), StartsWith("route: the route scale must be a positive number"));
  CHECK(sentence({.chosen = 8, .groups = 8, .kept_groups = 8}).empty());
}
