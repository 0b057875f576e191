// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/plan/cost/model_size.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>

#include <string>

using namespace shardwright;
using shardwright_test::Approx;

TEST_CASE("the models of the catalogue have the parameters that their sources state", "[model_size]") {
  for (ModelSpec model : model_catalogue) {
    INFO(std::string(model.name));
    model.prediction_layers = 0;
    const ModelSize size = size_of(model);
    REQUIRE(!model.source.empty());
    REQUIRE(model.published_parameters > 0);
    CHECK(size.total == Approx(model.published_parameters).epsilon(0.005));
    if (model.published_active_parameters > 0)
      CHECK(size.active == Approx(model.published_active_parameters).epsilon(0.005));
    else
      CHECK((model.experts.used() || size.active == size.total));
    CHECK(size.dense() + size.routed == Approx(size.total));
  }
}

TEST_CASE("operations of GPT models follow the papers' formulas", "[model_size]") {
  // arXiv 2205.05198, equation 7: 72 B L s h^2 (1 + s/6h + v/12hL); arXiv 2104.04473, equation 2.
  for (const ModelSpec& model : model_catalogue) {
    if (model.gated || model.key_value_heads != model.heads || model.feed_forward != 4 * model.hidden)
      continue;
    INFO(std::string(model.name));
    const ModelSize size = size_of(model);
    const double L = model.layers, h = model.hidden, v = model.vocabulary;
    for (const double s : {512.0, 2048.0, 65536.0}) {
      CHECK(flops_per_token(model, size, s, FlopsConvention::non_causal) ==
            Approx(72 * L * h * h * (1 + s / (6 * h) + v / (12 * h * L))).epsilon(1e-9));
      CHECK(flops_per_token(model, size, s, FlopsConvention::causal) ==
            Approx(72 * L * h * h * (1 + s / (12 * h) + v / (12 * h * L))).epsilon(1e-9));
    }
    const double heads = model.tied_embeddings ? 1 : 2;
    CHECK(
        size.total ==
        Approx(12 * L * h * h * (1 + 13 / (12 * h)) + (heads * v + model.position_rows) * h).epsilon(0.001));
  }
}

TEST_CASE("operations of DeepSeek-V3 are those of its report", "[model_size]") {
  // 6 (activated matrices + v h) and 6 L s a (192 + 128) for latent attention: 37.6 billion activated
  // parameters less the embedding, at 4096 tokens.
  const ModelSpec* const found = find_model("deepseek-v3");
  REQUIRE(found != nullptr);
  ModelSpec model = *found;
  REQUIRE(model.prediction_layers == 1);
  const ModelSize trained = size_of(model);
  const double with = flops_per_token(model, trained, 4096, FlopsConvention::non_causal);
  model.prediction_layers = 0;
  const ModelSize size = size_of(model);
  const double attention = 6.0 * 61 * 4096 * 128 * (192 + 128);
  const double whole = 6 * (37.6e9 - 129280.0 * 7168) + attention;
  const double without = flops_per_token(model, size, 4096, FlopsConvention::non_causal);
  CHECK(size.total == Approx(671e9).epsilon(0.005));
  CHECK(size.active == Approx(37.6e9).epsilon(0.005));
  CHECK(without == Approx(whole).epsilon(0.005));
  // Its module for one more token: 11.5 billion additional parameters according to its README_WEIGHTS; per
  // token an expert layer, the product of 2 h x h, and the logits.
  CHECK(trained.total - size.total == Approx(11.5e9).epsilon(0.01));
  const double layer = size.attention_per_layer + size.shared_per_layer + 8 * size.one_expert;
  const double module = layer + 2 * 7168.0 * 7168 + 129280.0 * 7168;
  CHECK(with - without == Approx(6 * module + attention / 61).epsilon(1e-9));
}

