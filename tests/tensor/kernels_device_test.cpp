// SPDX-License-Identifier: Apache-2.0
// Code of kernels that is used only on devices, run on the host: the lanes of a warp thread by thread, and
// blocks whose warps are threads.

#include <shardwright/tensor/kernels/attention/lanes.hpp>
#include <shardwright/tensor/kernels/cross_entropy.hpp>
#include <shardwright/tensor/kernels/embedding.hpp>
#include <shardwright/tensor/kernels/layer_norm.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/kernels/rms_norm.hpp>
#include <shardwright/tensor/kernels/rotary.hpp>

#include "support/host_block.hpp"
#include "tensor/kernels_support.hpp"

#include <utility>
#include <vector>

using namespace kernels_test;
namespace detail = kernels::detail;

namespace {

/// Loads and stores `length` elements from an address `shift` elements past an aligned one, thread by thread,
/// `part` neighbours at a time.
template <class Number, class Element, std::size_t part>
void check_thread_lanes(std::size_t length, std::size_t shift) {
  using Lanes = detail::ThreadLanes<Number>;
  CAPTURE(length, shift, part);
  alignas(64) Element from[Lanes::register_width + 8];
  alignas(64) Element to[Lanes::register_width + 8];
  std::vector<int> met(Lanes::register_width, 0);
  for (std::size_t i = 0; i < Lanes::register_width + 8; ++i) {
    from[i] = static_cast<Element>(static_cast<Number>(i % 100 + 1));
    to[i] = static_cast<Element>(Number(0));
  }
  for (std::size_t thread = 0; thread < detail::warp_threads; ++thread) {
    const Lanes lanes = Lanes::template load<part>(from + shift, thread, length, Number(-7));
    for (std::size_t i = 0; i < Lanes::count; ++i) {
      const std::size_t at = Lanes::template position<part>(thread, i);
      ++met[at];
      REQUIRE(lanes.v[i] == (at < length ? static_cast<Number>(from[shift + at]) : Number(-7)));
    }
    if (length == Lanes::register_width && Lanes::template is_aligned<part>(from + shift) &&
        Lanes::template is_aligned<part>(to + shift)) {
      const Lanes whole = Lanes::template load_whole<part>(from + shift, thread);
      for (std::size_t i = 0; i < Lanes::count; ++i)
        REQUIRE(whole.v[i] == lanes.v[i]);
      whole.template store_whole<part>(to + shift, thread);
    } else {
      lanes.template store<part>(to + shift, thread, length);
    }
  }
  for (const int times : met)
    REQUIRE(times == 1);
  for (std::size_t i = 0; i < Lanes::register_width + 8; ++i) {
    const bool inside = i >= shift && i < shift + length;
    REQUIRE(static_cast<Number>(to[i]) == (inside ? static_cast<Number>(from[i]) : Number(0)));
  }
}

template <class Number, class Element, std::size_t part> void check_all_lengths() {
  using Lanes = detail::ThreadLanes<Number>;
  alignas(64) const Element aligned[8] = {};
  REQUIRE(Lanes::template is_aligned<part>(aligned));
  REQUIRE(Lanes::template is_aligned<part>(aligned + 1) == (sizeof(Element) >= 16));
  for (std::size_t length = 0; length <= Lanes::register_width; length += 1 + length / 9)
    for (const std::size_t shift : {0, 1, 4})
      check_thread_lanes<Number, Element, part>(length, shift);
  check_thread_lanes<Number, Element, part>(Lanes::register_width, 0);
}

template <class Number, class... Elements>
constexpr std::size_t part_for = detail::ThreadLanes<Number>::template part_for<Elements...>;

/// The method of a device for rows too wide for blocks: the sums by pieces of columns, then the rows.
template <class Norm> void run_pieces(const Norm& norm, std::size_t grain) {
  const std::size_t pieces = detail::blocks_of(norm.x.columns, grain);
  const detail::NormSumsOfPieces<Norm> sums{norm, grain, pieces};
  for (std::size_t work = 0; work < detail::blocks_of(norm.x.rows, detail::column_sum_rows) * pieces; ++work)
    sums(work);
  const auto rows = norm.without_sums();
  for (std::size_t row = 0; row < norm.x.rows; ++row)
    rows(row);
}

template <class Element, unsigned warps = 8> void check_norm_blocks(std::size_t rows, std::size_t width) {
  using Number = sw::AccumulationElement<Element>;
  const auto x = random_matrix<Element>(rows, width, 1), dy = random_matrix<Element>(rows, width, 2),
             residual = random_matrix<Element>(rows, width, 3);
  const auto gain = random_vector<Element>(width, 4, 1.0);
  Matrix<Element> y("y", rows, width), dx("dx", rows, width), dx_blocks("dx", rows, width);
  Vector<Number> rms("rms", rows), d_gain("d_gain", width), d_gain_blocks("d_gain", width);
  const std::size_t size = kernels::rms_norm_workspace(rows, width);
  Vector<Number> work("work", size);
  const auto e = execution();
  kernels::rms_norm_forward(e, x, gain, 1e-5, y, rms);
  for (std::size_t c = 0; c < width; ++c)
    d_gain(c) = d_gain_blocks(c) = static_cast<Number>(c);
  kernels::add_rms_norm_backward(e, x, gain, rms, dy, residual, dx, d_gain, work, true);

  Kokkos::deep_copy(work, Number(-1));
  using Norm = detail::RmsNormBackward<Element, true, true>;
  const Norm norm{.x = detail::const_span_of<Element>(x),
                  .gain = gain.data(),
                  .inverse = rms.data(),
                  .dy = detail::const_span_of<Element>(dy),
                  .d_residual = detail::const_span_of<Element>(residual),
                  .dx = detail::span_of(dx_blocks),
                  .partial = work.data()};
  using Blocks = detail::NormBackwardOfBlocks<Norm, warps>;
  const std::size_t blocks = detail::blocks_of(rows, detail::column_sum_rows);
  sw_test::run_host_blocks(blocks, Blocks::shared_bytes(width), Blocks{norm});
  using Sums = detail::SumPartialsOfBlocks<Number>;
  sw_test::run_host_blocks(detail::blocks_of(width, Sums::width), Sums::shared_bytes,
                           Sums{{work.data(), blocks, width, d_gain_blocks.data(), true, 0}});
  REQUIRE(largest_difference(dx, dx_blocks) == 0);
  REQUIRE(largest_difference(d_gain, d_gain_blocks) < 100 * tolerance<Number>);

  Kokkos::deep_copy(work, Number(-1));
  Kokkos::deep_copy(dx_blocks, dy);
  Norm in_place = norm;
  in_place.dy = detail::const_span_of<Element>(dx_blocks);
  run_pieces(in_place, 16);
  for (std::size_t c = 0; c < width; ++c) {
    Number sum = static_cast<Number>(c);
    for (std::size_t block = 0; block < blocks; ++block)
      sum += work(block * width + c);
    REQUIRE(sum == d_gain(c));
  }
  REQUIRE(largest_difference(dx, dx_blocks) == 0);
}

template <class Element, unsigned warps = 8>
void check_layer_norm_blocks(std::size_t rows, std::size_t width) {
  using Number = sw::AccumulationElement<Element>;
  const auto x = random_matrix<Element>(rows, width, 1), dy = random_matrix<Element>(rows, width, 2),
             residual = random_matrix<Element>(rows, width, 3);
  const auto gain = random_vector<Element>(width, 4, 1.0), bias = random_vector<Element>(width, 5);
  Matrix<Element> y("y", rows, width), dx("dx", rows, width), dx_blocks("dx", rows, width);
  Vector<Number> mean("mean", rows), inverse("inverse", rows), d_gain("d_gain", width),
      d_bias("d_bias", width);
  Vector<Number> work("work", kernels::layer_norm_workspace(rows, width));
  const auto e = execution();
  kernels::layer_norm_forward(e, x, gain, bias, 1e-5, y, mean, inverse);
  kernels::add_layer_norm_backward(e, x, gain, mean, inverse, dy, residual, dx, d_gain, d_bias, work);

  Kokkos::deep_copy(work, Number(-1));
  using Norm = detail::NormBackward<Element, true, true, true, true>;
  const Norm norm{.x = detail::const_span_of<Element>(x),
                  .gain = gain.data(),
                  .mean = mean.data(),
                  .inverse = inverse.data(),
                  .dy = detail::const_span_of<Element>(dy),
                  .d_residual = detail::const_span_of<Element>(residual),
                  .dx = detail::span_of(dx_blocks),
                  .partial = work.data()};
  using Blocks = detail::NormBackwardOfBlocks<Norm, warps>;
  const std::size_t blocks = detail::blocks_of(rows, detail::column_sum_rows);
  sw_test::run_host_blocks(blocks, Blocks::shared_bytes(width), Blocks{norm});
  REQUIRE(largest_difference(dx, dx_blocks) == 0);
  for (const auto& [sums, first] : {std::pair{d_gain, std::size_t{0}}, std::pair{d_bias, blocks * width}}) {
    Vector<Number> of_blocks("sums", width);
    using Sums = detail::SumPartialsOfBlocks<Number>;
    sw_test::run_host_blocks(detail::blocks_of(width, Sums::width), Sums::shared_bytes,
                             Sums{{work.data() + first, blocks, width, of_blocks.data(), false, 0}});
    REQUIRE(largest_difference(sums, of_blocks) < 100 * tolerance<Number>);
  }
  Kokkos::deep_copy(work, Number(-1));
  Kokkos::deep_copy(dx_blocks, Element(0));
  run_pieces(norm, 16);
  REQUIRE(largest_difference(dx, dx_blocks) == 0);
  for (const auto& [sums, first] : {std::pair{d_gain, std::size_t{0}}, std::pair{d_bias, blocks * width}})
    for (std::size_t c = 0; c < width; ++c) {
      Number sum(0);
      for (std::size_t block = 0; block < blocks; ++block)
        sum += work(first + block * width + c);
      REQUIRE(sum == sums(c));
    }
}

} // namespace

