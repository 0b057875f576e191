// SPDX-License-Identifier: Apache-2.0

#include "schedule/reference_run.hpp"
#include "support/catch.hpp"

#include <shardwright/schedule/pipeline_schedule.hpp>
#include <shardwright/schedule/policies/dual_pipe.hpp>
#include <shardwright/schedule/policies/dual_pipe_v.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/policies/interleaved_zb.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/policies/zb_h1.hpp>
#include <shardwright/schedule/policies/zb_h2.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

using namespace shardwright;

namespace {

// Small integers, so that sums are exact: F = I = W, and each of them as the largest and the smallest,
// including W > I.
const std::vector<PassCosts> all_costs{{1, 1, 1}, {2, 3, 2}, {2, 3, 1}, {3, 2, 2}, {1, 2, 1},
                                       {1, 3, 3}, {1, 1, 2}, {2, 1, 3}, {3, 3, 2}, {5, 4, 1},
                                       {4, 5, 3}, {1, 4, 2}, {4, 1, 2}, {1, 5, 1}};

struct Expected {
  int peak = 0;
  int peak_until_input_gradient = 0;
};

/// Proves a policy for every p and m that it allows, and compares each rank's peaks, the bubble and the stall
/// with formulas; a formula of NaN stands for no claim.
template <class Policy, class Peaks, class Bubble, class Stall>
void check(const std::vector<PassCosts>& costs, const Peaks& peaks, const Bubble& bubble,
           const Stall& stall) {
  int proven = 0;
  for (std::size_t i = 0; i < costs.size(); ++i)
    for (int p = 1; p <= 16; ++p)
      for (int m = 1; m <= 64; ++m) {
        // Past the warm-up nothing new happens: the later costs use fewer of the larger numbers.
        if (!schedule_rule<Policy>(p, m).holds() || (i >= 4 && m > 2 * p + 3 && m % 16 != 0))
          continue;
        const PassCosts& cost = costs[i];
        std::vector<RankProof> ranks(static_cast<std::size_t>(p));
        const Proof proof = PipelineSchedule<Policy>::prove(p, m, cost, message_window<Policy>(p, m), ranks);
        bool well = proof.holds() && proof.failure.fault == ScheduleFault::none;
        int most = 0;
        int most_until = 0;
        for (int r = 0; r < p; ++r) {
          const Expected expected = peaks(p, m, r);
          const RankProof& rank = ranks[static_cast<std::size_t>(r)];
          well = well && rank.peak_in_flight == expected.peak;
          well = well && rank.peak_until_input_gradient == expected.peak_until_input_gradient;
          most = std::max(most, expected.peak);
          most_until = std::max(most_until, expected.peak_until_input_gradient);
        }
        well = well && proof.peak_in_flight == most && proof.peak_until_input_gradient == most_until;
        const double b = bubble(p, m, cost);
        const double s = stall(p, m, cost);
        well = well && (std::isnan(b) || proof.bubble == b) && (std::isnan(s) || proof.stall == s);
        if (!well)
          FAIL(Policy::name << " p " << p << " m " << m << " F " << cost.forward << " I "
                            << cost.input_gradient << " W " << cost.weight_gradient << ": holds "
                            << proof.holds() << ", peak " << proof.peak_in_flight << " of " << most
                            << ", peak until I " << proof.peak_until_input_gradient << " of " << most_until
                            << ", bubble " << proof.bubble << " of " << b << ", stall " << proof.stall
                            << " of " << s);
        ++proven;
      }
  CHECK(proven >= 192);
}

double backward(const PassCosts& cost) { return cost.input_gradient + cost.weight_gradient; }
double pair_of(const PassCosts& cost) {
  return cost.overlapped > 0 ? cost.overlapped : cost.forward + backward(cost);
}
double not_claimed(int, int, const PassCosts&) { return std::nan(""); }

} // namespace

TEST_CASE("the example of the design", "[proof]") {
  using Pipeline = PipelineSchedule<OneFOneB>;
  STATIC_REQUIRE(Pipeline::prove(4, 8).deadlock_free);
  STATIC_REQUIRE(Pipeline::prove(4, 8).peak_in_flight == 4);
  STATIC_REQUIRE(Pipeline::prove(4, 8).makespan == 8 * 3 + 3 * 3);
}

TEST_CASE("GPipe keeps m, with a bubble of (p-1)(F+B)", "[proof]") {
  const auto bubble = [](int p, int, const PassCosts& c) { return (p - 1) * (c.forward + backward(c)); };
  check<GPipe>(
      all_costs,
      [](int, int m, int) {
        return Expected{m, m};
      },
      bubble, bubble);
}

