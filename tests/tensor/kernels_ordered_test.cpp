// SPDX-License-Identifier: Apache-2.0
#include <shardwright/mesh/reproducible.hpp>
#include <shardwright/tensor/kernels/experts/rows.hpp>
#include <shardwright/tensor/kernels/ordered/inserted_columns.hpp>
#include <shardwright/tensor/kernels/ordered/layer_gradients.hpp>
#include <shardwright/tensor/kernels/ordered/token_losses.hpp>
#include <shardwright/tensor/kernels/swiglu.hpp>

#include "tensor/attention_problem.hpp"
#include "tensor/kernels_support.hpp"
#include "tensor/norm_of.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace {

using namespace kernels_test;
using sw::FixedPoint;

// Widths below, at and beyond registers of 4 to 16 floats.
constexpr std::array<std::size_t, 5> widths{1, 7, 16, 33, 1030};

template <class View> bool same_bits(const View& left, const View& right) {
  return left.size() == right.size() &&
         std::memcmp(left.data(), right.data(), left.size() * sizeof(typename View::value_type)) == 0;
}

/// Rows [begin, end).
template <class Element>
Matrix<Element> rows_of(const Matrix<Element>& all, std::size_t begin, std::size_t end) {
  Matrix<Element> out("rows", end - begin, all.extent(1));
  for (std::size_t i = begin; i < end; ++i)
    for (std::size_t c = 0; c < all.extent(1); ++c)
      out(i - begin, c) = all(i, c);
  return out;
}

/// Columns [begin, end).
template <class Element>
Matrix<Element> columns_of(const Matrix<Element>& all, std::size_t begin, std::size_t end) {
  Matrix<Element> out("columns", all.extent(0), end - begin);
  for (std::size_t i = 0; i < all.extent(0); ++i)
    std::copy_n(&all(i, begin), end - begin, &out(i, 0));
  return out;
}
template <class Element> Matrix<Element> beside(const Matrix<Element>& left, const Matrix<Element>& right) {
  Matrix<Element> out("both", left.extent(0), left.extent(1) + right.extent(1));
  for (std::size_t i = 0; i < left.extent(0); ++i) {
    std::copy_n(&left(i, 0), left.extent(1), &out(i, 0));
    std::copy_n(&right(i, 0), right.extent(1), &out(i, left.extent(1)));
  }
  return out;
}

/// Sums of terms as a plain loop adds them.
struct PlainSums {
  Matrix<FixedPoint> sums;
  PlainSums(std::size_t rows, std::size_t columns) : sums("sums", rows, columns) {}
  void add(std::size_t row, std::size_t column, float term) { sums(row, column) += FixedPoint::of(term); }
};

} // namespace

TEMPLATE_TEST_CASE("Functions of elements have the same bits wherever a block is cut",
                   "[kernels][reproducible]", float, sw::bfloat16) {
  const std::size_t rows = 5, columns = 83;
  const auto x = random_matrix<TestType>(rows, columns, 1, 2.0),
             dy = random_matrix<TestType>(rows, columns, 2);
  const auto check = [&](const char* name, const auto& run) {
    CAPTURE(name);
    const auto whole = run(x, dy);
    for (const std::size_t cut : {std::size_t{1}, std::size_t{16}, std::size_t{29}, std::size_t{80}}) {
      CAPTURE(cut);
      const auto left = run(columns_of(x, 0, cut), columns_of(dy, 0, cut));
      const auto right = run(columns_of(x, cut, columns), columns_of(dy, cut, columns));
      REQUIRE(same_bits(left, columns_of(whole, 0, cut)));
      REQUIRE(same_bits(right, columns_of(whole, cut, columns)));
    }
  };
  const auto check_function = [&](const char* name, const auto& function) {
    check(name, [&](const auto& at, const auto&) {
      const auto y = copy_of(at);
      map(function, at, y);
      return y;
    });
    check(name, [&](const auto& at, const auto& slope) {
      const auto dx = copy_of(at);
      map_slopes(function, at, slope, dx);
      return dx;
    });
  };
  check_function("gelu_tanh", sw::operation::GeluTanh());
  check_function("gelu_erf", sw::operation::GeluErf());
  check_function("silu", sw::operation::Silu());
  check("swiglu", [&](const auto& gate, const auto& up) {
    const Matrix<TestType> y("y", rows, gate.extent(1));
    kernels::swiglu_forward(execution(), beside(gate, up), y);
    return y;
  });
  for (const bool of_gate : {true, false})
    check("gradient of swiglu", [&](const auto& gate, const auto& up) {
      const auto both = beside(gate, up);
      kernels::swiglu_backward(execution(), both, up, both);
      const std::size_t width = gate.extent(1);
      return columns_of(both, of_gate ? 0 : width, of_gate ? width : 2 * width);
    });
}

