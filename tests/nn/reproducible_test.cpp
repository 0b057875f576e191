// SPDX-License-Identifier: Apache-2.0
#include "nn/reproducible_training.hpp"

#include <shardwright/nn/decoder.hpp>

// A decoder on a Reproducible target: losses, gradients, norms and weights have the same bits on every mesh.

namespace {

using namespace nn_test;

sw::DecoderConfig config(std::int64_t layers = 2) {
  sw::DecoderConfig out;
  out.layers = layers;
  out.width = 32;
  out.heads = 4;
  out.kv_heads = 4;
  out.hidden = 24;
  out.vocabulary = 16;
  out.sequence = 16;
  out.tied_embedding = true;
  out.dropout = 0.1;
  return out;
}

//! [model]
template <class Layouts, class Element>
using Model = sw::Decoder<Layouts, Element, sw::Reproducible<sw::DefaultTarget>>;
//! [model]

using Single = Model<sw::DecoderLayouts<true, sw::Zero2>, float>; // the stream is split over tp
using Narrow = Model<sw::DecoderLayouts<false, sw::Zero3>, sw::bfloat16>;
using Ring = Model<sw::DecoderLayouts<true, sw::Zero1, sw::RingContext>, float>;

/// Gradients of matrices have leaves of eight tokens.
sw::DecoderConfig long_config() {
  sw::DecoderConfig out = config();
  out.sequence = 128;
  return out;
}

} // namespace

TEST_CASE("a decoder has the same bits on every mesh, schedule and microbatch", "[reproducible]") {
  check<Single>(config(), other_cuts());
  check<Single>(config(4), {{.pp = 2, .inside = {.cp = 2}, .microbatches = 4, .schedule = "zbv"}});
}

TEST_CASE("a decoder of bfloat16 with float masters, too", "[reproducible]") {
  check<Narrow>(config(), other_cuts());
  check<Narrow>(config(4), {{.pp = 4, .inside = {.dp = 2}, .microbatches = 4}});
}

TEST_CASE("a decoder has the same bits on four threads or processes", "[reproducible][four_processes]") {
  check_four<Single>(config(), cuts_of_four());
  check_four<Narrow>(config(), cuts_of_four());
}

TEST_CASE("ranks cut sequences between leaves of several tokens", "[reproducible][four_processes]") {
  const Work two{.sequences = 2};
  check_four<Single>(long_config(),
                     {{.inside = {.cp = 2, .tp = 2}},
                      {.inside = {.cp = 4}, .microbatches = 2},
                      {.pp = 2, .inside = {.tp = 2}, .microbatches = 2}},
                     two);
  check_four<Narrow>(long_config(), {{.inside = {.cp = 2, .tp = 2}, .microbatches = 2}}, two);
}

TEST_CASE("a ring of ranks that hold two pieces of a sequence each, too", "[reproducible]") {
  check<Ring>(
      long_config(),
      {{.inside = {.cp = 2}}, {.inside = {.cp = 8}}, {.inside = {.cp = 4, .tp = 2}, .microbatches = 2}},
      {.sequences = 2});
}

TEST_CASE("a ring of four threads or processes", "[reproducible][four_processes]") {
  check_four<Ring>(long_config(),
                   {{.inside = {.cp = 4}},
                    {.inside = {.cp = 2, .tp = 2}, .microbatches = 2},
                    {.inside = {.dp = 2, .cp = 2}},
                    {.pp = 2, .inside = {.cp = 2}, .microbatches = 2}},
                   {.sequences = 2});
}

TEST_CASE("tp cuts sums whose eight parts are longer than a block of 256", "[reproducible]") {
  sw::DecoderConfig wide = config(1);
  wide.width = 16;
  wide.hidden = 4096;
  wide.vocabulary = 4096;
  check<Single>(wide, {{.inside = {.tp = 2}}, {.inside = {.tp = 4}}}, {.sequences = 2});
  check<Narrow>(wide, {{.inside = {.tp = 4}}}, {.sequences = 2});
}

TEST_CASE("a difference of one bit is named, with its step, tensor and microbatch", "[reproducible]") {
  const Cut cut{.pp = 2, .inside = {.dp = 2}, .microbatches = 4};
  const sw::HashRecord one = on_mesh<Single>({.microbatches = 4}, config(4));
  CHECK(text_of(one, on_mesh<Single>(cut, config(4), {.fault = Fault::weight})) ==
        "step 2: weights of layers.2.mlp_norm");
  const std::string token = text_of(one, on_mesh<Single>(cut, config(4), {.fault = Fault::token}));
  CHECK(token.starts_with("step 2: loss of microbatch 2 of 4; then "));
}
