// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/larger.hpp"
#include "support/predicted_run.hpp"
#include "support/ranks.hpp"
#include "train/small_model.hpp"

#include <shardwright/layout/quantized.hpp>
#include <shardwright/nn/layers/lora.hpp>
#include <shardwright/schedule/named_schedule.hpp>
#include <shardwright/tensor/quantize.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>
#include <shardwright/train/training.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

// Quantized weights against a plain formula, bit for bit, and adapters over them against adapters over the
// same weights in float.

namespace {

namespace sw = shardwright;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using sw::axis::dp;
using sw::axis::tp;
using train_test::losses_of;
using train_test::one_token_batch;
using train_test::small_mesh;

constexpr std::array<float, 16> normal_floats{-1.0F,
                                              -0.6961928009986877F,
                                              -0.5250730514526367F,
                                              -0.39491748809814453F,
                                              -0.28444138169F,
                                              -0.18477343022823334F,
                                              -0.09105003625F,
                                              0.0F,
                                              0.0795802995562F,
                                              0.16093020141124725F,
                                              0.24611230194568634F,
                                              0.33791524171829224F,
                                              0.44070982933F,
                                              0.5626170039176941F,
                                              0.7229568362236023F,
                                              1.0F};

/// What the weights are after they were stored: each block of 64 is value times scale.
template <class Form> [[nodiscard]] std::vector<float> stored_and_read(std::vector<float> values) {
  for (std::size_t block = 0; block < values.size(); block += 64) {
    float most = 0;
    for (std::size_t i = block; i < block + 64; ++i)
      most = std::max(most, std::abs(values[i]));
    for (std::size_t i = block; i < block + 64; ++i) {
      if (most == 0) {
        values[i] = 0;
      } else if constexpr (std::is_same_v<Form, sw::Int8>) {
        const float step = most / 127;
        values[i] = (std::nearbyint(values[i] / step) + 0.0F) * step; // a code has no -0
      } else {
        std::size_t code = 0;
        while (code < 15 && values[i] / most > (normal_floats[code] + normal_floats[code + 1]) / 2)
          ++code;
        values[i] = normal_floats[code] * most;
      }
    }
  }
  return values;
}

constexpr std::int64_t rows = 7, columns = 768;

/// Waves of several sizes, a block of zeros, one of tiny numbers, and one of values between two
/// codes.
[[nodiscard]] std::vector<float> examples() {
  std::vector<float> out(rows * columns);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(std::sin(0.7 * double(i) + 1e-3 * double(i * i)) *
                                std::pow(10., double(i / 64 % 9) - 4));
  std::fill_n(out.begin() + 64, 64, 0.0F);
  for (std::size_t i = 128; i < 192; ++i)
    out[i] *= 1e-38F;
  for (std::size_t i = 0; i < 16; ++i) {
    out[192 + i] = 4 * normal_floats[i];
    out[208 + i] = 2 * (normal_floats[i] + normal_floats[std::min<std::size_t>(i + 1, 15)]);
    out[224 + i] = (float(i) + 0.5F) * 4 / 127;
  }
  std::fill_n(out.begin() + 240, 16, -0.0F);
  return out;
}

/// A parameter of any layout holds the values of the formula, also after a gather.
template <class Form, class Element, class Zero, class Weight>
void expect_formula(const sw::HostCommunicator& world, Findings& findings) {
  using P = sw::Parameter<Weight, Weight, Element, sw::Frozen<Zero, Form>>;
  using Number = typename P::accumulation_element;
  static_assert(!P::trained && std::is_same_v<typename P::stored_element, std::uint32_t>);
  const std::vector<float> given = examples(), wanted = stored_and_read<Form>(given);
  for (int tensor = 1; tensor <= world.size(); ++tensor) {
    if (world.size() % tensor != 0)
      continue;
    const auto mesh = small_mesh(world, tensor);
    sw::ShardedTensor<sw::Layout<2>, Number> whole(mesh, {rows, columns});
    sw::set_local_values(whole, std::vector<Number>(given.begin(), given.end()));
    P weight("weight", sw::redistribute<typename P::stored_layout>(whole).clone());
    findings.expect(weight.shape() == typename P::Shape{rows, columns}, "shape");
    findings.expect(weight.stored().local_size() * 64 ==
                        (1 + 2 * std::size_t(Form::bits)) *
                            sw::redistribute<typename P::stored_layout>(whole).local_size(),
                    "words");
    weight.start_gather();
    weight.finish_gather();
    const auto found = sw::local_values(sw::redistribute<sw::Layout<2>>(weight.weight()));
    weight.release();
    std::size_t differ = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) // signs of zeros, too
      differ += found[i] == static_cast<Element>(wanted[i]) &&
                        std::signbit(static_cast<float>(found[i])) == std::signbit(wanted[i])
                    ? 0
                    : 1;
    findings.expect(differ == 0 && found.size() == wanted.size(), "tp ", tensor, ": ", differ, " differ");
  }
}

