// SPDX-License-Identifier: Apache-2.0
// The tensor-core kernels of a GPU, run on the host: warps are threads, and instructions of a warp are loops
// over its 32 threads.

#include <shardwright/tensor/kernels/attention.hpp>
#include <shardwright/tensor/kernels/attention/key_values.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/rotary.hpp>

#include "support/host_block.hpp"
#include "tensor/kernels_support.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace kernels_test;
namespace detail = kernels::detail;

namespace {

template <class Element> kernels::MatrixSpan<const Element> span(const Matrix<Element>& matrix) {
  return kernels::span_of(matrix);
}

template <class Element> Matrix<double> widened(const Matrix<Element>& matrix) {
  Matrix<double> wide("wide", matrix.extent(0), matrix.extent(1));
  kernels::copy(execution(), matrix, wide);
  return wide;
}

/// A block in the form for which kernels are compiled.
template <class Form> Form form_of(const kernels::AttentionBlock& block) {
  if constexpr (Form::one_sided)
    return block.causal_form();
  else
    return block;
}

template <class Functor> void run_tiles(const Functor& functor) {
  sw_test::run_host_blocks(functor.blocks(), Functor::shared_bytes, functor);
}

/// The host's attention in double, and that of tiles, on the same narrow numbers.
template <class Element, int dim> struct Both {
  kernels::AttentionShape shape;
  float scale;
  Matrix<Element> qkv, d_out;
  Vector<double> lse, work;
  Vector<float> tile_lse, dots;
  Matrix<double> out, d_qkv;

  explicit Both(const kernels::AttentionShape& s)
      : shape(s), scale(1 / std::sqrt(static_cast<float>(s.head_dim))),
        qkv(random_matrix<Element>(s.tokens(), s.qkv_width(), 1)),
        d_out(random_matrix<Element>(s.tokens(), s.output_width(), 2)), lse("lse", s.tokens() * s.heads()),
        work("work", kernels::attention_backward_workspace<double>(execution(), s)),
        tile_lse("lse", lse.size()), dots("dots", lse.size()), out("out", s.tokens(), s.output_width()),
        d_qkv("d_qkv", s.tokens(), s.qkv_width()) {
    Kokkos::deep_copy(dots, std::numeric_limits<float>::quiet_NaN());
  }

  /// Attention over the tokens' own keys; results of the tiles have the element `Out`.
  template <class Out, class Form = kernels::CausalBlock>
  void check_whole(double limit, const kernels::KeyMask& mask = {sw::causal.window}, bool turned = false) {
    const auto host_block = kernels::AttentionBlock::whole(shape.sequence, mask);
    const auto block = form_of<Form>(host_block);
    kernels::attention_forward(execution(), widened(qkv), out, lse, shape, host_block, scale, work);
    Matrix<Out> tile_out("out", out.extent(0), out.extent(1)), tile_d("d", qkv.extent(0), qkv.extent(1));
    Kokkos::deep_copy(tile_d, static_cast<Out>(std::numeric_limits<float>::quiet_NaN()));
    const auto keys = detail::KeyValueSpan<const Element>::fused(span(qkv), shape);
    run_tiles(detail::AttentionForwardTiles<Element, Out, dim, Form>{
        {span(qkv), keys, kernels::span_of(tile_out), tile_lse.data(), shape, block, false, scale}});
    REQUIRE(largest_difference(tile_out, out) < limit);
    REQUIRE(largest_difference(tile_lse, lse) < 2e-6);

    // Both from the rounded output, as in a training step.
    Matrix<Element> rounded("rounded", out.extent(0), out.extent(1));
    kernels::copy(execution(), out, rounded);
    kernels::attention_backward(execution(), widened(qkv), widened(rounded), lse, widened(d_out), d_qkv,
                                shape, host_block, scale, work);
    kernels::Rotation<float> undone;
    const sw::TokenRuns positions{
        .rows = shape.sequence, .split = shape.sequence / 3, .first = 2, .second = shape.sequence};
    Matrix<float> cosines("c", positions.end(), shape.head_dim / 2),
        sines("s", positions.end(), shape.head_dim / 2);
    if (turned) {
      Matrix<double> wide_cosines("c", positions.end(), shape.head_dim / 2),
          wide_sines("s", positions.end(), shape.head_dim / 2);
      kernels::fill_rotary_tables(execution(), wide_cosines, wide_sines);
      kernels::fill_rotary_tables(execution(), cosines, sines);
      kernels::rotary_backward(execution(), d_qkv, wide_cosines, wide_sines, shape, positions);
      REQUIRE(detail::tiles_undo(shape));
      undone = {span(cosines), span(sines), positions};
    }
    backward<Out>(keys, rounded, tile_d, detail::KeyValueSpan<Out>::fused(kernels::span_of(tile_d), shape),
                  block, false, undone);
    REQUIRE(largest_difference(tile_d, d_qkv) < 4 * limit);
  }

  /// The same queries over keys of other tokens, combined with the result over their own.
  template <class Form = kernels::CausalBlock>
  void check_block(const kernels::AttentionBlock& host_block, double limit) {
    const auto block = form_of<Form>(host_block);
    const Matrix<Element> others =
        random_matrix<Element>(shape.batch * block.keys.rows, shape.kv_heads * 2 * shape.head_dim, 5);
    kernels::attention_forward(execution(), widened(qkv), out, lse, shape,
                               kernels::AttentionBlock::whole(shape.sequence), scale, work);
    Matrix<float> joined("joined", out.extent(0), out.extent(1));
    kernels::copy(execution(), out, joined);
    Kokkos::deep_copy(tile_lse, 0.0f);
    for (std::size_t i = 0; i < lse.size(); ++i)
      tile_lse(i) = static_cast<float>(lse(i));
    kernels::attention_forward_block(execution(), widened(qkv), widened(others), out, lse, shape, host_block,
                                     scale, work);
    const auto keys = detail::KeyValueSpan<const Element>::packed(span(others), shape);
    run_tiles(detail::AttentionForwardTiles<Element, float, dim, Form>{
        {span(qkv), keys, kernels::span_of(joined), tile_lse.data(), shape, block, true, scale}});
    REQUIRE(largest_difference(joined, out) < limit);
    REQUIRE(largest_difference(tile_lse, lse) < 2e-6);

    Matrix<Element> rounded("rounded", out.extent(0), out.extent(1));
    kernels::copy(execution(), out, rounded);
    const auto tile_d = random_matrix<float>(qkv.extent(0), qkv.extent(1), 6);
    kernels::copy(execution(), tile_d, d_qkv);
    Matrix<double> d_others("d", others.extent(0), others.extent(1));
    Matrix<float> tile_d_others("d", others.extent(0), others.extent(1));
    Kokkos::deep_copy(tile_d_others, std::numeric_limits<float>::quiet_NaN());
    kernels::attention_backward_block(execution(), widened(qkv), widened(others), widened(rounded), lse,
                                      widened(d_out), d_qkv, d_others, shape, host_block, scale, work);
    backward<float>(keys, rounded, tile_d,
                    detail::KeyValueSpan<float>::packed(kernels::span_of(tile_d_others), shape), block, true);
    REQUIRE(largest_difference(tile_d, d_qkv) < 4 * limit);
    REQUIRE(largest_difference(tile_d_others, d_others) < 4 * limit);
  }

private:
  template <class Out, class Form>
  void backward(const detail::KeyValueSpan<const Element>& keys, const Matrix<Element>& from,
                const Matrix<Out>& d, const detail::KeyValueSpan<Out>& d_keys, const Form& block, bool merge,
                const kernels::Rotation<float>& undone = {}) {
    const detail::AttentionBackwardQuery<Element, Out, Form> members{
        span(qkv), keys,  span(from), tile_lse.data(), span(d_out), kernels::span_of(d),
        d_keys,    shape, block,      merge,           scale,       undone};
    run_tiles(detail::AttentionBackwardQueryTiles<Element, Out, dim, Form>{members, dots.data()});
    run_tiles(detail::AttentionBackwardKeyTiles<Element, Out, dim, Form>{members, dots.data()});
  }
};

} // namespace

