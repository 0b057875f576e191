// SPDX-License-Identifier: Apache-2.0

#include "support/catch.hpp"

#include <shardwright/schedule/policies/dual_pipe.hpp>
#include <shardwright/schedule/policies/dual_pipe_v.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/interleaved.hpp>
#include <shardwright/schedule/policies/interleaved_zb.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/policies/zb_h1.hpp>
#include <shardwright/schedule/policies/zb_h2.hpp>
#include <shardwright/schedule/policies/zb_v.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/text/csv.hpp>
#include <shardwright/schedule/text/csv_text.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

using namespace shardwright;

namespace {

/// An order as the papers describe it: counters and loops.
struct Order {
  std::vector<Step> steps;

  void add(Pass pass, int stage, int microbatch) { steps.push_back({{pass, stage, microbatch}, {}, false}); }
};

template <class Policy, class Told> void check_orders(const Told& told) {
  int checked = 0;
  for (int p = 1; p <= 16; ++p)
    for (int m = 1; m <= 64; ++m) {
      if (!schedule_rule<Policy>(p, m).holds())
        continue;
      const Schedule schedule = make_schedule<Policy>(p, m);
      for (int r = 0; r < p; ++r) {
        const auto steps = schedule.steps(r);
        const Order order = told(p, m, r);
        if (!std::equal(steps.begin(), steps.end(), order.steps.begin(), order.steps.end())) {
          std::string is;
          std::string wanted;
          for (const Step& step : steps)
            is += text_of(step) + " ";
          for (const Step& step : order.steps)
            wanted += text_of(step) + " ";
          FAIL("p " << p << " m " << m << " rank " << r << "\n is     " << is << "\n wanted " << wanted);
        }
        ++checked;
      }
    }
  CHECK(checked > 0);
}

/// w forwards, then (F, B) until no F is left, then B; every W follows `lag` I's later if B is split.
Order one_forward_one_backward(int m, int r, int w) {
  Order order;
  int f = 0;
  int b = 0;
  for (; f < std::min(w, m); ++f)
    order.add(Pass::forward, r, f);
  while (f < m) {
    order.add(Pass::forward, r, f++);
    order.add(Pass::backward, r, b++);
  }
  while (b < m)
    order.add(Pass::backward, r, b++);
  return order;
}

Order zero_bubble(int m, int r, int warm_up, int lag) {
  Order order;
  int f = 0;
  int w = 0;
  for (; f < std::min(warm_up, m); ++f)
    order.add(Pass::forward, r, f);
  for (int i = 0; i < m; ++i) {
    order.add(Pass::input_gradient, r, i);
    if (i - lag >= w)
      order.add(Pass::weight_gradient, r, w++);
    if (f < m)
      order.add(Pass::forward, r, f++);
  }
  while (w < m)
    order.add(Pass::weight_gradient, r, w++);
  return order;
}

Order interleaved(int p, int m, int r, int v) {
  const int g = m / std::max(1, m / p);
  const int w = std::min(2 * (p - r - 1) + (v - 1) * g, m * v);
  Order order;
  const auto add = [&](Pass pass, int k) {
    const int turn = (k / g) % v;
    const int chunk = pass == Pass::forward ? turn : v - 1 - turn;
    order.add(pass, chunk * p + r, k / (g * v) * g + k % g);
  };
  int f = 0;
  int b = 0;
  while (f < w)
    add(Pass::forward, f++);
  while (f < m * v) {
    add(Pass::forward, f++);
    add(Pass::backward, b++);
  }
  while (b < m * v)
    add(Pass::backward, b++);
  return order;
}

/// Interleaved 1F1B with half as many forwards in advance, I for B, and every W r I's later.
Order interleaved_zero_bubble(int p, int m, int r, int v) {
  const int g = m / std::max(1, m / p);
  const int warm_up = std::min(p - r - 1 + (v - 1) * g, m * v);
  Order order;
  const auto add = [&](Pass pass, int k) {
    const int turn = (k / g) % v;
    const int chunk = pass == Pass::forward ? turn : v - 1 - turn;
    order.add(pass, chunk * p + r, k / (g * v) * g + k % g);
  };
  int f = 0;
  int w = 0;
  while (f < warm_up)
    add(Pass::forward, f++);
  for (int i = 0; i < m * v; ++i) {
    if (f < m * v)
      add(Pass::forward, f++);
    add(Pass::input_gradient, i);
    if (i >= r)
      add(Pass::weight_gradient, w++);
  }
  while (w < m * v)
    add(Pass::weight_gradient, w++);
  return order;
}

/// Building blocks in step for at least 2p - 1 microbatches; passes of microbatches that do not exist are
/// left out at the end.
Order v_zero_bubble(int p, int microbatches, int r) {
  const int m = std::max(microbatches, 2 * p - 1);
  const std::array<int, 2> stage{r, 2 * p - 1 - r};
  std::array<int, 2> f{};
  std::array<int, 2> i{};
  std::array<int, 2> w{};
  Order all;
  const auto forward = [&](std::size_t c) { all.add(Pass::forward, stage[c], f[c]++); };
  const auto input = [&](std::size_t c) { all.add(Pass::input_gradient, stage[c], i[c]++); };
  const auto weight = [&](std::size_t c) { all.add(Pass::weight_gradient, stage[c], w[c]++); };
  while (f[0] < 2 * (p - r) - 1)
    forward(0);
  for (int k = 0; k < r; ++k) {
    forward(1);
    forward(0);
  }
  while (f[1] < p) {
    forward(1);
    input(1);
    weight(1);
  }
  while (f[1] < f[0] || f[0] < m) {
    if (f[0] < m)
      forward(0);
    input(0);
    weight(0);
    forward(1);
    input(1);
    weight(1);
  }
  for (int k = 0; k < r; ++k) {
    input(0);
    input(1);
  }
  while (i[0] < m) {
    input(0);
    weight(0);
  }
  while (w[1] < m)
    weight(1);
  while (w[0] < m)
    weight(0);
  Order order;
  for (const Step& step : all.steps)
    if (step.first.microbatch < microbatches)
      order.steps.push_back(step);
  return order;
}

/// The eight steps, with h and n of a rank, and the stage and the first microbatch of its two chunks.
Order eight_steps(int m, int n, int h, std::array<int, 2> stage, std::array<int, 2> first) {
  Order order;
  std::array<int, 2> f{};
  std::array<int, 2> b{};
  std::deque<Action> queue; // I's that wait for their W
  const auto next_f = [&](std::size_t c) { return Action{Pass::forward, stage[c], first[c] + f[c]++}; };
  const auto next_b = [&](std::size_t c) { return Action{Pass::backward, stage[c], first[c] + b[c]++}; };
  const auto forward = [&](std::size_t c) { order.steps.push_back({next_f(c), {}, false}); };
  const auto backward = [&](std::size_t c) { order.steps.push_back({next_b(c), {}, false}); };
  const auto pair = [&](std::size_t forwards, std::size_t backwards) {
    const Action one = next_f(forwards);
    order.steps.push_back({one, next_b(backwards), true});
  };
  const auto input = [&](std::size_t c) {
    const Action action = next_b(c);
    order.add(Pass::input_gradient, action.stage, action.microbatch);
    queue.push_back({Pass::weight_gradient, action.stage, action.microbatch});
  };
  const auto weight = [&] {
    order.steps.push_back({queue.front(), {}, false});
    queue.pop_front();
  };
  for (int k = 0; k < 2 * (n - h - 1); ++k)
    forward(0);
  for (int k = 0; k < h + 1; ++k) {
    forward(0);
    forward(1);
  }
  for (int k = 0; k < n - h - 1; ++k) {
    input(1);
    weight();
    forward(1);
  }
  for (int k = 0; k < m - 2 * n + h + 1; ++k) {
    if (k == 0 && h == n - 1) {
      forward(0);
      backward(1);
    } else {
      pair(0, 1);
    }
    pair(1, 0);
  }
  for (int k = 0; k < n - h - 1; ++k) {
    backward(1);
    pair(1, 0);
  }
  bool apart = false;
  for (int k = 0; k < h + 1; ++k) {
    apart = apart || (k == (h + 1) / 2 && h % 2 == 1);
    apart ? input(1) : backward(1);
    apart = apart || (k == (h + 1) / 2 && h % 2 == 0);
    apart ? input(0) : backward(0);
  }
  for (int k = 0; k < n - h - 1; ++k) {
    weight();
    input(0);
  }
  for (int k = 0; k < h + 1; ++k)
    weight();
  CHECK(queue.empty());
  CHECK((f[0] == m && f[1] == m && b[0] == m && b[1] == m));
  return order;
}

} // namespace