TEMPLATE_TEST_CASE("A norm of a sum has the same bits whether the addition is fused",
                   "[kernels][reproducible]", float, sw::bfloat16) {
  const auto check = []<bool centred>(std::size_t width) {
    CAPTURE(centred, width);
    const auto left = random_matrix<TestType>(7, width, 1), right = random_matrix<TestType>(7, width, 2);
    const auto gain = random_vector<TestType>(width, 3, 1.0);
    const Vector<float> mean("mean", 7), inverse("inverse", 7);
    const auto sum = copy_of(left), fused_sum = copy_of(left), y = copy_of(left), fused = copy_of(left);
    combine(sw::operation::Add(), left, right, sum);
    run_norm<centred>(norm_of(sum, gain, inverse, mean), y);
    run_norm<centred>(norm_of(left, gain, inverse, mean), right, fused_sum, fused);
    REQUIRE(same_bits(sum, fused_sum));
    REQUIRE(same_bits(y, fused));
  };
  for (const std::size_t width : widths) {
    check.template operator()<false>(width);
    check.template operator()<true>(width);
  }
}

TEMPLATE_TEST_CASE("Slots of tokens are summed with rounded products, wherever their rows are",
                   "[kernels][reproducible]", float, sw::bfloat16) {
  const std::size_t tokens = 9, slots = 3;
  for (const std::size_t width : widths) {
    CAPTURE(width);
    const auto rows = random_matrix<TestType>(tokens * slots, width, 1);
    const auto gates = random_vector<float>(tokens * slots, 2);
    Vector<std::int32_t> places("places", tokens * slots);
    std::vector<const TestType*> list;
    for (std::size_t i = 0; i < places.size(); ++i) {
      places(i) = i % 7 == 5 ? -1 : static_cast<std::int32_t>((i * 5) % places.size());
      list.push_back(&rows(i, 0));
    }
    const Matrix<TestType> packed("packed", tokens, width), listed("listed", tokens, width);
    using Packed = kernels::PackedRows<TestType>;
    using Listed = kernels::ListedRows<TestType>;
    kernels::run_lanes("sum", execution(), tokens,
                       kernels::SumSlots<TestType, Packed, false>{
                           {rows.data(), width}, places.data(), gates.data(), slots, packed.data(), width});
    kernels::run_lanes("sum", execution(), tokens,
                       kernels::SumSlots<TestType, Listed, false>{
                           {list.data()}, places.data(), gates.data(), slots, listed.data(), width});
    REQUIRE(same_bits(packed, listed));
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t c = 0; c < width; ++c) {
        float sum = 0;
        for (std::size_t k = t * slots; k < (t + 1) * slots; ++k)
          if (places(k) >= 0) {
            const volatile float product =
                gates(k) * static_cast<float>(rows(static_cast<std::size_t>(places(k)), c));
            sum += product;
          }
        REQUIRE(static_cast<float>(packed(t, c)) == static_cast<float>(static_cast<TestType>(sum)));
      }
  }
}

