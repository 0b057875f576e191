// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/heap_count.hpp"
#include "support/larger.hpp"
#include "support/logged.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/nn/losses/mse.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/tensor/reshape.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/lazy_sum.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// The values that a tape keeps, when it moves data, and its errors; operations_gradient tests check the
// operations.

namespace {

namespace sw = shardwright;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using sw::axis::dp;
using sw::axis::tp;

using Mesh = sw::DeviceMesh<dp, tp>;
using Stream = sw::Layout<2, sw::Shard<0, dp, tp>>;
using Tokens = sw::Layout<2, sw::Shard<0, dp>>;
using Column = sw::Layout<2, sw::Shard<1, tp>>;
using Row = sw::Layout<2, sw::Shard<0, tp>>;
using Plan = sw::ModelPlan<double>;
using StreamTensor = sw::ShardedTensor<Stream, double>;
using StreamVar = sw::Var<Stream, double>;
using OverDp = sw::Layout<0, sw::Partial<sw::Sum, dp>>;

constexpr StreamTensor::Shape shape{13, 6}; // uneven rows on most meshes
constexpr std::int64_t hidden = 10;

[[nodiscard]] Mesh mesh_of(const sw::HostCommunicator& world, int tensor) {
  return Mesh(world, sw::extent<dp>(world.size() / tensor), sw::extent<tp>(tensor));
}
[[nodiscard]] StreamTensor random_stream(const Mesh& mesh, std::uint64_t number) {
  StreamTensor out(mesh, shape);
  sw::fill_normal(out, {5, number});
  return out;
}
template <class Tensor> [[nodiscard]] std::vector<double> whole(const Tensor& tensor) {
  const auto all = sw::redistribute<sw::Layout<Tensor::tensor_rank>>(tensor);
  return {all.data(), all.data() + all.local_size()};
}

/// x + (tanh(x up) * (x gate)) down: two readers of x beside the sum.
struct Block {
  explicit Block(const Mesh& mesh)
      : up(mesh, {shape[1], hidden}, sw::Initial::normal(0.3)),
        gate(mesh, {shape[1], hidden}, sw::Initial::normal(0.3)),
        down(mesh, {hidden, shape[1]}, sw::Initial::normal(0.3)) {
    sw::initialize(*this, 3);
  }
  [[nodiscard]] auto operator()(StreamVar x) {
    auto a = sw::tanh(up(x.as<Tokens>()));
    auto b = gate(x.as<Tokens>());
    auto product = down(sw::multiply(std::move(a), std::move(b)));
    return std::move(x) + std::move(product).as<Stream>();
  }
  auto members() { return sw::members("up", up, "gate", gate, "down", down); }

  sw::Linear<Tokens, Column, Plan> up, gate;
  sw::Linear<sw::MatmulLayout<Tokens, Column>, Row, Plan> down;
};

/// When the gradients of parameters are asked for.
enum class Passes : std::uint8_t { together, apart };

/// Value, gradient of x and gradients of the parameters of a function of a block.
struct Gradients {
  std::vector<std::vector<double>> values;
  std::size_t peak = 0; ///< Memory of the pool, in bytes.
};
template <class Call> [[nodiscard]] Gradients gradients_of(const Mesh& mesh, Passes passes, Call call) {
  Block block(mesh);
  sw::GradAccumulator accumulator(block);
  const StreamTensor x = random_stream(mesh, 1);
  sw::Tape<> tape;
  mesh.core().resources<sw::DefaultTarget>().reset_peak();
  Gradients out;
  auto variable = tape.variable(x);
  {
    const auto y = call(block, variable);
    out.values.push_back(whole(y.value()));
    tape.seed(y, random_stream(mesh, 2));
  }
  if (passes == Passes::together) {
    tape.backward();
  } else {
    tape.backward_inputs();
    tape.backward_weights();
  }
  out.peak = mesh.pool_statistics().peak_bytes;
  out.values.push_back(whole(tape.gradient(variable)));
  accumulator.add(sw::LossSum<OverDp>{1}, sw::TokenCount<OverDp>{1});
  static_cast<void>(accumulator.finish());
  sw::for_each_parameter(block, [&](auto& parameter) { out.values.push_back(whole(parameter.gradient())); });
  return out;
}
[[nodiscard]] Gradients gradients_of(const Mesh& mesh, Passes passes = Passes::together) {
  return gradients_of(mesh, passes, [](Block& block, const StreamVar& x) { return block(x); });
}

[[nodiscard]] double largest_difference(const Gradients& left, const Gradients& right) {
  double largest = left.values.size() == right.values.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(left.values.size(), right.values.size()); ++i)
    for (std::size_t k = 0; k < right.values[i].size(); ++k)
      largest = shardwright_test::larger(largest, std::abs(left.values[i].at(k) - right.values[i][k]));
  return largest;
}

