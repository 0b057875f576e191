// SPDX-License-Identifier: Apache-2.0
// Code of kernels that is used only on devices, run on the host: the lanes of a warp thread by thread, and
// blocks whose warps are threads.

#include <shardwright/tensor/kernels/cross_entropy.hpp>
#include <shardwright/tensor/kernels/embedding.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/kernels/rotary.hpp>

#include "support/host_block.hpp"
#include "tensor/norm_of.hpp"

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
template <class Element, bool centred, bool biased>
void run_pieces(const kernels::Norm<Element>& norm, std::size_t grain) {
  using Rows = detail::NormBackward<Element, centred, biased>;
  const std::size_t pieces = kernels::blocks_of(norm.x.columns, grain);
  const detail::RowPieces<detail::NormSumsOfPieces<Rows>> sums{{{norm}}, norm.x.columns, grain, pieces};
  for (std::size_t work = 0; work < kernels::blocks_of(norm.x.rows, detail::column_sum_rows) * pieces; ++work)
    sums(work);
  const detail::NormBackward<Element, centred, biased, false> rows{norm};
  for (std::size_t row = 0; row < norm.x.rows; ++row)
    rows(row);
}

template <class Element, bool centred, unsigned warps = 8>
void check_norm_blocks(std::size_t rows, std::size_t width) {
  using Number = sw::AccumulationElement<Element>;
  constexpr bool biased = centred;
  const auto x = random_matrix<Element>(rows, width, 1), dy = random_matrix<Element>(rows, width, 2),
             residual = random_matrix<Element>(rows, width, 3);
  const auto gain = random_vector<Element>(width, 4, 1.0);
  Matrix<Element> y("y", rows, width), dx("dx", rows, width), dx_blocks("dx", rows, width);
  Vector<Number> mean("mean", rows), inverse("inverse", rows), d_gain("d_gain", width),
      d_bias("d_bias", biased ? width : 0);
  Vector<Number> work("work", kernels::norm_workspace(rows, width, biased));
  auto norm = norm_of(x, gain, inverse, mean);
  run_norm<centred>(norm, y);
  norm.dy = span_of(dy);
  norm.d_residual = span_of(residual);
  norm.dx = span_of(dx);
  norm.d_gain = span_of(d_gain);
  norm.d_bias = span_of(d_bias);
  norm.add_gain = norm.add_bias = true;
  norm.workspace = span_of(work);
  for (std::size_t c = 0; c < width; ++c) {
    d_gain(c) = static_cast<Number>(c);
    if (biased)
      d_bias(c) = static_cast<Number>(c);
  }
  kernels::norm_backward<centred>(execution(), norm);

  Kokkos::deep_copy(work, Number(-1));
  norm.dx = span_of(dx_blocks);
  using Blocks = detail::NormBackwardOfBlocks<detail::NormBackward<Element, centred, biased>, warps>;
  const std::size_t blocks = kernels::blocks_of(rows, detail::column_sum_rows);
  sw_test::run_host_blocks(blocks, Blocks::shared_bytes(width), Blocks{{norm}});
  REQUIRE(largest_difference(dx, dx_blocks) == 0);
  const auto each_sum = [&](const auto& check) {
    check(d_gain, std::size_t{0});
    if (biased)
      check(d_bias, blocks * width);
  };
  each_sum([&](const Vector<Number>& sums, std::size_t first) {
    Vector<Number> of_blocks("sums", width);
    for (std::size_t c = 0; c < width; ++c)
      of_blocks(c) = static_cast<Number>(c);
    using Sums = detail::SumPartialsOfBlocks<Number>;
    sw_test::run_host_blocks(kernels::blocks_of(width, Sums::width), Sums::shared_bytes,
                             Sums{{work.data() + first, blocks, width, of_blocks.data(), true}});
    REQUIRE(largest_difference(sums, of_blocks) < 100 * tolerance<Number>);
  });

  Kokkos::deep_copy(work, Number(-1));
  Kokkos::deep_copy(dx_blocks, dy);
  norm.dy = span_of(dx_blocks); // in place
  run_pieces<Element, centred, biased>(norm, 16);
  each_sum([&](const Vector<Number>& sums, std::size_t first) {
    for (std::size_t c = 0; c < width; ++c) {
      Number sum = static_cast<Number>(c);
      for (std::size_t block = 0; block < blocks; ++block)
        sum += work(first + block * width + c);
      REQUIRE(sum == sums(c));
    }
  });
  REQUIRE(largest_difference(dx, dx_blocks) == 0);
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
  const Lanes b = 2.0f;
  const Lanes mixed = (1.0f - a * b + a / b) * 3.0f - -a;
  const Lanes larger = detail::larger(a, Lanes(0.0f));
  for (std::size_t i = 0; i < Lanes::count; ++i) {
    const float x = static_cast<float>(i) - 3.5f;
    REQUIRE(mixed.v[i] == (1.0f - x * 2.0f + x / 2.0f) * 3.0f + x);
    REQUIRE(larger.v[i] == (x > 0 ? x : 0.0f));
  }
}

TEST_CASE("Blocks of warps give the norm's gradients") {
  check_norm_blocks<float, false>(1, 5);
  check_norm_blocks<float, false>(130, 96);
  check_norm_blocks<sw::bfloat16, false>(67, 40);
  check_norm_blocks<double, false>(64, 33);
  check_norm_blocks<float, false, 2>(67, 96); // of rows so wide that there is too little memory
  check_norm_blocks<float, true>(1, 5);
  check_norm_blocks<float, true>(130, 96);
  check_norm_blocks<sw::bfloat16, true>(67, 40);
  check_norm_blocks<double, true>(64, 33);
  check_norm_blocks<sw::bfloat16, true, 2>(130, 40);
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
    const auto table = [&](const auto& matrix) { return kernels::span_of(matrix); };
    const detail::RotaryTokens<sw::bfloat16> turn{
        {kernels::span_of(qkv), {table(cosines), table(sines), positions}, shape, -1.0f}};
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
          Blocks{ids.data(), kernels::span_of(d_out), 2, kernels::span_of(table), add, 0}.fitted();
      REQUIRE(gradient.blocks() == (vocabulary > Blocks::rows ? 4u : 1u));
      sw_test::run_host_blocks(gradient.blocks(), Blocks::shared_bytes, gradient);
      REQUIRE(largest_difference(table, expected) == 0);
    }
  }
}

TEST_CASE("The threads of a warp share the sum of squares of a block") {
  const auto x = random_vector<float>(detail::reduce_block + 77, 1);
  const detail::SumBlocks<float, detail::SquareOf> squares{x.data(), x.data(), x.size(), nullptr};
  for (std::size_t block = 0; block < 2; ++block) {
    const std::size_t begin = block * detail::reduce_block;
    const std::size_t end = std::min(x.size(), begin + detail::reduce_block);
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i)
      sum += static_cast<double>(x(i)) * static_cast<double>(x(i));
    REQUIRE(std::abs(squares.sum_of_warp(begin, end) - sum) < 1e-9 * sum);
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