TEMPLATE_TEST_CASE("Columns that heads share get the same gradient however ranks share the heads",
                   "[kernels][reproducible]", float, sw::bfloat16) {
  for (const std::size_t heads : {std::size_t{8}, std::size_t{12}, std::size_t{1}})
    for (const std::size_t width : {std::size_t{3}, std::size_t{16}, std::size_t{21}}) {
      CAPTURE(heads, width);
      const std::size_t tokens = 4, at = 2, all_parts = heads == 12 ? 4 : heads;
      const auto from = random_matrix<TestType>(tokens * heads, at + width + 1, 1);
      Matrix<TestType> whole("whole", tokens, width);
      kernels::inserted_columns_in_tree(execution(), from, whole, at, heads, all_parts);
      for (std::size_t ranks = 2; ranks <= all_parts; ranks *= 2) {
        std::vector<Matrix<TestType>> sums;
        const std::size_t own = heads / ranks;
        for (std::size_t r = 0; r < ranks; ++r) {
          Matrix<TestType> block("block", tokens * own, from.extent(1));
          for (std::size_t i = 0; i < block.extent(0); ++i)
            std::copy_n(&from(i / own * heads + r * own + i % own, 0), from.extent(1), &block(i, 0));
          kernels::inserted_columns_in_tree(execution(), block, sums.emplace_back("sum", tokens, width), at,
                                            own, all_parts / ranks);
        }
        for (std::size_t step = 1; step < ranks; step *= 2) // as ranks add Partial<Sum>
          for (std::size_t r = 0; r < ranks; r += 2 * step)
            combine(sw::operation::Add(), sums[r], sums[r + step], sums[r]);
        REQUIRE(same_bits(sums[0], whole));
      }
      double plain = 0;
      for (std::size_t h = 0; h < heads; ++h)
        plain += static_cast<double>(static_cast<float>(from(heads + h, at + 1)));
      REQUIRE(std::abs(static_cast<double>(static_cast<float>(whole(1, 1))) - plain) < 0.1);
    }
}

TEMPLATE_TEST_CASE("FixedPoint sums of rows are those of their terms, at any width and in any pieces",
                   "[kernels][reproducible]", float, sw::bfloat16) {
  const std::size_t rows = 37, vocabulary = 11, first_id = 3, own = 5, sequences = 2, positions = 20;
  const auto ids = random_ids(rows, vocabulary, 3);
  for (const std::size_t width : widths) {
    CAPTURE(width);
    const auto dy = random_matrix<TestType>(rows, width, 1, 3.0);
    PlainSums of_column(1, width), of_words(own, width), of_positions(positions, width);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t c = 0; c < width; ++c) {
        const auto term = static_cast<float>(dy(i, c));
        of_column.add(0, c, term);
        if (const auto row = static_cast<std::size_t>(ids(i)) - first_id; row < own)
          of_words.add(row, c, term);
        if (i < 36) // two sequences of 18 rows, from position 2 on
          of_positions.add(2 + i % 18, c, term);
      }
    bool fault = false;
    Matrix<FixedPoint> column("column", 1, width), words("words", own, width),
        learned("learned", positions, width);
    column(0, 0) = words(0, 0) = learned(0, 0) = {7}; // overwritten
    std::size_t begin = 0;
    for (const std::size_t end : {std::size_t{1}, std::size_t{20}, rows}) { // as microbatches or ranks
      const auto piece = rows_of(dy, begin, end);
      kernels::column_sums(execution(), kernels::elements_as_terms(piece.data()), end - begin, width,
                           column.data(), begin > 0, &fault);
      kernels::embedding_backward(execution(), Kokkos::subview(ids, std::pair(begin, end)), piece,
                                  std::int64_t{first_id}, words, begin > 0, &fault);
      begin = end;
    }
    REQUIRE(same_bits(column, of_column.sums));
    REQUIRE(same_bits(words, of_words.sums));
    kernels::add_positions_backward(execution(), rows_of(dy, 0, 36), 36 / sequences, {2, {}}, learned, false,
                                    &fault);
    REQUIRE(same_bits(learned, of_positions.sums));
    REQUIRE_FALSE(fault);
  }
}