TEST_CASE("Attention in tiles on tensor cores agrees with attention") {
  using sw::bfloat16;
  using sw::float16;
  // Whole and ragged tiles, grouped heads, heads that are padded to a tile's width.
  Both<bfloat16, 64>({.batch = 1, .sequence = 128, .kv_heads = 1, .q_per_kv = 1, .head_dim = 64})
      .check_whole<float>(0.004);
  Both<bfloat16, 64>({.batch = 2, .sequence = 141, .kv_heads = 1, .q_per_kv = 2, .head_dim = 40})
      .check_whole<bfloat16>(0.012);
  Both<bfloat16, 64>({.batch = 1, .sequence = 1, .kv_heads = 2, .q_per_kv = 1, .head_dim = 8})
      .check_whole<float>(0.004);
  Both<float16, 128>({.batch = 1, .sequence = 70, .kv_heads = 2, .q_per_kv = 1, .head_dim = 16})
      .check_whole<float>(0.0007);
  Both<bfloat16, 128>({.batch = 1, .sequence = 77, .kv_heads = 1, .q_per_kv = 2, .head_dim = 128})
      .check_whole<bfloat16>(0.012);
  Both<float16, 128>({.batch = 1, .sequence = 65, .kv_heads = 1, .q_per_kv = 1, .head_dim = 96})
      .check_whole<float>(0.0007);
}

