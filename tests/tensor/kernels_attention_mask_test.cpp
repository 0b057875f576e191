// SPDX-License-Identifier: Apache-2.0
// Attention under every mask, with and without lengths of keys, compared with its definition.

#include <shardwright/layout/document_order.hpp>
#include <shardwright/tensor/kernels/attention.hpp>
#include <shardwright/tensor/kernels/attention/key_values.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>

#include "tensor/attention_problem.hpp"
#include "tensor/kernels_support.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

using namespace kernels_test;
namespace detail = kernels::detail;

namespace {

/// A mask in two forms: as the kernels read it, and as a definition.
struct Mask {
  std::string name;
  sw::KeyWindow window;
  std::function<bool(std::size_t query, std::size_t key)> sees;
};

std::vector<Mask> masks() {
  const auto within = [](std::size_t keys) {
    return [keys](std::size_t query, std::size_t key) { return key <= query && query - key < keys; };
  };
  return {{"causal", sw::causal.window, within(1u << 20)},
          {"full", sw::full.window, [](std::size_t, std::size_t) { return true; }},
          {"window 1", sw::sliding_window<1>.window, within(1)},
          {"window 3", sw::sliding_window<3>.window, within(3)},
          {"window 40", sw::sliding_window<40>.window, within(40)},
          {"window 5000", sw::sliding_window<5000>.window, within(5000)}};
}

using Lengths = std::vector<std::int32_t>;

/// No lengths, and lengths of zero, of the complete sequence and in between.
std::vector<Lengths> lengths_of(const kernels::AttentionShape& shape) {
  const auto n = static_cast<std::int32_t>(shape.sequence);
  Lengths mixed, none(shape.batch, 0), all(shape.batch, n);
  for (std::size_t b = 0; b < shape.batch; ++b)
    mixed.push_back(b % 3 == 0 ? n - n / 3 : b % 3 == 1 ? 0 : n / 4);
  return {{}, mixed, none, all};
}

std::vector<kernels::AttentionShape> shapes() {
  return {{1, 1, 1, 1, 1}, {2, 5, 1, 1, 7}, {3, 37, 2, 2, 20}, {1, 70, 1, 3, 24}, {2, 129, 1, 1, 8}};
}

template <class Element> Matrix<double> widened(const Matrix<Element>& matrix) {
  Matrix<double> wide("wide", matrix.extent(0), matrix.extent(1));
  kernels::copy(execution(), matrix, wide);
  return wide;
}

template <class Element> struct Problem : AttentionProblem<Element> {
  using Base = AttentionProblem<Element>;
  using Base::Base, Base::shape, Base::scale, Base::qkv, Base::out, Base::d_out, Base::d_qkv,
      Base::log_sum_exp, Base::work;
  using Main = sw::AccumulationElement<Element>;

  [[nodiscard]] kernels::AttentionBlock block(const Mask& mask, const Lengths& lengths) const {
    return kernels::AttentionBlock::whole(shape.sequence,
                                          {mask.window, lengths.empty() ? nullptr : lengths.data()});
  }
  void forward(const kernels::AttentionBlock& block) {
    Kokkos::deep_copy(out, static_cast<Element>(std::numeric_limits<float>::quiet_NaN()));
    Kokkos::deep_copy(log_sum_exp, std::numeric_limits<Main>::quiet_NaN());
    kernels::attention_forward(execution(), qkv, out, log_sum_exp, shape, block, scale, work);
  }
  void backward(const kernels::AttentionBlock& block) {
    Kokkos::deep_copy(d_qkv, static_cast<Element>(std::numeric_limits<float>::quiet_NaN()));
    kernels::attention_backward(execution(), qkv, out, log_sum_exp, d_out, d_qkv, shape, block, scale, work);
  }
};

/// Outputs by the definition, in double; a row without keys has zeros.
Matrix<double> expected(const Problem<double>& problem, const Mask& mask, const Lengths& lengths) {
  const kernels::AttentionShape& s = problem.shape;
  const std::size_t d = s.head_dim;
  Matrix<double> result("expected", s.tokens(), s.output_width());
  for (std::size_t b = 0; b < s.batch; ++b)
    for (std::size_t h = 0; h < s.heads(); ++h)
      for (std::size_t i = 0; i < s.sequence; ++i) {
        const std::size_t row = b * s.sequence, group = h / s.q_per_kv * s.group_width();
        const std::size_t q = group + h % s.q_per_kv * d, k = group + s.q_per_kv * d;
        double sum = 0;
        for (std::size_t j = 0; j < s.sequence; ++j) {
          if (!mask.sees(i, j) || (!lengths.empty() && j >= static_cast<std::size_t>(lengths[b])))
            continue;
          double score = 0;
          for (std::size_t c = 0; c < d; ++c)
            score += problem.qkv(row + i, q + c) * problem.qkv(row + j, k + c);
          const double weight = std::exp(problem.scale * score);
          sum += weight;
          for (std::size_t c = 0; c < d; ++c)
            result(row + i, h * d + c) += weight * problem.qkv(row + j, k + d + c);
        }
        for (std::size_t c = 0; c < d && sum > 0; ++c)
          result(row + i, h * d + c) /= sum;
      }
  return result;
}

template <class Visit> void for_each_case(Visit visit) {
  for (const auto& shape : shapes())
    for (const Mask& mask : masks())
      for (const Lengths& lengths : lengths_of(shape)) {
        INFO(mask.name << ", sequence " << shape.sequence << (lengths.empty() ? "" : ", lengths from ")
                       << (lengths.empty() ? 0 : lengths[0]));
        visit(shape, mask, lengths);
      }
}

template <class View> bool same_bits(const View& a, const View& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(*a.data())) == 0;
}

} // namespace

