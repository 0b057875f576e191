// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Layouts and transitions in words, and the table of all transitions over one axis.

#include <shardwright/core/config.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/transition.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Text that the compiler can generate: into a string, a character count, or an array of that size.
struct TextLength {
  std::size_t letters = 0;
  constexpr TextLength& operator+=(std::string_view text) {
    letters += text.size();
    return *this;
  }
};
template <std::size_t capacity> struct FixedText {
  std::array<char, capacity> letters{};
  std::size_t length = 0;
  constexpr FixedText& operator+=(std::string_view text) {
    for (const char letter : text)
      letters[length++] = letter;
    return *this;
  }
};

/// @param number at least 0
template <class Text> constexpr void write_number(Text& out, int number) {
  constexpr std::string_view digits = "0123456789";
  if (number >= 10)
    write_number(out, number / 10);
  out += digits.substr(static_cast<std::size_t>(number % 10), 1);
}
template <class Text>
constexpr void write_axes(Text& out, const AxisSequence& sequence, std::span<const std::string_view> axes) {
  std::string_view separator;
  for (const int axis : sequence) {
    out += separator;
    out += axes[static_cast<std::size_t>(axis)];
    separator = ", ";
  }
}
template <class Text>
constexpr void write_layout(Text& out, const LayoutValue& layout, std::span<const std::string_view> axes) {
  constexpr std::array<std::string_view, 6> tags{"Sum", "Avg", "Product", "Max", "Min", "OrderedSum"};
  out += "Layout<";
  write_number(out, layout.tensor_rank);
  const PlacementEntries entries = placements_of(layout);
  for (int i = 0; i < entries.count; ++i) {
    const PlacementEntry& entry = entries.items[static_cast<std::size_t>(i)];
    if (entry.partial) {
      out += ", Partial<";
      out += tags[static_cast<std::size_t>(entry.op)];
    } else {
      out += ", Shard<";
      write_number(out, entry.dimension);
    }
    out += ", ";
    write_axes(out, entry.axes, axes);
    if (!entry.halo.empty()) {
      out += entry.halo.periodic() ? ", PeriodicHalo<" : ", Halo<";
      write_number(out, entry.halo.before());
      out += ", ";
      write_number(out, entry.halo.after());
      out += ">";
    }
    out += ">";
  }
  out += ">";
}

/// A layout type as it is written in code, generated at compile time: the program contains only the
/// characters.
template <LayoutType L> struct LayoutText {
  static constexpr std::size_t length = [] {
    TextLength out;
    write_layout(out, L::value, L::axes);
    return out.letters;
  }();
  static constexpr FixedText<length> text = [] {
    FixedText<length> out;
    write_layout(out, L::value, L::axes);
    return out;
  }();
  static constexpr std::string_view value{text.letters.data(), length};
};

} // namespace detail

/// @brief A list of axes, such as "dp, cp".
[[nodiscard]] std::string describe(const AxisSequence& sequence, std::span<const std::string_view> axes);

/// @brief A layout as it is written in code: "Layout<2, Shard<0, dp>, Partial<Sum, tp>>".
/// @param axes names of the table that the layout refers to.
[[nodiscard]] std::string describe(const LayoutValue& layout, std::span<const std::string_view> axes);

/// @brief A step in words: "reduce_scatter of the sum over tp, onto dimension 0".
[[nodiscard]] std::string describe(const TransitionMove& move, std::span<const std::string_view> axes);

/// @brief The steps of a plan, joined by "; then "; "nothing to do" if there are none.
[[nodiscard]] std::string describe(std::span<const TransitionMove> moves,
                                   std::span<const std::string_view> axes);

/// @brief A layout type in words.
template <LayoutType Described> [[nodiscard]] std::string describe() {
  return std::string(detail::LayoutText<Described>::value);
}

/// @brief A transition in words: "Layout<...> -> Layout<...>: all_reduce of the sum over tp".
template <class Described>
requires requires { Described::steps; }
[[nodiscard]] std::string describe() {
  const std::vector<TransitionMove> moves(Described::steps.begin(), Described::steps.end());
  return describe(Described::from_value, Described::axes) + " -> " +
         describe(Described::to_value, Described::axes) + ": " +
         describe(std::span<const TransitionMove>(moves), Described::axes);
}

