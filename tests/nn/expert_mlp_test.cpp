// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/heap_count.hpp"
#include "support/logged.hpp"
#include "support/predicted_run.hpp"
#include "support/ranks.hpp"

#include <shardwright/comm/decorated_transport.hpp>
#include <shardwright/comm/turns.hpp>
#include <shardwright/core/philox.hpp>
#include <shardwright/nn/experts/capacity.hpp>
#include <shardwright/nn/experts/layer.hpp>
#include <shardwright/nn/experts/mlp.hpp>
#include <shardwright/nn/layers/mlp.hpp>
#include <shardwright/tensor/kernels/experts/sort_by_expert.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/dry_run/call_log.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using nn_test::difference;
using nn_test::Vector;
using nn_test::whole_of;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;

using Mesh = sw::DeviceMesh<dp, ep, tp>;
using Extents = std::array<int, 3>;

[[nodiscard]] Mesh mesh_of(const sw::HostCommunicator& world, Extents extents) {
  return Mesh(world, sw::extent<dp>(extents[0]), sw::extent<ep>(extents[1]), sw::extent<tp>(extents[2]));
}

/// A layer and the choices of its tokens: the expert of a token and a slot, or -1.
struct Problem {
  std::int64_t experts = 4;
  std::int64_t slots = 2;
  std::int64_t sequences = 6;
  std::function<std::int64_t(std::int64_t token, std::int64_t slot)> choose;
};
constexpr std::int64_t width = 6, hidden = 5, sequence = 3;

/// Different experts for each token, at random.
[[nodiscard]] std::int64_t by_chance(std::int64_t experts, std::int64_t token, std::int64_t slot) {
  const auto word = sw::random_words({3, 3}, static_cast<std::uint64_t>(token)).word[0];
  return (static_cast<std::int64_t>(word % static_cast<std::uint64_t>(experts)) + slot) % experts;
}

const std::vector<Problem> problems{
    {4, 2, 6, [](std::int64_t t, std::int64_t k) { return by_chance(4, t, k); }},
    {5, 3, 5, [](std::int64_t t, std::int64_t k) { return t % 4 == 1 ? -1 : by_chance(5, t, k); }}, // padding
    {4, 4, 3, [](std::int64_t t, std::int64_t k) { return by_chance(4, t, k); }},                   // K = E
    {4, 1, 6, [](std::int64_t, std::int64_t) { return 2; }},                      // all to one
    {2, 2, 1, [](std::int64_t t, std::int64_t k) { return by_chance(2, t, k); }}, // ranks without tokens
    {3, 2, 4, [](std::int64_t, std::int64_t) { return -1; }},                     // no token has an expert
};

/// Tokens [sequences, sequence, width], split over dp and ep, experts owned by `Owners`, whose hidden
/// dimension is sharded over `Inner`.
template <class Element_, class Tokens_, class Owners, class Inner, class Zero = sw::DataParallel>
struct Kind {
  using Element = Element_;
  using Tokens = Tokens_;
  using Layer = sw::ExpertMlp<Tokens, Owners, Inner, sw::ModelPlan<Element, Zero>>;
};
/// Everything of the experts sharded over the axis that replicates them.
struct Zero3OverDp {
  using axes = sw::AxisList<dp>;
  template <sw::LayoutType Compute> using Stored = sw::ShardedOver<Compute, axes>;
  template <sw::LayoutType Compute> using State = sw::ShardedOver<Compute, axes>;
  template <sw::LayoutType Compute, sw::LayoutType Raw>
  using Accumulator = sw::ReducedGradient<Raw, State<Compute>, axes>;
};
using Rows = sw::Layout<3, sw::Shard<0, dp, ep>>;
using Both = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, ep>>;
using All = sw::Layout<3, sw::Shard<0, dp, ep>, sw::Shard<1, tp>>;
using None = sw::AxisList<>;

template <class Tokens> [[nodiscard]] auto choices_of(const Mesh& mesh, const Problem& problem) {
  sw::ShardedTensor<Tokens, std::int32_t> out(mesh, {problem.sequences, sequence, problem.slots});
  const auto offset = out.local_offset();
  const auto view = out.mutable_local();
  for (std::size_t b = 0; b < view.extent(0); ++b)
    for (std::size_t s = 0; s < view.extent(1); ++s)
      for (std::int64_t k = 0; k < problem.slots; ++k) {
        const std::int64_t token =
            (offset[0] + static_cast<std::int64_t>(b)) * sequence + offset[1] + static_cast<std::int64_t>(s);
        view(b, s, static_cast<std::size_t>(k)) = static_cast<std::int32_t>(problem.choose(token, k));
      }
  return out;
}
template <class Tokens, class Element>
[[nodiscard]] auto random_of(const Mesh& mesh, const Problem& problem, std::int64_t last,
                             std::uint64_t number) {
  sw::ShardedTensor<Tokens, Element> out(mesh, {problem.sequences, sequence, last});
  sw::fill_normal(out, {11, number});
  return out;
}
[[nodiscard]] sw::ExpertSizes sizes_of(const Problem& problem) {
  return {width, hidden, {problem.experts, problem.sequences * sequence * problem.slots}};
}