TEST_CASE("1F1B keeps min(p-r, m), with a bubble of (p-1)(F+B)", "[proof]") {
  const auto bubble = [](int p, int, const PassCosts& c) { return (p - 1) * (c.forward + backward(c)); };
  const auto peak = [](int p, int m, int r) { return Expected{std::min(p - r, m), std::min(p - r, m)}; };
  check<OneFOneB>(all_costs, peak, bubble, bubble);
}

template <int chunks> void check_interleaved() {
  // The costs are those of a chunk: the (p-1)(F+B)/v of a whole rank is (p-1)(F+B) here. With m < p a rank
  // waits at each of its v - 1 further chunks for the p - m ranks that have no microbatch.
  const auto bubble = [](int p, int m, const PassCosts& c) {
    return (p - 1 + (chunks - 1) * std::max(0, p - m)) * (c.forward + backward(c));
  };
  const auto peak = [](int p, int m, int r) {
    const int g = m / std::max(1, m / p);
    const int kept = std::min(2 * (p - r - 1) + (chunks - 1) * g + 1, m * chunks);
    return Expected{kept, kept};
  };
  check<Interleaved<chunks>>(all_costs, peak, bubble, not_claimed);
}

TEST_CASE("interleaved 1F1B keeps w+1 chunks, with a bubble of (p-1)(F+B)/v", "[proof]") {
  check_interleaved<1>();
  check_interleaved<2>();
  check_interleaved<3>();
  check_interleaved<4>();
}

template <int chunks> void check_interleaved_zb() {
  // (p-1)(F+I-W) of a chunk, as in ZB-H1. With m < p a rank waits at each of its v - 1 further chunks, and
  // runs the W's of the last one meanwhile.
  const auto bubble = [](int p, int m, const PassCosts& c) {
    const double short_of_ranks = std::max(0, p - m), w = c.weight_gradient;
    if (m < p && w > std::min(c.forward, c.input_gradient))
      return std::nan("");
    return (p - 1 + (chunks - 1) * short_of_ranks) * (c.forward + c.input_gradient) -
           (std::min(p, m) - 1) * std::min({w, c.forward, c.input_gradient}) -
           (chunks - 1) * std::min(m * w, short_of_ranks * c.input_gradient);
  };
  const auto peak = [](int p, int m, int r) {
    const int ahead = (chunks - 1) * (m / std::max(1, m / p));
    return Expected{std::min(ahead + p, m * chunks), std::min(ahead + p - r, m * chunks)};
  };
  check<InterleavedZB<chunks>>(all_costs, peak, bubble, not_claimed);
}

TEST_CASE("the interleaved zero bubble keeps (v-1)g+p chunks, with a bubble of (p-1)(F+I-W)/v", "[proof]") {
  check_interleaved_zb<2>();
  check_interleaved_zb<3>();
  check_interleaved_zb<4>();
  STATIC_REQUIRE(PipelineSchedule<InterleavedZB<2>>::prove(8, 8).makespan == 55);
  STATIC_REQUIRE(PipelineSchedule<ZBV>::prove(8, 8).makespan == 62);
}

TEST_CASE("below 2p-1 microbatches ZB-H2 takes no less time than ZB-H1 if F = I = W", "[proof]") {
  STATIC_REQUIRE(PipelineSchedule<ZBH2>::prove(8, 8).makespan == 34);
  STATIC_REQUIRE(PipelineSchedule<ZBH1>::prove(8, 8).makespan == 31);
  for (int p = 2; p <= 12; ++p)
    for (int m = 1; m <= 2 * p - 1; ++m)
      REQUIRE(PipelineSchedule<ZBH2>::prove(p, m).makespan >= PipelineSchedule<ZBH1>::prove(p, m).makespan);
}

TEST_CASE("ZB-H1 keeps p until W and p-r until I, with a bubble of (p-1)(F+I-W)", "[proof]") {
  // (p-1)(F+I-W) holds for m >= p and W <= min(F, I): the last rank begins (p-1)F late, and the first waits
  // (p-1)I for its first gradient, however small W is. With fewer microbatches fewer W's fill the bubble.
  const auto bubble = [](int p, int m, const PassCosts& c) {
    return (p - 1) * (c.forward + c.input_gradient) -
           (std::min(p, m) - 1) * std::min({c.weight_gradient, c.forward, c.input_gradient});
  };
  const auto peak = [](int p, int m, int r) { return Expected{std::min(p, m), std::min(p - r, m)}; };
  check<ZBH1>(all_costs, peak, bubble, not_claimed);

  for (const PassCosts& c : all_costs)
    for (int p = 1; p <= 16; ++p)
      for (int m = p; m <= 64; ++m)
        if (c.weight_gradient <= std::min(c.forward, c.input_gradient))
          REQUIRE(bubble(p, m, c) == (p - 1) * (c.forward + c.input_gradient - c.weight_gradient));
}

