// SPDX-License-Identifier: Apache-2.0
#include "nn/reproducible_training.hpp"

#include <shardwright/nn/decoder.hpp>

// A decoder on a Reproducible target: losses, gradients, norms and weights have the same bits on every mesh.

namespace {

using namespace nn_test;

sw::DecoderConfig config() {
  sw::DecoderConfig out;
  out.layers = 4;
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

/// A run of a decoder.
template <class Layouts, class Element> sw::HashRecord on_mesh(const Cut& cut, Fault fault = Fault::none) {
  return nn_test::on_mesh<Model<Layouts, Element>>(cut, config(), fault);
}

using Single = sw::DecoderLayouts<true, sw::Zero2>; // the stream is split over tp
using Narrow = sw::DecoderLayouts<false, sw::Zero3>;

} // namespace

TEST_CASE("a decoder has the same bits on every mesh, schedule and microbatch", "[reproducible]") {
  const sw::HashRecord one = on_mesh<Single, float>({});
  for (const Cut& cut :
       {Cut{.inside = {.dp = 8}}, Cut{.inside = {.dpr = 2, .dp = 2}, .microbatches = 2},
        Cut{.microbatches = 8}, Cut{.inside = {.tp = 2}}, Cut{.inside = {.dp = 2, .tp = 4}},
        Cut{.inside = {.cp = 2}, .microbatches = 4}, Cut{.inside = {.dp = 2, .cp = 2, .tp = 2}},
        Cut{.pp = 2, .inside = {.dp = 2, .tp = 2}, .microbatches = 4},
        Cut{.pp = 2, .inside = {.cp = 2}, .microbatches = 4, .schedule = "zbv"},
        Cut{.pp = 2, .inside = {.dp = 2}, .microbatches = 4, .schedule = "dualpipe"}}) {
    INFO(cut.text());
    CHECK(text_of(one, on_mesh<Single, float>(cut)) == "");
  }
}

TEST_CASE("a decoder of bfloat16 with float masters, too", "[reproducible]") {
  const sw::HashRecord one = on_mesh<Narrow, sw::bfloat16>({});
  for (const Cut& cut :
       {Cut{.inside = {.dp = 4}}, Cut{.inside = {.tp = 4}, .microbatches = 2},
        Cut{.inside = {.dp = 2, .cp = 2}}, Cut{.inside = {.cp = 2, .tp = 2}, .microbatches = 2},
        Cut{.pp = 4, .inside = {.dp = 2}, .microbatches = 4},
        Cut{.pp = 2, .inside = {.tp = 2}, .microbatches = 4, .schedule = "dualpipe"}}) {
    INFO(cut.text());
    CHECK(text_of(one, on_mesh<Narrow, sw::bfloat16>(cut)) == "");
  }
}

TEST_CASE("a difference of one bit is named, with its step, tensor and microbatch", "[reproducible]") {
  const Cut cut{.pp = 2, .inside = {.dp = 2}, .microbatches = 4};
  const sw::HashRecord one = on_mesh<Single, float>({.microbatches = 4});
  CHECK(text_of(one, on_mesh<Single, float>(cut, Fault::weight)) == "step 2: weights of layers.2.mlp_norm");
  const std::string token = text_of(one, on_mesh<Single, float>(cut, Fault::token));
  CHECK(token.starts_with("step 2: loss of microbatch 2 of 4; then "));
}
