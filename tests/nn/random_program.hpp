// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Random models as lists of steps, drawn from a seed: what is computed from what, read and kept in
/// which layouts, with which of the model's parts.

#include <shardwright/plan/spec/recompute.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace random_models {

namespace sw = shardwright;

/// @brief The steps of a model. Those before `embed` read one value, `add` to `multiply` two.
enum class Piece : std::uint8_t {
  mlp,
  attention,
  layer_norm,
  rms_norm,
  positions,
  square,
  dropout,
  activate,
  softmax,
  frozen_matrix,
  frozen_gain,
  merge,
  heads,
  region, ///< recomputes its inner steps
  add,
  subtract,
  multiply,
  embed, ///< of the batch's ids
  input, ///< of the batch's numbers, without a gradient
  loss_stream,
  loss_scores,
  loss_split,
  loss_width,
  loss_pooled,
};
inline constexpr std::array<std::string_view, 24> piece_names{
    "mlp",     "attention",   "layer_norm",  "rms_norm",      "positions",   "square",
    "dropout", "activate",    "softmax",     "frozen_matrix", "frozen_gain", "merge",
    "heads",   "region",      "add",         "subtract",      "multiply",    "embed",
    "input",   "loss_stream", "loss_scores", "loss_split",    "loss_width",  "loss_pooled"};

/// @brief The layouts in which values are kept, and some of those in which they are read.
enum Kept : int { stream, split, width, kept_layouts };
inline constexpr std::array<std::string_view, kept_layouts> kept_names{"stream", "split", "width"};

/// @brief Kinds of parts of a model; each step of such a kind names one of them.
enum class Part : std::uint8_t {
  table,
  mlp,
  attention,
  layer_norm,
  rms_norm,
  stream_positions,
  split_positions,
  width_positions,
  square,
  dropout,
  none
};
inline constexpr std::size_t part_kinds = static_cast<std::size_t>(Part::none);

/// @brief One step. Values are numbered as on a stack: a step puts its result on top, and a region leaves
/// one.
struct Step {
  Piece piece{};
  int x = -1, y = -1;                  ///< Values that are read.
  bool x_last = false, y_last = false; ///< Nothing reads them later.
  int read = 0;                        ///< Layout in which a piece with a choice reads.
  int keep = 0;                        ///< Layout in which the result is kept.
  int part = 0;                        ///< Number of the part, among those of its kind.
  int mask = -1;                       ///< Of the dropout in a piece that may have one; -1 for none.
  sw::Recompute how = sw::Recompute::none;
  std::vector<Step> inner; ///< Of a region; `x` is their first value.

  [[nodiscard]] bool is_loss() const noexcept { return piece >= Piece::loss_stream; }
  [[nodiscard]] Part kind() const noexcept {
    switch (piece) {
    case Piece::embed:
    case Piece::loss_scores:
      return Part::table;
    case Piece::mlp:
      return Part::mlp;
    case Piece::attention:
      return Part::attention;
    case Piece::layer_norm:
      return Part::layer_norm;
    case Piece::rms_norm:
      return Part::rms_norm;
    case Piece::positions:
      return static_cast<Part>(static_cast<int>(Part::stream_positions) + read);
    case Piece::square:
      return Part::square;
    case Piece::dropout:
      return Part::dropout;
    default:
      return Part::none;
    }
  }
};

/// @brief A mesh, sizes and a model, all drawn from one seed.
struct Case {
  std::uint64_t seed = 0;
  int dp = 1, cp = 1, tp = 1;
  std::int64_t microbatches = 1, rows = 2; ///< Sequences of a microbatch.
  std::int64_t sequence = 4, width = 4, hidden = 5, vocabulary = 7, heads = 1;
  double rate = 0.3;
  bool folded = false; ///< Whether sequences are in ZigZagOrder.
  std::vector<Step> steps;
  std::array<int, part_kinds> parts{}; ///< Number of parts of each kind.

  [[nodiscard]] int ranks() const noexcept { return dp * cp * tp; }
  [[nodiscard]] std::int64_t sequences() const noexcept { return microbatches * rows; }
  [[nodiscard]] std::size_t losses() const {
    return static_cast<std::size_t>(
        std::count_if(steps.begin(), steps.end(), [](const Step& step) { return step.is_loss(); }));
  }
};