/// Ends a step of one token: the norm of its gradients.
[[nodiscard]] double end_step(const Mesh& mesh, auto& accumulator) {
  using Sums = sw::Layout<0, sw::Partial<sw::Sum, dp, ep>>;
  const bool first = mesh.coordinate<dp>() == 0 && mesh.coordinate<ep>() == 0;
  accumulator.add(sw::LossSum<Sums>{0}, sw::TokenCount<Sums>{first ? 1 : 0});
  return accumulator.finish().gradient_norm;
}

/// Value, gradients of x, of the gates and of the three matrices, and the norm of those of the matrices.
template <class K>
[[nodiscard]] std::vector<Vector> run(const Mesh& mesh, const Problem& problem, sw::Recompute recompute) {
  using Element = typename K::Element;
  using Tokens = typename K::Tokens;
  typename K::Layer layer(mesh, sizes_of(problem), sw::Initial::normal(0.6), sw::Initial::normal(0.6));
  sw::initialize(layer, 5);
  sw::GradAccumulator accumulator(layer);
  sw::Tape<> tape;
  std::vector<Vector> out;
  auto x = tape.variable(random_of<Tokens, Element>(mesh, problem, width, 1));
  auto gates = tape.variable(random_of<Tokens, Element>(mesh, problem, problem.slots, 2));
  {
    const auto choices = choices_of<Tokens>(mesh, problem);
    const auto call = [&](auto&& tokens) { return layer(tokens, choices, gates); };
    const auto y = sw::recompute(call, recompute)(x);
    out.push_back(whole_of(y.value()));
    tape.seed(y, random_of<Tokens, Element>(mesh, problem, width, 3));
  }
  tape.backward();
  const double norm = end_step(mesh, accumulator);
  out.push_back(whole_of(tape.gradient(x)));
  out.push_back(whole_of(tape.gradient(gates)));
  layer.members().each(
      [&](std::string_view, auto& part) { out.push_back(whole_of(part.weight().gradient())); });
  out.push_back({norm});
  return out;
}

constexpr std::array<const char*, 7> names{"value", "of x",    "of gates", "of gate",
                                           "of up", "of down", "norm"};

/// Compares a mesh with a mesh of this rank only, which then owns all experts.
template <class K>
void compare(sw::HostCommunicator world, Extents extents, double tolerance, sw::Recompute recompute,
             Findings& findings) {
  const Mesh mesh = mesh_of(world, extents);
  const Mesh alone = mesh_of(world.split(world.rank(), 0, "alone"), {1, 1, 1});
  for (std::size_t number = 0; number < problems.size(); ++number) {
    const auto values = run<K>(mesh, problems[number], recompute);
    const auto wanted = run<K>(alone, problems[number], sw::Recompute::none);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const bool zero = std::all_of(wanted[i].begin(), wanted[i].end(), [](double v) { return v == 0; });
      findings.expect(zero == (number == 5), names[i], " of problem ", number, " is zero: ", zero);
      const double apart = zero ? double(values[i] != wanted[i]) : difference(values[i], wanted[i]);
      findings.expect(apart <= tolerance, names[i], " of problem ", number, " on ", extents[0], ",",
                      extents[1], ",", extents[2], " differs by ", apart);
    }
  }
}

using OverEp = Kind<double, Rows, sw::AxisList<ep>, None>;
using OverTwo = Kind<double, Both, sw::AxisList<dp, ep>, None>;
using OverTensor = Kind<double, All, sw::AxisList<tp, ep>, None>; // major to minor against the mesh's order
using InnerTensor = Kind<double, Rows, sw::AxisList<ep>, sw::AxisList<tp>>;
using Sharded = Kind<double, Rows, sw::AxisList<ep>, None, Zero3OverDp>;
using InFloat = Kind<float, Rows, sw::AxisList<ep>, None>;

template <class K>
void compare_on(std::initializer_list<Extents> meshes, double tolerance,
                sw::Recompute recompute = sw::Recompute::none) {
  for (const Extents extents : meshes)
    CHECK(on_ranks(extents[0] * extents[1] * extents[2],
                   [&, extents](const sw::HostCommunicator& world, Findings& findings) {
                     compare<K>(world, extents, tolerance, recompute, findings);
                   }) == "");
}

/// Element i of the sum over the ranks.
[[nodiscard]] double sum_over(sw::HostCommunicator ranks, double value) {
  std::vector<double> sum{value};
  ranks.all_reduce_in_place(sum);
  return sum.front();
}

/// A stream that is split along the sequence between the layers, and tensor parallelism inside them.
struct StreamLayouts {
  using Residual = sw::Layout<3, sw::Shard<0, dp, ep>, sw::Shard<1, tp>>;
  using Tokens = Rows;
  using Dense = Rows;
  using GateUp = sw::Layout<3, sw::Shard<2, tp>>;
  using Down = sw::Layout<2, sw::Shard<0, tp>>;
};
/// Gates by a trained matrix, choices at random.
class SmallRouter {
public:
  SmallRouter(const Mesh& mesh, const Problem& problem)
      : choices_(choices_of<Rows>(mesh, problem)),
        weight_(mesh, {width, problem.slots}, sw::Initial::normal(0.5)) {}