TEST_CASE("The threads of a warp hold every lane of a register once, whatever its length and address") {
  check_all_lengths<float, float, 4>();
  check_all_lengths<float, sw::bfloat16, 4>();
  check_all_lengths<float, sw::bfloat16, 8>();
  check_all_lengths<float, sw::float16, 8>();
  check_all_lengths<float, float, 8>();
  check_all_lengths<double, double, 2>();
  check_all_lengths<std::int32_t, std::int32_t, 4>();
  check_all_lengths<unsigned char, unsigned char, 16>();
}

TEST_CASE("a thread moves 16 bytes of the smallest elements that a kernel uses") {
  STATIC_REQUIRE(part_for<float, float, float> * sizeof(float) == 16);
  STATIC_REQUIRE(part_for<double, double> * sizeof(double) == 16);
  STATIC_REQUIRE(part_for<float, sw::bfloat16, const sw::bfloat16> * sizeof(sw::bfloat16) == 16);
  STATIC_REQUIRE(part_for<float, sw::bfloat16, float, sw::bfloat16> * sizeof(sw::bfloat16) == 16);
  STATIC_REQUIRE(part_for<float, sw::float16, float> * sizeof(sw::float16) == 16);
  STATIC_REQUIRE(part_for<float, float, float, const sw::bfloat16, float> * sizeof(sw::bfloat16) == 16);
}

