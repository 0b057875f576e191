// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/train/gradient/gather_window.hpp>

#include <cstddef>
#include <vector>

using shardwright::Pass;
using shardwright::detail::GatherWindow;
using Units = std::vector<std::size_t>;

namespace {

/// The gathers that a window starts, and those that it releases.
struct Trace {
  GatherWindow window;
  Units started{}, released{};

  void go(std::size_t unit, bool backward = false) {
    started.clear();
    released.clear();
    window.advance(
        unit, backward, [this](std::size_t each) { started.push_back(each); },
        [this](std::size_t each) { released.push_back(each); });
  }
};

} // namespace

TEST_CASE("a window starts two units ahead, also across the end of a pass", "[train]") {
  Trace on{GatherWindow(4, 1)};
  on.window.expect_pass(Pass::backward);
  on.go(0);
  CHECK(on.started == Units{0, 1, 2});
  on.go(1);
  CHECK(on.started == Units{3});
  // The last unit of the forward pass is the first of the backward pass, so the window looks one beyond it.
  on.go(2);
  CHECK(on.started == Units{3, 2});
  on.go(3);
  CHECK(on.started.empty());
  on.window.expect_pass(Pass::weight_gradient);
  on.go(3, true);
  CHECK(on.started == Units{1});
  on.go(2, true);
  CHECK(on.started.empty());
  CHECK(on.released.empty());
}

TEST_CASE("a window releases what it started in vain, and an empty one starts nothing of the next pass",
          "[train]") {
  Trace on{GatherWindow(4, 0)};
  on.go(0);
  on.go(3);
  CHECK(on.released == Units{1, 2});
  CHECK(on.started == Units{3});
  Trace empty{};
  empty.window.expect_pass(Pass::forward);
  empty.go(0);
  CHECK(empty.started == Units{0});
}