  struct Chosen {
    sw::ShardedTensor<Rows, const std::int32_t> experts;
    sw::Var<Rows, double> gates;
  };
  [[nodiscard]] Chosen operator()(auto x, sw::SourceLocation where) {
    return {choices_.share(), sw::sigmoid(weight_(std::move(x), where), where)};
  }
  [[nodiscard]] auto members() { return sw::members("weight", weight_); }
  [[nodiscard]] auto& weight() { return weight_.weight(); }

private:
  sw::ShardedTensor<Rows, std::int32_t> choices_;
  sw::Linear<Rows, sw::Layout<2>, sw::ModelPlan<double>> weight_;
};

/// Value, gradients of x, of the router and of the experts' matrices, and the norm of all weights' gradients,
/// with an MLP beside the experts.
[[nodiscard]] std::vector<Vector> run_layer(const Mesh& mesh) {
  using Plan = sw::ModelPlan<double>;
  using Experts = sw::ExpertMlp<Rows, sw::AxisList<ep>, sw::AxisList<tp>, Plan>;
  const Problem& problem = problems[0];
  const auto wide = sw::Initial::normal(0.6);
  sw::MoeLayer<StreamLayouts, SmallRouter, Experts, sw::SwiGlu<StreamLayouts, Plan>> layer(
      std::forward_as_tuple(mesh, problem), std::forward_as_tuple(mesh, sizes_of(problem), wide, wide),
      std::forward_as_tuple(mesh, width, hidden, wide, wide));
  sw::initialize(layer, 5);
  sw::GradAccumulator accumulator(layer);
  sw::Tape<> tape;
  std::vector<Vector> out;
  using Stream = StreamLayouts::Residual;
  auto x = tape.variable(random_of<Stream, double>(mesh, problem, width, 1));
  {
    const auto y = layer(x);
    static_assert(std::is_same_v<decltype(y)::layout, Stream>);
    out.push_back(whole_of(y.value()));
    tape.seed(y, random_of<Stream, double>(mesh, problem, width, 3));
  }
  tape.backward();
  const double norm = end_step(mesh, accumulator);
  out.push_back(whole_of(tape.gradient(x)));
  out.push_back(whole_of(layer.router().weight().gradient()));
  layer.experts().members().each(
      [&](std::string_view, auto& part) { out.push_back(whole_of(part.weight().gradient())); });
  out.push_back({norm});
  return out;
}

/// A step in which both ranks receive as many rows as they have room for.
template <class Target, class AtStep>
void balanced_step(const sw::HostCommunicator& world, const AtStep& at_step) {
  const Mesh mesh = mesh_of(world, {1, 2, 1});
  using Plan = sw::ModelPlan<double, sw::DataParallel, Target>;
  sw::ExpertMlp<Rows, sw::AxisList<ep>, None, Plan> layer(mesh, {width, hidden, {2, 18}},
                                                          sw::Initial::normal(1), sw::Initial::normal(1));
  sw::initialize(layer, 5);
  const sw::GradAccumulator accumulator(layer);
  sw::ShardedTensor<Rows, double, Target> x(mesh, {6, sequence, width}), gates(mesh, {6, sequence, 2});
  sw::ShardedTensor<Rows, std::int32_t, Target> chosen(mesh, {6, sequence, 2});
  sw::fill(x, 1.0);
  sw::fill(gates, 0.5);
  if constexpr (!sw::counts_only<Target>)
    for (std::size_t i = 0; i < chosen.local_size(); ++i)
      chosen.mutable_data()[i] = static_cast<std::int32_t>(i % 2);
  sw::Tape<Target> tape;
  {
    const auto y = layer(tape.variable(std::move(x)), chosen, tape.variable(std::move(gates)));
    tape.seed(y, y.value());
  }
  tape.backward();
  at_step(0, mesh.core().resources<Target>().statistics());
}

/// Ranks that do not read one another's memory, as if they were processes.
class Apart final : public sw::detail::DecoratedTransport<sw::HostCommunicator> {
public:
  using DecoratedTransport::DecoratedTransport;
  [[nodiscard]] sw::Transport& undecorated() noexcept override { return *this; }

private:
  [[nodiscard]] std::shared_ptr<sw::Transport> around(sw::HostCommunicator part) const override {
    return std::make_shared<Apart>(std::move(part));
  }
};

const Problem fewer_rows{4, 1, 4, [](std::int64_t t, std::int64_t) { return t % 4; }};