TEST_CASE("A term that does not fit is noted and left out", "[kernels][reproducible]") {
  for (const float term :
       {8192.0F, -8192.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const std::size_t place : {std::size_t{0}, std::size_t{15}, std::size_t{16}, std::size_t{20}}) {
      const std::size_t width = 21;
      Matrix<float> dy("dy", 2, width);
      Kokkos::deep_copy(dy, 0.5F);
      dy(1, place) = term;
      Vector<FixedPoint> sums("sums", width);
      bool fault = false;
      kernels::column_sums(execution(), kernels::elements_as_terms(dy.data()), 1, width, sums.data(), false,
                           &fault);
      REQUIRE_FALSE(fault);
      kernels::column_sums(execution(), kernels::elements_as_terms(dy.data()), 2, width, sums.data(), false,
                           &fault);
      REQUIRE(fault);
      for (std::size_t c = 0; c < width; ++c)
        REQUIRE(static_cast<float>(sums(c)) == (c == place ? 0.5F : 1.0F));
    }
}

TEST_CASE("A sum out of range is noted when it becomes a float", "[kernels][reproducible]") {
  constexpr std::int64_t limit = FixedPoint::unit_limit;
  for (const auto& [units, noted] :
       {std::pair{limit - 1, false}, {-limit, false}, {limit, true}, {-limit - 1, true}}) {
    Vector<FixedPoint> sums("sums", 21);
    Vector<float> floats("floats", 21);
    sums(20) = {units - 1};
    sums(20) += {1};
    bool fault = false;
    kernels::round_sums(execution(), sums, floats, &fault);
    CHECK(fault == noted);
    CHECK(floats(20) == static_cast<float>(units) * 0x1p-32F);
  }
}

TEMPLATE_TEST_CASE("A gain's FixedPoint gradient is that of its terms, and no row depends on its place",
                   "[kernels][reproducible]", float, sw::bfloat16) {
  const auto check = []<bool centred>(std::size_t width) {
    CAPTURE(centred, width);
    const std::size_t rows = 29;
    const auto x = random_matrix<TestType>(rows, width, 1, 2.0);
    const auto dy = random_matrix<TestType>(rows, width, 2, 0.5);
    const auto gain = random_vector<TestType>(width, 3, 1.0);
    const Vector<float> mean("mean", rows), inverse("inverse", rows);
    const auto y = copy_of(x), dx = copy_of(x);
    run_norm<centred>(norm_of(x, gain, inverse, mean), y);
    PlainSums plain(1, width);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t c = 0; c < width; ++c) {
        const float value = static_cast<float>(x(i, c)) - mean(i); // 0 of an RMSNorm
        plain.add(0, c, static_cast<float>(dy(i, c)) * value * inverse(i));
      }
    Matrix<FixedPoint> sums("sums", 1, width);
    bool fault = false;
    auto norm = norm_of(x, gain, inverse, mean);
    norm.dy = span_of(dy);
    norm.dx = span_of(dx);
    kernels::norm_gain_sums<centred>(execution(), norm, sums.data(), false, &fault);
    REQUIRE(same_bits(sums, plain.sums));
    REQUIRE_FALSE(fault);
    kernels::norm_backward<centred, false>(execution(), norm);

    const std::size_t begin = 5, end = 22;
    const auto some = rows_of(x, begin, end), some_dy = rows_of(dy, begin, end);
    const Vector<float> some_mean("mean", end - begin), some_inverse("inverse", end - begin);
    const auto some_y = copy_of(some);
    auto part = norm_of(some, gain, some_inverse, some_mean);
    run_norm<centred>(part, some_y);
    REQUIRE(same_bits(some_y, rows_of(y, begin, end)));
    part.dy = span_of(some_dy);
    part.dx = span_of(some_dy);
    kernels::norm_backward<centred, false>(execution(), part);
    REQUIRE(same_bits(some_dy, rows_of(dx, begin, end)));
  };
  for (const std::size_t width : widths) {
    check.template operator()<false>(width);
    check.template operator()<true>(width);
  }
}