TEST_CASE("hybrid models have layers of one kind each", "[model_size]") {
  // Nemotron 3 Nano (arXiv 2512.20848): MEMEM*EMEMEM*... of 52 letters, M for a state space, * for attention,
  // E for experts; 31.6 billion parameters, 3.6 billion of a token with both embeddings.
  const ModelSpec nano = *find_model("nemotron-3-nano");
  CHECK((nano.attention_layers() == 6 && nano.expert_layers() == 23 && nano.dense_layers() == 0));
  const ModelSize size = size_of(nano);
  // One state space: 2 x 4096 wide gates and values, 8 groups of 128 inputs and outputs, 64 steps; four taps
  // and a bias over what the convolution reads; three vectors of the heads, a norm of the result.
  CHECK(size.state_space_per_layer ==
        2688.0 * (8192 + 2048 + 64) + 4096.0 * 2688 + 6144.0 * 5 + 3 * 64 + 4096);
  CHECK(size.attention_per_layer == 2688.0 * 128 * (2 * 32 + 2 * 2));
  CHECK(size.one_expert == 2.0 * 2688 * 1856);
  CHECK(size.total ==
        Approx(23 * (size.state_space_per_layer + 128 * size.one_expert + 2.0 * 2688 * 3712 + 2688 * 128) +
               6 * size.attention_per_layer + 53 * 2688 + 2 * 131072.0 * 2688));
  CHECK(size.active == Approx(3.6e9).epsilon(0.01)); // as its report rounds it
  // NVIDIA counts 901 TFLOP/s at 39,936 tokens/s (data/published_runs.csv): 22.56 GFLOP a token, without the
  // mask.
  CHECK(flops_per_token(nano, size, 8192, FlopsConvention::non_causal) == Approx(22.56e9).epsilon(0.03));
  // Only the latent, a quarter as wide as the stream, passes through Nemotron 3 Super's experts.
  const ModelSpec super = *find_model("nemotron-3-super");
  CHECK(super.attention_layers() == 9); // with that of multi-token prediction
  CHECK(size_of(super).one_expert == 2.0 * 1024 * 2688);
  CHECK(size_of(super).active ==
        Approx(12.7e9).epsilon(0.03)); // arXiv 2604.12374, and multi-token prediction
}

TEST_CASE("a parallel block has one norm", "[model_size]") {
  // GPT-J according to its model card: 6.05 billion parameters, 0.6 million of which are biases, in its
  // feed-forward and its head only.
  ModelSpec model{.layers = 28,
                  .hidden = 4096,
                  .heads = 16,
                  .key_value_heads = 16,
                  .feed_forward = 16384,
                  .gated = false,
                  .vocabulary = 50400,
                  .parallel_block = true};
  const ModelSize parallel = size_of(model);
  CHECK(parallel.total == Approx(6.0509e9).epsilon(0.0002));
  model.parallel_block = false;
  CHECK(size_of(model).total - parallel.total == 28 * 4096);
}

TEST_CASE("layers with experts may alternate with dense ones, and attend within chunks", "[model_size]") {
  // Llama 4 Maverick as configured: 400 B parameters, 17 B of them used per token, according to its model
  // card.
  const ModelSpec model{.name = "llama-4-maverick",
                        .layers = 48,
                        .hidden = 5120,
                        .heads = 40,
                        .key_value_heads = 8,
                        .head_width = 128,
                        .feed_forward = 16384,
                        .vocabulary = 202048,
                        .window = 8192,
                        .window_layers = 36,
                        .chunked = true,
                        .experts = {.count = 128, .active = 1, .width = 8192, .shared = 1, .every = 2}};
  CHECK(model.expert_layers() == 24);
  CHECK(size_of(model).total == Approx(400e9).epsilon(0.01));
  CHECK(size_of(model).active == Approx(17e9).epsilon(0.02));
  // Of 16384 tokens a layer with chunks attends to 4096 on average, any other one to 8192.
  CHECK(attended_tokens(model, 16384, FlopsConvention::causal) == (36 * 4096 + 12 * 8192) / 48.0);
  CHECK(attended_tokens(model, 4096, FlopsConvention::causal) == 2048);
}

