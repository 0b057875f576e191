// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/decoder/token_tensor.hpp>
#include <shardwright/nn/layers/position_embedding.hpp>
#include <shardwright/train/check_gradients.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

constexpr std::int64_t sequence = 8;
constexpr std::int64_t width = 22;     // several registers of elements, and a remainder
constexpr std::int64_t positions = 10; // more than the tokens of a sequence

/// Batches over dp, sequences over cp and once more over tp, or the width over tp.
using SequenceParallel = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, cp, tp>>;
using WidthParallel = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, cp>, sw::Shard<2, tp>>;

static_assert(std::is_same_v<sw::PositionTableLayout<SequenceParallel>, sw::Layout<2>>);
static_assert(std::is_same_v<sw::PositionGradientLayout<SequenceParallel>,
                             sw::Layout<2, sw::Partial<sw::Sum, dp, cp, tp>>>);
static_assert(std::is_same_v<sw::PositionTableLayout<WidthParallel>, sw::Layout<2, sw::Shard<1, tp>>>);
static_assert(std::is_same_v<sw::PositionGradientLayout<WidthParallel>,
                             sw::Layout<2, sw::Shard<1, tp>, sw::Partial<sw::Sum, dp, cp>>>);

template <class Stream, class Order>
void check(const sw::HostCommunicator& world, Findings& findings, int data, int context, int tensor) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(data), sw::extent<cp>(context), sw::extent<tp>(tensor)};
  const std::string where = " on dp " + std::to_string(data) + " cp " + std::to_string(context) + " tp " +
                            std::to_string(tensor) + " " + std::string(Order::name);
  const sw::RowOrder rows = Order::rows(sequence, context);
  sw::ShardedTensor<Stream, double> x(mesh, {3, sequence, width});
  sw::fill_normal(x, {11, 1});
  using Plan = sw::ModelPlan<double>;
  sw::PositionEmbedding<Stream, Plan> module(mesh, positions, width, sw::Initial::normal(1.0));
  sw::initialize(module, 4, "positions");

  sw::Tape<> tape(sw::Recording::evaluation, {}, rows);
  const auto y = module(tape.input(x)).value();
  const Vector xs = whole_of(x), ys = whole_of(y), table = whole_of(module.table().stored());
  for (std::size_t s = 0; s < 3; ++s)
    for (std::size_t p = 0; p < sequence; ++p) {
      // The whole sequence has its rows rank by rank.
      const std::size_t row = sw::row_of<Order>(p, sequence, context);
      for (std::size_t c = 0; c < width; ++c) {
        const std::size_t at = (s * sequence + row) * width + c;
        findings.expect(ys[at] == xs[at] + table[p * width + c], "position ", p, where);
      }
    }
  const auto worst = sw::check_gradients([&](auto v) { return module(std::move(v)); },
                                         sw::members("x", x, "positions", module),
                                         {.directions = 2, .elements = 12, .rows = rows});
  findings.expect(worst.error < 1e-8, worst.input, " is off by ", worst.error, where);
  std::string message;
  try {
    sw::PositionEmbedding<Stream, Plan> small(mesh, sequence - 1, width, sw::Initial::normal(1.0));
    sw::initialize(small, 4, "positions");
    static_cast<void>(small(tape.input(x)));
  } catch (const sw::InvalidArgument& error) {
    message = error.what();
  }
  findings.expect(
      message.find("add_positions: the table must have a row for each position of a sequence") == 0, message);
}

} // namespace

TEST_CASE(
    "learned positions are added by the position of each token, however a sequence is split over ranks") {
  struct Extents {
    int dp, cp, tp;
  };
  for (const Extents extents :
       {Extents{1, 1, 1}, Extents{3, 1, 1}, Extents{1, 2, 2}, Extents{2, 2, 1}, Extents{1, 4, 1}})
    CHECK(on_ranks(extents.dp * extents.cp * extents.tp, [extents](sw::HostCommunicator world,
                                                                   Findings& findings) {
            check<SequenceParallel, sw::NaturalOrder>(world, findings, extents.dp, extents.cp, extents.tp);
            check<SequenceParallel, sw::ZigZagOrder>(world, findings, extents.dp, extents.cp, extents.tp);
            check<WidthParallel, sw::ZigZagOrder>(world, findings, extents.dp, extents.cp, extents.tp);
          }) == "");
}

