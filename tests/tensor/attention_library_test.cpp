// SPDX-License-Identifier: Apache-2.0
// Attention as calls of a library with plain strides, which loops stand in for.

#include <shardwright/tensor/kernels/attention.hpp>
#include <shardwright/train/dry_run/counting_target.hpp>

#include "support/standard_error.hpp"
#include "tensor/attention_problem.hpp"
#include "tensor/kernels_support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace kernels_test;
namespace detail = kernels::detail;

namespace {

/// Attention by its definition, from the arguments of the library. A window of n keys shows the keys less
/// than n before the query, as cuDNN counts them.
struct Loops {
  struct Plan {
    std::size_t workspace;
  };
  std::vector<std::int64_t>* batches = nullptr; // of the calls
  std::size_t workspace_of_a_plan = 0;

  [[nodiscard]] std::optional<Plan> plan(const detail::AttentionProblem&) const {
    return Plan{workspace_of_a_plan};
  }
  [[nodiscard]] static std::size_t workspace(const Plan& plan) { return plan.workspace; }

  static const float* row(const void* of, const detail::HeadStrides& at, std::int64_t b, std::int64_t h,
                          std::int64_t i) {
    return static_cast<const float*>(of) + b * at.batch + h * at.head + i * at.row;
  }
  static float* row(void* of, const detail::HeadStrides& at, std::int64_t b, std::int64_t h, std::int64_t i) {
    return static_cast<float*>(of) + b * at.batch + h * at.head + i * at.row;
  }
  static double dot(const float* a, const float* b, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i)
      sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return sum;
  }

  void run(const detail::AttentionProblem& p, Plan&, const detail::AttentionOperands& at, void*) const {
    if (batches != nullptr)
      batches->push_back(p.batch);
    const std::int64_t n = p.sequence, queries = p.heads / p.kv_heads;
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.kv_heads; ++h) {
        if (p.backward)
          for (std::int64_t j = 0; j < n; ++j) {
            std::fill_n(row(at.d_key, p.d_key, b, h, j), p.head_dim, 0.0F);
            std::fill_n(row(at.d_value, p.d_key, b, h, j), p.value_width, 0.0F);
          }
        for (std::int64_t head = h * queries; head < (h + 1) * queries; ++head)
          for (std::int64_t i = 0; i < n; ++i)
            p.backward ? gradient_of(p, at, b, h, head, i) : value_of(p, at, b, h, head, i);
      }
  }

private:
  static std::pair<std::int64_t, std::int64_t> seen(const detail::AttentionProblem& p, std::int64_t i) {
    const std::int64_t first = p.window == 0 ? 0 : std::max<std::int64_t>(0, i - p.window + 1);
    return {first, p.causal ? i + 1 : p.sequence};
  }
  static void value_of(const detail::AttentionProblem& p, const detail::AttentionOperands& at, std::int64_t b,
                       std::int64_t h, std::int64_t head, std::int64_t i) {
    const float* query = row(at.query, p.query, b, head, i);
    const auto [first, end] = seen(p, i);
    std::vector<double> sums(static_cast<std::size_t>(p.value_width), 0.0);
    double total = 0;
    for (std::int64_t j = first; j < end; ++j) {
      const double weight =
          std::exp(static_cast<double>(at.scale) * dot(query, row(at.key, p.key, b, h, j), p.head_dim));
      total += weight;
      for (std::size_t c = 0; c < sums.size(); ++c)
        sums[c] += weight * static_cast<double>(row(at.value, p.key, b, h, j)[c]);
    }
    for (std::size_t c = 0; c < sums.size(); ++c)
      row(at.out, p.out, b, head, i)[c] = static_cast<float>(sums[c] / total);
    *row(static_cast<void*>(at.sums), p.sums, b, head, i) = static_cast<float>(std::log(total));
  }
  static void gradient_of(const detail::AttentionProblem& p, const detail::AttentionOperands& at,
                          std::int64_t b, std::int64_t h, std::int64_t head, std::int64_t i) {
    const float* query = row(at.query, p.query, b, head, i);
    const float* d_out = row(at.d_out, p.d_out, b, head, i);
    const double scale = at.scale, dots = dot(d_out, row(at.out, p.out, b, head, i), p.value_width);
    const double sum = *row(static_cast<const void*>(at.sums), p.sums, b, head, i);
    float* d_query = row(at.d_query, p.d_query, b, head, i);
    std::fill_n(d_query, p.head_dim, 0.0F);
    const auto [first, end] = seen(p, i);
    for (std::int64_t j = first; j < end; ++j) {
      const float* key = row(at.key, p.key, b, h, j);
      const double weight = std::exp(scale * dot(query, key, p.head_dim) - sum);
      const double d_score =
          scale * weight * (dot(d_out, row(at.value, p.key, b, h, j), p.value_width) - dots);
      for (std::int64_t c = 0; c < p.head_dim; ++c) {
        d_query[c] += static_cast<float>(d_score * static_cast<double>(key[c]));
        row(at.d_key, p.d_key, b, h, j)[c] += static_cast<float>(d_score * static_cast<double>(query[c]));
      }
      for (std::int64_t c = 0; c < p.value_width; ++c)
        row(at.d_value, p.d_key, b, h, j)[c] += static_cast<float>(weight * static_cast<double>(d_out[c]));
    }
  }
};