[[nodiscard]] std::size_t used(const Mesh& mesh) { return mesh.pool_statistics().used_bytes; }
/// Bytes of the pool for one tensor of the stream on a mesh of one rank.
[[nodiscard]] std::size_t stream_bytes(const Mesh& mesh) {
  const std::size_t before = used(mesh);
  const StreamTensor one(mesh, shape);
  return used(mesh) - before;
}
[[nodiscard]] int calls_of(const sw::CallLog& log, sw::Operation operation) {
  return static_cast<int>(
      std::count_if(log.calls().begin(), log.calls().end(),
                    [&](const sw::RecordedCall& call) { return call.operation == operation; }));
}

} // namespace

TEST_CASE("values and gradients are those of one rank on every mesh") {
  Gradients one;
  CHECK(on_ranks(1, [&](sw::HostCommunicator world, Findings& findings) {
          one = gradients_of(mesh_of(world, 1));
          findings.expect(one.values.size() == 5, "value, input and three parameters");
        }) == "");
  for (const auto [ranks, tensor] : {std::array{2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 2}})
    CHECK(on_ranks(ranks, [&, tensor = tensor](sw::HostCommunicator world, Findings& findings) {
            const double apart = largest_difference(gradients_of(mesh_of(world, tensor)), one);
            findings.expect(apart < 1e-13, "differ by ", apart, " on dp ", world.size() / tensor, " tp ",
                            tensor);
          }) == "");
}

TEST_CASE("two readers of one value gather it once, and their gradients return in one reduction") {
  CHECK(on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
          const auto log = std::make_shared<sw::CallLog>();
          const Mesh mesh = mesh_of(shardwright_test::logged(world, log), 2);
          Block block(mesh);
          const sw::GradAccumulator accumulator(block);
          sw::Tape<> tape;
          const auto x = tape.variable(random_stream(mesh, 1));
          const auto calls = [&](int gathers, int scatters, const char* when) {
            findings.expect(calls_of(*log, sw::Operation::all_gather) == gathers &&
                                calls_of(*log, sw::Operation::reduce_scatter) == scatters &&
                                log->calls().size() == static_cast<std::size_t>(gathers + scatters),
                            when, ": ", log->calls().size(), " calls");
            log->clear();
          };
          log->clear();
          const auto y = block(x);
          calls(1, 1, "x is gathered for both, and the product scattered");
          tape.seed(y, random_stream(mesh, 2));
          tape.backward();
          // Partial gradients of up and gate are added before one reduce_scatter; x is there for both
          // weights.
          calls(1, 1, "the gradient of the product is gathered, that of x scattered");
        }) == "");
}

TEST_CASE("tapes may take turns with a parameter that each of them uses twice") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, 1);
          using OverRanks = sw::Layout<0, sw::Partial<sw::Sum, sw::axis::dp, sw::axis::tp>>;
          const StreamTensor x = random_stream(mesh, 1), seed = random_stream(mesh, 2);
          const auto gradient = [&](bool turns) {
            sw::RmsNorm<Stream, Plan> norm(mesh, shape[1], 1e-5);
            sw::initialize(norm, 1);
            sw::GradAccumulator accumulator(norm);
            std::array<sw::Tape<>, 2> tapes;
            const auto end = [&](sw::Tape<>& tape, auto y, bool last) {
              tape.seed(y, seed.clone());
              tape.backward(last ? sw::PassPosition::last : sw::PassPosition::middle);
            };
            if (turns) {
              auto a = norm(tapes[0].input(x)), b = norm(tapes[1].input(x));
              a = norm(std::move(a));
              b = norm(std::move(b));
              end(tapes[0], std::move(a), false);
              end(tapes[1], std::move(b), true);
            } else {
              for (sw::Tape<>& tape : tapes) {
                auto y = norm(norm(tape.input(x)));
                end(tape, std::move(y), &tape == &tapes[1]);
              }
            }
            accumulator.add(sw::LossSum<OverRanks>{1}, sw::TokenCount<OverRanks>{1});
            static_cast<void>(accumulator.finish());
            std::vector<double> out;
            sw::for_each_parameter(norm, [&](auto& parameter) { out = whole(parameter.gradient()); });
            return out;
          };
          findings.expect(gradient(true) == gradient(false), "the same gradient as one after the other");
        }) == "");
}

