// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Finds the window that a schedule from elsewhere needs.

#include <shardwright/core/config.hpp>
#include <shardwright/schedule/action.hpp>
#include <shardwright/schedule/pass_costs.hpp>
#include <shardwright/schedule/proof.hpp>
#include <shardwright/schedule/simulation.hpp>

#include <algorithm>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// The makespan of a source of orders in a window, F = I = W = 1; negative if it does not end.
struct InWindow {
  double makespan = -1;
  bool was_full = false; ///< Whether more sends in flight could change that.

  template <class Source> constexpr InWindow(const Source& source, const MessageWindow& window) {
    Simulation<Source> simulation(source, {}, window);
    simulation.run([](int, const Step&, double, double) {});
    was_full = simulation.window_was_full() && simulation.failure().fault == ScheduleFault::none;
    if (simulation.failure().fault == ScheduleFault::none && simulation.left() == 0)
      for (int rank = 0; rank < source.placement().ranks; ++rank)
        makespan = std::max(makespan, simulation.proof_of(rank).end);
  }
};

} // namespace detail

/// @brief The window with the fewest sends in flight, but no fewer than usual, in which a source of orders
/// ends as soon as with any larger number; the usual window if it never ends.
///
/// @param source a Schedule, PolicyOrders, or any other with placement(), microbatches() and cursor(rank)
/// Cost: one simulation if the usual window does, else one for each doubling and halving up to the number of
/// sends. F = I = W = 1, and sends are instant.
template <class Source> [[nodiscard]] constexpr MessageWindow smallest_window(const Source& source) {
  MessageWindow window{};
  detail::InWindow best(source, window);
  int below = window.sends_in_flight - 1; // too few
  while (best.was_full) {
    window.sends_in_flight *= 2;
    best = detail::InWindow(source, window);
  }
  if (best.makespan < 0)
    return {};
  for (int enough = window.sends_in_flight; enough - below > 1; window.sends_in_flight = enough) {
    const int middle = below + (enough - below) / 2;
    const bool as_soon = detail::InWindow(source, {window.receive_ahead, middle}).makespan == best.makespan;
    (as_soon ? enough : below) = middle;
  }
  return window;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
