// SPDX-License-Identifier: Apache-2.0

#include <shardwright/tensor/kernels/cross_entropy.hpp>
#include <shardwright/tensor/kernels/embedding.hpp>
#include <shardwright/tensor/kernels/optimizer/adamw.hpp>
#include <shardwright/tensor/kernels/rotary.hpp>
#include <shardwright/tensor/kernels/swiglu.hpp>

#include "tensor/kernels_support.hpp"

#include <algorithm>
#include <cmath>

using namespace kernels_test;

namespace {

/// Steps of AdamW with the usual factors.
template <class Element>
void update_with(kernels::AdamWUpdate<Element> update, std::size_t size, const kernels::OptimizerStep& step,
                 double rate, double decay) {
  update.set_step(step, rate, decay);
  kernels::run_elementwise<Element>("sw::adamw", execution(), size, update);
}
template <class Element>
kernels::AdamWUpdate<Element> adamw_of(const Vector<Element>& parameter, const Vector<Element>& gradient,
                                       const Vector<Element>& first, const Vector<Element>& second) {
  return kernels::adamw_of(parameter, gradient, first, second, 0.9, 0.95, 1e-8);
}

/// A kernel of a user: twice the elements plus the index of their block.
struct DoubleInBlocks {
  kernels::VectorSpan<const float> from;
  kernels::VectorSpan<float> to;
  std::size_t grain;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t block) const {
    const float* in = from.data;
    float* out = to.data;
    const kernels::Lanes<float> number = kernels::broadcast(static_cast<float>(block));
    kernels::for_chunks<float>(
        block * grain, kernels::block_end(block, grain, to.size),
        [=](auto chunk, std::size_t i) { chunk.store(out + i, 2 * chunk.load(in + i) + number); }, in, out);
  }
};

} // namespace

TEST_CASE("A user's kernel runs in lanes over blocks of elements", "[kernels]") {
  using Execution = std::decay_t<decltype(execution())>;
  STATIC_REQUIRE(kernels::runs_on_host<Execution>);
  const std::size_t grain = kernels::lane_grain_of<Execution>(100);
  REQUIRE(grain == 100);
  for (const std::size_t size : {0, 1, 100, 733}) {
    const auto x = random_vector<float>(size, 1), y = random_vector<float>(size, 2);
    const auto from = kernels::flat_span_of(x, "double_in_blocks");
    kernels::run_lanes("test::double", execution(), kernels::blocks_of(size, grain),
                       DoubleInBlocks{{from.data, from.size}, kernels::span_of(y), grain});
    for (std::size_t i = 0; i < size; ++i)
      REQUIRE(y(i) == 2 * x(i) + static_cast<float>(i / grain));
  }
}

TEMPLATE_TEST_CASE("SwiGLU matches its formula and its gradient", "[kernels]", float, double) {
  const auto e = execution();
  for (const std::size_t hidden : {1, 16, 37}) {
    const auto x = random_matrix<TestType>(5, 2 * hidden, 1, 2.0);
    const auto dy = random_matrix<TestType>(5, hidden, 2);
    const auto y = random_matrix<TestType>(5, hidden, 3);
    kernels::swiglu_forward(e, x, y);
    Matrix<double> expected("expected", 5, hidden), d_expected("expected", 5, 2 * hidden);
    for (std::size_t i = 0; i < 5; ++i) {
      for (std::size_t c = 0; c < hidden; ++c) {
        const double g = static_cast<double>(x(i, c)), u = static_cast<double>(x(i, hidden + c));
        const double s = 1 / (1 + std::exp(-g)), d = static_cast<double>(dy(i, c));
        expected(i, c) = g * s * u;
        d_expected(i, c) = d * u * s * (1 + g * (1 - s));
        d_expected(i, hidden + c) = d * g * s;
      }
    }
    REQUIRE(largest_difference(y, expected) < tolerance<TestType>);
    kernels::swiglu_backward(e, x, dy, x); // in place
    REQUIRE(largest_difference(x, d_expected) < tolerance<TestType>);
  }
}