TEST_CASE("Attention in tiles under the full mask agrees with the host") {
  using sw::bfloat16;
  using sw::float16;
  Both<bfloat16, 64>({.batch = 1, .sequence = 128, .kv_heads = 1, .q_per_kv = 1, .head_dim = 64})
      .check_whole<float>(0.004, {sw::full.window});
  Both<bfloat16, 64>({.batch = 2, .sequence = 141, .kv_heads = 1, .q_per_kv = 2, .head_dim = 40})
      .check_whole<bfloat16>(0.012, {sw::full.window});
  Both<float16, 128>({.batch = 1, .sequence = 70, .kv_heads = 2, .q_per_kv = 1, .head_dim = 96})
      .check_whole<float>(0.0007, {sw::full.window});
  // Keys before, between and after the queries, as they arrive in a ring.
  Both<bfloat16, 64>({.batch = 2, .sequence = 90, .kv_heads = 1, .q_per_kv = 2, .head_dim = 24})
      .check_block({{.rows = 90, .split = 45, .first = 0, .second = 200},
                    {.rows = 80, .split = 33, .first = 40, .second = 350},
                    {sw::full.window}},
                   0.002);
}

TEST_CASE("Tiles undo the rotation of queries and keys where they store their gradients") {
  using sw::bfloat16;
  Both<bfloat16, 64>({.batch = 2, .sequence = 141, .kv_heads = 2, .q_per_kv = 2, .head_dim = 64})
      .check_whole<float>(0.004, {sw::causal.window}, true);
  Both<bfloat16, 64>({.batch = 1, .sequence = 70, .kv_heads = 1, .q_per_kv = 1, .head_dim = 64})
      .check_whole<bfloat16>(0.012, {sw::full.window}, true);
  Both<sw::float16, 128>({.batch = 1, .sequence = 77, .kv_heads = 1, .q_per_kv = 2, .head_dim = 128})
      .check_whole<float>(0.0007, {sw::causal.window}, true);
  // Narrower heads, and those of which a part turns, have a pass of their own.
  CHECK_FALSE(detail::tiles_undo({.head_dim = 40}));
  CHECK_FALSE(detail::tiles_undo({.head_dim = 64, .rotary_dim = 32}));
}