TEST_CASE("GPipe runs all forwards, then all backwards", "[policies]") {
  check_orders<GPipe>([](int, int m, int r) {
    Order order;
    for (int i = 0; i < m; ++i)
      order.add(Pass::forward, r, i);
    for (int i = 0; i < m; ++i)
      order.add(Pass::backward, r, i);
    return order;
  });
}

TEST_CASE("1F1B warms up with p-r-1 forwards", "[policies]") {
  check_orders<OneFOneB>([](int p, int m, int r) { return one_forward_one_backward(m, r, p - r - 1); });
}

TEST_CASE("ZB-H1 is 1F1B with I for B and W r I's later", "[policies]") {
  check_orders<ZBH1>([](int p, int m, int r) { return zero_bubble(m, r, p - r, r); });
  for (int p = 1; p <= 16; ++p)
    for (int m = 1; m <= 64; ++m) {
      const Schedule lagging = make_schedule<ZBH1>(p, m);
      const Schedule plain = make_schedule<OneFOneB>(p, m);
      for (int r = 0; r < p; ++r) {
        std::vector<Step> without;
        for (Step step : lagging.steps(r))
          if (step.first.pass != Pass::weight_gradient) {
            step.first.pass = step.first.pass == Pass::forward ? Pass::forward : Pass::backward;
            without.push_back(step);
          }
        REQUIRE(std::equal(without.begin(), without.end(), plain.steps(r).begin(), plain.steps(r).end()));
      }
    }
}