/// Values and gradients of two microbatches that go through one layer, the first with more rows: interleaved,
/// or one after the other.
/// @param apart the second one's forward pass runs ahead, and its backward pass beside the first one's
/// forward pass, as DualPipe pairs them
[[nodiscard]] std::vector<Vector> run_two(const Mesh& mesh, sw::Turns* turns, bool apart = false) {
  const std::array<const Problem*, 2> microbatches{&problems[0], &fewer_rows};
  OverEp::Layer layer(mesh, {width, hidden, {4, 64}}, sw::Initial::normal(0.6), sw::Initial::normal(0.6));
  sw::initialize(layer, 5);
  sw::GradAccumulator accumulator(layer);
  std::array<sw::Tape<>, 2> tapes;
  std::vector<Vector> out(4);
  using Input = decltype(tapes[0].variable(random_of<Rows, double>(mesh, problems[0], width, 1)));
  std::array<std::optional<Input>, 2> inputs;
  const auto forward = [&](std::size_t i) {
    const Problem& problem = *microbatches[i];
    const Input& x =
        inputs[i].emplace(tapes[i].variable(random_of<Rows, double>(mesh, problem, width, 1 + i)));
    auto gates = tapes[i].variable(random_of<Rows, double>(mesh, problem, problem.slots, 3 + i));
    const auto y = layer(x, choices_of<Rows>(mesh, problem), gates);
    out[i] = whole_of(y.value());
    tapes[i].seed(y, random_of<Rows, double>(mesh, problem, width, 5 + i));
  };
  const auto backward = [&](std::size_t i) {
    tapes[i].backward();
    out[2 + i] = whole_of(tapes[i].gradient(*inputs[i]));
  };
  const auto pass = [&](std::size_t i) {
    if (!apart || i == 0)
      forward(i);
    if (!apart || i == 1)
      backward(i);
  };
  if (apart)
    forward(1);
  //! [turns]
  if (turns != nullptr) {
    turns->run([&] { pass(0); }, [&] { pass(1); });
  } else {
    pass(0);
    pass(1);
  }
  //! [turns]
  if (apart)
    backward(0);
  out.push_back({end_step(mesh, accumulator)});
  layer.members().each(
      [&](std::string_view, auto& part) { out.push_back(whole_of(part.weight().gradient())); });
  return out;
}

[[nodiscard]] int calls_of(const sw::CallLog& log, sw::Operation operation) {
  return static_cast<int>(
      std::count_if(log.calls().begin(), log.calls().end(),
                    [&](const sw::RecordedCall& call) { return call.operation == operation; }));
}

} // namespace

TEST_CASE("experts spread over ranks give the value, gradients and norm of one rank with all experts",
          "[moe_09][moe_10][moe_12]") {
  compare_on<OverEp>({{1, 2, 1}, {1, 4, 1}, {2, 2, 1}, {3, 1, 1}}, 1e-13);
  compare_on<OverTwo>({{2, 2, 1}, {4, 1, 1}}, 1e-13);
  compare_on<OverTensor>({{1, 2, 2}, {2, 1, 2}}, 1e-13);
  compare_on<InnerTensor>({{1, 2, 2}, {2, 1, 2}}, 1e-13);
  compare_on<Sharded>({{2, 2, 1}, {3, 1, 1}}, 1e-13);
  compare_on<InFloat>({{1, 2, 1}, {2, 2, 1}}, 2e-6);
}

TEST_CASE("a layer adds routed and shared experts in the stream's layout, on every mesh",
          "[moe_08][four_processes]") {
  for (const Extents extents : {Extents{1, 2, 2}, {2, 1, 2}, {2, 2, 1}})
    CHECK(on_ranks(4, [extents](sw::HostCommunicator world, Findings& findings) {
            const auto values = run_layer(mesh_of(world, extents));
            const auto wanted = run_layer(mesh_of(world.split(world.rank(), 0, "alone"), {1, 1, 1}));
            for (std::size_t i = 0; i < names.size(); ++i)
              findings.expect(difference(values[i], wanted[i]) < 1e-13, "number ", i, " differs by ",
                              difference(values[i], wanted[i]));
          }) == "");
}

TEST_CASE("a replay uses the route of the first pass") {
  compare_on<OverEp>({{1, 2, 1}, {2, 2, 1}}, 1e-13, sw::Recompute::full);
  compare_on<OverEp>({{1, 2, 1}}, 1e-13, sw::Recompute::selective);
}

