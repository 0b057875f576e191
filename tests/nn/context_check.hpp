// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention of a sequence that context ranks share, compared with attention of the whole sequence on
/// one rank.

#include "support/larger.hpp"
#include "support/ranks.hpp"

#include <shardwright/layout/document_order.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/attention/context_attention.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/scatter_gather.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace nn_test {

namespace sw = shardwright;
using ContextMesh = sw::DeviceMesh<sw::axis::cp, sw::axis::tp>;

/// @brief Extents of a mesh, and whether there are enough heads for all-to-all on it.
struct ContextWay {
  int context = 1;
  int tensor = 1;
};
inline constexpr ContextWay context_ways[] = {{1, 1}, {2, 1}, {1, 2}, {3, 1}, {2, 2}, {4, 1}};

/// @brief A mask, to which lengths of keys may be added.
template <sw::AttentionMask Mask, bool padded = false> struct ContextMask {
  using Lengths = sw::ShardedTensor<sw::Layout<1>, std::int32_t>;
  /// @brief For sequences of 48.
  [[nodiscard]] static auto on(const ContextMesh& mesh) {
    if constexpr (padded) {
      Lengths lengths(mesh, {3});
      std::copy_n(std::array<std::int32_t, 3>{29, 0, 48}.data(), 3, lengths.mutable_data());
      return sw::padded(Mask{}, lengths);
    } else {
      return Mask{};
    }
  }
};

/// @brief Starts of documents in each of three sequences of 48: many, one with padding, one.
inline void fill_context_starts(std::span<std::int32_t> all) {
  sw::fill_document_starts(std::array<std::int32_t, 7>{1, 13, 2, 0, 17, 1, 14}, all.subspan(0, 48));
  sw::fill_document_starts(std::array<std::int32_t, 1>{31}, all.subspan(48, 48));
  sw::fill_document_starts({}, all.subspan(96, 48));
}
/// @brief A mask within these documents.
template <sw::AttentionMask Mask, class Target = sw::DefaultTarget> struct ContextDocuments {
  [[nodiscard]] static auto on(const ContextMesh& mesh) {
    std::vector<std::int32_t> values(std::size_t{3} * 48);
    fill_context_starts(values);
    sw::ShardedTensor<sw::Layout<2>, std::int32_t, Target> starts(mesh, {3, 48});
    sw::set_local_values(starts, values);
    return sw::documents(Mask{}, starts);
  }
};

/// @brief The order of the three sequences by which those documents are shared out over a ring.
[[nodiscard]] inline sw::TextOrder context_order(int ranks) {
  std::vector<std::int32_t> starts(3 * 48), out;
  fill_context_starts(starts);
  for (std::size_t first = 0; first < starts.size(); first += 48) {
    const auto one = sw::balanced_order(std::span(starts).subspan(first, 48), ranks);
    out.insert(out.end(), one.begin(), one.end());
  }
  return std::make_shared<const std::vector<std::int32_t>>(std::move(out));
}

/// @brief One problem: random queries, keys and values of whole sequences, and the attention of them.
template <class Context, class Element, class Target = sw::DefaultTarget,
          class Masking = ContextMask<sw::CausalMask>>
class ContextProblem {
  using Order = typename Context::Order;
  using Qkv = sw::Layout<4, sw::Shard<1, sw::axis::cp>, sw::Shard<2, sw::axis::tp>>;
  using Input = typename Context::template AttentionInput<Qkv>;
  using Whole = sw::ShardedTensor<sw::Layout<4>, Element, Target>;
  template <class L> using Tensor = sw::ShardedTensor<L, Element, Target>;

public:
  static constexpr std::int64_t batch = 3, sequence = 48, groups = 12, queries = 2, width = 6;
  static constexpr sw::HeadShape heads{queries, width};

  /// @param order of the tokens; none: that of the context
  explicit ContextProblem(const ContextMesh& mesh, sw::TextOrder order = {})
      : mesh_(mesh), table_(mesh, sequence, width, 100),
        positions_(sequence, mesh.template extent<sw::axis::cp>(), mesh.template coordinate<sw::axis::cp>(),
                   std::move(order)),
        mask_(Masking::on(mesh)) {}

  /// @brief This rank's value and gradient, computed by all ranks together.
  [[nodiscard]] std::pair<std::vector<Element>, std::vector<Element>> together() const { return run(1); }
  /// @brief The same with each token rotated to twice its position; the result must differ.
  [[nodiscard]] std::pair<std::vector<Element>, std::vector<Element>> with_wrong_rotation() const {
    return run(2);
  }