TEST_CASE("a sum is computed when it is read, and by a norm in its own pass") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, 1);
          const std::size_t one = stream_bytes(mesh);
          const StreamTensor a = random_stream(mesh, 1), b = random_stream(mesh, 2);
          const auto gradients = [&](bool reads_sum_first) {
            sw::RmsNorm<Stream, Plan> norm(mesh, shape[1], 1e-5);
            sw::initialize(norm, 1);
            const sw::GradAccumulator accumulator(norm);
            sw::Tape<> tape;
            const auto left = tape.variable(a);
            const auto right = tape.variable(b);
            const std::size_t before = used(mesh);
            auto sum = left + right;
            findings.expect(used(mesh) == before, "the sum waits: ", used(mesh) - before, " bytes");
            if (reads_sum_first)
              findings.expect(sum.value().data()[5] == a.data()[5] + b.data()[5] &&
                                  used(mesh) == before + one,
                              "the sum");
            const auto y = norm(sum);
            const std::size_t normed = used(mesh);
            findings.expect(sum.value().data()[7] == a.data()[7] + b.data()[7] && used(mesh) == normed,
                            "the sum is there after the norm");
            tape.seed(y, random_stream(mesh, 3));
            tape.seed(sum, random_stream(mesh, 4)); // what passes the norm by
            tape.backward();
            findings.expect(whole(tape.gradient(left)) == whole(tape.gradient(right)),
                            "both terms get its gradient");
            Gradients out;
            out.values = {whole(y.value()), whole(tape.gradient(left))};
            return out;
          };
          findings.expect(largest_difference(gradients(true), gradients(false)) < 1e-14, "fused or not");
        }) == "");
}

TEST_CASE("a value lives until its last reader has it, a named one until its scope ends") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, 1);
          const std::size_t one = stream_bytes(mesh);
          const StreamTensor x = random_stream(mesh, 1);
          const std::size_t base = used(mesh);
          const auto holds = [&](std::size_t blocks, const char* what) {
            findings.expect(used(mesh) == base + blocks * one, what, ": ", (used(mesh) - base) / one,
                            " blocks");
          };
          {
            sw::Tape<> tape(sw::Recording::evaluation);
            auto y = sw::exp(tape.input(x));
            holds(1, "an evaluation keeps the result");
            for (int i = 0; i < 4; ++i)
              y = sw::square(std::move(y));
            holds(1, "and nothing of what was before");
            {
              const auto named = sw::square(y);
              holds(2, "a named value");
            }
            holds(1, "whose scope has ended");
          }
          holds(0, "nothing stays behind an evaluation");
          {
            sw::Tape<> tape;
            const auto product = sw::multiply(sw::square(tape.input(x)), sw::square(tape.input(x)));
            holds(1, "a product of data keeps no operand for a gradient");
          }
          {
            sw::Tape<> tape;
            const auto y = sw::scale(sw::reshape(sw::square(tape.variable(x)), {13 * 6}), 2.0);
            holds(1, "another shape keeps nothing for its gradient");
          }
          sw::Tape<> tape;
          const auto in = tape.variable(x);
          auto y = sw::square(in);
          y = sw::square(std::move(y));
          y = sw::square(std::move(y));
          holds(3, "a square keeps its input for the gradient");
          StreamTensor ones(mesh, shape);
          sw::fill(ones, 1.0);
          tape.seed(y, std::move(ones));
          y = in;
          mesh.core().resources<sw::DefaultTarget>().reset_peak();
          tape.backward();
          holds(1, "the gradient of the variable");
          findings.expect(mesh.pool_statistics().peak_bytes <= base + 5 * one,
                          "gradients reuse the memory of what they consume");
          const double first = x.data()[0];
          findings.expect(std::abs(tape.gradient(in).data()[0] - 8 * std::pow(first, 7)) <=
                              1e-12 * std::abs(std::pow(first, 7)),
                          "8 x^7");
        }) == "");
}

