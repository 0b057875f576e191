// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/predicted_run.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/attention/latent.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/tape.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;

//! [layouts]
/// With the stream split over tp along the sequence, or whole there.
template <bool sequence_parallel> struct Where {
  using Tokens = sw::Layout<3, sw::Shard<0, dp>>; // [batch, sequence, ...]
  using Residual =
      std::conditional_t<sequence_parallel, sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, tp>>, Tokens>;
  using Qkv = sw::Layout<3, sw::Shard<1, tp>>; // [rank, heads, ...]
  using AttentionInput = sw::Layout<4, sw::Shard<0, dp>, sw::Shard<2, tp>>;
  using Output = sw::Layout<2, sw::Shard<0, tp>>; // [heads * value width, width]
};
//! [layouts]
//! [context]
/// With sequences split over cp; attention has whole ones of some heads.
struct OverContext {
  using Tokens = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, cp>>;
  using Residual = Tokens;
  using Qkv = sw::Layout<3, sw::Shard<1, tp>>;
  using AttentionInput = sw::Layout<4, sw::Shard<0, dp>, sw::Shard<2, tp, cp>>;
  using Output = sw::Layout<2, sw::Shard<0, tp>>;
};
//! [context]
template <class Zero>
using ContextModule = sw::MultiHeadLatentAttention<OverContext, sw::ModelPlan<double, Zero>>;
using ContextMesh = sw::DeviceMesh<dp, cp, tp>;

template <bool sequence_parallel, bool compressed = true, class Target = sw::DefaultTarget>
using Module = sw::MultiHeadLatentAttention<Where<sequence_parallel>,
                                            sw::ModelPlan<double, sw::DataParallel, Target>, compressed>;

//! [gradient]
/// The compressing matrices are the same on all ranks of tp; the gradients of ranks that split the tokens are
/// added.
template <bool sequence_parallel>
using DownGradient = sw::MatmulLayout<typename Where<sequence_parallel>::Residual,
                                      sw::Gradient<typename Where<sequence_parallel>::Residual>,
                                      sw::MatmulForm::left_transposed>;
static_assert(std::is_same_v<DownGradient<true>, sw::Layout<2, sw::Partial<sw::Sum, dp, tp>>>);
static_assert(std::is_same_v<DownGradient<false>, sw::Layout<2, sw::Partial<sw::Sum, dp>>>);
//! [gradient]

constexpr std::int64_t batch = 3, sequence = 5, base = 50;
constexpr sw::LatentAttentionSizes sizes{.width = 8,
                                         .heads = 6,
                                         .query_rank = 5,
                                         .key_value_rank = 4,
                                         .plain_width = 3,
                                         .rotary_width = 4,
                                         .value_width = 5,
                                         .norm_epsilon = 1e-3};

template <class Layer, class AnyMesh>
[[nodiscard]] Layer make(const AnyMesh& mesh, sw::Recompute recomputed = sw::Recompute::none) {
  const auto wide = sw::Initial::normal(0.6);
  Layer layer(mesh, sizes, wide, wide,
              std::make_shared<typename Layer::Angles>(mesh, sequence, sizes.rotary_width, base), recomputed);
  sw::initialize(layer, 5);
  return layer;
}
const sw::TokenPositions<sw::NaturalOrder> positions(sequence, 1, 0);

/// A row-major matrix product, [rows, inner] times [inner, columns].
[[nodiscard]] Vector product(const Vector& a, const Vector& b, std::int64_t columns) {
  const auto width = static_cast<std::size_t>(columns);
  const std::size_t inner = b.size() / width, rows = a.size() / inner;
  Vector out(rows * width);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t k = 0; k < inner; ++k)
      for (std::size_t c = 0; c < width; ++c)
        out[r * width + c] += a[r * inner + k] * b[k * width + c];
  return out;
}
[[nodiscard]] Vector normed(Vector x, const Vector& gain) {
  for (std::size_t row = 0; row < x.size(); row += gain.size()) {
    double squares = 0;
    for (std::size_t i = 0; i < gain.size(); ++i)
      squares += x[row + i] * x[row + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(gain.size()) + sizes.norm_epsilon);
    for (std::size_t i = 0; i < gain.size(); ++i)
      x[row + i] *= scale * gain[i];
  }
  return x;
}
/// The rotary part of a row at a position.
[[nodiscard]] Vector turned(const double* x, std::size_t position) {
  constexpr std::size_t half = sizes.rotary_width / 2;
  Vector out(2 * half);
  for (std::size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) *
                         std::pow(static_cast<double>(base), -static_cast<double>(i) / double(half));
    out[i] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
    out[i + half] = x[i + half] * std::cos(angle) + x[i] * std::sin(angle);
  }
  return out;
}