TEST_CASE("ZB-H2 warms up with 2(p-r)-1 forwards, and W lags by 2r", "[policies]") {
  check_orders<ZBH2>([](int p, int m, int r) { return zero_bubble(m, r, 2 * (p - r) - 1, 2 * r); });
}

TEST_CASE("interleaved 1F1B takes its chunks in turn", "[policies]") {
  check_orders<Interleaved<1>>([](int p, int m, int r) { return interleaved(p, m, r, 1); });
  check_orders<Interleaved<2>>([](int p, int m, int r) { return interleaved(p, m, r, 2); });
  check_orders<Interleaved<3>>([](int p, int m, int r) { return interleaved(p, m, r, 3); });
  check_orders<Interleaved<4>>([](int p, int m, int r) { return interleaved(p, m, r, 4); });
}

TEST_CASE("the interleaved zero bubble is interleaved 1F1B with fewer forwards ahead and W's that lag",
          "[policies]") {
  check_orders<InterleavedZB<2>>([](int p, int m, int r) { return interleaved_zero_bubble(p, m, r, 2); });
  check_orders<InterleavedZB<3>>([](int p, int m, int r) { return interleaved_zero_bubble(p, m, r, 3); });
  check_orders<InterleavedZB<4>>([](int p, int m, int r) { return interleaved_zero_bubble(p, m, r, 4); });
}

TEST_CASE("the interleaved zero bubble has the cells of PyTorch", "[policies]") {
  // Dumped by ScheduleInterleavedZeroBubble of torch 2.15.0, whose 489 orders of up to 8 ranks, 2 to 4 chunks
  // and 32 microbatches were compared in the same way.
  CHECK(to_csv(make_schedule<InterleavedZB<2>>(2, 4)) ==
        "0F0,0F1,2F0,2F1,2I0,2W0,0F2,2I1,2W1,0F3,0I0,0W0,2F2,0I1,0W1,2F3,2I2,2W2,2I3,2W3,0I2,0W2,0I3,0W3\n"
        "1F0,1F1,3F0,3I0,3F1,3I1,3W0,1F2,1I0,3W1,1F3,1I1,1W0,3F2,3I2,1W1,3F3,3I3,3W2,1I2,3W3,1I3,1W2,1W3\n");
  CHECK(to_csv(make_schedule<InterleavedZB<2>>(3, 4)) ==
        "0F0,0F1,0F2,0F3,3F0,3F1,3F2,3I0,3W0,3F3,3I1,3W1,3I2,3W2,3I3,3W3,0I0,0W0,0I1,0W1,0I2,0W2,0I3,0W3\n"
        "1F0,1F1,1F2,1F3,4F0,4F1,4I0,4F2,4I1,4W0,4F3,4I2,4W1,4I3,4W2,1I0,4W3,1I1,1W0,1I2,1W1,1I3,1W2,1W3\n"
        "2F0,2F1,2F2,2F3,5F0,5I0,5F1,5I1,5F2,5I2,5W0,5F3,5I3,5W1,2I0,5W2,2I1,5W3,2I2,2W0,2I3,2W1,2W2,2W3\n");
  CHECK(to_csv(make_schedule<InterleavedZB<3>>(4, 2)) ==
        "0F0,0F1,4F0,4F1,8F0,8F1,8I0,8W0,8I1,8W1,4I0,4W0,4I1,4W1,0I0,0W0,0I1,0W1\n"
        "1F0,1F1,5F0,5F1,9F0,9F1,9I0,9I1,9W0,5I0,9W1,5I1,5W0,1I0,5W1,1I1,1W0,1W1\n"
        "2F0,2F1,6F0,6F1,10F0,10F1,10I0,10I1,6I0,10W0,6I1,10W1,2I0,6W0,2I1,6W1,2W0,2W1\n"
        "3F0,3F1,7F0,7F1,11F0,11I0,11F1,11I1,7I0,7I1,11W0,3I0,11W1,3I1,7W0,7W1,3W0,3W1\n");
}

TEST_CASE("ZB-V runs building blocks in step", "[policies]") {
  check_orders<ZBV>([](int p, int m, int r) { return v_zero_bubble(p, m, r); });
}

TEST_CASE("DualPipe runs the eight steps in both directions", "[policies]") {
  check_orders<DualPipe>([](int p, int m, int r) {
    const int h = std::min(r, p - 1 - r);
    const bool far = r >= p / 2;
    return eight_steps(m / 2, p / 2, h, {h, p - 1 - h}, {far ? m / 2 : 0, far ? 0 : m / 2});
  });
}

TEST_CASE("DualPipeV runs the eight steps over a V", "[policies]") {
  check_orders<DualPipeV>([](int p, int m, int r) {
    return eight_steps(m, p, r, {r, 2 * p - 1 - r}, {0, 0});
  });
}