TEST_CASE("separate passes for input and weight gradients give the same bits as one pass") {
  for (const auto [ranks, tensor] : {std::array{1, 1}, {3, 1}, {4, 2}})
    CHECK(on_ranks(ranks, [tensor = tensor](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world, tensor);
            findings.expect(gradients_of(mesh, Passes::apart).values == gradients_of(mesh).values,
                            "the gradients differ");
          }) == "");
}

TEST_CASE("recomputed values have the same bits and take less memory, and the function runs once") {
  for (const auto [ranks, tensor] : {std::array{1, 1}, {4, 2}})
    CHECK(on_ranks(ranks, [tensor = tensor](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world, tensor);
            int runs = 0;
            const auto twice = [&](sw::Recompute kind, Passes passes) {
              return gradients_of(mesh, passes, [&](Block& block, const StreamVar& x) {
                const auto call = [&](StreamVar in) {
                  ++runs;
                  return block(std::move(in));
                };
                // Two blocks, so that the values of one are gone while those of the other exist again.
                auto y = sw::recompute(call, kind)(x);
                return sw::recompute(call, kind)(std::move(y));
              });
            };
            for (const Passes passes : {Passes::together, Passes::apart}) {
              const Gradients kept = twice(sw::Recompute::none, passes);
              runs = 0;
              const Gradients full = twice(sw::Recompute::full, passes);
              findings.expect(runs == 2, "two blocks ran ", runs, " times");
              findings.expect(full.values == kept.values, "full recomputation changes a bit");
              // With separate passes, everything that the weights' gradients read is kept between them.
              findings.expect(passes == Passes::apart || full.peak < kept.peak, "full recomputation takes ",
                              full.peak, " bytes, not below ", kept.peak);
              const Gradients cheap = twice(sw::Recompute::selective, passes);
              findings.expect(cheap.values == kept.values, "selective recomputation changes a bit");
            }
          }) == "");
}

TEST_CASE("full recomputation keeps input and result, selective recomputation not even the result") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, 1);
          const std::size_t one = stream_bytes(mesh);
          const StreamTensor x = random_stream(mesh, 1);
          const auto blocks_after = [&](sw::Recompute kind) {
            const std::size_t base = used(mesh);
            sw::Tape<> tape;
            auto function = sw::recompute(
                [](StreamVar in) { return sw::square(sw::square(sw::square(std::move(in)))); }, kind);
            const auto in = tape.variable(x);
            const auto y = sw::square(function(in));
            const std::size_t kept = used(mesh) - base;
            tape.seed(y, random_stream(mesh, 2));
            tape.backward();
            static_cast<void>(tape.gradient(in));
            return kept / one;
          };
          findings.expect(blocks_after(sw::Recompute::none) == 4, "all results");
          findings.expect(blocks_after(sw::Recompute::full) == 2, "the function's and the last one");
          findings.expect(blocks_after(sw::Recompute::selective) == 1, "the last one");
        }) == "");
}

TEST_CASE("a recomputed value takes its operand's memory, if no gradient reads that") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, 1);
          const std::size_t one = stream_bytes(mesh);
          const StreamTensor x = random_stream(mesh, 1);
          // The last square reads its operand, whose own operand is read by nothing else.
          const auto blocks_of = [&](auto function) {
            sw::Tape<> tape;
            const auto in = tape.variable(x);
            tape.seed(sw::recompute(function)(in), random_stream(mesh, 2));
            const std::size_t before = used(mesh);
            mesh.core().resources<sw::DefaultTarget>().reset_peak();
            tape.backward();
            return static_cast<double>(mesh.pool_statistics().peak_bytes - before) / static_cast<double>(one);
          };
          const auto square_of_scaled = [](const StreamVar& in) { return sw::square(2.0 * sw::square(in)); };
          const auto square_of_sum = [](const StreamVar& in) { return sw::square(sw::square(in) + in); };
          findings.expect(blocks_of(square_of_scaled) == 1, "a scaled value needs separate memory");
          findings.expect(blocks_of(square_of_sum) == 1, "a sum needs separate memory");
        }) == "");
}

