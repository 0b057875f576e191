// SPDX-License-Identifier: Apache-2.0

#include <shardwright/tensor/elementwise/with_number.hpp>
#include <shardwright/tensor/kernels/attention.hpp>
#include <shardwright/tensor/kernels/attention/key_values.hpp>
#include <shardwright/tensor/kernels/cross_entropy.hpp>
#include <shardwright/tensor/kernels/embedding.hpp>
#include <shardwright/tensor/kernels/product/matmul.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/kernels/rotary.hpp>
#include <shardwright/tensor/kernels/swiglu.hpp>

#include "tensor/norm_of.hpp"

// Each kernel on narrow elements, compared with the same kernel in double on the same, widened numbers. A
// kernel computes in float and rounds once, so an element differs by the unit roundoff of its format, plus
// the errors of float arithmetic.

using namespace kernels_test;

namespace {

constexpr double float_error = 2e-5;

template <class View> auto widened(const View& view) {
  using Element = typename View::non_const_value_type;
  if constexpr (std::size_t(View::rank) == 2) {
    Matrix<double> out("wide", view.extent(0), view.extent(1));
    kernels::copy(execution(), view, out);
    return out;
  } else {
    Vector<std::conditional_t<std::is_integral_v<Element>, Element, double>> out("wide", view.extent(0));
    kernels::copy(execution(), view, out);
    return out;
  }
}

/// Checks that every element of `value` is that of `expected`, rounded once, up to `computing` times the
/// largest.
template <class View, class Expected>
void require_rounded(const View& value, const Expected& expected, double computing = float_error) {
  using Element = typename View::non_const_value_type;
  REQUIRE(value.size() == expected.size());
  const double unit =
      sw::is_narrow<Element> ? static_cast<double>(std::numeric_limits<Element>::epsilon()) / 2 : 0.0;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    largest = std::max(largest, std::abs(expected.data()[i]));
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double exact = expected.data()[i];
    const double error = std::abs(static_cast<double>(value.data()[i]) - exact);
    worst = std::max(worst, error - unit * std::abs(exact));
  }
  REQUIRE(worst <= computing * std::max(largest, 1e-3));
}

/// An operation on elements and in double, on the same numbers; `run(operands..., out)`.
template <class Element, class Run>
void check(std::size_t rows, std::size_t columns, std::size_t out_columns, const Run& run) {
  const auto a = random_matrix<Element>(rows, columns, 1, 2.0), b = random_matrix<Element>(rows, columns, 2);
  const auto out = random_matrix<Element>(rows, out_columns, 3);
  const auto expected = widened(out);
  run(widened(a), widened(b), expected);
  run(a, b, out);
  require_rounded(out, expected);
}

} // namespace

TEMPLATE_TEST_CASE("Elementwise kernels on 16-bit elements round once", "[kernels]", sw::bfloat16,
                   sw::float16) {
  const auto e = execution();
  for (const std::size_t columns : {1, 31, 70}) {
    const auto checked = [&](const auto& run) { check<TestType>(9, columns, columns, run); };
    checked([&](auto a, auto b, auto out) { kernels::add(e, a, b, out); });
    checked([&](auto a, auto b, auto out) { combine(sw::operation::Multiply(), a, b, out); });
    checked([&](auto a, auto, auto out) { kernels::axpy(e, -1.5, a, out); });
    checked([&](auto, auto, auto out) { map(sw::detail::TimesNumber<double>{0.3}, out, out); });
    checked([&](auto, auto, auto out) { kernels::fill(e, out, typename decltype(out)::value_type(0.1)); });
    checked([&](auto a, auto, auto out) { kernels::copy(e, a, out); });
    checked([&](auto a, auto, auto out) { map(sw::operation::GeluTanh(), a, out); });
    checked([&](auto a, auto b, auto out) { map_slopes(sw::operation::GeluTanh(), a, b, out); });
    checked([&](auto a, auto, auto out) { map(sw::operation::Silu(), a, out); });
    checked([&](auto a, auto b, auto out) { map_slopes(sw::operation::Silu(), a, b, out); });
    checked([&](auto a, auto, auto out) { map(sw::operation::Relu(), a, out); });
    checked([&](auto a, auto b, auto out) { map_slopes(sw::operation::Relu(), a, b, out); });
    check<TestType>(9, 2 * columns, columns,
                    [&](auto a, auto, auto out) { kernels::swiglu_forward(e, a, out); });
    const auto dy = random_matrix<TestType>(9, columns, 4);
    check<TestType>(9, 2 * columns, 2 * columns, [&](auto a, auto, auto out) {
      if constexpr (std::is_same_v<typename decltype(out)::value_type, double>)
        kernels::swiglu_backward(e, a, widened(dy), out);
      else
        kernels::swiglu_backward(e, a, dy, out);
    });
  }
}