/// Wide enough for blocks of 64 over four ranks.
template <class Zero, class Target = sw::DefaultTarget>
struct Wide : train_test::SmallModel<float, Zero, Target> {
  using Narrow = train_test::SmallModel<float, Zero, Target>;
  struct Config : Narrow::Config {
    Config() : Narrow::Config{2, 64, 256} {}
  };
};
template <class Zero, class Target = sw::DefaultTarget> using WithLora = sw::Adapted<Wide<Zero, Target>>;
//! [quantized]
template <class Zero> using Coarse = sw::Frozen<Zero, sw::NormalFloat4>;
//! [quantized]

template <class Model> [[nodiscard]] typename Model::Config config() {
  typename Model::Config out;
  out.adapters = {.rank = 3, .alpha = 6};
  return out;
}

enum class Base { as_stored, widened };

template <class Zero, Base base = Base::as_stored>
[[nodiscard]] std::vector<double> on_mesh(const sw::HostCommunicator& world, int tensor) {
  using Description = WithLora<Zero>;
  const auto mesh = small_mesh(world, tensor);
  sw::SingleStageModel<Description> model(mesh, config<Description>(), 3);
  if constexpr (base == Base::widened)
    model.for_each_parameter([]<class P>(P& parameter) {
      if constexpr (!P::trained)
        parameter.fill_weights([](auto& weights) {
          sw::set_local_values(weights, stored_and_read<sw::NormalFloat4>(sw::local_values(weights)));
        });
    });
  sw::Training training(mesh, model, sw::AdamW());
  return losses_of<Description>(training, mesh, 4, 2);
}
[[nodiscard]] std::vector<double> on_stages(const sw::HostCommunicator& world) {
  using Description = WithLora<Coarse<sw::Zero3>>;
  const auto mesh = small_mesh(sw::HostCommunicator(world).split(world.rank(), 0), 1);
  const auto schedule = sw::make_schedule("1f1b", 2, 2);
  sw::PipelineModel<Description> model(mesh, world, schedule.placement(),
                                       sw::LayerPartition(2, schedule.placement().stages()),
                                       config<Description>(), 3);
  sw::Training training(mesh, model, world, world, schedule, sw::AdamW());
  return losses_of<Description>(training, mesh, 4, 2);
}

template <class Description, class AtStep>
void train_for_memory(const sw::HostCommunicator& world, const AtStep& at_step) {
  const auto mesh = small_mesh(world, 2);
  sw::SingleStageModel<Description> model(mesh, config<Description>(), 3);
  sw::Training training(mesh, model, sw::AdamW());
  std::vector<typename Description::Batch> batches{one_token_batch<Description>(mesh, 0, 0)};
  for (int step = 0; step < 2; ++step) {
    static_cast<void>(training.step(
        [&](std::int64_t) -> auto& { return batches; }, 0.01));
    at_step(step, mesh.template pool_statistics<typename Description::target>());
  }
}

} // namespace

TEST_CASE("quantized weights are those of the formula, bit for bit, on every tp x ZeRO mesh") {
  using Column = sw::Layout<2, sw::Shard<1, tp>>;
  using Row = sw::Layout<2, sw::Shard<0, tp>>;
  for (const int ranks : {1, 2, 3, 4})
    CHECK(on_ranks(ranks, [](const sw::HostCommunicator& world, Findings& findings) {
            expect_formula<sw::NormalFloat4, float, sw::DataParallel, Column>(world, findings);
            expect_formula<sw::NormalFloat4, float, sw::Zero3, Column>(world, findings);
            expect_formula<sw::NormalFloat4, float, sw::Zero3, Row>(world, findings);
            expect_formula<sw::NormalFloat4, sw::bfloat16, sw::Zero3, Row>(world, findings);
            expect_formula<sw::Int8, float, sw::DataParallel, Row>(world, findings);
            expect_formula<sw::Int8, float, sw::Zero3, Column>(world, findings);
            expect_formula<sw::Int8, double, sw::Zero3, Column>(world, findings);
          }) == "");
}