TEST_CASE("a value outlives its tape, and a tape can restart when no value is in use") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, 1);
          const StreamTensor x = random_stream(mesh, 1);
          const std::size_t base = used(mesh);
          std::optional<StreamVar> kept;
          {
            sw::Tape<> tape;
            kept.emplace(sw::square(tape.input(x)));
          }
          findings.expect(kept->value().data()[3] == x.data()[3] * x.data()[3], "the value");
          const double squared = x.data()[3] * x.data()[3];
          findings.expect(sw::square(*kept).value().data()[3] == squared * squared, "an operation on it");
          kept.reset();
          findings.expect(used(mesh) == base, "the last value takes the tape with it");

          sw::Tape<> tape;
          auto first = tape.variable(x);
          auto second = sw::square(first);
          const std::string said = failure_of<sw::LifecycleError>([&] { tape.restart(); });
          findings.expect(has(said, "it must not restart while 2 values on it are in use"), said);
          const auto moved = std::move(first);
          // NOLINTNEXTLINE(bugprone-use-after-move): that is the case
          const std::string gone = failure_of<sw::LifecycleError>([&] { static_cast<void>(first.value()); });
          findings.expect(has(gone, "Var: it must name a value, but this one was moved from"), gone);
          const std::string none =
              failure_of<sw::LifecycleError>([&] { static_cast<void>(tape.gradient(moved)); });
          findings.expect(has(none, "a value has a gradient after backward() only if it is a variable()"),
                          none);
        }) == "");
}

TEST_CASE("after an operation fails, its tape can restart, and nothing is left behind") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, 1);
          sw::Linear<Tokens, Column, Plan> wide(mesh, {shape[1] + 1, hidden}, sw::Initial::normal(0.3));
          sw::initialize(wide, 1);
          const StreamTensor x = random_stream(mesh, 1);
          const std::size_t base = used(mesh);
          sw::Tape<> tape;
          const auto fail = [&] { static_cast<void>(wide(sw::square(tape.variable(x)).as<Tokens>())); };
          const std::string said = failure_of<sw::InvalidArgument>(fail);
          findings.expect(has(said, "matmul"), said);
          tape.restart();
          findings.expect(used(mesh) == base, "memory of the step that failed");
          findings.expect(sw::square(tape.input(x)).value().data()[0] == x.data()[0] * x.data()[0],
                          "the next step");
        }) == "");
}

TEST_CASE("a parameter that is used but not listed is named, and one that is listed but not used") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, 2);
          using Up = sw::Linear<Tokens, Column, Plan>;
          struct Pair {
            Up used, other;
            auto members() { return sw::members("used", used, "other", other); }
          };
          const auto made = [&](sw::SourceLocation where = sw::SourceLocation::current()) {
            return Up(mesh, {shape[1], hidden}, sw::Initial::normal(0.3), where);
          };
          sw::Tape<> tape;
          const auto x = tape.input(random_stream(mesh, 1));
          Up unlisted = made();
          const std::string unknown =
              failure_of<sw::LifecycleError>([&] { static_cast<void>(unlisted(x.as<Tokens>())); });
          findings.expect(
              has(unknown, "Parameter: the one of Layout<2, Shard<1, tp>> that was made at ") &&
                  has(unknown, "tape_test.cpp:") &&
                  has(unknown, "must have values before it is read or changed (list it in members()"),
              unknown);

          Pair pair{made(), made()};
          sw::initialize(pair, 1);
          const std::string unheld = failure_of<sw::LifecycleError>([&] {
            const auto y = pair.used(x.as<Tokens>());
            tape.seed(y, y.value());
            tape.backward();
          });
          findings.expect(has(unheld, "Parameter used: a GradAccumulator must hold its gradient"), unheld);

          sw::GradAccumulator accumulator(pair);
          sw::Tape<> next;
          {
            const auto y = pair.used(next.input(random_stream(mesh, 1)).as<Tokens>());
            next.seed(y, y.value());
          }
          next.backward();
          accumulator.add(sw::LossSum<OverDp>{1}, sw::TokenCount<OverDp>{1});
          const std::string unused =
              failure_of<sw::LifecycleError>([&] { static_cast<void>(accumulator.finish()); });
          findings.expect(
              has(unused,
                  "Parameter other: a step must give every parameter a gradient, but this one, made at ") &&
                  has(unused, "tape_test.cpp:") &&
                  has(unused, "got none (use it in the model, or leave it out of members())"),
              unused);
          const std::string twice =
              failure_of<sw::LifecycleError>([&] { const sw::GradAccumulator second(pair); });
          findings.expect(
              has(twice, "only one GradAccumulator may hold its gradient, but there is a second one"), twice);
        }) == "");
}