TEMPLATE_TEST_CASE("Conversions round floats and widen exactly, also off register boundaries", "[kernels]",
                   sw::bfloat16, sw::float16) {
  const auto e = execution();
  for (const std::size_t size : {1, 16, 33, 5000}) {
    const auto wide = random_vector<float>(size + 3, 1);
    Vector<TestType> narrow("narrow", size + 3);
    const auto part = Kokkos::make_pair(std::size_t{3}, size + 3);
    kernels::copy(e, Kokkos::subview(wide, part), Kokkos::subview(narrow, part));
    Vector<float> back("back", size + 3);
    kernels::copy(e, Kokkos::subview(narrow, part), Kokkos::subview(back, part));
    for (std::size_t i = 0; i < size + 3; ++i) {
      REQUIRE(narrow(i).bits() == (i < 3 ? TestType(0) : TestType(wide(i))).bits());
      REQUIRE(back(i) == narrow(i));
    }
  }
  // A narrow fill of random numbers is that of floats, rounded.
  const auto drawn = random_matrix<TestType>(7, 9, 5);
  const auto floats = random_matrix<float>(7, 9, 5);
  for (std::size_t i = 0; i < drawn.size(); ++i)
    REQUIRE(drawn.data()[i].bits() == TestType(floats.data()[i]).bits());
}

TEMPLATE_TEST_CASE("RMSNorm of 16-bit elements keeps its statistics and sums in float", "[kernels]",
                   sw::bfloat16, sw::float16) {
  const auto e = execution();
  for (const std::size_t width : {15, 64, 100}) {
    const std::size_t rows = 150;
    const auto residual = random_matrix<TestType>(rows, width, 1),
               branch = random_matrix<TestType>(rows, width, 2);
    const auto gain = random_vector<TestType>(width, 3, 1.0);
    const auto sum = copy_of(residual), y = copy_of(residual), dx = copy_of(residual);
    const Vector<float> rms("rms", rows), d_gain("d_gain", width);
    run_norm<false>(norm_of(residual, gain, rms), branch, sum, y);
    Matrix<double> wide_y("y", rows, width), wide_dx("dx", rows, width), total("sum", rows, width);
    const Vector<double> wide_rms("rms", rows), wide_d_gain("d_gain", width);
    kernels::add(e, widened(residual), widened(branch), total);
    require_rounded(sum, total);
    // From here on, both start from the stored sum.
    const auto wide_sum = widened(sum), wide_branch = widened(branch);
    const auto wide_gain = widened(gain);
    auto wide_norm = norm_of(wide_sum, wide_gain, wide_rms);
    run_norm<false>(wide_norm, wide_y);
    require_rounded(rms, wide_rms);
    require_rounded(y, wide_y);
    const Vector<float> work("work", kernels::norm_workspace(rows, width, false));
    const Vector<double> wide_work("work", kernels::norm_workspace(rows, width, false));
    auto norm = norm_of(sum, gain, rms);
    norm.d_gain = span_of(d_gain);
    norm.workspace = span_of(work);
    wide_norm.d_gain = span_of(wide_d_gain);
    wide_norm.workspace = span_of(wide_work);
    run_norm_gradient<false>(norm, branch, dx);
    run_norm_gradient<false>(wide_norm, wide_branch, wide_dx);
    require_rounded(dx, wide_dx);
    norm.add_gain = wide_norm.add_gain = true;
    run_norm_gradient<false>(norm, branch, dx, residual);
    run_norm_gradient<false>(wide_norm, wide_branch, wide_dx, widened(residual));
    require_rounded(dx, wide_dx);
    require_rounded(d_gain, wide_d_gain);
  }
}

TEMPLATE_TEST_CASE("Rotations of 16-bit elements round once", "[kernels]", sw::bfloat16, sw::float16) {
  const auto e = execution();
  const kernels::AttentionShape shape{2, 5, 2, 2, 40};
  const Matrix<float> cosines("cosines", 5, 20), sines("sines", 5, 20);
  const Matrix<double> wide_cosines("cosines", 5, 20), wide_sines("sines", 5, 20);
  kernels::fill_rotary_tables(e, cosines, sines);
  kernels::fill_rotary_tables(e, wide_cosines, wide_sines);
  const auto qkv = random_matrix<TestType>(shape.tokens(), shape.qkv_width(), 1);
  auto turned = widened(qkv);
  const auto positions = sw::TokenRuns::one(shape.sequence);
  kernels::rotary_forward(e, turned, wide_cosines, wide_sines, shape, positions);
  kernels::rotary_forward(e, qkv, cosines, sines, shape, positions);
  require_rounded(qkv, turned);
  turned = widened(qkv);
  kernels::rotary_backward(e, turned, wide_cosines, wide_sines, shape, positions);
  kernels::rotary_backward(e, qkv, cosines, sines, shape, positions);
  require_rounded(qkv, turned);
}

