// SPDX-License-Identifier: Apache-2.0
// Tests a build with SHARDWRIGHT_CHECKED: numbers that ranks give differently end with a sentence that names
// both, their ranks, the axis and the line; memory of the program holds what its layout says; new tensors
// hold NaN.

#include <shardwright/launch.hpp>
#include <shardwright/models.hpp>

#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace sw = shardwright;
using namespace sw::axis;

namespace {

using Mesh = sw::DeviceMesh<dp, tp>;
using Rows = sw::Layout<2, sw::Shard<0, dp>>; // replicated over tp
using Tokens = sw::TokenLayout<Rows>;
using Whole = sw::Layout<0>;
using Loss = sw::Layout<0, sw::Partial<sw::Sum, dp>>;

int failures = 0;
void expect(bool holds, const std::string& what) {
  if (holds)
    return;
  ++failures;
  std::fprintf(stderr, "expected: %s\n", what.c_str());
}

/// What the ranks of dp = 2, tp = 2 say; "nothing" if the program ends.
std::string said(const std::function<void(const Mesh&)>& program) {
  try {
    sw::launch({.ranks = 4}, [&](const sw::HostCommunicator& world) {
      program(Mesh(world, sw::extent<dp>(2), sw::extent<tp>(2)));
    });
  } catch (const sw::Error& error) {
    return error.what();
  }
  return "nothing";
}

/// A program whose ranks along an axis must give a number alike: it ends if they do, and if the second rank
/// along it gives another number, with a sentence that names `wanted`.
template <class Axis = tp>
void compares(const char* wanted, const std::function<void(const Mesh&, double)>& program) {
  const std::string alike = said([&](const Mesh& mesh) { program(mesh, 1); });
  expect(alike == "nothing", std::string("ranks that agree about ") + wanted + ", not: " + alike);
  const std::string other = said([&](const Mesh& mesh) { program(mesh, 1 + mesh.coordinate<Axis>()); });
  const bool inner = std::is_same_v<Axis, tp>;
  for (const char* part :
       {wanted, inner ? "all ranks along tp must give the same " : "all ranks along dp must give the same ",
        "on rank 0 and ", inner ? "on rank 1 (" : "on rank 2 (", "checked_program.cpp:"})
    expect(other.find(part) != std::string::npos, std::string(part) + ", not: " + other);
}

sw::ShardedTensor<Rows> rows_on(const Mesh& mesh) {
  sw::ShardedTensor<Rows> out(mesh, {4, 3});
  sw::fill_normal(out, {1, 1});
  return out;
}
sw::ShardedTensor<Loss> part_on(const Mesh& mesh) {
  sw::ShardedTensor<Loss> out(mesh, {});
  out.mutable_data()[0] = 1;
  return out;
}
sw::ShardedTensor<Tokens, std::int32_t> targets_on(const Mesh& mesh) {
  sw::ShardedTensor<Tokens, std::int32_t> out(mesh, {4});
  sw::fill(out, 2);
  return out;
}

void numbers_beside_tensors() {
  compares("scale: all ranks along tp must give the same factor, but it is 1 on rank 0 and 2 on rank 1",
           [](const Mesh& mesh, double number) { static_cast<void>(rows_on(mesh) * number); });
  compares("factor", [](const Mesh& mesh, double number) { static_cast<void>(number * rows_on(mesh)); });
  compares("factor",
           [](const Mesh& mesh, double number) { static_cast<void>(sw::scale(rows_on(mesh), number)); });
  compares("divide: all ranks along tp must give the same divisor, but it is 1 on rank 0 and 2 on rank 1",
           [](const Mesh& mesh, double number) { static_cast<void>(part_on(mesh) / number); });
  compares("add: all ranks along tp must give the same number",
           [](const Mesh& mesh, double number) { static_cast<void>(rows_on(mesh) + number); });
  compares("number", [](const Mesh& mesh, double number) { static_cast<void>(rows_on(mesh) - number); });
  compares("subtract", [](const Mesh& mesh, double number) { static_cast<void>(number - rows_on(mesh)); });
  compares("divide", [](const Mesh& mesh, double number) { static_cast<void>(number / rows_on(mesh)); });
  compares("scale_in_place", [](const Mesh& mesh, double number) {
    auto x = rows_on(mesh);
    sw::scale_in_place(x, number);
  });
  compares("axpy", [](const Mesh& mesh, double number) {
    auto y = rows_on(mesh);
    sw::axpy(number, rows_on(mesh), y);
  });
  compares("axpby: all ranks along tp must give the same factor of y", [](const Mesh& mesh, double number) {
    auto y = rows_on(mesh);
    sw::axpby(0.5, rows_on(mesh), number, y);
  });
  compares("factor", [](const Mesh& mesh, double number) { // a whole number
    static_cast<void>(targets_on(mesh) * static_cast<int>(number));
  });
  compares("factor", [](const Mesh& mesh, double number) {
    sw::Tape<> tape;
    static_cast<void>(tape.input(rows_on(mesh)) * number);
  });
}

void new_tensors() {
  compares(
      "ShardedTensor: all ranks along tp must give the same extent of dimension 1, but it is 1 on rank 0 "
      "and 2 on rank 1",
      [](const Mesh& mesh, double number) {
        const sw::ShardedTensor<Rows> x(mesh, {4, static_cast<std::int64_t>(number)});
      });
  compares("reshape: all ranks along tp must give the same extent", [](const Mesh& mesh, double number) {
    const auto columns = static_cast<std::int64_t>(number);
    static_cast<void>(sw::reshape(rows_on(mesh), {4, columns, 3 / columns}));
  });
  compares("fill: all ranks along tp must give the same value", [](const Mesh& mesh, double number) {
    sw::ShardedTensor<Rows> x(mesh, {4, 3});
    sw::fill(x, number);
  });
  compares("fill_normal: all ranks along tp must give the same seed", [](const Mesh& mesh, double number) {
    sw::ShardedTensor<Rows> x(mesh, {4, 3});
    sw::fill_normal(x, {static_cast<std::uint64_t>(number), 1});
  });
  compares("fill_normal: all ranks along tp must give the same deviation", [](const Mesh& mesh,
                                                                              double number) {
    sw::ShardedTensor<sw::Layout<2, sw::Shard<1, tp>>> x(mesh, {4, 3}); // that are the same on every layout
    sw::fill_normal(x, {1, 1}, 0.0, number);
  });
  compares("fill_uniform: all ranks along tp must give the same high", [](const Mesh& mesh, double number) {
    sw::ShardedTensor<Rows> x(mesh, {4, 3});
    sw::fill_uniform(x, {1, 1}, 0.0, number);
  });
}

/// A product and what a step of training needs.
struct Model {
  using element = float;
  sw::Linear<Rows, sw::Layout<2>> product;
  Model(const Mesh& mesh, const sw::Initial& initial) : product(mesh, {3, 3}, initial) {}
  [[nodiscard]] auto members() { return sw::members("product", product); }
};

/// One step of own training, in which one number is the program's.
struct Step {
  std::uint64_t seed = 1;
  double deviation = 0.1, rate = 0.01, max_norm = 1, decay = 0, smoothing = 0, dropped = 0, slower = 1;
  std::int64_t more_tokens = 0;