TEST_CASE("gradients of an expert layer are its slopes, and its value agrees with the formula",
          "[four_processes]") {
  CHECK(on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {2, 2, 1});
          const Problem& problem = problems[1];
          OverEp::Layer layer(mesh, sizes_of(problem), sw::Initial::normal(0.6), sw::Initial::normal(0.6));
          sw::initialize(layer, 5);
          const auto x = random_of<Rows, double>(mesh, problem, width, 1);
          const auto gates = random_of<Rows, double>(mesh, problem, problem.slots, 2);
          const auto choices = choices_of<Rows>(mesh, problem);
          const auto call = [&](auto tokens, auto weights) { return layer(tokens, choices, weights); };
          const sw::GradientDifference worst =
              sw::check_gradients(call, sw::members("x", x, "gates", gates, "layer", layer));
          findings.expect(worst.error < 1e-6, "slopes differ by ", worst.error);

          std::vector<Vector> matrices;
          layer.members().each(
              [&](std::string_view, auto& part) { matrices.push_back(whole_of(part.weight().stored())); });
          const Vector tokens = whole_of(x), factors = whole_of(gates);
          Vector wanted(tokens.size());
          for (std::int64_t t = 0; t < problem.sequences * sequence; ++t)
            for (std::int64_t k = 0; k < problem.slots; ++k) {
              const std::int64_t e = problem.choose(t, k);
              for (std::int64_t h = 0; e >= 0 && h < hidden; ++h) {
                double gate = 0, up = 0;
                for (std::int64_t i = 0; i < width; ++i) {
                  const auto at = static_cast<std::size_t>((e * width + i) * hidden + h);
                  gate += tokens[static_cast<std::size_t>(t * width + i)] * matrices[0][at];
                  up += tokens[static_cast<std::size_t>(t * width + i)] * matrices[1][at];
                }
                const double value = factors[static_cast<std::size_t>(t * problem.slots + k)] * gate /
                                     (1 + std::exp(-gate)) * up;
                for (std::int64_t i = 0; i < width; ++i)
                  wanted[static_cast<std::size_t>(t * width + i)] +=
                      value * matrices[2][static_cast<std::size_t>((e * hidden + h) * width + i)];
              }
            }
          sw::Tape<> tape(sw::Recording::evaluation);
          const double apart = difference(whole_of(call(tape.input(x), tape.input(gates)).value()), wanted);
          findings.expect(apart < 1e-13, "the value differs by ", apart);
        }) == "");
}

TEST_CASE("choices are counted and sorted by expert, by passes of one thread and by a sort") {
  namespace kernels = sw::kernels::detail;
  constexpr std::int32_t experts = 5;
  const sw::DefaultTarget::execution_space execution;
  for (const std::size_t pairs : {0, 1, 500}) {
    std::vector<std::int32_t> choices(pairs), numbers(pairs), bins(pairs), sorted(pairs), places(pairs, 99);
    for (std::size_t i = 0; i < pairs; ++i)
      choices[i] = static_cast<std::int32_t>(sw::random_words({3, 4}, i).word[0] % 8) - 2; // of -2 to 5
    std::vector<std::int32_t> order(pairs), wanted_places(pairs), counts(experts + 2);
    std::vector<std::int32_t> memory(sw::kernels::sort_by_expert_workspace(execution, pairs, experts) /
                                     sizeof(std::int32_t));
    sw::kernels::sort_by_expert(execution, choices.data(), pairs, experts, order.data(), wanted_places.data(),
                                counts.data(), memory.data());
    // The work of a device's library, with these kernels before and after it.
    for (std::size_t i = 0; i < pairs; ++i)
      kernels::BinChoices{choices.data(), experts, bins.data(), numbers.data()}(i);
    std::stable_sort(numbers.begin(), numbers.end(), [&](std::int32_t a, std::int32_t b) {
      return bins[static_cast<std::size_t>(a)] < bins[static_cast<std::size_t>(b)];
    });
    for (std::size_t i = 0; i < pairs; ++i)
      sorted[i] = bins[static_cast<std::size_t>(numbers[i])];
    for (std::size_t i = 0; i < pairs; ++i)
      kernels::PlaceChoices{sorted.data(), numbers.data(), experts, places.data()}(i);
    CHECK(order == numbers);
    CHECK(wanted_places == places);
    for (std::int32_t bin = 0; bin < experts + 2; ++bin)
      CHECK(counts[static_cast<std::size_t>(bin)] == std::count(sorted.begin(), sorted.end(), bin));
    for (std::size_t i = 0; i < pairs; ++i)
      CHECK((choices[i] >= 0 && choices[i] < experts
                 ? order[static_cast<std::size_t>(places[i])] == static_cast<std::int32_t>(i)
                 : places[i] == -1));
  }
}