namespace {

/// Ids over cp; streams that are split otherwise, or longer.
template <class Stream, class Order>
void check_other_split(const sw::DeviceMesh<cp, tp>& mesh, Findings& findings, std::int64_t length,
                       const std::string& where) {
  constexpr std::int64_t rows = 16, columns = 5;
  const sw::TokenTensor<Order, sw::Layout<2, sw::Shard<1, cp>>> ids(mesh, {2, sequence});
  const auto x = random_tensor<Stream>(mesh, {2, length, columns}, 1);
  sw::ShardedTensor<sw::Layout<2>, double> table(mesh, {rows, columns});
  sw::fill_normal(table, {11, 2});
  sw::Tape<> tape(sw::Recording::training, {}, ids.row_order());
  const auto entry = tape.variable(table);
  auto sum = sw::add_positions(tape.input(x), entry);
  const Vector xs = whole_of(x), ys = whole_of(sum.value()), rows_of_table = whole_of(table);
  const auto gradient = random_tensor<sw::Gradient<Stream>>(mesh, {2, length, columns}, 3);
  tape.seed(sum, gradient.share());
  tape.backward();
  const Vector dys = whole_of(gradient), d_table = whole_of(tape.gradient(entry));
  Vector expected(d_table.size());
  for (std::size_t s = 0; s < 2; ++s)
    for (std::size_t row = 0; row < static_cast<std::size_t>(length); ++row)
      for (std::size_t c = 0; c < columns; ++c) {
        const std::size_t at = (s * static_cast<std::size_t>(length) + row) * columns + c;
        const std::size_t position = ids.row_order().position(row);
        findings.expect(ys[at] == xs[at] + rows_of_table[position * columns + c], "row ", row, where);
        expected[position * columns + c] += dys[at];
      }
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, std::abs(expected[i] - d_table[i]));
  findings.expect(worst < 1e-12, "the table's gradient is off by ", worst, where);
}

} // namespace

TEST_CASE("positions of a stream that is not split like the ids, or is longer, follow from its own layout") {
  using sw::NaturalOrder, sw::ZigZagOrder;
  for (const int context : {2, 4})
    CHECK(on_ranks(context * 2, [context](sw::HostCommunicator world, Findings& findings) {
            const sw::DeviceMesh mesh{world, sw::extent<cp>(context), sw::extent<tp>(2)};
            const std::string where = " over cp=" + std::to_string(context);
            using Whole = sw::Layout<3>;
            using OverTp = sw::Layout<3, sw::Shard<1, tp>>;
            using OverCp = sw::Layout<3, sw::Shard<1, cp>>;
            check_other_split<Whole, NaturalOrder>(mesh, findings, sequence,
                                                   " of a replicated stream" + where);
            check_other_split<Whole, ZigZagOrder>(mesh, findings, sequence,
                                                  " of a replicated stream in zig-zag order" + where);
            check_other_split<OverTp, ZigZagOrder>(mesh, findings, sequence, " of a stream over tp" + where);
            check_other_split<OverCp, NaturalOrder>(mesh, findings, 2 * sequence,
                                                    " of a longer stream" + where);
            check_other_split<OverCp, ZigZagOrder>(mesh, findings, sequence,
                                                   " of a stream like the ids" + where);
            std::string message;
            try {
              check_other_split<OverCp, ZigZagOrder>(mesh, findings, 2 * sequence, where);
            } catch (const sw::InvalidArgument& error) {
              message = error.what();
            }
            findings.expect(
                message.find("add_positions: the stream must have the batch's sequences of 8 tokens, "
                             "whose order over the ranks is not that of the text, but it has "
                             "sequences of 16") == 0,
                message);
          }) == "");
}