  void run(const Mesh& mesh) const {
    Model model(mesh, sw::Initial::normal(deviation));
    sw::initialize(model, seed);
    sw::GradAccumulator<Model> accumulator(model);
    const sw::ParameterGroup all{.matches = [](const sw::ParameterInfo&) { return true; },
                                 .learning_rate_factor = slower};
    sw::AdamW optimizer({.weight_decay = decay, .max_norm = max_norm, .groups = {all}});
    sw::Tape<> tape(sw::Recording::training, sw::BatchOrigin{});
    {
      auto scores = model.product(tape.input(rows_on(mesh)));
      scores = sw::dropout(std::move(scores), {.seed = 1, .tensor = 1, .rate = dropped});
      auto sums = sw::cross_entropy(std::move(scores), targets_on(mesh), {.label_smoothing = smoothing});
      sums.tokens.value += more_tokens;
      tape.backward();
      accumulator.add(sums);
    }
    optimizer.step(model, accumulator.finish(), rate);
  }
};

void training() {
  compares("fill_normal: all ranks along tp must give the same seed", [](const Mesh& mesh, double number) {
    Step{.seed = static_cast<std::uint64_t>(number)}.run(mesh);
  });
  compares("deviation", [](const Mesh& mesh, double number) { Step{.deviation = number}.run(mesh); });
  compares("AdamW: all ranks along tp must give the same learning rate",
           [](const Mesh& mesh, double number) { Step{.rate = number}.run(mesh); });
  compares("AdamW: all ranks along tp must give the same max_norm",
           [](const Mesh& mesh, double number) { Step{.max_norm = number}.run(mesh); });
  compares("AdamW: all ranks along tp must give the same learning rate factor of product, "
           "but it is 1 on rank 0 and 2 on rank 1",
           [](const Mesh& mesh, double number) { Step{.slower = number}.run(mesh); });
  compares("weight decay", [](const Mesh& mesh, double number) { Step{.decay = number}.run(mesh); });
  compares("cross_entropy: all ranks along tp must give the same label smoothing",
           [](const Mesh& mesh, double number) { Step{.smoothing = number / 8}.run(mesh); });
  compares("dropout: all ranks along tp must give the same rate",
           [](const Mesh& mesh, double number) { Step{.dropped = number / 8}.run(mesh); });
  compares("GradAccumulator: all ranks along tp must give the same number of tokens",
           [](const Mesh& mesh, double number) {
             Step{.more_tokens = static_cast<std::int64_t>(number)}.run(mesh);
           });
  const auto add_replicated = [](const Mesh& mesh, double loss, std::int64_t tokens) {
    Model model(mesh, sw::Initial::normal(0.1));
    sw::initialize(model, 1);
    sw::GradAccumulator<Model> accumulator(model);
    const sw::CountedLoss<Whole> sums{{loss}, {tokens}};
    accumulator.add(sw::assume_replicated(sums));
  };
  compares("assume_replicated: all ranks along tp must give the same loss",
           [&](const Mesh& mesh, double number) { add_replicated(mesh, number, 2); });
  compares(
      "assume_replicated: all ranks along tp must give the same count",
      [&](const Mesh& mesh, double number) { add_replicated(mesh, 3, static_cast<std::int64_t>(number)); });
  compares("rms_norm: all ranks along tp must give the same epsilon", [](const Mesh& mesh, double number) {
    sw::RmsNorm<Rows> norm(mesh, 3, number);
    sw::initialize(norm, 1);
    sw::Tape<> tape;
    static_cast<void>(norm(tape.input(rows_on(mesh))));
  });
  compares("layer_norm: all ranks along tp must give the same epsilon", [](const Mesh& mesh, double number) {
    sw::LayerNorm<Rows> norm(mesh, 3, number);
    sw::initialize(norm, 1);
    sw::Tape<> tape;
    static_cast<void>(norm(tape.input(rows_on(mesh))));
  });
  compares("sum_loss: all ranks along tp must give the same number of tokens",
           [](const Mesh& mesh, double number) {
             sw::Tape<> tape;
             static_cast<void>(sw::sum_loss(sw::sum(tape.input(rows_on(mesh))),
                                            sw::TokenCount<Loss>{static_cast<std::int64_t>(number)}));
           });
}

/// Numbers of losses and norms count for the whole model, also where axes split the rows or the vocabulary.
void numbers_of_models() {
  const auto smoothed = [](const Mesh& mesh, double number) { Step{.smoothing = number / 8}.run(mesh); };
  compares<dp>("cross_entropy: all ranks along dp must give the same label smoothing", smoothed);
  compares("cross_entropy: all ranks along tp must give the same label smoothing",
           [](const Mesh& mesh, double number) {
             sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>> scores(mesh, {4, 4});
             sw::fill_normal(scores, {1, 1});
             sw::Tape<> tape;
             static_cast<void>(
                 sw::cross_entropy(tape.input(scores), targets_on(mesh), {.label_smoothing = number / 8}));
           });
  compares<dp>("all ranks along dp must give the same coefficient", [](const Mesh& mesh, double number) {
    sw::ShardedTensor<Rows, std::int32_t> choice(mesh, {4, 1});
    sw::fill(choice, 1);
    sw::Tape<> tape;
    static_cast<void>(sw::router_z_loss(tape.input(rows_on(mesh)), choice.share(), number));
  });
  compares<dp>("rms_norm: all ranks along dp must give the same epsilon",
               [](const Mesh& mesh, double number) {
                 sw::RmsNorm<Rows> norm(mesh, 3, number);
                 sw::initialize(norm, 1);
                 sw::Tape<> tape;
                 static_cast<void>(norm(tape.input(rows_on(mesh))));
               });
  compares<dp>("layer_norm: all ranks along dp must give the same epsilon",
               [](const Mesh& mesh, double number) {
                 sw::LayerNorm<Rows> norm(mesh, 3, number);
                 sw::initialize(norm, 1);
                 sw::Tape<> tape;
                 static_cast<void>(norm(tape.input(rows_on(mesh))));
               });
  compares("head_norm: all ranks along tp must give the same epsilon", [](const Mesh& mesh, double number) {
    using Qkv = sw::Layout<4, sw::Shard<0, dp>, sw::Shard<2, tp>>;
    sw::ShardedTensor<Qkv> qkv(mesh, {2, 1, 2, 6});
    sw::fill_normal(qkv, {1, 1});
    sw::HeadNorm<Qkv> norm(mesh, {.queries = 1, .width = 2}, number);
    sw::initialize(norm, 1);
    sw::Tape<> tape;
    static_cast<void>(norm(tape.input(qkv)));
  });
}

/// Numbers of attention and experts count for all heads, sequences and tokens.
void numbers_of_attention_and_experts() {
  using Qkv = sw::Layout<4, sw::Shard<0, dp>, sw::Shard<2, tp>>;
  using Angles = sw::RotaryTable<float, sw::DefaultTarget>;
  const sw::TokenPositions<sw::NaturalOrder> positions(3, 1, 0);
  const auto attended = [&](const Mesh& mesh, sw::HeadShape heads) {
    sw::ShardedTensor<Qkv> qkv(mesh, {2, 3, 2, 12});
    sw::fill_normal(qkv, {1, 1});
    sw::Tape<> tape;
    const Angles angles(mesh, 3, 4, 10.0);
    static_cast<void>(sw::attention(sw::rotary(tape.input(qkv), angles, positions, heads), heads));
  };
  compares<dp>("attention: all ranks along dp must give the same score factor",
               [&](const Mesh& mesh, double number) {
                 sw::ShardedTensor<Qkv> qkv(mesh, {2, 3, 2, 12});
                 sw::fill_normal(qkv, {1, 1});
                 sw::Tape<> tape;
                 static_cast<void>(sw::attention(tape.input(qkv), {.width = 4, .score_factor = number}));
               });
  compares("rotary: all ranks along tp must give the same rotary width",
           [&](const Mesh& mesh, double number) {
             attended(mesh, {.width = 4, .rotary_width = number == 1 ? 4 : 0});
           });
  compares("RotaryTable: all ranks along tp must give the same base",
           [](const Mesh& mesh, double number) { Angles(mesh, 3, 4, number); });
  compares<dp>("RotaryTable: all ranks along dp must give the same frequency 1",
               [](const Mesh& mesh, double number) {
                 Angles(mesh, 3, std::vector<double>{1, number});
               });
  compares("RotaryTable: all ranks along tp must give the same factor of the angles",
           [](const Mesh& mesh, double number) {
             Angles(mesh, 3, std::vector<double>{1, 0.1}, number);
           });

  const auto routed = [](const Mesh& mesh, const sw::RouterOptions& options, float bias,
                         std::int32_t padding) {
    sw::ShardedTensor<sw::Layout<1>> biases(mesh.core().resources<sw::DefaultTarget>(), {3});
    for (std::size_t e = 0; e < 3; ++e)
      biases.mutable_data()[e] = bias;
    auto tokens = targets_on(mesh);
    for (std::size_t i = 0; i < tokens.local_size(); ++i)
      tokens.mutable_data()[i] = padding;
    sw::Tape<> tape;
    static_cast<void>(
        sw::route(tape.input(rows_on(mesh)), options, {.bias = biases.share(), .padding = tokens}));
  };
  compares<dp>("route: all ranks along dp must give the same number of chosen experts",
               [&](const Mesh& mesh, double number) {
                 routed(mesh, {.chosen = static_cast<std::int64_t>(number)}, 0, 0);
               });
  compares<dp>("route: all ranks along dp must give the same scale",
               [&](const Mesh& mesh, double number) { routed(mesh, {.scale = number}, 0, 0); });
  const auto differs = [&](const char* wanted, const std::function<void(const Mesh&)>& program) {
    const std::string other = said(program);
    expect(other.find(wanted) != std::string::npos, std::string(wanted) + ", not: " + other);
  };
  differs("Bias of the experts: ranks along dp, over which its layout replicates, must have equal values",
          [&](const Mesh& mesh) { routed(mesh, {}, static_cast<float>(mesh.coordinate<dp>()), 0); });
  differs("Padding of the tokens: ranks along tp, over which its layout replicates, must have equal values",
          [&](const Mesh& mesh) { routed(mesh, {}, 0, -mesh.coordinate<tp>()); });
  compares<dp>("within_capacity: all ranks along dp must give the same factor",
               [](const Mesh& mesh, double number) {
                 sw::ShardedTensor<Rows, std::int32_t> choice(mesh, {4, 1});
                 sw::fill(choice, 1);
                 static_cast<void>(sw::within_capacity(choice, 3, number));
               });
  compares<dp>("dispatch: all ranks along dp must give the same largest number of rows", [](const Mesh& mesh,
                                                                                            double number) {
    sw::ShardedTensor<Rows, std::int32_t> choice(mesh, {4, 1});
    sw::fill(choice, 1);
    static_cast<void>(sw::dispatch<dp>(rows_on(mesh), choice, {3, 10 + static_cast<std::int64_t>(number)}));
  });
  compares("Router: all ranks along tp must give the same rate of the bias",
           [](const Mesh& mesh, double number) {
             sw::Router<Rows> router(mesh, 3, 3, {}, sw::Initial::normal(0.1), {.rate = number});
             sw::initialize(router, 1);
             sw::Tape<> tape;
             static_cast<void>(router(tape.input(rows_on(mesh))));
           });
}

void memory_of_the_program() {
  const auto summed = [](bool alike) {
    return said([alike](const Mesh& mesh) {
      const Kokkos::View<float*, Kokkos::HostSpace> memory("memory", 4);
      for (std::size_t i = 0; i < 4; ++i)
        memory(i) = alike ? 1.0F : static_cast<float>(mesh.coordinate<tp>());
      const auto x = sw::tensor_over<sw::Layout<1>>(mesh, memory, {4});
      static_cast<void>(sw::redistribute<sw::Layout<1, sw::Shard<0, dp>>>(x));
      static_cast<void>(sw::square(x));
    });
  };
  expect(summed(true) == "nothing", "memory that all ranks fill alike, not: " + summed(true));
  const std::string other = summed(false);
  for (const char* part :
       {"tensor_over: ranks along tp, over which the declared layout replicates, must have equal "
        "values, but ranks 1 and 3 differ",
        "checked_program.cpp:"})
    expect(other.find(part) != std::string::npos, std::string(part) + ", not: " + other);
}

} // namespace

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  numbers_beside_tensors();
  new_tensors();
  training();
  numbers_of_models();
  numbers_of_attention_and_experts();
  memory_of_the_program();
  expect(said([](const Mesh& mesh) { // blocks that no other rank along dp has
           static_cast<void>(rows_on(mesh) * (1 + mesh.coordinate<dp>()));
         }) == "nothing",
         "numbers of blocks may differ");
  sw::launch({.ranks = 1}, [](const sw::HostCommunicator& world) {
    const sw::DeviceMesh<dp> mesh(world, sw::extent<dp>(1));
    const sw::ShardedTensor<sw::Layout<1>, double> fresh(mesh, {5});
    for (std::size_t i = 0; i < fresh.local_size(); ++i)
      expect(std::isnan(fresh.data()[i]), "NaN in a new tensor");
  });
  return failures == 0 ? 0 : 1;
}