TEST_CASE("dispatch keeps the order of tokens, and combine is its adjoint") {
  for (const Extents extents : {Extents{1, 1, 1}, {1, 3, 1}, {2, 2, 1}})
    CHECK(on_ranks(extents[0] * extents[1], [extents](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world, extents);
            for (const Problem& problem : problems) {
              auto x = random_of<Rows, double>(mesh, problem, width, 1);
              const auto first = x.local_offset()[0] * sequence;
              for (std::size_t t = 0; t * width < x.local_size(); ++t)
                x.mutable_data()[t * width] = static_cast<double>(first) + static_cast<double>(t);
              const auto rows = sw::dispatch<ep>(x, choices_of<Rows>(mesh, problem), sizes_of(problem).set);
              using Grouped = sw::Ragged<Rows, sw::AxisList<ep>>;
              static_assert(
                  std::is_same_v<std::remove_cv_t<decltype(rows)>, sw::ShardedTensor<Grouped, double>>);
              const sw::DimensionBlock own =
                  sw::chunk_of({0, problem.experts}, extents[1], mesh.coordinate<ep>());
              const auto loads = sw::rows_per_expert(rows);
              findings.expect(std::int64_t(loads.size()) == own.size, "experts: ", loads.size());
              const double* row = rows.data();
              for (std::size_t e = 0; e < loads.size(); ++e)
                for (std::int64_t i = 0; i < loads[e]; ++i, row += width) {
                  const auto token = static_cast<std::int64_t>(row[0]);
                  bool chose = false;
                  for (std::int64_t k = 0; k < problem.slots; ++k)
                    chose = chose || problem.choose(token, k) == own.offset + std::int64_t(e);
                  findings.expect(chose && (i == 0 || row[0] > row[-width]), "row ", i, " of expert ", e);
                }
              std::int64_t pairs = 0;
              for (std::int64_t t = 0; t < problem.sequences * sequence; ++t)
                for (std::int64_t k = 0; k < problem.slots; ++k)
                  pairs += problem.choose(t, k) >= 0 ? 1 : 0;
              const double sent = sum_over(
                  world, static_cast<double>(std::accumulate(loads.begin(), loads.end(), std::int64_t{0})));
              findings.expect(sent == static_cast<double>(pairs), sent, " rows of ", pairs);

              sw::ShardedTensor<Grouped, double> other(rows.resources(), rows.shape());
              for (std::size_t i = 0; i < other.local_size(); ++i)
                other.mutable_data()[i] = std::sin(static_cast<double>(i + 100 * std::size_t(world.rank())));
              sw::ShardedTensor<Rows, double> ones(mesh, {problem.sequences, sequence, problem.slots});
              sw::fill(ones, 1.0);
              const auto back = sw::combine(other, ones);
              double left = 0, right = 0;
              for (std::size_t i = 0; i < other.local_size(); ++i)
                left += rows.data()[i] * other.data()[i];
              for (std::size_t i = 0; i < x.local_size(); ++i)
                right += x.data()[i] * back.data()[i];
              left = sum_over(world, left), right = sum_over(world, right);
              findings.expect(std::abs(left - right) <= 1e-12 * (1 + std::abs(left)), left, " against ",
                              right);
            }
          }) == "");
}

TEST_CASE("an expert without tokens gives its weights a gradient of zero") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const auto values = run<OverEp>(mesh_of(world, {1, 2, 1}), problems[3], sw::Recompute::none);
          for (const std::size_t matrix : {3U, 4U, 5U})
            for (std::size_t i = 0; i < values[matrix].size(); ++i)
              findings.expect((values[matrix][i] != 0) == (i / (width * hidden) == 2), names[matrix], " at ",
                              i);
        }) == "");
}

TEST_CASE("tokens need one exchange in each direction, and a replay does not count again") {
  for (const sw::Recompute recompute : {sw::Recompute::none, sw::Recompute::full})
    CHECK(on_ranks(2, [recompute](const sw::HostCommunicator& world, Findings& findings) {
            const auto log = std::make_shared<sw::CallLog>();
            const Mesh mesh = mesh_of(shardwright_test::logged(world, log), {1, 2, 1});
            const Problem& problem = problems[0];
            OverEp::Layer layer(mesh, sizes_of(problem), sw::Initial::normal(0.6), sw::Initial::normal(0.6));
            sw::initialize(layer, 5);
            const sw::GradAccumulator accumulator(layer);
            sw::Tape<> tape;
            auto x = tape.variable(random_of<Rows, double>(mesh, problem, width, 1));
            auto gates = tape.variable(random_of<Rows, double>(mesh, problem, problem.slots, 2));
            const auto choices = choices_of<Rows>(mesh, problem);
            log->clear();
            {
              const auto call = [&](auto&& tokens) { return layer(tokens, choices, gates); };
              const auto y = sw::recompute(call, recompute)(x);
              tape.seed(y, random_of<Rows, double>(mesh, problem, width, 3));
            }
            findings.expect(calls_of(*log, sw::Operation::all_gather) == 1 &&
                                calls_of(*log, sw::Operation::all_to_all) == 2 && log->calls().size() == 3,
                            "forward: ", log->calls().size());
            log->clear();
            tape.backward();
            // Exchanges of combine: rows, gates, gradients of gates; of dispatch: rows, and rows again in a
            // replay.
            const int rows = recompute == sw::Recompute::full ? 5 : 4;
            findings.expect(calls_of(*log, sw::Operation::all_to_all) == rows &&
                                log->calls().size() == static_cast<std::size_t>(rows),
                            "backward: ", log->calls().size());
          }) == "");
}

TEST_CASE("rows that thread ranks read in place give the same bits as rows that are sent") {
  for (const Extents extents : {Extents{1, 2, 1}, {2, 2, 1}, {1, 3, 1}})
    CHECK(on_ranks(extents[0] * extents[1], [extents](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh near = mesh_of(world, extents);
            const Mesh apart = mesh_of(sw::HostCommunicator(std::make_shared<Apart>(world)), extents);
            for (const Problem& problem : problems)
              findings.expect(run<OverEp>(near, problem, sw::Recompute::none) ==
                                  run<OverEp>(apart, problem, sw::Recompute::none),
                              "problem ", &problem - problems.data());
          }) == "");
}