TEST_CASE("steps on one tape allocate nothing from the third on") {
  for (const auto [ranks, tensor] : {std::array{1, 1}, {4, 2}})
    CHECK(on_ranks(ranks, [tensor = tensor](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world, tensor);
            Block block(mesh);
            sw::GradAccumulator accumulator(block);
            const StreamTensor x = random_stream(mesh, 1), upstream = random_stream(mesh, 2);
            sw::Tape<> tape;
            std::array<std::size_t, 8> heap{}, pool{};
            for (std::size_t step = 0; step < heap.size(); ++step) {
              {
                auto y = tape.variable(x);
                for (int i = 0; i < 3; ++i)
                  y = sw::recompute([&](StreamVar in) { return block(std::move(in)); })(std::move(y));
                tape.seed(y, upstream.share());
              }
              tape.backward();
              tape.restart();
              accumulator.add(sw::LossSum<OverDp>{1}, sw::TokenCount<OverDp>{1});
              static_cast<void>(accumulator.finish());
              accumulator.restart();
              heap[step] = shardwright_test::heap_allocations();
              pool[step] = mesh.pool_statistics().allocations;
            }
            if (shardwright_test::counts_heap)
              findings.expect(heap[1] > 0 && heap.back() == heap[1], heap.back() - heap[1], " allocations");
            findings.expect(pool.back() == pool[1], pool.back() - pool[1], " blocks");
          }) == "");
}

TEST_CASE("operands on two tapes are rejected, whatever the operation") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, 1);
          sw::Tape<> tape, other(sw::Recording::evaluation);
          const auto student = tape.variable(random_stream(mesh, 1));
          const auto teacher = other.input(random_stream(mesh, 2));
          const auto refused = [&](const char* name, const auto& call) {
            const std::string said = failure_of<sw::InvalidArgument>(call);
            const std::string sentence =
                std::string(name) +
                ": both operands must be on one tape (read the other as data: its value())";
            findings.expect(has(said, sentence.c_str()), said);
          };
          refused("multiply", [&] { static_cast<void>(sw::multiply(student, teacher)); });
          refused("subtract", [&] { static_cast<void>(sw::subtract(teacher, student)); });
          refused("multiply",
                  [&] { static_cast<void>(sw::multiply(student.as<Tokens>(), teacher.as<Tokens>())); });
          refused("add", [&] { static_cast<void>(student + teacher); });
          refused("add", [&] { static_cast<void>(teacher.as<Tokens>() + student.as<Tokens>()); });
          const auto product = sw::multiply(student, tape.input(teacher.value()));
          const std::string said = failure_of<sw::InvalidArgument>([&] {
            tape.seed(product, StreamTensor(mesh, {shape[0] + 1, shape[1]}));
          });
          findings.expect(has(said, "seed: the gradient must have the shape [13, 6], but it has [14, 6]"),
                          said);
          tape.seed(product, random_stream(mesh, 3));
          tape.backward();
          findings.expect(tape.gradient(student).data()[4] ==
                              random_stream(mesh, 3).data()[4] * teacher.value().data()[4],
                          "its value() is data");
        }) == "");
}

TEST_CASE("backward passes run once each, in order, after each recording for training") {
  CHECK(
      on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
        const Mesh mesh = mesh_of(world, 1);
        const StreamTensor x = random_stream(mesh, 1), target = random_stream(mesh, 2);
        sw::Tape<> tape;
        std::optional<StreamVar> variable;
        const auto begin = [&](sw::Recording recording = sw::Recording::training) {
          variable.reset();
          tape.restart(recording);
          variable.emplace(tape.variable(x));
          static_cast<void>(sw::mse(sw::square(*variable), target));
        };
        const auto says = [&](const char* sentence, const auto& call) {
          const std::string said = failure_of<sw::LifecycleError>(call);
          findings.expect(has(said, sentence), said);
        };
        const char* const once =
            "Tape: every gradient must be computed once, but this backward pass has run already (call restart()";
        const char* const late =
            "Tape: an operation must be recorded before the backward pass, but this one comes after it";
        begin();
        says("Tape: backward_weights() must follow backward_inputs(), which has not run",
             [&] { tape.backward_weights(); });
        tape.backward();
        const double gradient = tape.gradient(*variable).data()[3];
        says(once, [&] { tape.backward(); });
        says(once, [&] { tape.backward_inputs(); });
        says(once, [&] { tape.backward_weights(); });
        findings.expect(tape.gradient(*variable).data()[3] == gradient, "a refused pass adds nothing");
        says(late, [&] { static_cast<void>(sw::square(*variable)); });
        says(late, [&] { static_cast<void>(*variable + *variable); });
        says(late, [&] { static_cast<void>(tape.input(x)); });
        begin();
        tape.backward_inputs();
        says(once, [&] { tape.backward(); });
        says(once, [&] { tape.backward_inputs(); });
        says(late, [&] { static_cast<void>(sw::square(*variable)); });
        tape.backward_weights();
        says(once, [&] { tape.backward_weights(); });
        findings.expect(tape.gradient(*variable).data()[3] == gradient, "in two passes");
        begin(sw::Recording::evaluation);
        says("Tape: a backward pass must follow a recording for training, but this tape is an evaluation",
             [&] { tape.backward(); });
        begin();
        tape.backward();
        findings.expect(tape.gradient(*variable).data()[3] == gradient, "a tape that begins anew");
      }) == "");
}