/// Equations 37 to 47 of arXiv 2405.04434 one after the other; `w` as members() lists the weights.
[[nodiscard]] Vector plain(const Vector& x, const std::vector<Vector>& w, bool compressed) {
  constexpr auto size = [](std::int64_t extent) { return static_cast<std::size_t>(extent); };
  constexpr std::size_t heads = size(sizes.heads), unturned = size(sizes.plain_width),
                        rope = size(sizes.rotary_width), values = size(sizes.value_width),
                        width = unturned + rope, tokens = size(sequence);
  std::size_t next = 0;
  Vector compact = x;
  if (compressed) {
    compact = normed(product(x, w[0], sizes.query_rank), w[1]);
    next = 2;
  }
  const Vector queries = product(compact, w[next], sizes.heads * (sizes.plain_width + sizes.rotary_width));
  const Vector latents = normed(product(x, w[next + 1], sizes.key_value_rank), w[next + 2]);
  const Vector expanded =
      product(latents, w[next + 3], sizes.heads * (sizes.plain_width + sizes.value_width));
  const Vector shared = product(x, w[next + 4], sizes.rotary_width);
  Vector attended(size(batch) * tokens * heads * values);
  for (std::size_t b = 0; b < size(batch); ++b)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t i = 0; i < tokens; ++i) {
        const double* query = &queries[((b * tokens + i) * heads + h) * width];
        const Vector query_end = turned(query + unturned, i);
        Vector weights;
        double total = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          const double* key = &expanded[((b * tokens + j) * heads + h) * (unturned + values)];
          const Vector key_end = turned(&shared[(b * tokens + j) * rope], j);
          double score = 0;
          for (std::size_t c = 0; c < unturned; ++c)
            score += query[c] * key[c];
          for (std::size_t c = 0; c < rope; ++c)
            score += query_end[c] * key_end[c];
          total += weights.emplace_back(std::exp(score / std::sqrt(static_cast<double>(width))));
        }
        for (std::size_t j = 0; j <= i; ++j)
          for (std::size_t c = 0; c < values; ++c)
            attended[((b * tokens + i) * heads + h) * values + c] +=
                weights[j] / total *
                expanded[((b * tokens + j) * heads + h) * (unturned + values) + unturned + c];
      }
  return product(attended, w[next + 5], sizes.width);
}

/// Each matrix and gain of a module.
template <class Layer, class Take>
[[nodiscard]] std::vector<Vector> weights_of(Layer& layer, const Take& take) {
  std::vector<Vector> out;
  sw::for_each_parameter(layer, [&](auto& parameter) { out.push_back(take(parameter)); });
  return out;
}

/// Value and gradients: of x, then of every parameter; and the parameters after a step of AdamW.
template <class Layer, class Residual, sw::Axis... Split, class AnyMesh>
[[nodiscard]] std::vector<Vector> run(const AnyMesh& mesh, const sw::TokenPositions<sw::NaturalOrder>& at,
                                      sw::Recompute recomputed) {
  Layer layer = make<Layer>(mesh, recomputed);
  sw::GradAccumulator accumulator(layer);
  sw::Tape<> tape;
  std::vector<Vector> out;
  auto x = tape.variable(random_tensor<Residual>(mesh, {batch, sequence, sizes.width}, 1));
  {
    const auto y = sw::as_var(layer(x, at).template as<Residual>());
    out.push_back(whole_of(y.value()));
    tape.seed(y, random_tensor<Residual>(mesh, {batch, sequence, sizes.width}, 2));
  }
  tape.backward();
  using Sums = sw::Layout<0, sw::Partial<sw::Sum, Split...>>;
  const bool first = ((mesh.template coordinate<Split>() == 0) && ...);
  accumulator.add(sw::LossSum<Sums>{0}, sw::TokenCount<Sums>{first ? 1 : 0});
  const sw::GradientSummary summary = accumulator.finish();
  out.push_back(whole_of(tape.gradient(x)));
  for (Vector& gradient : weights_of(layer, [](auto& parameter) { return whole_of(parameter.gradient()); }))
    out.push_back(std::move(gradient));
  sw::AdamW().step(layer, summary, 0.1);
  for (Vector& weight : weights_of(layer, [](auto& parameter) { return whole_of(parameter.stored()); }))
    out.push_back(std::move(weight));
  return out;
}