TEST_CASE("ZB-H2 keeps 2p-1, and idles (p-1)(F+I-2W) inside the span of a rank", "[proof]") {
  // The bubble of the paper is that of a rank's own span, its stall here; of the makespan (p-1)F are left
  // because the last rank begins so late. Every second microbatch up to 2p-1 brings two W's into it.
  const auto filled = [](int p, int m, double two, double one) {
    const int more = std::min(m, 2 * p - 1) - 1;
    return more / 2 * two + more % 2 * one;
  };
  const auto bubble = [filled](int p, int m, const PassCosts& c) {
    const double two = std::min({2 * c.weight_gradient, c.input_gradient, 2 * c.forward});
    const double one = std::min({c.weight_gradient, c.input_gradient, c.forward});
    return (p - 1) * (c.forward + c.input_gradient) - filled(p, m, two, one);
  };
  const auto peak = [](int p, int m, int r) {
    return Expected{std::min(2 * p - 1, m), std::min(2 * (p - r) - 1, m)};
  };
  check<ZBH2>(all_costs, peak, bubble, not_claimed);

  int with_formula = 0;
  for (const PassCosts& c : all_costs)
    for (int p = 1; p <= 16; ++p)
      for (int m = 2 * p - 1; m <= 64; ++m) {
        const double F = c.forward;
        const double I = c.input_gradient;
        const double W = c.weight_gradient;
        const double stall = PipelineSchedule<ZBH2>::prove(p, m, c).stall;
        REQUIRE(stall == (p - 1) * std::max({F + I - 2 * W, I - F, 0.0}));
        if (W <= std::min(F, I)) {
          REQUIRE(stall == (p - 1) * (F + I - 2 * W));
          ++with_formula;
        }
      }
  CHECK(with_formula > 0);
}

TEST_CASE("ZB-V keeps 2p chunks, and no rank idles in its span if F = I = W", "[proof]") {
  // With fewer than 2p-1 microbatches, the path of one of them through the V takes longest.
  const auto peak = [](int p, int m, int r) {
    const int kept = std::min(m, 2 * p - r - 1) + std::min(m, r + 1);
    return Expected{kept, kept};
  };
  const auto bubble = [](int p, int m, const PassCosts& c) {
    return c.forward * std::max(p - 1, 2 * std::max(0, 2 * p - 1 - m));
  };
  const auto stall = [](int p, int m, const PassCosts&) { return m >= 2 * p - 1 ? 0 : std::nan(""); };
  check<ZBV>({{1, 1, 1}, {3, 3, 3}}, peak, bubble, stall);
  check<ZBV>(all_costs, peak, not_claimed, not_claimed);
  // Two ranks need no equal passes: there W's can fill the gaps by themselves.
  for (const PassCosts& c : all_costs)
    for (int p = 3; p <= 16; ++p)
      for (int m = 2 * p - 1; m <= 64; ++m)
        REQUIRE((PipelineSchedule<ZBV>::prove(p, m, c).stall == 0) ==
                (c.forward == c.input_gradient && c.forward == c.weight_gradient));
}

namespace {

/// The bubble of the eight steps for any costs; (n-1)(F&B + B - 3W) where F = I >= W.
double eight_steps_bubble(int n, const PassCosts& c) {
  const double F = c.forward;
  const double I = c.input_gradient;
  const double W = c.weight_gradient;
  return (n - 1) * (pair_of(c) + backward(c) - 3 * W + std::max(F - I, 0.0) + std::max(W - I, 0.0)) -
         std::min((n - 1) * std::max(I - F, 0.0), F);
}

const std::vector<PassCosts> pair_costs{
    {1, 1, 1, 0, 2}, {2, 2, 1, 0, 4}, {2, 2, 2, 0, 5}, {3, 3, 2, 0, 7}, {2, 2, 1}};

} // namespace

TEST_CASE("DualPipe keeps p+1, with a bubble of (p/2-1)(F&B + B - 3W)", "[proof]") {
  const auto peak = [](int p, int, int) { return Expected{p + 1, p + 1}; };
  const auto bubble = [](int p, int, const PassCosts& c) { return eight_steps_bubble(p / 2, c); };
  check<DualPipe>(all_costs, peak, bubble, not_claimed);
  check<DualPipe>(
      pair_costs, peak,
      [](int p, int, const PassCosts& c) {
        return (p / 2 - 1) * (pair_of(c) + backward(c) - 3 * c.weight_gradient);
      },
      not_claimed);
}