TEMPLATE_TEST_CASE("Attention under a mask matches its definition", "[kernels]", float, double) {
  for_each_case([](const auto& shape, const Mask& mask, const Lengths& lengths) {
    Problem<TestType> problem(shape);
    Problem<double> twice(shape);
    Kokkos::deep_copy(twice.qkv, widened(problem.qkv));
    problem.forward(problem.block(mask, lengths));
    const auto reference = expected(twice, mask, lengths);
    REQUIRE(largest_difference(problem.out, reference) < tolerance<TestType>);
    for (std::size_t i = 0; i < problem.log_sum_exp.size(); ++i) {
      const std::size_t row = i / shape.sequence / shape.heads() * shape.sequence + i % shape.sequence;
      const std::size_t column = i / shape.sequence % shape.heads() * shape.head_dim;
      const bool unseeing = problem.log_sum_exp(i) == -std::numeric_limits<TestType>::infinity();
      REQUIRE((unseeing || std::isfinite(problem.log_sum_exp(i))));
      REQUIRE(unseeing == (problem.out(row, column) == 0));
    }
  });
}

TEST_CASE("Gradients of attention under a mask match finite differences", "[kernels]") {
  for_each_case([](const auto& shape, const Mask& mask, const Lengths& lengths) {
    Problem<double> problem(shape);
    const auto block = problem.block(mask, lengths);
    problem.forward(block);
    problem.backward(block);
    require_gradient(
        problem.qkv, problem.d_qkv,
        [&] {
          problem.forward(block);
          return weighted_sum(problem.d_out, problem.out);
        },
        1 + problem.qkv.size() / 40);
    // Queries that see no key, and keys that no query sees, have no gradient.
    for (std::size_t t = 0; t < shape.tokens() && !lengths.empty(); ++t)
      if (t % shape.sequence >= static_cast<std::size_t>(lengths[t / shape.sequence]))
        for (std::size_t c = shape.q_per_kv * shape.head_dim; c < shape.group_width(); ++c)
          REQUIRE(problem.d_qkv(t, c) == 0);
  });
}

TEMPLATE_TEST_CASE("Masks of 16-bit elements agree with double precision", "[kernels]", float, sw::bfloat16,
                   sw::float16) {
  const double limit = std::is_same_v<TestType, float>          ? 1e-4
                       : std::is_same_v<TestType, sw::bfloat16> ? 0x1p-6
                                                                : 0x1p-9;
  for_each_case([limit](const auto& shape, const Mask& mask, const Lengths& lengths) {
    Problem<TestType> narrow(shape);
    Problem<double> wide(shape);
    const auto block = narrow.block(mask, lengths);
    Kokkos::deep_copy(wide.qkv, widened(narrow.qkv));
    Kokkos::deep_copy(wide.d_out, widened(narrow.d_out));
    narrow.forward(block);
    narrow.backward(block);
    wide.forward(block);
    REQUIRE(largest_difference(narrow.out, wide.out) < limit);
    Kokkos::deep_copy(wide.out, widened(narrow.out)); // as the gradient reads it
    wide.backward(block);
    REQUIRE(largest_difference(narrow.d_qkv, wide.d_qkv) < 8 * limit);
  });
}