TEST_CASE("Lanes of a thread are single numbers") {
  using Lanes = detail::ThreadLanes<float>;
  const Lanes a = Lanes::each([](std::size_t i) { return static_cast<float>(i) - 3.5f; });
  const Lanes b = Lanes::all(2.0f);
  const Lanes mixed = (1.0f - a * b + a / b) * 3.0f - -a;
  const Lanes larger = detail::larger(a, Lanes::all(0.0f));
  for (std::size_t i = 0; i < Lanes::count; ++i) {
    const float x = static_cast<float>(i) - 3.5f;
    REQUIRE(mixed.v[i] == (1.0f - x * 2.0f + x / 2.0f) * 3.0f + x);
    REQUIRE(larger.v[i] == (x > 0 ? x : 0.0f));
  }
}

TEST_CASE("Blocks of warps give the norm's gradients") {
  check_norm_blocks<float>(1, 5);
  check_norm_blocks<float>(130, 96);
  check_norm_blocks<sw::bfloat16>(67, 40);
  check_norm_blocks<double>(64, 33);
  check_norm_blocks<float, 2>(67, 96); // of rows so wide that there is too little memory
  check_layer_norm_blocks<float>(1, 5);
  check_layer_norm_blocks<float>(130, 96);
  check_layer_norm_blocks<sw::bfloat16>(67, 40);
  check_layer_norm_blocks<double>(64, 33);
  check_layer_norm_blocks<sw::bfloat16, 2>(130, 40);
}