using Plans = detail::AttentionPlans<Loops>;

struct Problem : AttentionProblem<float> {
  using AttentionProblem::AttentionProblem;

  /// The operands of both directions, as attention.hpp passes them.
  [[nodiscard]] detail::AttentionOperands operands(const Matrix<float>& gradient) const {
    const std::size_t key = shape.q_per_kv * shape.head_dim;
    return {.query = qkv.data(),
            .key = qkv.data() + key,
            .value = qkv.data() + key + shape.head_dim,
            .out = out.data(),
            .sums = log_sum_exp.data(),
            .d_out = d_out.data(),
            .d_query = gradient.data(),
            .d_key = gradient.data() + key,
            .d_value = gradient.data() + key + shape.head_dim,
            .scale = static_cast<float>(scale)};
  }
  [[nodiscard]] std::optional<detail::AttentionCalls> calls(const kernels::AttentionBlock& block,
                                                            bool backward) const {
    return detail::library_calls<float>(shape, block, detail::AttentionRows::contiguous(shape, backward),
                                        backward);
  }
};

std::vector<kernels::AttentionShape> shapes() {
  kernels::AttentionShape wider{2, 6, 3, 2, 8};
  wider.value_dim = 12;
  return {{2, 9, 3, 1, 8}, {1, 5, 1, 4, 4}, {3, 7, 2, 4, 8}, {2, 8, 3, 2, 8}, {1, 1, 5, 3, 4}, wider};
}

} // namespace

TEST_CASE("a library with plain strides computes attention on the fused buffer", "[tensor]") {
  const sw::KeyWindow windows[] = {sw::causal.window, sw::full.window, sw::sliding_window<1>.window,
                                   sw::sliding_window<3>.window, sw::sliding_window<500>.window};
  for (const kernels::AttentionShape& shape : shapes())
    for (const sw::KeyWindow& window : windows) {
      CAPTURE(shape.batch, shape.sequence, shape.kv_heads, shape.q_per_kv, window.before, window.after);
      const auto block = kernels::AttentionBlock::whole(shape.sequence, {window});
      Problem kernel(shape), library(shape);
      kernels::attention_forward(execution(), kernel.qkv, kernel.out, kernel.log_sum_exp, shape, block,
                                 kernel.scale, kernel.work);
      kernels::attention_backward(execution(), kernel.qkv, kernel.out, kernel.log_sum_exp, kernel.d_out,
                                  kernel.d_qkv, shape, block, kernel.scale, kernel.work);
      Plans plans{Loops{}};
      Kokkos::deep_copy(library.d_qkv, 777.0F); // every element is written
      const auto forward = library.calls(block, false), backward = library.calls(block, true);
      REQUIRE(forward);
      REQUIRE(backward);
      REQUIRE(plans.run<float>(*forward, library.operands(library.d_qkv), nullptr, 0));
      CHECK(largest_difference(kernel.out, library.out) < 2e-6);
      CHECK(largest_difference(kernel.log_sum_exp, library.log_sum_exp) < 4e-6);
      REQUIRE(plans.run<float>(*backward, library.operands(library.d_qkv), nullptr, 0));
      CHECK(largest_difference(kernel.d_qkv, library.d_qkv) < 2e-5);
    }
}

TEST_CASE("the library is called as few times as strides allow", "[tensor]") {
  const auto calls_of = [](const kernels::AttentionShape& shape) {
    const Problem problem(shape);
    std::vector<std::int64_t> batches;
    Plans plans{Loops{&batches}};
    const auto calls = problem.calls(kernels::AttentionBlock::whole(shape.sequence), false);
    REQUIRE(calls);
    REQUIRE(plans.run<float>(*calls, problem.operands(problem.d_qkv), nullptr, 0));
    return batches;
  };
  CHECK(calls_of({5, 3, 4, 1, 4}) == std::vector<std::int64_t>{5});
  CHECK(calls_of({5, 3, 1, 4, 4}) == std::vector<std::int64_t>{5});
  CHECK(calls_of({5, 3, 2, 4, 4}) == std::vector<std::int64_t>{5, 5});
  CHECK(calls_of({2, 3, 5, 4, 4}) == std::vector<std::int64_t>{5, 5});
}