TEST_CASE("A window as long as the sequence is bitwise the causal mask, and full lengths have no effect",
          "[kernels]") {
  const auto run = [](const Mask& mask, const Lengths& lengths) {
    Problem<float> problem({3, 69, 2, 2, 20});
    problem.forward(problem.block(mask, lengths));
    problem.backward(problem.block(mask, lengths));
    return std::pair{problem.out, problem.d_qkv};
  };
  const auto all = masks();
  const auto same = [](const auto& a, const auto& b) {
    return same_bits(a.first, b.first) && same_bits(a.second, b.second);
  };
  CHECK(same(run(all[5], {}), run(all[0], {})));
  CHECK_FALSE(same(run(all[4], {}), run(all[0], {})));
  for (const Mask& mask : all) {
    CHECK(same(run(mask, {69, 69, 69}), run(mask, {})));
    CHECK_FALSE(same(run(mask, {69, 68, 69}), run(mask, {})));
  }
}

TEST_CASE("Keys that a mask hides from all queries of a block are not read", "[kernels]") {
  // A product with a NaN would be noticed, even with a score of zero.
  const kernels::AttentionShape shape{2, 200, 1, 1, 8};
  constexpr std::size_t key = 8;
  const auto poison = [](Problem<float>& problem, std::size_t token) {
    for (std::size_t c = key; c < key + 16; ++c)
      problem.qkv(token, c) = std::numeric_limits<float>::quiet_NaN();
  };
  const auto finite = [](const auto& matrix, std::size_t row) {
    for (std::size_t c = 0; c < matrix.extent(1); ++c)
      if (!std::isfinite(matrix(row, c)))
        return false;
    return true;
  };
  SECTION("behind a window") {
    Problem<float> problem(shape);
    poison(problem, 0);
    problem.forward(problem.block(masks()[3], {}));
    for (std::size_t i = 0; i < 200; ++i)
      REQUIRE(finite(problem.out, i) == (i >= 32)); // rows come in blocks of 32
  }
  SECTION("beyond a length") {
    for (const Mask& mask : masks()) {
      Problem<float> problem(shape);
      const Lengths lengths{70, 0};
      for (const std::size_t token : {70u, 71u, 199u, 200u, 399u})
        poison(problem, token);
      problem.forward(problem.block(mask, lengths));
      problem.backward(problem.block(mask, lengths));
      for (std::size_t i = 0; i < 400; ++i)
        REQUIRE((finite(problem.out, i) && finite(problem.d_qkv, i)));
    }
  }
}

namespace {

/// Rows of a whole matrix at the positions of one part of each sequence, or back to them.
template <class Element>
void move_rows(const Matrix<Element>& whole, std::size_t sequence, const sw::TokenRuns& runs,
               const Matrix<Element>& part, bool back) {
  for (std::size_t t = 0; t < part.extent(0); ++t)
    for (std::size_t c = 0; c < part.extent(1); ++c) {
      Element& at = whole(t / runs.rows * sequence + runs.position(t % runs.rows), c);
      (back ? at : part(t, c)) = (back ? part(t, c) : at);
    }
}

/// Attention and its gradients by the parts of ranks in a ring, under a mask.
template <class Element>
void check_parts(const kernels::AttentionShape& shape, std::size_t parts, const Mask& mask,
                 const Lengths& lengths) {
  Problem<Element> whole(shape);
  whole.forward(whole.block(mask, lengths));
  whole.backward(whole.block(mask, lengths));
  const Matrix<Element> out("out", shape.tokens(), shape.output_width());
  const Matrix<Element> d_qkv("d_qkv", shape.tokens(), shape.qkv_width());
  std::vector<sw::TokenRuns> runs;
  std::vector<Problem<Element>> part;
  std::vector<Matrix<Element>> keys, d_keys;
  const auto block = [&](std::size_t of, std::size_t from) {
    return kernels::AttentionBlock(runs[of], runs[from],
                                   {mask.window, lengths.empty() ? nullptr : lengths.data()});
  };
  for (std::size_t p = 0; p < parts; ++p) {
    runs.push_back(sw::ZigZagOrder::runs(static_cast<std::int64_t>(shape.sequence), static_cast<int>(parts),
                                         static_cast<int>(p)));
    kernels::AttentionShape local = shape;
    local.sequence = runs.back().rows;
    part.emplace_back(local);
    move_rows(whole.qkv, shape.sequence, runs.back(), part.back().qkv, false);
    move_rows(whole.d_out, shape.sequence, runs.back(), part.back().d_out, false);
    keys.emplace_back("keys", local.tokens(), local.kv_heads * 2 * local.head_dim);
    d_keys.emplace_back("d_keys", local.tokens(), local.kv_heads * 2 * local.head_dim);
    kernels::pack_key_values(execution(), part.back().qkv, keys.back(), local);
  }
  const auto other = [&](std::size_t p, std::size_t step) { return (p + parts - step) % parts; };
  for (std::size_t p = 0; p < parts; ++p) {
    Problem<Element>& own = part[p];
    own.forward(block(p, p));
    for (std::size_t step = 1; step < parts; ++step)
      kernels::attention_forward_block(execution(), own.qkv, keys[other(p, step)], own.out, own.log_sum_exp,
                                       own.shape, block(p, other(p, step)), own.scale, own.work);
    own.backward(block(p, p));
  }
  for (std::size_t p = 0; p < parts; ++p)
    for (std::size_t step = 1; step < parts; ++step) {
      const std::size_t from = other(p, step);
      Problem<Element>& own = part[p];
      Kokkos::deep_copy(d_keys[from], std::numeric_limits<double>::quiet_NaN());
      kernels::attention_backward_block(execution(), own.qkv, keys[from], own.out, own.log_sum_exp, own.d_out,
                                        own.d_qkv, d_keys[from], own.shape, block(p, from), own.scale,
                                        own.work);
      kernels::add_key_values(execution(), d_keys[from], part[from].d_qkv, part[from].shape);
    }
  for (std::size_t p = 0; p < parts; ++p) {
    move_rows(out, shape.sequence, runs[p], part[p].out, true);
    move_rows(d_qkv, shape.sequence, runs[p], part[p].d_qkv, true);
  }
  REQUIRE(largest_difference(out, whole.out) < tolerance<Element>);
  REQUIRE(largest_difference(d_qkv, whole.d_qkv) < 10 * tolerance<Element>);
}

} // namespace