namespace {

/// Row values and gradient of cross entropy over a vocabulary that `ranks` blocks share.
template <class Element> struct OrderedLoss {
  using Number = sw::AccumulationElement<Element>;
  Vector<Number> maximum, sum, target, losses;
  Matrix<Element> gradient;

  OrderedLoss(const Matrix<Element>& logits, const Vector<std::int32_t>& targets, std::size_t ranks,
              double smoothing)
      : maximum("maximum", logits.extent(0)), sum("sum", logits.extent(0)),
        target("target", logits.extent(0)), losses("losses", logits.extent(0)),
        gradient("gradient", logits.extent(0), logits.extent(1)) {
    const auto e = execution();
    const std::size_t rows = logits.extent(0), width = logits.extent(1) / ranks, parts = 8 / ranks;
    const kernels::TargetRule rule{-1, smoothing, static_cast<double>(logits.extent(1))};
    std::vector<Matrix<Element>> blocks;
    std::vector<Vector<Number>> sums, logits_of_target, work;
    Kokkos::deep_copy(maximum, -std::numeric_limits<Number>::infinity());
    for (std::size_t r = 0; r < ranks; ++r) {
      auto& block = blocks.emplace_back("block", rows, width);
      for (std::size_t i = 0; i < rows; ++i)
        std::copy_n(&logits(i, r * width), width, &block(i, 0));
      sums.emplace_back("sum", rows);
      logits_of_target.emplace_back("target", rows);
      work.emplace_back("work", kernels::vocabulary_parts_workspace(rows, parts));
      const Vector<Number> own("maximum", rows);
      kernels::vocabulary_parts_statistics(e, block, targets, static_cast<std::int64_t>(r * width), parts,
                                           own, logits_of_target[r], work[r].data(), rule);
      for (std::size_t i = 0; i < rows; ++i)
        maximum(i) = own(i) > maximum(i) ? own(i) : maximum(i);
    }
    for (std::size_t r = 0; r < ranks; ++r)
      kernels::vocabulary_parts_sum(e, parts, maximum, sums[r], work[r].data());
    for (std::size_t step = 1; step < ranks; step *= 2) // as ranks add Partial<Sum>
      for (std::size_t r = 0; r < ranks; r += 2 * step)
        for (std::size_t i = 0; i < rows; ++i) {
          sums[r](i) += sums[r + step](i);
          logits_of_target[r](i) += logits_of_target[r + step](i);
        }
    Kokkos::deep_copy(sum, sums[0]);
    Kokkos::deep_copy(target, logits_of_target[0]);
    kernels::cross_entropy_loss(e, maximum, sum, target, targets, losses, rule);
    for (std::size_t r = 0; r < ranks; ++r) {
      kernels::cross_entropy_backward(e, blocks[r], maximum, sum, targets,
                                      static_cast<std::int64_t>(r * width), 0.7, blocks[r], rule);
      for (std::size_t i = 0; i < rows; ++i)
        std::copy_n(&blocks[r](i, 0), width, &gradient(i, r * width));
    }
  }
};

} // namespace

TEMPLATE_TEST_CASE("Cross entropy has the same bits however ranks cut the vocabulary",
                   "[kernels][reproducible]", float, sw::bfloat16) {
  for (const std::size_t part : {std::size_t{1}, std::size_t{5}, std::size_t{21}, std::size_t{300}})
    for (const double smoothing : {0.0, 0.1}) {
      CAPTURE(part, smoothing);
      const std::size_t rows = 19, vocabulary = 8 * part;
      const auto logits = random_matrix<TestType>(rows, vocabulary, 1, 5.0);
      const auto targets = random_ids(rows, vocabulary, 2);
      targets(3) = -1;
      const OrderedLoss<TestType> whole(logits, targets, 1, smoothing);
      for (const std::size_t ranks : {std::size_t{2}, std::size_t{4}, std::size_t{8}}) {
        CAPTURE(ranks);
        const OrderedLoss<TestType> cut(logits, targets, ranks, smoothing);
        REQUIRE(same_bits(cut.losses, whole.losses));
        REQUIRE(same_bits(cut.sum, whole.sum));
        REQUIRE(same_bits(cut.gradient, whole.gradient));
      }
      for (std::size_t i = 0; i < rows; ++i) {
        double sum = 0, mean = 0;
        for (std::size_t c = 0; c < vocabulary; ++c) {
          const auto logit = static_cast<double>(static_cast<float>(logits(i, c)));
          sum += std::exp(logit);
          mean += logit / static_cast<double>(vocabulary);
        }
        const double own = targets(i) < 0
                               ? 0
                               : std::log(sum) - smoothing * mean -
                                     (1 - smoothing) * static_cast<double>(static_cast<float>(
                                                           logits(i, static_cast<std::size_t>(targets(i)))));
        REQUIRE(std::abs(static_cast<double>(whole.losses(i)) - own) < 1e-5 * (1 + own));
      }
    }
}