  /// @brief This rank's part of value and gradient of whole sequences.
  [[nodiscard]] std::pair<std::vector<Element>, std::vector<Element>> alone() const {
    const sw::TokenPositions<sw::NaturalOrder> all(sequence, 1, 0);
    Whole qkv = random<sw::Layout<4>>({batch, sequence, groups, (queries + 2) * width}, 1);
    const auto upstream = random<sw::Layout<3>>({batch, sequence, groups * queries * width}, 2);
    qkv = sw::rotary(std::move(qkv), table_, all, heads);
    const auto out = sw::attention(qkv, heads, mask_);
    auto gradient = sw::attention_gradient(upstream, qkv, out, all, heads, mask_);
    return {own_rows(out.value), own_rows(turned_back(std::move(gradient), all))};
  }

private:
  /// The gradient before the rotation.
  template <class Gradient, class Positions>
  [[nodiscard]] Gradient turned_back(Gradient gradient, const Positions& positions) const {
    const sw::operation::Rotary<Element, Target, typename Positions::order> rotary{&table_, positions, heads};
    return rotary.gradient(std::move(gradient), gradient, gradient);
  }
  [[nodiscard]] std::pair<std::vector<Element>, std::vector<Element>> run(int rotations) const {
    using Value = sw::AttentionLayout<Qkv>;
    Tensor<Qkv> fused(mesh_, {batch, sequence, groups, (queries + 2) * width});
    Tensor<Value> upstream(mesh_, {batch, sequence, groups * queries * width});
    take_rows(random<sw::Layout<4>>(fused.shape(), 1), fused);
    take_rows(random<sw::Layout<3>>(upstream.shape(), 2), upstream);
    for (int i = 0; i < rotations; ++i)
      fused = sw::rotary(std::move(fused), table_, positions_, heads);
    const auto input = sw::redistribute<Input>(fused);
    const auto out = sw::attention(input, positions_, heads, mask_);
    const auto value = sw::redistribute<Value>(out.value);
    auto gradient =
        sw::redistribute<Qkv>(sw::attention_gradient(sw::redistribute<sw::AttentionLayout<Input>>(upstream),
                                                     input, out, positions_, heads, mask_, &table_));
    for (int i = 1; i < rotations; ++i) // the first is undone already
      gradient = turned_back(std::move(gradient), positions_);
    return {sw::local_values(value), sw::local_values(gradient)};
  }

  template <class L>
  [[nodiscard]] Tensor<L> random(const typename Tensor<L>::Shape& shape, std::uint64_t number) const {
    Tensor<L> out(mesh_, shape);
    sw::fill_normal(out, {11, number});
    return out;
  }

  /// Elements of this rank: its positions of each sequence, and its share of the remaining dimensions.
  template <class From, class Visit> void for_own(const From& whole, Visit visit) const {
    const sw::TokenRuns runs = positions_.runs();
    const auto per_token = static_cast<std::size_t>(whole.size()) / (batch * sequence);
    const auto ranks = static_cast<std::size_t>(mesh_.template extent<sw::axis::tp>());
    const auto share = per_token / ranks;
    const auto first = share * static_cast<std::size_t>(mesh_.template coordinate<sw::axis::tp>());
    for (std::size_t b = 0; b < batch; ++b)
      for (std::size_t row = 0; row < runs.rows; ++row) {
        std::size_t token = b * sequence + runs.position(row);
        if (positions_.text() != nullptr)
          token = b * sequence + static_cast<std::size_t>(positions_.text()[token]);
        for (std::size_t i = 0; i < share; ++i)
          visit(whole.data()[token * per_token + first + i]);
      }
  }
  template <class From> [[nodiscard]] std::vector<Element> own_rows(const From& whole) const {
    std::vector<Element> out;
    for_own(whole, [&](Element value) { out.push_back(value); });
    return out;
  }
  template <class From, class To> void take_rows(const From& whole, To& part) const {
    Element* to = part.mutable_data();
    for_own(whole, [&](Element value) { *to++ = value; });
  }

  const ContextMesh& mesh_;
  sw::RotaryTable<Element, Target> table_;
  sw::TokenPositions<Order> positions_;
  decltype(Masking::on(std::declval<const ContextMesh&>())) mask_;
};

template <class Element>
[[nodiscard]] double largest_difference(const std::vector<Element>& values,
                                        const std::vector<Element>& reference) {
  double largest = values.size() == reference.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(values.size(), reference.size()); ++i) {
    const double difference = std::abs(static_cast<double>(values[i] - reference[i]));
    largest = shardwright_test::larger(largest, difference);
  }
  return largest;
}

/// @brief Value and gradient of whole sequences, up to rounding; bitwise equal on one context rank, and in
/// each repetition. Collective.
/// @param arranged whether documents are shared out over the ring
template <class Context, class Element, class Masking = ContextMask<sw::CausalMask>>
void check_context(const sw::HostCommunicator& world, shardwright_test::Findings& findings, ContextWay way,
                   double tolerance, bool arranged = false) {
  const ContextMesh mesh(world, sw::extent<sw::axis::cp>(way.context), sw::extent<sw::axis::tp>(way.tensor));
  const ContextProblem<Context, Element, sw::DefaultTarget, Masking> problem(
      mesh, arranged ? context_order(way.context) : sw::TextOrder{});
  const auto all = problem.together();
  const auto one = problem.alone();
  const std::string where = std::string(Context::Order::name) + (arranged ? " arranged" : "") + " on cp " +
                            std::to_string(way.context) + " tp " + std::to_string(way.tensor) + " rank " +
                            std::to_string(world.rank());
  const double value = largest_difference(all.first, one.first);
  const double gradient = largest_difference(all.second, one.second);
  findings.expect(value <= (way.context == 1 ? 0 : tolerance), "value differs by ", value, " in ", where);
  findings.expect(gradient <= (way.context == 1 ? 0 : 10 * tolerance), "gradient differs by ", gradient,
                  " in ", where);
  findings.expect(problem.together() == all, "a repetition differs in ", where);
  if (way.context == 1)
    return;
  const double wrong = largest_difference(problem.with_wrong_rotation().first, one.first);
  findings.expect(wrong > 1e-2, "the positions make no difference in ", where);
}

} // namespace nn_test