TEST_CASE("a weight gradient in a later pass has its operand, even if only another reader held it") {
  for (const auto [ranks, tensor] : {std::array{1, 1}, {4, 2}})
    CHECK(on_ranks(ranks, [tensor = tensor](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world, tensor);
            Block block(mesh);
            sw::GradAccumulator accumulator(block);
            const StreamTensor x = random_stream(mesh, 1);
            const auto gradients = [&](Passes passes, sw::Recompute kind) {
              sw::Tape<> tape;
              {
                // h leaves the function, so `gate` holds it; after the gradient of `gate`, only `up` needs
                // it, and nothing holds the values that it is computed from.
                std::optional<StreamVar> h;
                auto inner = sw::recompute(
                    [&](StreamVar in) {
                      h.emplace(sw::gelu_tanh(std::move(in)));
                      return sw::tanh(block.up(h->as<Tokens>()));
                    },
                    kind);
                auto a = inner(sw::square(tape.variable(x)));
                auto b = block.gate((*std::exchange(h, std::nullopt)).as<Tokens>());
                const auto y = sw::as_var(block.down(sw::multiply(std::move(a), std::move(b))).as<Stream>());
                tape.seed(y, random_stream(mesh, 2));
              }
              if (passes == Passes::together) {
                tape.backward();
              } else {
                tape.backward_inputs();
                tape.backward_weights();
              }
              accumulator.add(sw::LossSum<OverDp>{1}, sw::TokenCount<OverDp>{1});
              static_cast<void>(accumulator.finish());
              std::vector<std::vector<double>> out;
              sw::for_each_parameter(block,
                                     [&](auto& parameter) { out.push_back(whole(parameter.gradient())); });
              accumulator.restart();
              return out;
            };
            const auto kept = gradients(Passes::together, sw::Recompute::none);
            for (const Passes passes : {Passes::together, Passes::apart})
              for (const sw::Recompute kind : {sw::Recompute::full, sw::Recompute::selective})
                findings.expect(gradients(passes, kind) == kept, "the gradients differ");
          }) == "");
}