TEST_CASE("microbatches in turns give the same bits as one after the other, with exchanges in flight",
          "[four_processes]") {
  CHECK(on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
          const auto turns = std::make_shared<sw::Turns>();
          const auto log = std::make_shared<sw::CallLog>();
          const Mesh mesh = mesh_of(sw::in_turns(shardwright_test::logged(world, log), turns), {2, 2, 1});
          const auto exchanges = [&log] {
            std::vector<std::size_t> bytes;
            for (const sw::RecordedCall& call : log->calls())
              if (call.operation == sw::Operation::all_to_all)
                bytes.push_back(call.started ? call.bytes : 0);
            log->clear();
            return bytes;
          };
          const auto wanted = run_two(mesh, nullptr);
          const auto alone = exchanges();
          findings.expect(alone.size() == 12 && std::count(alone.begin(), alone.end(), 0) == 8,
                          "only gates and their gradients are started");
          findings.expect(run_two(mesh, turns.get()) == wanted, "the bits");
          const auto bytes = exchanges();
          // Dispatch and combine; gates and gradients of rows; gradients of gates and, when experts have
          // computed, of the tokens: of the first microbatch, then of the second, which has fewer rows.
          const std::array<std::array<std::size_t, 2>, 6> pairs{
              {{0, 1}, {2, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}}};
          for (const auto [first, second] : pairs)
            findings.expect(bytes.size() == 12 && bytes[first] > bytes[second] && bytes[second] > 0,
                            "exchanges ", first, " and ", second);
          findings.expect(bytes[5] == width * bytes[4] && bytes[9] == width * bytes[8], "numbers go first");
          findings.expect(run_two(mesh, turns.get(), true) == run_two(mesh, nullptr, true),
                          "the bits of a forward pass beside a backward pass");
        }) == "");
}

TEST_CASE("a layer of experts allocates nothing from the third step on") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {1, 2, 1});
          const Problem& problem = problems[1];
          OverEp::Layer layer(mesh, sizes_of(problem), sw::Initial::normal(0.6), sw::Initial::normal(0.6));
          sw::initialize(layer, 5);
          sw::GradAccumulator accumulator(layer);
          const auto x = random_of<Rows, double>(mesh, problem, width, 1);
          const auto gates = random_of<Rows, double>(mesh, problem, problem.slots, 2);
          const auto upstream = random_of<Rows, double>(mesh, problem, width, 3);
          const auto choices = choices_of<Rows>(mesh, problem);
          sw::Tape<> tape;
          std::size_t heap = 0, pool = 0;
          for (int step = 1; step <= 5; ++step) {
            tape.restart();
            {
              const auto kept = sw::within_capacity(choices, problem.experts, 1.5);
              const auto y = layer(tape.variable(x), kept.experts, tape.variable(gates));
              tape.seed(y, upstream.share());
            }
            tape.backward();
            static_cast<void>(end_step(mesh, accumulator));
            accumulator.restart();
            if (step == 2) {
              heap = shardwright_test::heap_allocations();
              pool = x.resources().statistics().allocations;
            }
          }
          const std::size_t taken = x.resources().statistics().allocations - pool;
          findings.expect(taken == 0, "the pool took ", taken, " blocks");
          const std::size_t allocations = shardwright_test::heap_allocations() - heap;
          findings.expect(!shardwright_test::counts_heap || allocations == 0, allocations, " allocations");
        }) == "");
}

TEST_CASE("a dispatch without room, or with an invalid expert, is an error on every rank") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {1, 2, 1});
          const Problem& all_to_one = problems[3];
          const auto x = random_of<Rows, double>(mesh, all_to_one, width, 1);
          const auto choices = choices_of<Rows>(mesh, all_to_one);
          const std::string full = failure_of<sw::InvalidArgument>(
              [&] { static_cast<void>(sw::dispatch<ep>(x, choices, {.experts = 4, .most_rows = 17})); });
          findings.expect(has(full,
                              "dispatch: a rank may receive at most 17 rows, but the owner of experts 2 to 3 "
                              "would receive 18 (raise most_rows"),
                          full);
          const std::string none = failure_of<sw::InvalidArgument>(
              [&] { static_cast<void>(sw::dispatch<ep>(x, choices, {.experts = 2, .most_rows = 18})); });
          findings.expect(has(none,
                              "every choice must be an expert below 2, or -1 for none, but token 0 of this "
                              "rank has 2 (take them from the router"),
                          none);

          const auto rows = sw::dispatch<ep>(x, choices, {.experts = 4, .most_rows = 18});
          const auto others = sw::dispatch<ep>(x, choices, {.experts = 4, .most_rows = 18});
          const std::string two =
              failure_of<sw::InvalidArgument>([&] { static_cast<void>(sw::multiply(rows, others)); });
          findings.expect(
              has(two, "multiply: both operands must come from the same dispatch, but they come from two"),
              two);
          sw::ShardedTensor<sw::Layout<3, sw::Shard<0, ep>>, double> few(mesh, {3, width, hidden});
          const std::string count =
              failure_of<sw::InvalidArgument>([&] { static_cast<void>(sw::grouped(rows, few)); });
          findings.expect(has(count,
                              "grouped: the weights of 4 experts must be [4, in, out], with in the 6 columns "
                              "of the rows, but they are [3, 6, 5]"),
                          count);
          const auto gates = random_of<Rows, double>(mesh, all_to_one, 2, 2);
          const std::string slots =
              failure_of<sw::InvalidArgument>([&] { static_cast<void>(sw::combine(rows, gates)); });
          findings.expect(has(slots,
                              "combine: the gates must be those of the dispatched tokens, one for each of "
                              "their 1 slots"),
                          slots);
        }) == "");
}