TEMPLATE_TEST_CASE("Embeddings of 16-bit elements add their gradients in float", "[kernels]", sw::bfloat16,
                   sw::float16) {
  const auto e = execution();
  const auto table = random_matrix<TestType>(6, 33, 1);
  const auto ids = random_ids(600, 6, 2);
  const Matrix<TestType> out("out", 600, 33);
  kernels::embedding_forward(e, ids, table, 0, out);
  for (std::size_t t = 0; t < 600; ++t)
    REQUIRE(out(t, 32).bits() == table(static_cast<std::size_t>(ids(t)), 32).bits());
  const auto d_out = random_matrix<TestType>(600, 33, 3);
  const Matrix<float> d_table("d_table", 6, 33);
  const Matrix<double> expected("expected", 6, 33);
  kernels::embedding_backward(e, ids, d_out, 0, d_table);
  kernels::embedding_backward(e, ids, widened(d_out), 0, expected);
  require_rounded(d_table, expected);
  // 2^-12 added to 1 a thousand times: the sum of floats keeps what bfloat16 and float16 would drop.
  const Vector<std::int32_t> same("same", 1024);
  const Matrix<TestType> small("small", 1024, 1);
  Kokkos::deep_copy(small, TestType(0x1p-12));
  const Matrix<float> sum("sum", 1, 1);
  sum(0, 0) = 1;
  kernels::embedding_backward(e, same, small, 0, sum, true);
  REQUIRE(sum(0, 0) == 1.25f);
}

TEMPLATE_TEST_CASE("Cross entropy of 16-bit logits keeps its statistics in float", "[kernels]", sw::bfloat16,
                   sw::float16) {
  const auto e = execution();
  const std::size_t tokens = 20, vocabulary = 75;
  const auto logits = random_matrix<TestType>(tokens, vocabulary, 1, 4.0);
  const auto targets = random_ids(tokens, vocabulary, 2);
  targets(3) = -1;
  // A target that is nearly certain: its gradient is small beside the roundoff of its probability.
  logits(5, static_cast<std::size_t>(targets(5))) = TestType(24);
  const auto run = [&](const auto& scores, const auto& like) {
    using Rows = std::remove_cvref_t<decltype(like)>;
    const Rows maximum("maximum", tokens), sum("sum", tokens), target("target", tokens), loss("loss", tokens);
    kernels::cross_entropy_statistics(e, scores, targets, 0, maximum, sum, target);
    kernels::cross_entropy_loss(e, maximum, sum, target, targets, loss);
    kernels::cross_entropy_backward(e, scores, maximum, sum, targets, 0, 1.0, scores);
    return loss;
  };
  const auto wide = widened(logits);
  const auto expected = run(wide, Vector<double>());
  const auto losses = run(logits, Vector<float>());
  require_rounded(losses, expected);
  require_rounded(logits, wide, 1e-6);
  // A factor from memory is a power of two.
  const Matrix<TestType> plain("plain", tokens, vocabulary), scaled("scaled", tokens, vocabulary);
  const auto again = random_matrix<TestType>(tokens, vocabulary, 1, 4.0);
  const Vector<float> maximum("maximum", tokens), sum("sum", tokens), target("target", tokens);
  kernels::cross_entropy_statistics(e, again, targets, 0, maximum, sum, target);
  const std::int32_t exponent = 3;
  kernels::cross_entropy_backward(e, again, maximum, sum, targets, 0, 8.0, plain);
  kernels::cross_entropy_backward(e, again, maximum, sum, targets, 0, {1.0, &exponent}, scaled);
  for (std::size_t i = 0; i < tokens; ++i)
    for (std::size_t c = 0; c < vocabulary; ++c)
      REQUIRE(plain(i, c).bits() == scaled(i, c).bits());
  REQUIRE(wide(5, static_cast<std::size_t>(targets(5))) < 0);
  REQUIRE(wide(5, static_cast<std::size_t>(targets(5))) > -1e-3);
}