template <bool sequence_parallel, bool compressed> void compare(Extents extents, sw::Recompute recomputed) {
  CHECK(on_ranks(extents.data * extents.tensor, [=](sw::HostCommunicator world, Findings& findings) {
          using Residual = typename Where<sequence_parallel>::Residual;
          using Layer = Module<sequence_parallel, compressed>;
          const Mesh mesh = mesh_of(world, extents);
          const Mesh alone = mesh_of(world.split(world.rank(), 0, "alone"), {1, 1});
          const auto values = run<Layer, Residual, dp>(mesh, positions, recomputed);
          const auto wanted = run<Layer, Residual, dp>(alone, positions, sw::Recompute::none);
          findings.expect(values.size() == (compressed ? 18 : 14), values.size(), " tensors");
          for (std::size_t i = 0; i < values.size(); ++i)
            findings.expect(difference(values[i], wanted[i]) <= 1e-12, "number ", i, " on dp ", extents.data,
                            " tp ", extents.tensor, sequence_parallel ? " sp" : "", " differs by ",
                            difference(values[i], wanted[i]));
          Layer layer = make<Layer>(alone);
          const auto weights =
              weights_of(layer, [](auto& parameter) { return whole_of(parameter.stored()); });
          const Vector x = whole_of(random_tensor<Residual>(alone, {batch, sequence, sizes.width}, 1));
          const double apart = difference(values[0], plain(x, weights, compressed));
          findings.expect(apart <= 1e-13, "the value differs from the formula by ", apart);
        }) == "");
}

/// Sequences over cp, with weights, gradients and states sharded as `Zero` says.
template <class Zero> void compare_context(std::array<int, 3> extents) {
  CHECK(on_ranks(extents[0] * extents[1] * extents[2], [=](sw::HostCommunicator world, Findings& findings) {
          const auto values_on = [&](sw::HostCommunicator ranks, std::array<int, 3> of) {
            const ContextMesh mesh(ranks, sw::extent<dp>(of[0]), sw::extent<cp>(of[1]),
                                   sw::extent<tp>(of[2]));
            const sw::TokenPositions<sw::NaturalOrder> at(sequence, of[1], mesh.coordinate<cp>());
            return run<ContextModule<Zero>, OverContext::Residual, dp, cp>(mesh, at, sw::Recompute::none);
          };
          const auto values = values_on(world, extents);
          const auto wanted = values_on(world.split(world.rank(), 0, "alone"), {1, 1, 1});
          for (std::size_t i = 0; i < values.size(); ++i)
            findings.expect(difference(values[i], wanted[i]) <= 1e-12, "number ", i, " on dp ", extents[0],
                            " cp ", extents[1], " tp ", extents[2], " differs by ",
                            difference(values[i], wanted[i]));
        }) == "");
}

/// "name": [numbers], as a line of JSON.
[[nodiscard]] std::string json_line(const std::string& name, const Vector& values) {
  std::string out = "\"" + name + "\": [";
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%s%.17g", i == 0 ? "" : ", ", values[i]);
    out += text.data();
  }
  return out + "]";
}

/// A forward and a backward pass.
template <class Target, class AtStep>
void one_step(const sw::HostCommunicator& world, const AtStep& at_step) {
  const Mesh mesh = mesh_of(world, {1, 2});
  using Layer = Module<true, true, Target>;
  Layer layer = make<Layer>(mesh, sw::Recompute::selective);
  const sw::GradAccumulator accumulator(layer);
  sw::ShardedTensor<Where<true>::Residual, double, Target> x(mesh, {batch, sequence, sizes.width});
  sw::fill(x, 1.0);
  sw::Tape<Target> tape;
  {
    const auto y =
        sw::as_var(layer(tape.variable(std::move(x)), positions).template as<Where<true>::Residual>());
    tape.seed(y, y.value());
  }
  tape.backward();
  at_step(0, mesh.core().resources<Target>().statistics());
}

} // namespace