TEST_CASE("Attention in tiles joins the keys of other tokens") {
  using sw::bfloat16;
  const kernels::AttentionShape shape{
      .batch = 2, .sequence = 90, .kv_heads = 1, .q_per_kv = 2, .head_dim = 24};
  // Keys before all queries; folded chunks, of which some queries see none; keys after all queries.
  Both<bfloat16, 64>(shape).check_block({sw::TokenRuns::one(90, 90), sw::TokenRuns::one(90)}, 0.002);
  Both<bfloat16, 64>(shape).check_block({{.rows = 90, .split = 45, .first = 0, .second = 200},
                                         {.rows = 80, .split = 33, .first = 40, .second = 150}},
                                        0.002);
  Both<bfloat16, 64>(shape).check_block({sw::TokenRuns::one(90), sw::TokenRuns::one(30, 95)}, 0.002);
  Both<sw::float16, 128>({.batch = 1, .sequence = 70, .kv_heads = 1, .q_per_kv = 1, .head_dim = 72})
      .check_block({{.rows = 70, .split = 35, .first = 30, .second = 100}, sw::TokenRuns::one(60, 20)},
                   0.0005);
}

namespace {

/// The starts of sequences of documents of these lengths, and of one of the rest.
std::vector<std::int32_t> starts_of(std::size_t positions,
                                    const std::vector<std::vector<std::int32_t>>& sequences) {
  std::vector<std::int32_t> out;
  for (const std::vector<std::int32_t>& lengths : sequences) {
    std::int32_t start = 0;
    const std::size_t end = out.size() + positions;
    for (const std::int32_t length : lengths) {
      out.insert(out.end(), static_cast<std::size_t>(length), start);
      start += length;
    }
    out.resize(end, start);
  }
  return out;
}

} // namespace

TEST_CASE("Attention in tiles keeps documents and windows apart from other keys") {
  using sw::bfloat16;
  using sw::float16;
  using Block = kernels::AttentionBlock;
  // Tiles have 128 or 64 queries and 64 or 32 keys. Documents of one token, up to and across their borders.
  const std::vector<std::vector<std::int32_t>> lengths{{1, 63, 1, 63, 2, 1, 1}, {31, 97, 1, 64, 6}};
  const auto starts = starts_of(210, lengths);
  const kernels::KeyMask causal{sw::causal.window, nullptr, starts.data(), nullptr, 210};
  const kernels::KeyMask full{sw::full.window, nullptr, starts.data(), nullptr, 210};
  const kernels::KeyMask windows{sw::sliding_window<20>.window, nullptr, starts.data(), nullptr, 210};
  const kernels::AttentionShape narrow{
      .batch = 2, .sequence = 210, .kv_heads = 1, .q_per_kv = 2, .head_dim = 32};
  Both<bfloat16, 64>(narrow).check_whole<float, Block>(0.004, causal);
  Both<bfloat16, 64>(narrow).check_whole<float, Block>(0.004, full);
  Both<bfloat16, 64>(narrow).check_whole<float, Block>(0.004, windows);
  Both<bfloat16, 64>({.batch = 2, .sequence = 210, .kv_heads = 2, .q_per_kv = 1, .head_dim = 64})
      .check_whole<float, Block>(0.004, causal, true);
  Both<float16, 128>({.batch = 2, .sequence = 210, .kv_heads = 1, .q_per_kv = 1, .head_dim = 128})
      .check_whole<float, Block>(0.0007, causal, true);
  Both<float16, 128>({.batch = 1, .sequence = 150, .kv_heads = 1, .q_per_kv = 1, .head_dim = 72})
      .check_whole<float, Block>(0.0007, {sw::sliding_window<70>.window});

  // Keys of a rank of a ring: some queries see none of them, and some keys no query.
  const kernels::AttentionShape ring{
      .batch = 2, .sequence = 90, .kv_heads = 1, .q_per_kv = 2, .head_dim = 24};
  const sw::TokenRuns queries{.rows = 90, .split = 45, .first = 0, .second = 200};
  const sw::TokenRuns keys{.rows = 80, .split = 33, .first = 45, .second = 150};
  const auto shared = starts_of(260, {{1, 39, 30, 150, 1, 20}, {180, 45}});
  for (const sw::KeyWindow& window : {sw::causal.window, sw::full.window, sw::sliding_window<30>.window})
    Both<bfloat16, 64>(ring).check_block<Block>(
        {queries, keys, {window, nullptr, shared.data(), nullptr, 260}}, 0.002);
}