namespace detail {

class Draw {
public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  /// A number below `count`: the same everywhere, unlike that of a standard distribution.
  [[nodiscard]] int below(int count) {
    return static_cast<int>(engine_() % static_cast<std::uint64_t>(count));
  }
  [[nodiscard]] int between(int low, int high) { return low + below(high - low + 1); }
  [[nodiscard]] bool one_in(int count) { return below(count) == 0; }

private:
  std::mt19937_64 engine_;
};

/// Appends steps that read `values` values and more; returns the number of values after them.
inline int draw_steps(Draw& draw, std::vector<Step>& to, int values, int count, int depth) {
  for (int i = 0; i < count; ++i) {
    Step step;
    step.piece = static_cast<Piece>(draw.below(static_cast<int>(Piece::loss_stream)));
    if (draw.one_in(8))
      step.piece = Piece::region;
    if (step.piece == Piece::region && depth == 2)
      step.piece = Piece::activate;
    const auto value = [&] { return draw.one_in(2) ? values - 1 : draw.below(values); };
    if (step.piece < Piece::embed)
      step.x = value();
    if (step.piece >= Piece::add && step.piece < Piece::embed)
      step.y = value();
    step.read = draw.below(kept_layouts);
    step.keep = draw.below(kept_layouts);
    step.part = draw.below(2);
    step.mask = draw.between(-1, 1);
    if (step.piece == Piece::region) {
      step.how = static_cast<sw::Recompute>(draw.between(0, 2));
      static_cast<void>(draw_steps(draw, step.inner, values + 1, draw.between(1, 4), depth + 1));
    }
    to.push_back(std::move(step));
    ++values;
  }
  return values;
}

/// Follows the values of a program.
class Values {
public:
  explicit Values(std::vector<Step>& steps) { enter(steps); }

  /// Marks the last reader of each value, and makes parts whose result no loss depends on unused.
  void finish() {
    for (auto id = static_cast<int>(needs_.size()) - 1; id >= 0; --id)
      for (const int source : needs_[static_cast<std::size_t>(id)])
        if (live_[static_cast<std::size_t>(id)])
          live_[static_cast<std::size_t>(source)] = true;
    for (const auto& [step, id] : made_)
      if (!live_[static_cast<std::size_t>(id)] && step->kind() != Part::none && step->kind() != Part::dropout)
        step->piece = step->piece == Piece::embed ? Piece::input : Piece::activate;
    for (const auto& [id, reader] : last_)
      *reader = true;
  }
  /// Values that nothing reads.
  [[nodiscard]] std::size_t unread() const noexcept { return needs_.size() - last_.size(); }
  /// Whether a value, as numbered after the last step, depends on a parameter.
  [[nodiscard]] bool trained(int value) const {
    return trained_[static_cast<std::size_t>(stack_[static_cast<std::size_t>(value)])];
  }

private:
  int read(int value, bool& last, std::vector<int>& needs) {
    const int id = stack_[static_cast<std::size_t>(value)];
    last_[id] = &last;
    needs.push_back(id);
    return id;
  }
  void push(std::vector<int> needs, bool trained) {
    stack_.push_back(static_cast<int>(needs_.size()));
    needs_.push_back(std::move(needs));
    trained_.push_back(trained);
    live_.push_back(false);
  }
  void enter(std::vector<Step>& steps) {
    for (Step& step : steps) {
      std::vector<int> needs;
      bool trained = step.kind() != Part::none && step.kind() != Part::dropout;
      if (step.y >= 0)
        trained = trained_[static_cast<std::size_t>(read(step.y, step.y_last, needs))] || trained;
      if (step.x >= 0)
        trained = trained_[static_cast<std::size_t>(read(step.x, step.x_last, needs))] || trained;
      if (step.is_loss()) {
        for (const int id : needs)
          live_[static_cast<std::size_t>(id)] = true;
      } else if (step.piece == Piece::region) {
        const std::size_t before = stack_.size();
        push(std::move(needs), trained);
        enter(step.inner);
        const int result = stack_.back();
        stack_.resize(before);
        stack_.push_back(result);
      } else {
        push(std::move(needs), trained);
        made_.emplace_back(&step, stack_.back());
      }
    }
  }

  std::vector<int> stack_;              // number of the value at each place
  std::vector<std::vector<int>> needs_; // of each value
  std::vector<bool> trained_, live_;
  std::vector<std::pair<Step*, int>> made_;
  std::map<int, bool*> last_;
};

/// Renumbers the parts that are used.
class Numbers {
public:
  void enter(std::vector<Step>& steps) {
    for (Step& step : steps) {
      if (step.kind() != Part::none)
        step.part = number(step.kind(), step.part);
      if (step.mask >= 0)
        step.mask = number(Part::dropout, step.mask);
      enter(step.inner);
    }
  }
  [[nodiscard]] std::array<int, part_kinds> counts() const noexcept { return counts_; }

private:
  int number(Part kind, int part) {
    const auto [at, made] = numbers_.try_emplace({kind, part}, counts_[static_cast<std::size_t>(kind)]);
    counts_[static_cast<std::size_t>(kind)] += made ? 1 : 0;
    return at->second;
  }
  std::map<std::pair<Part, int>, int> numbers_;
  std::array<int, part_kinds> counts_{};
};

inline void write(const std::vector<Step>& steps, int depth, std::string& out) {
  for (const Step& step : steps) {
    out += std::string(static_cast<std::size_t>(2 * depth + 2), ' ') +
           std::string(piece_names[static_cast<std::size_t>(step.piece)]);
    if (step.kind() != Part::none)
      out += " " + std::to_string(step.part);
    if (step.x >= 0)
      out += " of " + std::to_string(step.x) + (step.x_last ? "!" : "");
    if (step.y >= 0)
      out += " and " + std::to_string(step.y) + (step.y_last ? "!" : "");
    if (!step.is_loss())
      out += " read as " + std::string(kept_names[static_cast<std::size_t>(step.read)]) + ", kept as " +
             std::string(kept_names[static_cast<std::size_t>(step.keep)]);
    if (step.mask >= 0)
      out += ", dropout " + std::to_string(step.mask);
    if (step.piece == Piece::region)
      out += ", recomputed " + std::string(sw::name_of(step.how));
    out += "\n";
    write(step.inner, depth + 1, out);
  }
}

} // namespace detail