TEST_CASE("a block is never cut, and one that holds no numbers is NaN") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const auto mesh = small_mesh(world, 2);
          using Weight = sw::Layout<2, sw::Shard<1, tp>>;
          using P = sw::Parameter<Weight, Weight, float, Coarse<sw::DataParallel>>;
          const std::string text = failure_of<sw::InvalidArgument>([&] {
            P(mesh, {3, 192}, sw::Initial::normal(1)).initialize("layers.0.down", 1);
          });
          findings.expect(
              has(text, "Quantized weights: a rank must hold whole blocks of 64 elements") &&
                  has(text, "but layers.0.down has 192 over 2 ranks (make that extent a multiple of 128,"),
              text);
          P weight(mesh, {1, 256}, sw::Initial::normal(1));
          weight.initialize("weight", 1);
          weight.fill_weights([](auto& weights) {
            sw::fill(weights, 2);
            weights.mutable_data()[3] = std::numeric_limits<float>::infinity();
          });
          weight.start_gather();
          weight.finish_gather();
          const auto values = sw::local_values(weight.weight());
          weight.release();
          for (std::size_t i = 0; i < values.size(); ++i)
            findings.expect(i < 64 ? std::isnan(values[i]) : values[i] == 2, i, " is ", values[i]);
        }) == "");
}

TEST_CASE("adapters over quantized weights learn as over the same weights in float, on meshes and stages") {
  using sw::DataParallel;
  std::vector<double> wanted;
  CHECK(on_ranks(1, [&](const sw::HostCommunicator& world, Findings& findings) {
          wanted = on_mesh<sw::Frozen<DataParallel>, Base::widened>(world, 1);
          findings.expect(on_mesh<Coarse<DataParallel>>(world, 1) == wanted, "not the same bits");
          findings.expect(wanted.back() < 0.9 * wanted.front(), "nothing was learnt");
          const auto whole = on_mesh<sw::Frozen<DataParallel>>(world, 1);
          findings.expect(std::abs(whole[0] - wanted[0]) > 1e-4 * wanted[0], "quantizing changed nothing");
        }) == "");
  for (const int ranks : {2, 4})
    CHECK(on_ranks(ranks, [&](const sw::HostCommunicator& world, Findings& findings) {
            const auto compare = [&](const std::vector<double>& found, const char* what) {
              double most = 0;
              for (std::size_t i = 0; i < wanted.size(); ++i)
                most = shardwright_test::larger(most, std::abs(found[i] / wanted[i] - 1));
              findings.expect(most < 1e-5, what, " differs by ", most);
            };
            compare(on_mesh<Coarse<DataParallel>>(world, world.size()), "tp");
            compare(on_mesh<Coarse<sw::Zero3>>(world, 1), "ZeRO-3");
            if (world.size() == 4)
              compare(on_mesh<Coarse<sw::Zero3>>(world, 2), "ZeRO-3 and tp");
            else
              compare(on_stages(world), "pp");
          }) == "");
}

TEST_CASE("a dry run predicts the memory of adapters over quantized weights, to the byte") {
  using Counted = WithLora<Coarse<sw::Zero3>, sw::Counting<sw::DefaultTarget>>;
  std::array<sw::DryRun, 4> predicted;
  for (int rank = 0; rank < 4; ++rank)
    predicted[std::size_t(rank)] = sw::dry_run(4, rank, [](const sw::HostCommunicator& world) {
      train_for_memory<Counted>(world, [](int, const sw::PoolStatistics&) {});
    });
  CHECK(on_ranks(4, [&](const sw::HostCommunicator& world, Findings& findings) {
          shardwright_test::expect_predicted(
              predicted[std::size_t(world.rank())], world,
              [](const sw::HostCommunicator& all, const auto& at_step) {
                train_for_memory<WithLora<Coarse<sw::Zero3>>>(all, at_step);
              },
              "adapters", findings);
          // On two ranks of tp and two of dp, the base is blocks of 36 bytes; four adapted layers have
          // matrices of rank 3 in float.
          std::int64_t base = 0, adapters = 0;
          const auto mesh = small_mesh(world, 2);
          using Trained = WithLora<Coarse<sw::Zero3>>;
          sw::SingleStageModel<Trained> model(mesh, config<Trained>(), 3);
          model.for_each_parameter([&]<class P>(P& parameter) {
            (P::trained ? adapters : base) += std::int64_t(parameter.stored().local_size()) * 4;
          });
          findings.expect(base == (2 * 64 * 64 / 2 + 2 * 2 * 64 * 256 / 4) / 64 * 36, base, " bytes");
          findings.expect(predicted[std::size_t(world.rank())].memory[sw::MemoryKind::parameters] ==
                              base + adapters,
                          "parameters");
        }) == "");
}