TEST_CASE("DualPipeV keeps 2p+1 chunks, with a bubble of (p-1)(F&B + B - 3W)", "[proof]") {
  // In the table p counts stages, as for DualPipe: the 2p stages here have (2p)+1 chunks and (2p)/2-1.
  const auto peak = [](int p, int, int) { return Expected{2 * p + 1, 2 * p + 1}; };
  const auto bubble = [](int p, int, const PassCosts& c) { return eight_steps_bubble(p, c); };
  check<DualPipeV>(all_costs, peak, bubble, not_claimed);
  check<DualPipeV>(
      pair_costs, peak,
      [](int p, int, const PassCosts& c) {
        return (p - 1) * (pair_of(c) + backward(c) - 3 * c.weight_gradient);
      },
      not_claimed);
}

namespace {

template <class Policy> void check_against_reference() {
  int compared = 0;
  for (int p = 1; p <= 5; ++p)
    for (const int m : {1, 2, 3, 5, 8, 12})
      for (const PassCosts& cost : {PassCosts{2, 3, 2, 0}, PassCosts{2, 3, 1, 2}, PassCosts{1, 1, 2, 5, 3}})
        for (const MessageWindow& window : {MessageWindow{2, 2}, MessageWindow{0, 1}, MessageWindow{5, 3}}) {
          if (!schedule_rule<Policy>(p, m).holds())
            continue;
          const Schedule schedule = make_schedule<Policy>(p, m);
          const schedule_test::ReferenceRun reference(schedule, cost, window);
          const Proof stored = prove(schedule, cost, window);
          const Proof generated = PipelineSchedule<Policy>::prove(p, m, cost, window);
          INFO(Policy::name << " p " << p << " m " << m << " window " << window.receive_ahead << ", "
                            << window.sends_in_flight);
          REQUIRE(stored.holds() == reference.ended);
          REQUIRE(generated.holds() == reference.ended);
          if (reference.ended) {
            REQUIRE(stored.makespan == reference.makespan);
            REQUIRE(generated.makespan == reference.makespan);
          }
          ++compared;
        }
  CHECK(compared > 100);
}

} // namespace

TEST_CASE("the proof agrees with a plain implementation of the message rules, including the costs of sends",
          "[proof]") {
  check_against_reference<GPipe>();
  check_against_reference<OneFOneB>();
  check_against_reference<Interleaved<2>>();
  check_against_reference<Interleaved<3>>();
  check_against_reference<InterleavedZB<2>>();
  check_against_reference<ZBH1>();
  check_against_reference<ZBH2>();
  check_against_reference<ZBV>();
  check_against_reference<DualPipeV>();
}

TEST_CASE("groups larger than the ranks need more sends in flight", "[proof]") {
  using Policy = Interleaved<2>;
  STATIC_REQUIRE(message_window<Policy>(7, 20).sends_in_flight == 3);
  const Proof narrow = PipelineSchedule<Policy>::prove(7, 20, {}, {2, 2});
  CHECK(narrow.complete);
  CHECK(narrow.ordered);
  CHECK(!narrow.deadlock_free);
  CHECK(narrow.failure.fault == ScheduleFault::deadlock);
  CHECK(PipelineSchedule<Policy>::prove(7, 20).holds());
}

template <int group, int chunks> void check_groups() {
  using Policy = Interleaved<chunks, group>;
  for (int p = 1; p <= 16; ++p)
    for (int m = 1; m <= 64; ++m) {
      if (!schedule_rule<Policy>(p, m).holds())
        continue;
      const Proof proof = PipelineSchedule<Policy>::prove(p, m);
      INFO("chunks " << chunks << " group " << group << " p " << p << " m " << m);
      REQUIRE(proof.holds());
      REQUIRE(proof.bubble == (p - 1 + (chunks - 1) * std::max(0, p - m)) * 3);
    }
}

TEST_CASE("interleaved groups may have any size of at least the number of ranks", "[proof]") {
  check_groups<1, 2>();
  check_groups<3, 2>();
  check_groups<4, 3>();
  check_groups<7, 2>();
  check_groups<16, 4>();
}

TEST_CASE("a pipeline of one rank has no bubble and sends nothing", "[proof]") {
  STATIC_REQUIRE(PipelineSchedule<ZBV>::prove(1, 5, {1, 1, 1, 100}).bubble == 0);
  STATIC_REQUIRE(PipelineSchedule<Interleaved<3>>::prove(1, 5, {1, 1, 1, 100}).makespan == 45);
}

TEST_CASE("a send takes its time in transit", "[proof]") {
  STATIC_REQUIRE(PipelineSchedule<GPipe>::prove(4, 1, {1, 1, 1, 10}).makespan == 4 * 3 + 6 * 10);
}

TEST_CASE("a thousand ranks are proven in the same way as four", "[proof]") {
  const Proof proof = PipelineSchedule<OneFOneB>::prove(1024, 1536);
  CHECK(proof.holds());
  CHECK(proof.peak_in_flight == 1024);
  CHECK(proof.bubble == 1023 * 3);
}