TEST_CASE("Rotary positions rotate pairs by their angle, and the backward rotation undoes it", "[kernels]") {
  const auto e = execution();
  const kernels::AttentionShape shape{2, 5, 2, 2, 6};
  const sw::TokenRuns positions{.rows = 5, .split = 2, .first = 1, .second = 5};
  const Matrix<double> cosines("cosines", 8, 3), sines("sines", 8, 3);
  kernels::fill_rotary_tables(e, cosines, sines, 100.0);
  const auto qkv = random_matrix<double>(shape.tokens(), shape.qkv_width(), 1);
  const auto turned = copy_of(qkv);
  kernels::rotary_forward(e, turned, cosines, sines, shape, positions);
  for (std::size_t t = 0; t < shape.tokens(); ++t) {
    for (std::size_t column = 0; column < shape.qkv_width(); ++column) {
      const std::size_t head = column % shape.group_width() / 6;
      const std::size_t i = column % 6;
      double expected = qkv(t, column);
      if (head < 3) { // two query heads, then the key
        const double position = t % 5 < 2 ? 1 + static_cast<double>(t % 5) : 3 + static_cast<double>(t % 5);
        const double angle = position * std::pow(100.0, -static_cast<double>(i % 3) / 3.0);
        const double partner = i < 3 ? -qkv(t, column + 3) : qkv(t, column - 3);
        expected = std::cos(angle) * qkv(t, column) + std::sin(angle) * partner;
      }
      REQUIRE(std::abs(turned(t, column) - expected) < 1e-12);
    }
  }
  kernels::rotary_backward(e, turned, cosines, sines, shape, positions);
  REQUIRE(largest_difference(turned, qkv) < 1e-14);
  for (const sw::TokenRuns wrong : {sw::TokenRuns::one(5, 4), sw::TokenRuns::one(4)})
    REQUIRE_THROWS_AS(kernels::rotary_forward(e, turned, cosines, sines, shape, wrong), sw::InvalidArgument);
}

TEMPLATE_TEST_CASE("Embedding blocks sum to the whole lookup and its gradient", "[kernels]", float, double) {
  const auto e = execution();
  const std::size_t tokens = 60, vocabulary = 11, width = 19;
  const auto ids = random_ids(tokens, vocabulary, 1);
  auto table = random_matrix<TestType>(vocabulary, width, 2);
  for (std::size_t c = 0; c < width; ++c) // the bits of a row must come back, the sign of a zero, too
    table(3, c) = table(5, c) = TestType(-0.0);
  const auto d_out = random_matrix<TestType>(tokens, width, 3);
  Matrix<TestType> sum("sum", tokens, width), part("part", tokens, width), whole("whole", vocabulary, width);
  std::fill_n(sum.data(), sum.size(), TestType(-0.0));
  kernels::embedding_backward(e, ids, d_out, 0, whole);
  for (const auto& [first, size] : {std::pair<std::size_t, std::size_t>{0, 4}, {4, 0}, {4, 7}}) {
    const sw::MatrixView<TestType> block(table.data() + first * width, size, width);
    kernels::embedding_forward(e, ids, block, static_cast<std::int64_t>(first), part);
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum.data()[i] += part.data()[i];
    Matrix<TestType> d_block("d_block", size, width);
    kernels::embedding_backward(e, ids, d_out, static_cast<std::int64_t>(first), d_block);
    for (std::size_t i = 0; i < d_block.size(); ++i)
      REQUIRE(d_block.data()[i] == whole.data()[first * width + i]);
  }
  Matrix<double> d_expected("expected", vocabulary, width);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t c = 0; c < width; ++c) {
      const TestType word = table(static_cast<std::size_t>(ids(t)), c);
      REQUIRE(sum(t, c) == word);
      REQUIRE(std::signbit(sum(t, c)) == std::signbit(word));
      d_expected(static_cast<std::size_t>(ids(t)), c) += static_cast<double>(d_out(t, c));
    }
  }
  REQUIRE(largest_difference(whole, d_expected) < tolerance<TestType>);
  kernels::embedding_backward(e, ids, d_out, 0, whole, true);
  for (std::size_t i = 0; i < whole.size(); ++i)
    d_expected.data()[i] *= 2;
  REQUIRE(largest_difference(whole, d_expected) < 2 * tolerance<TestType>);
}