TEMPLATE_TEST_CASE("16-bit products are sums of floats, rounded once or not at all", "[kernels]",
                   sw::bfloat16, sw::float16) {
  const auto e = execution();
  const auto agree = [&](std::size_t m, std::size_t n, std::size_t k, bool ta, bool tb, double alpha,
                         double beta) {
    const auto a = ta ? random_matrix<TestType>(k, m, 1) : random_matrix<TestType>(m, k, 1);
    const auto b = tb ? random_matrix<TestType>(n, k, 2) : random_matrix<TestType>(k, n, 2);
    const auto c = random_matrix<TestType>(m, n, 3);
    const auto sums = random_matrix<float>(m, n, 3);
    auto expected = widened(c), expected_sums = widened(sums);
    const auto product = [&](const auto& left, const auto& right, const auto& out) {
      kernels::matmul(e, left, kernels::Transpose(ta), right, kernels::Transpose(tb), out, alpha, beta);
    };
    product(widened(a), widened(b), expected);
    product(widened(a), widened(b), expected_sums);
    if (beta == 0 && c.size() > 0)
      c(0, 0) = std::numeric_limits<TestType>::quiet_NaN();
    product(a, b, c);
    product(a, b, sums);
    require_rounded(c, expected);
    require_rounded(sums, expected_sums);
    // The kernels of a device.
    const auto naive = random_matrix<TestType>(m, n, 3);
    namespace detail = kernels::detail;
    kernels::run("elements", e, m * n,
                 detail::ProductElement<TestType>{{m,
                                                   n,
                                                   k,
                                                   static_cast<float>(alpha),
                                                   {a.data(), ta ? m : k, ta},
                                                   {b.data(), tb ? k : n, tb},
                                                   static_cast<float>(beta),
                                                   naive.data(),
                                                   n}});
    require_rounded(naive, expected);
  };
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const std::size_t k : {0, 1, 33}) {
        agree(5, 31, k, ta, tb, 1.0, 0.0);
        agree(13, 1, k, ta, tb, -0.5, 2.0);
      }
      agree(3, 5, 1100, ta, tb, 0.5, 2.0); // several blocks of the depth,
      agree(530, 3, 20, ta, tb, 1.0, 0.0); // of the rows,
      agree(2, 1030, 7, ta, tb, 1.0, 1.0); // and of the columns
    }
  }
}

TEST_CASE("A product in float keeps the small contributions of many microbatches", "[kernels]") {
  // 256 contributions of 2^-9 to 1: each one would be lost in bfloat16, in which 1 + 2^-9 is 1.
  const Matrix<sw::bfloat16> x("x", 1, 1), dy("dy", 1, 1);
  x(0, 0) = sw::bfloat16(1);
  dy(0, 0) = sw::bfloat16(0x1p-9);
  const Matrix<float> main("main", 1, 1);
  const Matrix<sw::bfloat16> narrow("narrow", 1, 1);
  main(0, 0) = 1;
  narrow(0, 0) = sw::bfloat16(1);
  for (int microbatch = 0; microbatch < 256; ++microbatch) {
    kernels::matmul(execution(), x, kernels::Transpose::yes, dy, kernels::Transpose::no, main, 1.0, 1.0);
    kernels::matmul(execution(), x, kernels::Transpose::yes, dy, kernels::Transpose::no, narrow, 1.0, 1.0);
  }
  REQUIRE(main(0, 0) == 1.5f);
  REQUIRE(narrow(0, 0) == 1.0f);
}

TEMPLATE_TEST_CASE("Squares of 16-bit elements are summed exactly to double rounding", "[kernels]",
                   sw::bfloat16, sw::float16) {
  const auto e = execution();
  for (const std::size_t size : {1, 63, 9001}) {
    const auto x = random_vector<TestType>(size, 1);
    const Vector<double> sums("sums", 1), work("work", kernels::reduce_workspace(size));
    kernels::dot(e, x, x, sums, work);
    double expected = 0;
    for (std::size_t i = 0; i < size; ++i)
      expected += static_cast<double>(x(i)) * static_cast<double>(x(i));
    REQUIRE(std::abs(sums(0) - expected) <= 1e-12 * expected);
    x(size / 2) = std::numeric_limits<TestType>::infinity();
    kernels::count_nonfinite(e, x, sums, work);
    REQUIRE(sums(0) == 1.0);
  }
}