TEST_CASE("Groups of pairs are rotated like whole rows") {
  for (const kernels::AttentionShape& shape : {kernels::AttentionShape{2, 5, 2, 3, 10},
                                               {2, 5, 2, 3, 32}, // groups that are not full, and whole ones
                                               {2, 5, 2, 3, 48, 24, 16},
                                               {2, 5, 2, 3, 26, 12, 16}}) { // which rotate the end of a head
    const auto qkv = random_matrix<sw::bfloat16>(shape.tokens(), shape.qkv_width(), 1);
    const auto expected = copy_of(qkv);
    Matrix<float> cosines("c", 9, shape.rotary_width() / 2), sines("s", 9, shape.rotary_width() / 2);
    const auto e = execution();
    kernels::fill_rotary_tables(e, cosines, sines);
    const sw::TokenRuns positions{.rows = 5, .split = 3, .first = 1, .second = 6};
    kernels::rotary_backward(e, expected, cosines, sines, shape, positions);
    const auto table = [&](const auto& matrix) { return detail::constant(detail::span_of(matrix)); };
    const detail::RotaryTokens<sw::bfloat16> turn{
        {detail::span_of(qkv), table(cosines), table(sines), shape, positions, -1.0f}};
    for (std::size_t token = 0; token < shape.tokens(); ++token)
      turn(token);
    // A product and a sum may be rounded once here and twice there.
    REQUIRE(largest_difference(qkv, expected) < 0.04);
  }
}

TEST_CASE("Blocks find the tokens of their rows and add them in order") {
  using Blocks = detail::EmbeddingBackwardOfBlocks<sw::bfloat16, float>;
  constexpr std::size_t width = 70;
  // Few tokens for many rows, in several blocks; then so many for one block that it finds them in two rounds.
  for (const auto& [tokens, vocabulary] : {std::pair<std::size_t, std::size_t>{500, 300}, {9000, 13}}) {
    const auto ids = random_ids(tokens, vocabulary + 3, 1); // some outside the block
    const auto d_out = random_matrix<sw::bfloat16>(tokens, width, 2);
    for (const bool add : {false, true}) {
      const auto expected = random_matrix<float>(vocabulary, width, 3);
      const auto table = copy_of(expected);
      kernels::embedding_backward(execution(), ids, d_out, 2, expected, add);
      const auto gradient =
          Blocks{ids.data(), detail::constant(detail::span_of(d_out)), 2, detail::span_of(table), add, 0}
              .fitted();
      REQUIRE(gradient.blocks() == (vocabulary > Blocks::rows ? 4u : 1u));
      sw_test::run_host_blocks(gradient.blocks(), Blocks::shared_bytes, gradient);
      REQUIRE(largest_difference(table, expected) == 0);
    }
  }
}

TEST_CASE("The threads of a warp share the sum of squares of a block") {
  const auto x = random_vector<float>(detail::reduce_block + 77, 1);
  Vector<double> partial("partial", 2);
  const detail::SquareBlocksOfWarps<float> squares{x.data(), x.size(), partial.data()};
  squares(0);
  squares(1);
  for (std::size_t block = 0; block < 2; ++block) {
    double sum = 0;
    for (std::size_t i = block * detail::reduce_block;
         i < std::min(x.size(), (block + 1) * detail::reduce_block); ++i)
      sum += static_cast<double>(x(i)) * static_cast<double>(x(i));
    REQUIRE(std::abs(partial(block) - sum) < 1e-9 * sum);
  }
}

TEST_CASE("A block of warps adds the same sums as one warp") {
  const auto x = random_vector<double>(1000, 1);
  const auto loss = random_vector<float>(300, 2);
  const auto targets = random_ids(300, 5, 3);
  for (std::size_t i = 0; i < 300; i += 7)
    targets(i) = -1;
  Vector<double> one("one", 3), all("all", 3);
  for (const bool add : {false, true}) {
    detail::SumInOrder<double>{x.data(), x.size(), one.data(), add}(0);
    detail::SumLosses<float>{loss.data(), targets.data(), 300, one.data() + 1, add, {}}(0);
    using Sum = detail::SumInOrder<double, 4>;
    sw_test::run_host_blocks(1, Sum::shared_bytes, Sum{x.data(), x.size(), all.data(), add});
    using Losses = detail::SumLosses<float, 4>;
    sw_test::run_host_blocks(1, Losses::shared_bytes,
                             Losses{loss.data(), targets.data(), 300, all.data() + 1, add, {}});
    for (std::size_t i = 0; i < 3; ++i)
      REQUIRE(std::abs(all(i) - one(i)) < 1e-12 * 300);
    REQUIRE(one(2) == (add ? 2 : 1) * 257.0);
  }
}