namespace {

/// The pieces over vocabulary blocks of the given sizes, combined as ranks would combine them.
template <class Element> struct SplitLoss {
  Matrix<Element> logits;
  Vector<std::int32_t> targets;
  Vector<Element> maximum, sum, target, losses;
  Vector<double> result{"result", 2};

  SplitLoss(const Matrix<Element>& all, const Vector<std::int32_t>& ids)
      : logits(all), targets(ids), maximum("maximum", all.extent(0)), sum("sum", all.extent(0)),
        target("target", all.extent(0)), losses("losses", all.extent(0)) {}

  Matrix<Element> block(std::size_t first, std::size_t size) const {
    Matrix<Element> out("block", logits.extent(0), size);
    if (size > 0)
      for (std::size_t i = 0; i < out.extent(0); ++i)
        std::copy_n(&logits(i, first), size, &out(i, 0));
    return out;
  }

  double run(const std::vector<std::size_t>& sizes) {
    const auto e = execution();
    const std::size_t rows = logits.extent(0);
    Kokkos::deep_copy(maximum, -std::numeric_limits<Element>::infinity());
    Kokkos::deep_copy(sum, Element(0));
    Kokkos::deep_copy(target, Element(0));
    std::vector<Vector<Element>> maxima, sums;
    std::size_t first = 0;
    for (const std::size_t size : sizes) {
      maxima.emplace_back("maximum", rows);
      sums.emplace_back("sum", rows);
      const Vector<Element> part_target("target", rows);
      kernels::cross_entropy_statistics(e, block(first, size), targets, static_cast<std::int64_t>(first),
                                        maxima.back(), sums.back(), part_target);
      for (std::size_t i = 0; i < rows; ++i) {
        const Element found = maxima.back()(i);
        if (size == 0)
          REQUIRE((found == -std::numeric_limits<Element>::infinity() && sums.back()(i) == 0));
        if (found > maximum(i))
          maximum(i) = found;
        target(i) += part_target(i);
      }
      first += size;
    }
    for (std::size_t b = 0; b < sizes.size(); ++b) {
      kernels::cross_entropy_rebase(e, maxima[b], maximum, sums[b]);
      for (std::size_t i = 0; i < rows; ++i)
        sum(i) += sums[b](i);
    }
    kernels::cross_entropy_loss(e, maximum, sum, target, targets, losses);
    kernels::sum_losses(e, losses, targets, result);
    return result(0);
  }
};

} // namespace

TEMPLATE_TEST_CASE("Cross entropy over vocabulary blocks matches the whole in double", "[kernels]", float,
                   double) {
  const std::size_t rows = 33, vocabulary = 45;
  const auto logits = random_matrix<TestType>(rows, vocabulary, 1, 5.0);
  const auto targets = random_ids(rows, vocabulary, 2);
  targets(3) = targets(20) = -1;
  SplitLoss<TestType> loss(logits, targets);
  double expected = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    if (targets(i) < 0)
      continue;
    double sum = 0;
    for (std::size_t c = 0; c < vocabulary; ++c)
      sum += std::exp(static_cast<double>(logits(i, c)));
    expected += std::log(sum) - static_cast<double>(logits(i, static_cast<std::size_t>(targets(i))));
  }
  for (const auto& sizes : {std::vector<std::size_t>{45}, {23, 22}, {14, 15, 16, 0}, {1, 44}}) {
    REQUIRE(std::abs(loss.run(sizes) - expected) < 10 * tolerance<TestType> * expected);
    REQUIRE(loss.result(1) == 31.0);
    REQUIRE(loss.losses(3) == 0);
  }
  kernels::sum_losses(execution(), loss.losses, targets, loss.result, true);
  REQUIRE(loss.result(1) == 62.0);
}

TEST_CASE("The gradient of the logits matches finite differences in every block", "[kernels]") {
  const std::size_t rows = 9, vocabulary = 21;
  const auto logits = random_matrix<double>(rows, vocabulary, 1, 2.0);
  const auto targets = random_ids(rows, vocabulary, 2);
  targets(4) = -100;
  SplitLoss<double> loss(logits, targets);
  loss.run({10, 11});
  Matrix<double> gradient("gradient", rows, vocabulary);
  std::size_t first = 0;
  for (const std::size_t size : {std::size_t{10}, std::size_t{11}}) {
    const auto block = loss.block(first, size);
    kernels::cross_entropy_backward(execution(), block, loss.maximum, loss.sum, targets,
                                    static_cast<std::int64_t>(first), 0.25, block);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t c = 0; c < size; ++c)
        gradient(i, first + c) = block(i, c);
    }
    first += size;
  }
  require_gradient(logits, gradient, [&] { return 0.25 * loss.run({21}); });
  for (std::size_t c = 0; c < vocabulary; ++c)
    REQUIRE(gradient(4, c) == 0.0);
}