TEMPLATE_TEST_CASE("Attention of 16-bit elements sums in float and rounds once, also by blocks of keys",
                   "[kernels]", sw::bfloat16, sw::float16) {
  const auto e = execution();
  for (const kernels::AttentionShape& shape :
       {kernels::AttentionShape{2, 33, 2, 2, 20}, kernels::AttentionShape{1, 70, 1, 3, 24}}) {
    const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    const auto qkv = random_matrix<TestType>(shape.tokens(), shape.qkv_width(), 1);
    const auto d_out = random_matrix<TestType>(shape.tokens(), shape.output_width(), 2);
    const auto others = random_matrix<TestType>(shape.tokens(), shape.qkv_width(), 3);
    const std::size_t key_width = shape.kv_heads * 2 * shape.head_dim;
    Matrix<TestType> keys("keys", shape.tokens(), key_width);
    kernels::pack_key_values(e, others, keys, shape);
    // The other tokens come before the queries' own.
    const kernels::CausalBlock before{sw::TokenRuns::one(shape.sequence, shape.sequence),
                                      sw::TokenRuns::one(shape.sequence)};
    const auto run = [&](const auto& fused, const auto& gradient, const auto& other, auto sum,
                         const auto& out, const auto& d_fused, const auto& saved) {
      using Element = typename std::remove_cvref_t<decltype(fused)>::value_type;
      using Sum = decltype(sum);
      const Vector<Sum> work("work", kernels::attention_backward_workspace<Element>(e, shape));
      const Vector<Sum> lse("lse", shape.tokens() * shape.heads());
      const auto own = kernels::AttentionBlock::whole(shape.sequence);
      kernels::attention_forward(e, fused, out, lse, shape, own, scale, work);
      kernels::attention_backward(e, fused, saved, lse, gradient, d_fused, shape, own, scale, work);
      // And with the blocks joined.
      const Matrix<Sum> joined("joined", shape.tokens(), shape.output_width());
      const Matrix<Sum> d_joined("d_joined", shape.tokens(), shape.qkv_width());
      const Matrix<Sum> d_other("d_other", shape.tokens(), key_width);
      kernels::attention_forward(e, fused, joined, lse, shape, own, scale, work);
      kernels::attention_forward_block(e, fused, other, joined, lse, shape, before, scale, work);
      kernels::attention_backward(e, fused, saved, lse, gradient, d_joined, shape, own, scale, work);
      kernels::attention_backward_block(e, fused, other, saved, lse, gradient, d_joined, d_other, shape,
                                        before, scale, work);
      return std::vector{joined, d_joined, d_other};
    };
    const Matrix<TestType> out("out", shape.tokens(), shape.output_width()),
        d_qkv("d", shape.tokens(), shape.qkv_width());
    const auto found = run(qkv, d_out, keys, 0.0f, out, d_qkv, out);
    const auto wide_out = widened(out), wide_d = widened(d_qkv);
    // The backward pass in double starts from the stored output.
    const auto expected =
        run(widened(qkv), widened(d_out), widened(keys), 0.0, wide_out, wide_d, widened(out));
    require_rounded(out, wide_out);
    require_rounded(d_qkv, wide_d);
    for (std::size_t i = 0; i < found.size(); ++i)
      require_rounded(found[i], expected[i]);

    // The kernels of a device.
    namespace detail = kernels::detail;
    const kernels::MatrixSpan<const TestType> in = kernels::span_of(qkv);
    const Vector<float> lse("lse", shape.tokens() * shape.heads());
    const Matrix<float> sums("sums", shape.tokens(), shape.output_width());
    const Matrix<float> d_sums("sums", shape.tokens(), shape.qkv_width());
    const auto whole = kernels::CausalBlock::whole(shape.sequence);
    const auto by = static_cast<float>(scale);
    kernels::run(
        "rows", e, shape.tokens() * shape.heads(),
        detail::AttentionForwardRow<TestType>{in, detail::KeyValueSpan<const TestType>::fused(in, shape),
                                              kernels::span_of(sums), lse.data(), shape, whole, false, by});
    const detail::AttentionBackwardQuery<TestType> query{
        in,
        detail::KeyValueSpan<const TestType>::fused(in, shape),
        kernels::span_of(out),
        lse.data(),
        kernels::span_of(d_out),
        kernels::span_of(d_sums),
        detail::KeyValueSpan<float>::fused(kernels::span_of(d_sums), shape),
        shape,
        whole,
        false,
        by};
    kernels::run("q", e, shape.tokens() * shape.heads(), query);
    kernels::run("k", e, shape.tokens() * shape.kv_heads, detail::AttentionBackwardKey<TestType>{query});
    require_rounded(sums, wide_out);
    require_rounded(d_sums, wide_d);
  }
}