TEST_CASE("the library is not asked for unsupported problems", "[tensor]") {
  const kernels::AttentionShape shape{1, 8, 2, 1, 8};
  const auto asked = [&](const kernels::AttentionBlock& block, std::size_t row = 48) {
    return detail::library_calls<float>(shape, block, {row, 16, 0, 0}, false).has_value();
  };
  const std::int32_t length = 3;
  CHECK(asked(kernels::AttentionBlock::whole(8)));
  CHECK(asked(kernels::AttentionBlock::whole(8), 52));
  CHECK_FALSE(asked(kernels::AttentionBlock::whole(8), 49)); // rows not at multiples of 16 bytes
  CHECK_FALSE(asked(kernels::AttentionBlock::whole(8, {{sw::causal.window}, &length})));
  CHECK_FALSE(asked(kernels::AttentionBlock::whole(8, {{3, 3}})));
  // Documents, which a dry run knows without their starts, and tokens in another order.
  CHECK_FALSE(asked(kernels::AttentionBlock::whole(8, {.window = sw::causal.window, .positions = 8})));
  CHECK_FALSE(asked(kernels::AttentionBlock::whole(8, {{3, sw::KeyWindow::unlimited}})));
  const sw::TokenRuns runs{.rows = 8, .split = 4, .first = 0, .second = 12};
  CHECK_FALSE(asked({runs, runs}));
  CHECK_FALSE(asked({sw::TokenRuns::one(8, 8), sw::TokenRuns::one(8)}));
  CHECK_FALSE(Problem({2, 7, 3, 2, 8}).calls(kernels::AttentionBlock::whole(7), false)); // and sums neither
  CHECK_FALSE(detail::library_calls<sw::bfloat16>({1, 8, 2, 1, 12}, kernels::AttentionBlock::whole(8),
                                                  {72, 24, 0, 0}, false)
                  .has_value());
}

namespace {

/// Plans nothing, and counts how often it is called.
struct Declines {
  struct Plan {};
  int* asked;
  [[nodiscard]] std::optional<Plan> plan(const detail::AttentionProblem&) const {
    ++*asked;
    return std::nullopt;
  }
  [[nodiscard]] static std::size_t workspace(const Plan&) { return 0; }
  static void run(const detail::AttentionProblem&, Plan&, const detail::AttentionOperands&, void*) {}
};

} // namespace

TEST_CASE("problems that the library declines, or lacks workspace for, are computed by other kernels",
          "[tensor]") {
  const Problem problem({1, 4, 1, 1, 8});
  const auto calls = problem.calls(kernels::AttentionBlock::whole(4), false);
  REQUIRE(calls);
  const auto operands = problem.operands(problem.d_qkv);

  Plans needs{Loops{nullptr, 64}};
  CHECK(needs.workspace(calls->problem) == 64);
  CHECK_FALSE(needs.run<float>(*calls, operands, nullptr, 63));
  CHECK(needs.run<float>(*calls, operands, nullptr, 64));

  // Too much; said once in a process.
  const std::size_t too_much = Plans::most_workspace + 1;
  const shardwright_test::StandardError said;
  for (int i = 0; i < 2; ++i) {
    Plans large{Loops{nullptr, too_much}};
    CHECK_FALSE(large.workspace(calls->problem));
    CHECK_FALSE(large.run<float>(*calls, operands, nullptr, too_much));
  }
  CHECK(said.text().find("needs 2048 MiB") != std::string::npos);
  CHECK(said.text().find("needs 2048 MiB") == said.text().rfind("needs 2048 MiB"));

  int asked = 0;
  detail::AttentionPlans<Declines> declines{Declines{&asked}};
  {
    // It may have declined only because of the capture, so that is not remembered.
    const sw::detail::CaptureMark mark;
    CHECK_FALSE(declines.run<float>(*calls, operands, nullptr, 64));
    CHECK(mark.spoilt());
  }
  CHECK(asked == 1);
  CHECK_FALSE(declines.run<float>(*calls, operands, nullptr, 64));
  CHECK_FALSE(declines.workspace(calls->problem));
  CHECK(asked == 2);
}

