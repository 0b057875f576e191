// SPDX-License-Identifier: Apache-2.0
#include "nn/reproducible_models.hpp"

#include <shardwright/nn/experts/dispatch.hpp>

#include <string>
#include <string_view>
#include <type_traits>

// Other models on a Reproducible target: the same bits on every mesh. More elements are in tests/every_mesh.

namespace {

using namespace nn_test;

using Narrow = Gpt2<sw::bfloat16>;
using Single = Experts<float>;
using Tuned = sw::Adapted<sw::MoeDecoder<sw::FrozenLayouts<sw::MoeLayouts<>>, float, Ordered>>;
static_assert(std::is_same_v<Tuned::TokenTable::Out, Tuned::Stream>); // completed for own tokens only

/// Adapters of experts, with one product for queries, keys and values, or of all other layers with latent
/// attention, with dropout.
Tuned::Config tuned_config(bool latent) {
  Tuned::Config out{experts_config(), {.rank = 3, .alpha = 5, .tables = true}};
  if (latent) {
    out.adapters.dropout = 0.2;
    out.adapters.matches = [](std::string_view path) {
      return path.find("router") == path.npos && path.find("experts") == path.npos;
    };
  } else {
    out.latent.reset();
    out.head_elements = 0;
  }
  return out;
}

} // namespace

TEST_CASE("GPT-2 of bfloat16 has the same bits on every mesh", "[reproducible]") {
  check<Narrow>({.layers = 2, .vocabulary = 16}, other_cuts());
}

TEST_CASE("GPT-2 of bfloat16 has the same bits on four threads or processes",
          "[reproducible][four_processes]") {
  check_four<Narrow>({.layers = 2, .vocabulary = 16}, cuts_of_four());
  check_four<Narrow>({.layers = 2, .vocabulary = 16, .sequence = 64}, {{.inside = {.cp = 2, .tp = 2}}},
                     {.sequences = 2});
}

TEST_CASE("a decoder with experts has the same bits on every mesh", "[reproducible]") {
  check<Single>(experts_config(), other_expert_cuts());
}

TEST_CASE("a decoder with experts has the same bits on four threads or processes",
          "[reproducible][four_processes]") {
  check_four<Single>(experts_config(), expert_cuts_of_four());
}

TEST_CASE("three ranks may own experts, as no sum is split over them", "[reproducible]") {
  sw::MoeConfig config = experts_config();
  config.experts = 6;
  config.routing.groups = 3;
  config.batch_sequences = 6;
  check<Single>(config, {{.inside = {.ep = 3}}, {.inside = {.tp = 2, .ep = 3}, .microbatches = 2}},
                {.sequences = 6});
}

TEST_CASE("adapters of a decoder with experts have the same bits on every mesh, merged, too",
          "[reproducible]") {
  check<Tuned>(tuned_config(false), {{.microbatches = 8},
                                     {.inside = {.dp = 2}, .microbatches = 4},
                                     {.inside = {.tp = 2}, .microbatches = 4},
                                     {.inside = {.tp = 4}},
                                     {.inside = {.ep = 4}},
                                     {.inside = {.dp = 2, .cp = 2, .ep = 2}, .microbatches = 2},
                                     {.inside = {.cp = 2, .tp = 2, .ep = 2}},
                                     {.pp = 2, .inside = {.dp = 2, .tp = 2}, .microbatches = 2}});
  check<Tuned>(tuned_config(true), {{.inside = {.dp = 2, .tp = 2}, .microbatches = 2}});
}

TEST_CASE("adapters have the same bits on four threads or processes", "[reproducible][four_processes]") {
  check_four<Tuned>(tuned_config(false), {{.inside = {.dp = 2, .tp = 2}, .microbatches = 2},
                                          {.pp = 2, .inside = {.ep = 2}, .microbatches = 4}});
}

TEST_CASE("the rows of an expert from leaves of several tokens have the same sum",
          "[reproducible][four_processes]") {
  sw::MoeConfig config = experts_config();
  config.sequence = 128;
  config.batch_sequences = 2;
  check_four<Single>(config,
                     {{.inside = {.cp = 2, .ep = 2}},
                      {.inside = {.tp = 2, .ep = 2}},
                      {.inside = {.cp = 2, .tp = 2}, .microbatches = 2}},
                     {.sequences = 2});
}

TEST_CASE("a token that names one expert twice is refused if a leaf then has too many rows",
          "[reproducible]") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const auto mesh = sw::stage_mesh(sw::decoder_pipeline_mesh(world, 1, {.ep = 2}));
          using Rows = sw::Layout<3, sw::Shard<0, ep>>;
          const sw::ShardedTensor<Rows, float, Ordered> x(mesh, {2, 4096, 1});
          sw::ShardedTensor<Rows, std::int32_t, Ordered> choices(mesh, {2, 4096, 2});
          for (std::size_t i = 0; i < choices.local_size(); ++i)
            choices.mutable_data()[i] = world.rank() == 1 || i % 2 == 1 ? 1 : 0;
          std::string said;
          try {
            static_cast<void>(sw::dispatch<ep>(x, choices, {.experts = 2, .most_rows = 16384}));
          } catch (const sw::InvalidArgument& error) {
            said = error.what();
          }
          findings.expect(said.find("at most 256 rows of a leaf of tokens, but expert 1 gets 512, because "
                                    "tokens name it more than once (choose distinct experts for a token)") !=
                              std::string::npos,
                          said);
        }) == "");
}