TEST_CASE("A NaN logit makes only its token's loss NaN", "[kernels]") {
  for (const std::size_t column : {0, 8, 20}) {
    const auto logits = random_matrix<float>(5, 21, 1);
    logits(2, column) = std::numeric_limits<float>::quiet_NaN();
    SplitLoss<float> loss(logits, random_ids(5, 21, 2));
    loss.run({10, 11});
    for (std::size_t i = 0; i < 5; ++i)
      REQUIRE(std::isnan(loss.losses(i)) == (i == 2));
  }
}

TEMPLATE_TEST_CASE("One pass over a row gives its maximum and sum, wherever its largest logits are",
                   "[kernels]", float, double, sw::bfloat16, sw::float16) {
  using Number = sw::AccumulationElement<TestType>;
  const std::size_t rows = 4;
  for (const std::size_t columns : {1, 7, 64, 100, 1031}) {
    Matrix<TestType> logits("logits", rows, columns);
    const auto noise = random_matrix<double>(rows, columns, 1);
    for (std::size_t c = 0; c < columns; ++c) {
      const double x = static_cast<double>(c) / static_cast<double>(columns);
      logits(0, c) = TestType(300 * x + noise(0, c));        // ever larger
      logits(1, c) = TestType(-300 * x + noise(1, c));       // ever smaller
      logits(2, c) = TestType(c % 2 == 0 ? 0 : noise(2, c)); // with half of them masked
      if (c < columns / 2)
        logits(2, c) = TestType(-std::numeric_limits<Number>::infinity());
      logits(3, c) = TestType(std::sin(40 * x) * 60);
    }
    Vector<std::int32_t> targets("targets", rows);
    const auto last = static_cast<std::int32_t>(columns - 1);
    Kokkos::deep_copy(targets, last);
    const Vector<Number> maximum("maximum", rows), sum("sum", rows), target("target", rows);
    const kernels::TargetRule smooth{.smoothing = 0.1, .vocabulary = static_cast<double>(columns)};
    for (const bool smoothed : {false, true}) {
      kernels::cross_entropy_statistics(execution(), logits, targets, 0, maximum, sum, target,
                                        smoothed ? smooth : kernels::TargetRule{});
      for (std::size_t i = 0; i < rows; ++i) {
        double largest = -std::numeric_limits<double>::infinity(), whole = 0, all = 0;
        for (std::size_t c = 0; c < columns; ++c)
          largest = std::max(largest, static_cast<double>(logits(i, c)));
        for (std::size_t c = 0; c < columns; ++c) {
          whole += std::exp(static_cast<double>(logits(i, c)) - largest);
          all += static_cast<double>(logits(i, c));
        }
        CAPTURE(columns, i, smoothed);
        REQUIRE(static_cast<double>(maximum(i)) == largest);
        REQUIRE(std::abs(static_cast<double>(sum(i)) - whole) < 4 * tolerance<Number> * whole);
        const double own = static_cast<double>(logits(i, columns - 1));
        const double mean = 0.9 * own + 0.1 * all / static_cast<double>(columns);
        if (!smoothed)
          REQUIRE(static_cast<double>(target(i)) == own);
        else if (std::isfinite(mean))
          REQUIRE(std::abs(static_cast<double>(target(i)) - mean) < tolerance<Number> * 300);
        else
          REQUIRE(static_cast<double>(target(i)) == mean);
      }
    }
  }
}