TEST_CASE("a recomputed function keeps its rank's part of what it gathers, and gathers it again once") {
  CHECK(
      on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
        const auto log = std::make_shared<sw::CallLog>();
        const Mesh mesh = mesh_of(shardwright_test::logged(world, log), 2);
        Block block(mesh);
        sw::GradAccumulator accumulator(block);
        const auto step = [&](sw::Recompute kind, Passes passes) {
          Gradients out;
          sw::Tape<> tape;
          const auto in = tape.variable(random_stream(mesh, 1));
          const std::size_t before = used(mesh);
          {
            auto inner = sw::recompute(
                [&](StreamVar x) {
                  auto a = sw::tanh(block.up(x.as<Tokens>()));
                  return block.down(sw::multiply(std::move(a), block.gate(std::move(x).as<Tokens>())));
                },
                kind);
            auto y = inner(sw::square(in)).as<Stream>();
            auto z = sw::as_var(std::move(y));
            if (kind == sw::Recompute::full) {
              const std::size_t kept = used(mesh) - before;
              // The part of the square, and z.
              const StreamTensor one(mesh, shape), two(mesh, shape);
              findings.expect(kept == used(mesh) - before - kept, "keeps ", kept, " bytes of ",
                              used(mesh) - before - kept);
            }
            tape.seed(z, random_stream(mesh, 2));
          }
          accumulator.set_bucket_bytes(1);
          log->clear();
          if (passes == Passes::together) {
            tape.backward(sw::PassPosition::last);
          } else {
            tape.backward_inputs();
            tape.backward_weights(sw::PassPosition::last);
          }
          findings.expect(calls_of(*log, sw::Operation::all_reduce) == 3,
                          "the sums of three weights begin inside the last pass");
          // The gradient of the result is gathered, too.
          findings.expect(calls_of(*log, sw::Operation::all_gather) == (kind == sw::Recompute::full ? 2 : 1),
                          "gathers");
          out.values.push_back(whole(tape.gradient(in)));
          accumulator.add(sw::LossSum<OverDp>{1}, sw::TokenCount<OverDp>{1});
          static_cast<void>(accumulator.finish());
          sw::for_each_parameter(block,
                                 [&](auto& parameter) { out.values.push_back(whole(parameter.gradient())); });
          accumulator.restart();
          return out;
        };
        const Gradients kept = step(sw::Recompute::none, Passes::together);
        for (const Passes passes : {Passes::together, Passes::apart})
          findings.expect(step(sw::Recompute::full, passes).values == kept.values, "the gradients differ");
      }) == "");
}

TEST_CASE("a recomputed value that is read in several layouts is computed again once") {
  for (const auto [ranks, tensor] : {std::array{1, 1}, {4, 2}})
    CHECK(on_ranks(ranks, [tensor = tensor](const sw::HostCommunicator& world, Findings& findings) {
            const auto log = std::make_shared<sw::CallLog>();
            const Mesh mesh = mesh_of(shardwright_test::logged(world, log), tensor);
            // Nothing keeps the data itself, so that no second computation could find it.
            const auto step = [&](sw::Recompute kind) {
              sw::Tape<> tape;
              const auto in = tape.variable(random_stream(mesh, 1));
              auto data = sw::as_var(tape.input(random_stream(mesh, 3)).as<Tokens>());
              auto y = sw::recompute(
                  [&](auto gathered) {
                    const auto value = sw::subtract(std::move(gathered).template as<Stream>(), in);
                    auto of_tokens = sw::square(value.template as<Tokens>());
                    auto of_all = sw::tanh(value.template as<sw::Layout<2>>());
                    return sw::as_var(std::move(of_tokens).template as<Stream>()) *
                           sw::as_var(std::move(of_all).template as<Stream>());
                  },
                  kind)(std::move(data));
              tape.seed(y, random_stream(mesh, 2));
              log->clear();
              tape.backward();
              return std::pair{whole(tape.gradient(in)), calls_of(*log, sw::Operation::all_gather)};
            };
            const auto kept = step(sw::Recompute::none);
            for (const sw::Recompute kind : {sw::Recompute::full, sw::Recompute::selective}) {
              const auto again = step(kind);
              findings.expect(again.first == kept.first, "the gradients differ");
              findings.expect(again.second <= kept.second + 2, "gathers ", again.second, " times, not ",
                              kept.second, " and once more for each layout");
            }
          }) == "");
}

TEST_CASE("memory that a rank still holds of an operand does not affect the shape known for the result") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, 2);
          using Parts = sw::Layout<1, sw::Partial<sw::Sum, tp>>;
          sw::ShardedTensor<sw::Layout<2, sw::Shard<1, tp>>, double> x(mesh, {4, 8});
          sw::ShardedTensor<Parts, double> parts(mesh, {4});
          sw::fill(x, 1.0);
          for (std::size_t i = 0; i < parts.local_size(); ++i)
            parts.mutable_data()[i] = 1.0;
          const auto difference = [&](bool sum_first) {
            sw::Tape<> tape;
            auto sums = sw::sum<1>(tape.input(x));
            std::optional<decltype(sums.value())> logged;
            if (world.rank() == 0)
              logged.emplace(sums.value());
            auto out = sum_first ? sw::subtract(std::move(sums), tape.input(parts))
                                 : sw::subtract(tape.input(parts), std::move(sums));
            // The reduction names the tensor that it reduces, which ranks compare.
            return sw::scale(std::move(out).as<sw::Layout<1>>(), 1.0).value().data()[2];
          };
          findings.expect(difference(true) == 6 && difference(false) == -6, "differences of ",
                          difference(true));
        }) == "");
}