TEMPLATE_TEST_CASE("Attention by blocks of keys agrees with the whole sequence under every mask", "[kernels]",
                   float, double) {
  for (const Mask& mask : masks())
    for (const kernels::AttentionShape& shape :
         {kernels::AttentionShape{3, 24, 2, 2, 20}, kernels::AttentionShape{3, 276, 1, 1, 8}})
      for (const Lengths& lengths : lengths_of(shape)) {
        INFO(mask.name << ", sequence " << shape.sequence << ", lengths " << lengths.size());
        check_parts<TestType>(shape, 2, mask, lengths);
        check_parts<TestType>(shape, 3, mask, lengths);
      }
}

TEST_CASE("A block knows its rows that no query sees", "[kernels]") {
  // Of 48 tokens rank 0 of 2 has 0 to 11 and 36 to 47, rank 1 those between.
  const auto own = sw::ZigZagOrder::runs(48, 2, 0), others = sw::ZigZagOrder::runs(48, 2, 1);
  using Block = kernels::AttentionBlock;
  CHECK(Block(own, others, {sw::sliding_window<1>.window}).hides_all_keys());
  CHECK_FALSE(Block(own, others, {sw::sliding_window<2>.window}).hides_all_keys()); // 36 sees 35
  CHECK(Block(sw::TokenRuns::one(12), others).hides_all_keys());
  CHECK_FALSE(Block(sw::TokenRuns::one(12), others, {sw::full.window}).hides_all_keys());
  CHECK(Block(own, own, {sw::sliding_window<4>.window}).rows_at_once(0, 32) == 12);
  CHECK(Block(own, own).rows_at_once(0, 32) == 24);
}

namespace {

/// The kernels that devices run, here on the host, against the host's own.
template <class Form> void check_rows(const kernels::AttentionBlock& block, const Form& form) {
  Problem<double> problem({2, 45, 2, 2, 12});
  problem.forward(block);
  problem.backward(block);
  const auto& s = problem.shape;
  const kernels::MatrixSpan<const double> in = kernels::span_of(problem.qkv);
  const auto keys = detail::KeyValueSpan<const double>::fused(in, s);
  const Matrix<double> out("out", s.tokens(), s.output_width()), d("d", s.tokens(), s.qkv_width());
  const Vector<double> log_sum_exp("lse", problem.log_sum_exp.size());
  kernels::run("rows", execution(), s.tokens() * s.heads(),
               detail::AttentionForwardRow<double, double, Form>{
                   in, keys, kernels::span_of(out), log_sum_exp.data(), s, form, false, problem.scale});
  const detail::AttentionBackwardQuery<double, double, Form> query{
      in,
      keys,
      kernels::span_of(out),
      log_sum_exp.data(),
      kernels::span_of(problem.d_out),
      kernels::span_of(d),
      detail::KeyValueSpan<double>::fused(kernels::span_of(d), s),
      s,
      form,
      false,
      problem.scale};
  kernels::run("q", execution(), s.tokens() * s.heads(), query);
  kernels::run("k", execution(), s.tokens() * s.kv_heads, detail::AttentionBackwardKey<double, Form>{query});
  CHECK(largest_difference(out, problem.out) < 1e-12);
  CHECK(largest_difference(log_sum_exp, problem.log_sum_exp) < 1e-12);
  CHECK(largest_difference(d, problem.d_qkv) < 1e-12);
}

} // namespace