TEST_CASE("Attention with a register per head agrees with a thread per row") {
  // A register of the host is a short head.
  const kernels::AttentionShape shape{.batch = 2,
                                      .sequence = 19,
                                      .kv_heads = 2,
                                      .q_per_kv = 2,
                                      .head_dim = std::max<std::size_t>(1, detail::lane_count<float> - 1)};
  REQUIRE(detail::has_lanes<float>(shape));
  const auto qkv = random_matrix<float>(shape.tokens(), shape.qkv_width(), 1),
             d_out = random_matrix<float>(shape.tokens(), shape.output_width(), 2),
             others = random_matrix<float>(shape.tokens(), shape.kv_heads * 2 * shape.head_dim, 3);
  const auto constant = [](const auto& matrix) { return detail::constant(detail::span_of(matrix)); };
  const auto own = detail::KeyValueSpan<const float>::fused(constant(qkv), shape);
  const auto foreign = detail::KeyValueSpan<const float>::packed(constant(others), shape);
  const auto whole = kernels::CausalBlock::whole(19);
  const kernels::CausalBlock block{{.rows = 19, .split = 8, .first = 3, .second = 21},
                                   sw::TokenRuns::one(19, 5)};
  Matrix<float> out("out", shape.tokens(), shape.output_width()),
      lanes_out("out", out.extent(0), out.extent(1));
  Vector<float> lse("lse", shape.tokens() * shape.heads()), lanes_lse("lse", lse.size());
  Matrix<float> d("d", qkv.extent(0), qkv.extent(1)), lanes_d("d", qkv.extent(0), qkv.extent(1));
  Matrix<float> d_others("d", others.extent(0), others.extent(1)),
      lanes_d_others("d", others.extent(0), others.extent(1));
  const std::size_t rows = shape.tokens() * shape.heads();
  const std::size_t keys = shape.tokens() * shape.kv_heads;
  for (const bool merge : {false, true}) {
    const auto forward = [&](const auto& to, const auto& sums) {
      return detail::AttentionForwardRow<float>{constant(qkv),
                                                merge ? foreign : own,
                                                detail::span_of(to),
                                                sums.data(),
                                                shape,
                                                merge ? block : whole,
                                                merge,
                                                0.4f};
    };
    const auto backward = [&](const auto& to, const auto& to_others) {
      return detail::AttentionBackwardQuery<float>{
          constant(qkv),
          merge ? foreign : own,
          constant(out),
          lse.data(),
          constant(d_out),
          detail::span_of(to),
          merge ? detail::KeyValueSpan<float>::packed(detail::span_of(to_others), shape)
                : detail::KeyValueSpan<float>::fused(detail::span_of(to), shape),
          shape,
          merge ? block : whole,
          merge,
          0.4f};
    };
    for (std::size_t i = 0; i < rows; ++i) {
      forward(out, lse)(i);
      detail::AttentionForwardLanes<float>{forward(lanes_out, lanes_lse)}(i);
    }
    REQUIRE(largest_difference(lanes_out, out) < 1e-5);
    REQUIRE(largest_difference(lanes_lse, lse) < 1e-5);
    for (std::size_t i = 0; i < rows; ++i) {
      backward(d, d_others)(i);
      detail::AttentionBackwardQueryLanes<float>{backward(lanes_d, lanes_d_others)}(i);
    }
    for (std::size_t i = 0; i < keys; ++i) {
      detail::AttentionBackwardKey<float>{backward(d, d_others)}(i);
      detail::AttentionBackwardKeyLanes<float>{backward(lanes_d, lanes_d_others)}(i);
    }
    REQUIRE(largest_difference(lanes_d, d) < 1e-4);
    REQUIRE(largest_difference(lanes_d_others, d_others) < 1e-4);
  }
  REQUIRE(largest_difference(d_others, Matrix<float>("zero", others.extent(0), others.extent(1))) > 0.1);
}
