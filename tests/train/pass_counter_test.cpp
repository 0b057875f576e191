// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/operation_node.hpp>
#include <shardwright/train/tape/pass_counter.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <optional>
#include <span>
#include <type_traits>

namespace {

namespace sw = shardwright;
using Layout = sw::Layout<1>;
using shardwright_test::Findings;
using Counter = sw::PassCounter<int>;

/// Doubles the value; counts its passes, and how often it is computed in total.
struct Counted {
  static constexpr bool gradient_reads_input = false;
  static constexpr bool gradient_reads_output = false;
  Counter* passes;
  int* computed;

  template <class X>
  [[nodiscard]] auto forward(sw::SourceLocation, X x, std::optional<sw::FirstPass> pass) const {
    const int one = 1;
    passes->add(pass, std::span(&one, 1));
    ++*computed;
    return sw::scale(x, 2.0);
  }
  template <class G, class X, class Y>
  [[nodiscard]] auto gradient(const G& gradient, const X&, const Y&) const {
    return sw::scale(gradient, 2.0);
  }
};

/// Two microbatches and an evaluation through a function that counts itself, and an operation that does so.
void count(Counter& in_function, Counter& in_operation, int& computed, sw::Recompute kind) {
  const auto findings = shardwright_test::on_ranks(1, [&](const sw::HostCommunicator& world,
                                                          Findings& found) {
    const sw::DeviceMesh<sw::axis::dp> mesh(world, sw::extent<sw::axis::dp>(1));
    sw::ShardedTensor<Layout, double> value(mesh, {3});
    sw::fill(value, 1.5);
    sw::Tape<> tape;
    for (const auto recording :
         {sw::Recording::training, sw::Recording::training, sw::Recording::evaluation}) {
      tape.restart(recording);
      found.expect(tape.first_pass().has_value() == (recording == sw::Recording::training),
                   "a pass before it runs");
      auto x = tape.variable(value);
      auto twice = [&](sw::Var<Layout, double> read) {
        const int one = 1;
        in_function.add(read.first_pass(), std::span(&one, 1));
        auto y = sw::apply(Counted{&in_operation, &computed}, sw::SourceLocation::current(), std::move(read));
        return y * y;
      };
      const auto y = sw::recompute(twice, kind)(x);
      if (recording == sw::Recording::evaluation)
        continue;
      tape.seed(y, value.share());
      tape.backward();
      found.expect(!tape.first_pass(), "a pass after the gradients");
      found.expect(tape.gradient(x).data()[2] == 2 * 2 * 2 * 1.5 * 1.5,
                   "the gradient"); // y = (2 x)^2, seeded with x
    }
  });
  REQUIRE(findings.empty());
}

} // namespace

// Only a tape makes one.
static_assert(!std::is_default_constructible_v<sw::FirstPass>);
static_assert(!std::is_aggregate_v<sw::FirstPass>);

TEST_CASE("a counter counts every microbatch once, whatever is recomputed", "[train]") {
  for (const auto kind : {sw::Recompute::none, sw::Recompute::full, sw::Recompute::selective}) {
    Counter in_function(1), in_operation(1);
    int computed = 0;
    count(in_function, in_operation, computed, kind);
    CHECK(in_function.values()[0] == 2);
    CHECK(in_operation.values()[0] == 2);
    CHECK(computed == (kind == sw::Recompute::none ? 3 : 5));
    in_operation.restart();
    CHECK(in_operation.values()[0] == 0);
  }
}

TEST_CASE("a counter requires one amount for each of its numbers", "[train]") {
  Counter counter(3);
  const sw::Tape<> tape;
  const int one = 1;
  CHECK_THROWS_WITH(counter.add(tape.first_pass(), std::span(&one, 1)),
                    shardwright_test::ContainsSubstring("each of its 3 numbers, but got 1"));
}