TEMPLATE_TEST_CASE("AdamW follows the published algorithm for several steps", "[kernels]", float, double) {
  const std::size_t size = 103;
  const auto parameter = random_vector<TestType>(size, 1);
  Vector<TestType> first("first", size), second("second", size);
  Vector<double> p("p", size), m("m", size), v("v", size);
  for (std::size_t i = 0; i < size; ++i)
    p(i) = static_cast<double>(parameter(i));
  kernels::OptimizerStep step;
  const kernels::OpenAdamWStep next{&step, 0.9, 0.95};
  for (std::int64_t number = 1; number <= 5; ++number) {
    const auto gradient = random_vector<TestType>(size, 10 + static_cast<std::uint64_t>(number));
    gradient(7) = 0;
    next.open(true, 0.3);
    REQUIRE(step.step == number);
    update_with(adamw_of(parameter, gradient, first, second), size, step, 0.01, 0.1);
    const double t = static_cast<double>(number);
    for (std::size_t i = 0; i < size; ++i) {
      const double g = 0.3 * static_cast<double>(gradient(i));
      m(i) = 0.9 * m(i) + 0.1 * g;
      v(i) = 0.95 * v(i) + 0.05 * g * g;
      const double m_hat = m(i) / (1 - std::pow(0.9, t)), v_hat = v(i) / (1 - std::pow(0.95, t));
      p(i) -= 0.01 * (m_hat / (std::sqrt(v_hat) + 1e-8) + 0.1 * p(i));
    }
    REQUIRE(largest_difference(parameter, p) < tolerance<TestType>);
  }
  const auto gradient = random_vector<TestType>(size, 10);
  gradient(102) = std::numeric_limits<TestType>::quiet_NaN();
  next.open(true, 0.3);
  update_with(adamw_of(parameter, gradient, first, second), size, step, 0.01, 0.1);
  for (std::size_t i = 0; i < size; ++i)
    REQUIRE(std::isnan(parameter(i)) == (i == 102));
  REQUIRE_THROWS_AS(adamw_of(parameter, random_vector<TestType>(size - 1, 10), first, second),
                    sw::InvalidArgument);
}

TEST_CASE(
    "AdamW of many parameters at once gives the same bits as one after the other, also with rounded copies",
    "[kernels]") {
  using Execution = std::decay_t<decltype(execution())>;
  constexpr std::size_t count = 70; // more than one launch
  const auto size_of = [](std::size_t i) { return i == 3 ? std::size_t{9001} : i % 11; };
  std::vector<Vector<float>> together, alone, gradients, moments; // four moments each
  std::vector<Vector<sw::bfloat16>> rounded;
  for (std::size_t i = 0; i < count; ++i) {
    together.push_back(random_vector<float>(size_of(i), i));
    alone.push_back(random_vector<float>(size_of(i), i));
    gradients.push_back(random_vector<float>(size_of(i), 1000 + i));
    for (int moment = 0; moment < 4; ++moment)
      moments.emplace_back("moment", size_of(i));
    rounded.emplace_back("rounded", size_of(i));
  }
  std::array<kernels::OptimizerStep, 2> steps; // of a parameter at its own rate, and of the others
  steps[0].learning_rate = 0.01 * 0.7;
  steps[1].learning_rate = 0.01;
  for (int number = 1; number <= 3; ++number) {
    const bool take = number != 2; // a step that is not taken changes nothing
    for (kernels::OptimizerStep& step : steps)
      kernels::OpenAdamWStep{&step, 0.9, 0.95}.open(take, 0.3);
    kernels::OptimizerLaunches<Execution, kernels::AdamWUpdate<float>, sw::bfloat16> launches("sw::adamw",
                                                                                              execution());
    for (std::size_t i = 0; i < count; ++i) {
      const double decay = i % 2 == 0 ? 0.1 : 0;
      const kernels::OptimizerStep& step = steps[i % 3 == 0 ? 0 : 1];
      launches.add(adamw_of(together[i], gradients[i], moments[4 * i], moments[4 * i + 1]), size_of(i),
                   rounded[i].data(), decay, &step);
      if (take)
        update_with(adamw_of(alone[i], gradients[i], moments[4 * i + 2], moments[4 * i + 3]), size_of(i),
                    step, step.learning_rate, decay);
    }
    launches.launch();
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t k = 0; k < size_of(i); ++k) {
        REQUIRE(together[i](k) == alone[i](k));
        REQUIRE(rounded[i](k) == sw::bfloat16(alone[i](k)));
      }
  }
}