TEST_CASE(
    "a dry run has the memory, calls and products of ranks that receive as many rows as they have room for") {
  const auto predict = [](int rank) {
    return sw::dry_run(2, rank, [](const sw::HostCommunicator& world) {
      balanced_step<sw::Counting<sw::DefaultTarget>>(world, [](int, const sw::PoolStatistics&) {});
    });
  };
  CHECK(on_ranks(2, [&](const sw::HostCommunicator& world, Findings& findings) {
          const sw::DryRun predicted = predict(world.rank());
          findings.expect(predicted.flops == 9 * 2.0 * 18 * width * hidden, predicted.flops, " operations");
          shardwright_test::expect_predicted(
              predicted, world,
              [](const sw::HostCommunicator& ranks, const auto& at_step) {
                balanced_step<sw::DefaultTarget>(ranks, at_step);
              },
              "a step", findings);
        }) == "");
}

TEST_CASE("a dry run on a reproducible target has terms of some rows, but not too many") {
  using Target = sw::Counting<sw::Reproducible<sw::DefaultTarget>>;
  for (const std::int64_t experts : {2, 700}) // more rows than a term takes, and experts without rows
    static_cast<void>(sw::dry_run(1, 0, [experts](const sw::HostCommunicator& world) {
      const Mesh mesh = mesh_of(world, {1, 1, 1});
      const sw::ShardedTensor<Rows, float, Target> x(mesh, {1, 600, width});
      const sw::ShardedTensor<Rows, std::int32_t, Target> choices(mesh, {1, 600, 1});
      const auto rows = sw::dispatch<ep>(x, choices, {.experts = experts, .most_rows = 600});
      const auto& leaves = rows.shape().route().leaf_rows;
      REQUIRE(leaves.back() == 600);
      for (std::size_t i = 1; i < leaves.size(); ++i) {
        CHECK(leaves[i] > leaves[i - 1]);
        CHECK(leaves[i] - leaves[i - 1] <= 256);
      }
    }));
}

TEST_CASE("an expert keeps its first choices up to its capacity, on every mesh the same") {
  using Crossed = sw::Layout<3, sw::Shard<0, ep, dp>>; // tokens against the order of the mesh
  for (const std::size_t number : {0U, 1U, 3U, 4U, 5U})
    for (const Extents extents : {Extents{1, 1, 1}, {1, 3, 1}, {2, 2, 1}}) {
      const Problem& problem = problems[number];
      std::vector<std::int64_t> taken(static_cast<std::size_t>(problem.experts));
      std::vector<std::int64_t> wanted;
      std::int64_t pairs = 0;
      for (std::int64_t t = 0; t < problem.sequences * sequence; ++t)
        for (std::int64_t k = 0; k < problem.slots; ++k)
          pairs += problem.choose(t, k) >= 0 ? 1 : 0;
      const std::int64_t capacity = (pairs + problem.experts - 1) / problem.experts;
      std::int64_t dropped = 0;
      for (std::int64_t t = 0; t < problem.sequences * sequence; ++t)
        for (std::int64_t k = 0; k < problem.slots; ++k) {
          const std::int64_t e = problem.choose(t, k);
          const bool full = e >= 0 && taken[static_cast<std::size_t>(e)]++ >= capacity;
          dropped += full ? 1 : 0;
          wanted.push_back(full ? -1 : e);
        }
      CHECK(on_ranks(extents[0] * extents[1], [&](const sw::HostCommunicator& world, Findings& findings) {
              const Mesh mesh = mesh_of(world, extents);
              const auto kept = sw::within_capacity(choices_of<Crossed>(mesh, problem), problem.experts, 1.0);
              const auto first =
                  static_cast<std::size_t>(kept.experts.local_offset()[0] * sequence * problem.slots);
              for (std::size_t i = 0; i < kept.experts.local_size(); ++i)
                findings.expect(kept.experts.data()[i] == wanted[first + i], "pair ", first + i, " of ",
                                number);
              findings.expect(kept.capacity == capacity && kept.dropped == dropped, kept.capacity, ", ",
                              kept.dropped);
            }) == "");
    }
}