TEST_CASE("The exact sum of losses does not depend on how the tokens are cut", "[kernels][reproducible]") {
  const std::size_t tokens = 1000;
  const auto losses = random_vector<float>(tokens, 1, 7.0);
  const auto targets = random_ids(tokens, 4, 2);
  for (std::size_t i = 0; i < tokens; i += 3)
    targets(i) = -1;
  Vector<double> whole("whole", 2), part("part", 2);
  kernels::sum_losses_exactly(execution(), losses, targets, whole);
  double plain = 0;
  for (std::size_t i = 0; i < tokens; ++i)
    plain += static_cast<double>(losses(i));
  REQUIRE(std::abs(whole(0) - plain) < 1e-4);
  REQUIRE(whole(1) == 666);
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{333}}) {
    double sum = 0;
    for (std::size_t end = tokens; end > 0; end -= std::min(end, size)) { // from the last on
      const std::pair range(end - std::min(end, size), end);
      kernels::sum_losses_exactly(execution(), Kokkos::subview(losses, range),
                                  Kokkos::subview(targets, range), part);
      sum += part(0);
    }
    REQUIRE(sum == whole(0));
  }
}

TEMPLATE_TEST_CASE("Attention of a head has the same bits beside any other heads and sequences",
                   "[kernels][attention][reproducible]", float, sw::bfloat16) {
  for (const std::size_t head_dim : {std::size_t{8}, std::size_t{20}}) {
    CAPTURE(head_dim);
    const std::size_t batch = 3, kv_heads = 4, sequence = 45;
    const kernels::AttentionShape all{batch, sequence, kv_heads, 2, head_dim};
    const kernels::AttentionShape one{1, sequence, kv_heads / 2, 2, head_dim};
    AttentionProblem<TestType> whole(all), part(one);
    const std::size_t b = 1, first = 2; // the second sequence's last two heads of keys
    const auto copy_part = [&](const auto& from, const auto& to) {
      const std::size_t width = to.extent(1);
      const std::size_t begin = first * (from.extent(1) / kv_heads);
      for (std::size_t i = 0; i < sequence; ++i)
        std::copy_n(&from(b * sequence + i, begin), width, &to(i, 0));
    };
    const auto run = [](AttentionProblem<TestType>& p) {
      const auto block = kernels::CausalBlock::whole(p.shape.sequence);
      kernels::attention_forward(execution(), p.qkv, p.out, p.log_sum_exp, p.shape, block, p.scale, p.work);
      kernels::attention_backward(execution(), p.qkv, p.out, p.log_sum_exp, p.d_out, p.d_qkv, p.shape, block,
                                  p.scale, p.work);
    };
    copy_part(whole.qkv, part.qkv);
    copy_part(whole.d_out, part.d_out);
    run(whole);
    run(part);
    const auto expected_out = copy_of(part.out), expected_gradient = copy_of(part.d_qkv);
    copy_part(whole.out, expected_out);
    copy_part(whole.d_qkv, expected_gradient);
    REQUIRE(same_bits(part.out, expected_out));
    REQUIRE(same_bits(part.d_qkv, expected_gradient));
  }
}