TEST_CASE("a sliding window bounds what a token attends to", "[model_size]") {
  ModelSpec model{
      .layers = 4, .hidden = 64, .heads = 4, .key_value_heads = 4, .feed_forward = 256, .vocabulary = 100};
  CHECK(attended_tokens(model, 1000, FlopsConvention::non_causal) == 1000);
  CHECK(attended_tokens(model, 1000, FlopsConvention::causal) == 500);
  model.window = 100;
  model.window_layers = 2;
  CHECK(attended_tokens(model, 1000, FlopsConvention::non_causal) == 550);
  // Pairs of the past within a window, counted one by one.
  double pairs = 0;
  for (int token = 0; token < 1000; ++token)
    for (int past = 0; past <= token; ++past)
      pairs += token - past < 100 ? 1 : 0;
  CHECK(attended_tokens(model, 1000, FlopsConvention::causal) ==
        Approx((500 + pairs / 1000) / 2).epsilon(0.002));
  model.window = 5000; // wider than the sequence
  CHECK(attended_tokens(model, 1000, FlopsConvention::causal) == 500);
}

TEST_CASE("chips of several makers are found by the names that people write", "[catalogue]") {
  STATIC_REQUIRE(cluster_of_name("mi300xx64")->chip.peak_fp8 == 2614.9e12);
  STATIC_REQUIRE(chip_of_word("gaudi3")->scale_out_bandwidth == 75e9);
  STATIC_REQUIRE(chip::gaudi_3.scale_out_bandwidth == 2 * chip::gaudi_2.scale_out_bandwidth);
  STATIC_REQUIRE(chip::mi325x.peak_fp8 == chip::mi300x.peak_fp8); // with other memory
  STATIC_REQUIRE(chip::mi325x.memory_bytes > chip::mi300x.memory_bytes);
  STATIC_REQUIRE(chip::mi350x.peak_fp8 < chip::mi355x.peak_fp8 && // at a lower clock
                 chip::mi350x.memory_bytes == chip::mi355x.memory_bytes);
  STATIC_REQUIRE(chip_of_word("trainium1")->memory_bytes == 34.4e9); // 32 GiB
  STATIC_REQUIRE(chip::trainium_1.torus_dimensions == chip::trainium_2.torus_dimensions);
  STATIC_REQUIRE(chip::trainium_2.host() == HostKind::compiled && chip::mi355x.host() == HostKind::separate);
  STATIC_REQUIRE(chip::gb200.host() == HostKind::coupled && chip::tpu_v6e.host() == HostKind::compiled);
}

TEST_CASE("every chip and cluster of the catalogue names its source and holds together", "[catalogue]") {
  for (const ChipSpec& chip : chip_catalogue) {
    INFO(std::string(chip.name));
    CHECK(!chip.source.empty());
    CHECK(chip.peak_bf16 > 1e14);
    CHECK(chip.peak(Precision::fp8) >= chip.peak_bf16);
    CHECK(chip.peak(Precision::fp4) >= chip.peak(Precision::fp8));
    CHECK(chip.memory_bytes >= 16e9);
    CHECK(chip.scale_up_bandwidth > chip.scale_out_bandwidth);
  }
  for (const ClusterSpec& cluster : cluster_catalogue) {
    INFO(std::string(cluster.name));
    CHECK(!cluster.source.empty());
    CHECK(cluster.chips() > 0);
    for (int level = 1; level < cluster.domain_count; ++level) {
      const DomainSpec& inner = cluster.domains[static_cast<std::size_t>(level - 1)];
      const DomainSpec& outer = cluster.domains[static_cast<std::size_t>(level)];
      CHECK(outer.chips % inner.chips == 0);
      CHECK(outer.bandwidth < inner.bandwidth);
    }
  }
}