TEST_CASE("documents arranged over a ring leave the host's blocks of queries few hidden keys", "[kernels]") {
  const std::size_t sequence = 8192;
  std::vector<std::int32_t> starts;
  for (const std::size_t length :
       std::vector<std::size_t>{3100, 40, 510, 230, 900, 77, 1500, 120, 333, 61, 245, 18, 700, 358})
    starts.resize(starts.size() + length, static_cast<std::int32_t>(starts.size()));
  REQUIRE(starts.size() == sequence);
  for (const int ranks : {2, 4, 8}) {
    const std::vector<std::int32_t> text = sw::balanced_order(starts, ranks);
    std::size_t visible = 0, computed = 0, most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      std::size_t own = 0;
      for (int from = 0; from < ranks; ++from) {
        const kernels::AttentionBlock block(sw::ZigZagOrder::runs(8192, ranks, rank),
                                            sw::ZigZagOrder::runs(8192, ranks, from),
                                            {.window = sw::causal.window,
                                             .starts = starts.data(),
                                             .text = text.data(),
                                             .positions = sequence});
        visible += block.pairs();
        std::size_t count = 0;
        for (std::size_t first = from == rank ? 0 : block.first_query(0); first < block.queries.rows;
             first += count) {
          count = block.rows_at_once(first, detail::attention_rows);
          own += detail::attention_rows * block.seen(0, first, count).size();
        }
      }
      computed += own;
      most = std::max(most, own);
    }
    INFO(ranks << " ranks: " << visible << " visible pairs, " << computed << " computed, at most " << most);
    CHECK(computed < visible * 106 / 100);
    CHECK(static_cast<double>(most) * ranks < 1.05 * static_cast<double>(computed));
  }
}

TEST_CASE("Device kernels support all masks without lengths and texts", "[kernels]") {
  const std::int32_t length = 5;
  const auto whole = [](const sw::KeyWindow& window, const std::int32_t* lengths = nullptr) {
    return kernels::AttentionBlock::whole(9, {window, lengths});
  };
  const auto on_device = [](const kernels::AttentionBlock& block) {
    detail::require_device_form("attention_forward", block);
    return block.causal_form();
  };
  for (std::size_t i = 0; i < 9; ++i) {
    CHECK(on_device(whole(sw::causal.window)).end_key(i) == i + 1);
    CHECK(on_device(whole(sw::causal.window)).first_query(i) == i);
    CHECK(on_device(whole(sw::full.window)).end_key(i) == 9);
    CHECK(on_device(whole(sw::full.window)).first_query(i) == 0);
  }
  CHECK_FALSE(whole(sw::sliding_window<3>.window).mask.has_causal_form());
  CHECK_NOTHROW(on_device(whole(sw::sliding_window<3>.window)));
  CHECK_THROWS_AS(on_device(whole(sw::full.window, &length)), sw::InvalidArgument);
  CHECK_THROWS_AS(on_device(kernels::AttentionBlock::whole(
                      9, {.window = sw::causal.window, .text = &length, .positions = 9})),
                  sw::InvalidArgument);
  using Block = kernels::AttentionBlock;
  for (const Mask& mask : masks())
    check_rows<Block>(Block::whole(45, {mask.window}), Block::whole(45, {mask.window}));
  check_rows(Block::whole(45, {sw::full.window}), Block::whole(45, {sw::full.window}).causal_form());
  // Documents of 1, 20, 24 tokens, and of 44 and 1.
  std::vector<std::int32_t> starts(90);
  for (std::int32_t i = 0; i < 45; ++i) {
    starts[static_cast<std::size_t>(i)] = i == 0 ? 0 : i < 21 ? 1 : 21;
    starts[static_cast<std::size_t>(45 + i)] = i < 44 ? 0 : 44;
  }
  for (const Mask& mask : masks()) {
    const Block block = Block::whole(45, {.window = mask.window, .starts = starts.data(), .positions = 45});
    check_rows(block, block);
  }
}