/// @brief The reason for a fault in a few words, for the table.
[[nodiscard]] constexpr std::string_view describe(TransitionFault fault) noexcept {
  switch (fault) {
  case TransitionFault::none:
    return "legal";
  case TransitionFault::shard_to_partial:
    return "error: Shard cannot become Partial";
  case TransitionFault::partial_to_other_partial:
    return "error: Partial of another operation";
  case TransitionFault::replicate_to_partial:
    return "error: a complete value cannot become Partial";
  }
  return {};
}

/// @brief The table of all transitions over one axis for a tensor of rank 2, in Markdown: one row per source
/// layout, one column per target layout, each cell the result of `plan_transition`.
[[nodiscard]] std::string transition_table(std::string_view axis = "tp");

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE std::string describe(const AxisSequence& sequence,
                                        std::span<const std::string_view> axes) {
  std::string out;
  detail::write_axes(out, sequence, axes);
  return out;
}

SHARDWRIGHT_INLINE std::string describe(const LayoutValue& layout, std::span<const std::string_view> axes) {
  std::string out;
  detail::write_layout(out, layout, axes);
  return out;
}

SHARDWRIGHT_INLINE std::string describe(const TransitionMove& move, std::span<const std::string_view> axes) {
  const std::string over = " over " + describe(move.axes, axes);
  const std::string dimension = std::to_string(move.dimension);
  const std::string reduction = " of the " + std::string(name_of(move.op));
  switch (move.kind) {
  case StepKind::slice:
    return "slice of dimension " + dimension + over;
  case StepKind::keep_on_first:
    return "keep on the first rank" + over + ", zero elsewhere";
  case StepKind::all_gather:
    return "all_gather of dimension " + dimension + over;
  case StepKind::all_to_all:
    return "all_to_all from dimension " + std::to_string(move.from_dimension) + " to dimension " + dimension +
           over;
  case StepKind::reduce_scatter:
    return "reduce_scatter" + reduction + over + ", onto dimension " + dimension;
  case StepKind::all_reduce:
    return "all_reduce" + reduction + over;
  case StepKind::drop_halos:
    return "drop of the halos" + over;
  case StepKind::exchange_halos:
    return "exchange of halos" + over;
  }
  return {};
}

SHARDWRIGHT_INLINE std::string describe(std::span<const TransitionMove> moves,
                                        std::span<const std::string_view> axes) {
  std::string out;
  for (const TransitionMove& move : moves)
    out += (out.empty() ? "" : "; then ") + describe(move, axes);
  return out.empty() ? "nothing to do" : out;
}

SHARDWRIGHT_INLINE std::string transition_table(std::string_view axis) {
  const std::array<std::string_view, 1> axes{axis};
  LayoutValue replicated;
  replicated.tensor_rank = 2;
  std::vector<LayoutValue> layouts(5, replicated);
  layouts[1].shard(0).push_back(0);
  layouts[2].shard(1).push_back(0);
  layouts[3].set_partial(0, ReduceOp::sum);
  layouts[4].set_partial(0, ReduceOp::maximum);

  std::string out = "| from \\ to |";
  for (const LayoutValue& to : layouts)
    out += " `" + describe(to, axes) + "` |";
  out += "\n|";
  for (std::size_t column = 0; column <= layouts.size(); ++column)
    out += "---|";
  for (const LayoutValue& from : layouts) {
    out += "\n| `" + describe(from, axes) + "` |";
    for (const LayoutValue& to : layouts) {
      const TransitionFault fault = transition_fault(from, to, 0, false);
      if (fault != TransitionFault::none) {
        out += " " + std::string(describe(fault)) + " |";
        continue;
      }
      const TransitionPlan plan = plan_transition(from, to);
      // Appended in pieces: g++ 12 warns of " " + a text that it has inlined (-Wrestrict, falsely).
      out.append(" ")
          .append(describe(std::span<const TransitionMove>(plan.begin(), plan.end()), axes))
          .append(" |");
    }
  }
  return out + "\n";
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