/// @brief A case that anyone can read.
[[nodiscard]] inline std::string text_of(const Case& drawn) {
  std::string out = "seed " + std::to_string(drawn.seed) + ": dp=" + std::to_string(drawn.dp) +
                    " cp=" + std::to_string(drawn.cp) + " tp=" + std::to_string(drawn.tp) + ", " +
                    std::to_string(drawn.microbatches) + " x " + std::to_string(drawn.rows) +
                    " sequences of " + std::to_string(drawn.sequence) +
                    (drawn.folded ? " folded, width " : ", width ") + std::to_string(drawn.width) +
                    ", hidden " + std::to_string(drawn.hidden) + ", vocabulary " +
                    std::to_string(drawn.vocabulary) + ", heads " + std::to_string(drawn.heads) +
                    ", dropout " + std::to_string(drawn.rate) + "\n";
  detail::write(drawn.steps, 0, out);
  return out;
}

/// @brief Values of a case that nothing reads: dropped branches.
[[nodiscard]] inline std::size_t dropped_values(Case drawn) { return detail::Values(drawn.steps).unread(); }

/// @brief The case of a seed.
[[nodiscard]] inline Case draw_case(std::uint64_t seed) {
  static constexpr std::array<std::array<int, 3>, 13> meshes{{{1, 1, 1},
                                                              {2, 1, 1},
                                                              {1, 2, 1},
                                                              {1, 1, 2},
                                                              {3, 1, 1},
                                                              {1, 3, 1},
                                                              {1, 1, 3},
                                                              {2, 2, 1},
                                                              {2, 1, 2},
                                                              {1, 2, 2},
                                                              {4, 1, 1},
                                                              {1, 4, 1},
                                                              {1, 1, 4}}};
  detail::Draw draw(seed);
  Case out;
  out.seed = seed;
  const auto& mesh = meshes[static_cast<std::size_t>(draw.below(static_cast<int>(meshes.size())))];
  out.dp = mesh[0], out.cp = mesh[1], out.tp = mesh[2];
  out.microbatches = draw.between(1, 3);
  out.rows = draw.between(1, 4);
  out.sequence = draw.between(1, 7);
  out.hidden = draw.between(1, 9);
  out.vocabulary = draw.between(2, 11);
  out.rate = draw.one_in(4) ? 0 : 0.1 * draw.between(1, 7);

  Step first;
  first.piece = Piece::embed;
  first.keep = draw.below(kept_layouts);
  out.steps.push_back(std::move(first));
  const int values = detail::draw_steps(draw, out.steps, 1, draw.between(2, 9), 0);
  const detail::Values before(out.steps);
  int trained = values - 1;
  while (!before.trained(trained))
    --trained;
  const int losses = draw.between(1, 3);
  for (int i = 0; i < losses; ++i) {
    Step loss;
    loss.piece = static_cast<Piece>(
        draw.between(static_cast<int>(Piece::loss_stream), static_cast<int>(Piece::loss_pooled)));
    loss.x = i == 0 ? trained : draw.below(values);
    loss.mask = draw.between(-1, 1);
    loss.part = draw.below(2);
    out.steps.push_back(loss);
  }
  detail::Values(out.steps).finish();
  detail::Numbers numbers;
  numbers.enter(out.steps);
  out.parts = numbers.counts();

  // Sizes that the chosen pieces can divide.
  const auto uses = [](const auto& self, const std::vector<Step>& steps, Piece piece) -> bool {
    return std::any_of(steps.begin(), steps.end(), [&](const Step& step) {
      return step.piece == piece || self(self, step.inner, piece);
    });
  };
  out.heads = out.tp * draw.between(1, 2);
  const bool whole = uses(uses, out.steps, Piece::heads) || uses(uses, out.steps, Piece::attention);
  out.width = whole ? out.heads * draw.between(1, 3) : draw.between(2, 9);
  out.folded = draw.one_in(2);
  if (out.folded)
    out.sequence = 2 * out.cp * draw.between(1, 2);
  if (out.folded && out.width == out.sequence) // of two dimensions, the second is then ambiguous
    out.sequence *= 2;
  if (uses(uses, out.steps, Piece::merge))
    out.rows = out.dp * draw.between(1, 2);
  return out;
}

} // namespace random_models