namespace {

/// Stands for a device with tiles, and with a library whose calls need some workspace, unless that is 0.
template <std::size_t library_bytes> struct DeviceSpace {
  using execution_space = DeviceSpace;
  struct memory_space {};
};

/// The kernels of a dry run.
struct Kernels final : sw::detail::MemoryListener {
  std::set<std::string> labels;
  std::uint32_t take(std::size_t, std::size_t) override { return 0; }
  void give_back(std::uint32_t, std::size_t, std::size_t) noexcept override {}
  void add_kernel(std::string_view label, double) override { labels.emplace(label); }
};

/// Those of a backward pass that undoes a rotation.
template <class Space>
std::set<std::string> kernels_of_gradient(const kernels::AttentionShape& shape,
                                          const kernels::AttentionBlock& block) {
  const auto matrix = [&](std::size_t columns) { // nothing is read
    return Kokkos::View<sw::bfloat16**, Kokkos::LayoutRight, Memory, Kokkos::MemoryUnmanaged>(
        nullptr, shape.tokens(), columns);
  };
  const Vector<float> sums("sums", shape.tokens() * shape.heads());
  const Matrix<float> table("table", shape.sequence, shape.rotary_width() / 2);
  const kernels::Rotation<float> rotation{kernels::span_of(table), kernels::span_of(table),
                                          sw::TokenRuns::one(shape.sequence)};
  Kernels listener;
  sw::detail::MemoryListener::current() = &listener;
  kernels::attention_backward(sw::CountingExecution<Space>(), matrix(shape.qkv_width()),
                              matrix(shape.output_width()), sums, matrix(shape.output_width()),
                              matrix(shape.qkv_width()), shape, block, 1.0, sums, rotation);
  sw::detail::MemoryListener::current() = nullptr;
  return listener.labels;
}

/// Of the forward and the backward pass.
template <class Space> std::pair<std::size_t, std::size_t> workspaces(const kernels::AttentionShape& shape) {
  return {kernels::attention_forward_workspace<sw::bfloat16>(Space(), shape),
          kernels::attention_backward_workspace<sw::bfloat16>(Space(), shape)};
}

} // namespace

template <std::size_t library_bytes> struct kernels::detail::BlockLauncher<DeviceSpace<library_bytes>> {
  static constexpr bool available = true;
};
template <std::size_t library_bytes> struct kernels::detail::LibraryAttention<DeviceSpace<library_bytes>> {
  static constexpr bool available = library_bytes != 0;
  static AttentionPlans<Loops> plans(const DeviceSpace<library_bytes>&) {
    return AttentionPlans<Loops>{Loops{nullptr, library_bytes}};
  }
};

TEST_CASE("a dry run plans as much workspace as the device that it counts for", "[tensor]") {
  using Tiles = DeviceSpace<0>;
  using Library = DeviceSpace<4 * 12345>;
  const kernels::AttentionShape in_tiles{2, 16, 3, 1, 64}, in_rows{2, 16, 3, 1, 20};
  for (const auto& shape : {in_tiles, in_rows})
    CHECK(workspaces<sw::CountingExecution<Tiles>>(shape) == workspaces<Tiles>(shape));
  CHECK(workspaces<sw::CountingExecution<Library>>(in_tiles) == workspaces<Library>(in_tiles));

  CHECK(workspaces<Tiles>(in_tiles) == std::pair<std::size_t, std::size_t>{0, 2 * 16 * 3});
  CHECK(workspaces<Tiles>(in_rows).second == 2 * 16 * 3 * 3 * 20);
  CHECK(workspaces<Library>(in_tiles) == std::pair<std::size_t, std::size_t>{12345, 12345});
}

TEST_CASE("a dry run has a pass that undoes the rotation where tiles do not, as with a library", "[tensor]") {
  using Set = std::set<std::string>;
  const kernels::AttentionShape in_tiles{2, 16, 3, 1, 64}, in_rows{2, 16, 3, 1, 20};
  const auto causal = kernels::AttentionBlock::whole(16);
  const auto two_sided = kernels::AttentionBlock::whole(16, {{3, 3}}); // the library has no kernel for it
  const Set apart{"sw::d_attention", "sw::rotary"}, together{"sw::d_attention"};
  CHECK(kernels_of_gradient<DeviceSpace<0>>(in_tiles, causal) == together);
  CHECK(kernels_of_gradient<DeviceSpace<0>>(in_rows, causal) == apart);
  CHECK(kernels_of_gradient<DeviceSpace<64>>(in_tiles, causal) == apart);
  CHECK(kernels_of_gradient<DeviceSpace<64>>(in_tiles, two_sided) == together);
}