TEST_CASE("latent attention agrees with its formula, and with the gradients of one rank, on every mesh") {
  for (const Extents extents : block_meshes) {
    compare<false, true>(extents, sw::Recompute::none);
    compare<true, true>(extents, sw::Recompute::none);
  }
  compare<true, false>({2, 2}, sw::Recompute::none); // queries that are not compressed
  compare<true, true>({2, 2}, sw::Recompute::selective);
}

TEST_CASE("latent attention with sequences split over cp, and with ZeRO, agrees with one rank") {
  for (const std::array<int, 3> extents : {std::array{1, 2, 1}, {2, 2, 1}, {1, 3, 1}, {1, 3, 2}})
    compare_context<sw::DataParallel>(extents);
  compare_context<sw::Zero1>({2, 2, 1});
  compare_context<sw::Zero2>({2, 2, 1});
  compare_context<sw::Zero3>({2, 2, 1});
}

// For scripts/compare_with_pytorch: writes value and gradients to a file in the working directory.
TEST_CASE("latent attention is written down", "[.][write_latent_attention]") {
  CHECK(
      on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
        using Residual = Where<false>::Residual;
        const Mesh mesh = mesh_of(world, {1, 1});
        auto layer = make<Module<false>>(mesh);
        std::vector<Vector> tensors =
            weights_of(layer, [](auto& parameter) { return whole_of(parameter.stored()); });
        for (const std::uint64_t number : {1U, 2U})
          tensors.push_back(whole_of(random_tensor<Residual>(mesh, {batch, sequence, sizes.width}, number)));
        const std::vector<std::string> names{"query_down", "query_norm", "query_up", "down", "norm",
                                             "up",         "rotary_key", "out",      "x"};
        std::vector<std::string> lines;
        for (std::size_t i = 0; i < names.size(); ++i)
          lines.push_back(json_line(names[i], tensors[i]));
        lines.push_back(json_line("upstream", tensors.back()));
        const auto values = run<Module<false>, Residual, dp>(mesh, positions, sw::Recompute::none);
        lines.push_back(json_line("value", values[0]));
        lines.push_back(json_line("gradient of x", values[1]));
        for (std::size_t i = 0; i + 1 < names.size(); ++i)
          lines.push_back(json_line("gradient of " + names[i], values[2 + i]));
        std::ofstream file("latent_attention.json");
        for (std::size_t i = 0; i < lines.size(); ++i)
          file << (i == 0 ? "{" : ",\n ") << lines[i];
        file << "}\n";
        findings.expect(file.good(), "latent_attention.json is written");
      }) == "");
}

TEST_CASE("gradients of latent attention are its slopes") {
  CHECK(on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {2, 2});
          auto layer = make<Module<true>>(mesh);
          const auto x = random_tensor<Where<true>::Residual>(mesh, {batch, sequence, sizes.width}, 1);
          const auto call = [&](auto tokens) { return layer(tokens, positions); };
          const sw::GradientDifference worst =
              sw::check_gradients(call, sw::members("x", x, "layer", layer), {.directions = 1});
          findings.expect(worst.error < 1e-6, "slopes differ by ", worst.error);
        }) == "");
}

TEST_CASE("memory, calls and products of latent attention agree with its dry run") {
  const auto predict = [](int rank) {
    return sw::dry_run(2, rank, [](const sw::HostCommunicator& world) {
      one_step<sw::Counting<sw::DefaultTarget>>(world, [](int, const sw::PoolStatistics&) {});
    });
  };
  CHECK(on_ranks(2, [&](const sw::HostCommunicator& world, Findings& findings) {
          shardwright_test::expect_predicted(
              predict(world.rank()), world,
              [](const sw::HostCommunicator& ranks, const auto& at_step) {
                one_step<sw::DefaultTarget>(ranks, at_step);
              },
              "a step", findings);
        }) == "");
}

TEST_CASE("latent attention rejects an odd rotary width and missing angles") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {1, 1});
          auto odd = sizes;
          odd.rotary_width = 3;
          const auto sentence = [&](const sw::LatentAttentionSizes& of) {
            return failure_of<sw::InvalidArgument>([&] {
              static_cast<void>(
                  Module<true>(mesh, of, sw::Initial::normal(1), sw::Initial::normal(1), nullptr));
            });
          };
          findings.expect(has(sentence(odd), "the rotary width must be even and positive, but it is 3"),
                          sentence(odd));
          findings.expect(has(sentence(sizes), "rotary angles must be given"), sentence(sizes));
        }) == "");
}
