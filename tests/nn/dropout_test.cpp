// SPDX-License-Identifier: Apache-2.0
#include "nn/small_training.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/layout/token_order.hpp>
#include <shardwright/nn/layers/dropout.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using Whole = sw::ShardedTensor<sw::Layout<3>>;
using Split = sw::ShardedTensor<sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, tp>>>;

/// A tensor of ones after dropout, whole on every rank.
template <class Tensor>
std::vector<double> dropped(const sw::DeviceMesh<dp, tp>& mesh, const typename Tensor::Shape& shape,
                            const sw::DropoutUse& use, const sw::BatchOrigin& origin) {
  Tensor x(mesh, shape);
  sw::fill(x, 1);
  return nn_test::whole(sw::dropout(x, use, origin));
}

} // namespace

TEST_CASE("dropout drops the given share, scales the rest, and differs at every position and step") {
  CHECK(on_ranks(1, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(1), sw::extent<tp>(1)};
          const Whole::Shape shape{8, 25, 51};
          constexpr double count = 8 * 25 * 51;
          for (const double rate : {0.1, 0.5, 0.9}) {
            const sw::DropoutUse use{3, 20, rate};
            const auto mask = dropped<Whole>(mesh, shape, use, {5, 0});
            const auto zeros = static_cast<double>(std::count(mask.begin(), mask.end(), 0.0));
            const double deviation = std::sqrt(count * rate * (1 - rate));
            findings.expect(std::abs(zeros - count * rate) < 4 * deviation, zeros, " zeros at rate ", rate);
            const auto kept = static_cast<double>(static_cast<float>(1 / (1 - rate)));
            findings.expect(static_cast<double>(std::count(mask.begin(), mask.end(), kept)) == count - zeros,
                            "the rest is scaled");
            // Independent masks agree at rate^2 + (1 - rate)^2 of all positions.
            const double alike = rate * rate + (1 - rate) * (1 - rate);
            for (const auto& [other, origin] : {std::pair{use, sw::BatchOrigin{6, 0}},
                                                {use, sw::BatchOrigin{5, 8}},
                                                {sw::DropoutUse{3, 21, rate}, sw::BatchOrigin{5, 0}},
                                                {sw::DropoutUse{4, 20, rate}, sw::BatchOrigin{5, 0}}}) {
              const auto second = dropped<Whole>(mesh, shape, other, origin);
              double same = 0;
              for (std::size_t i = 0; i < mask.size(); ++i)
                same += mask[i] == second[i] ? 1 : 0;
              findings.expect(std::abs(same - count * alike) < 4 * std::sqrt(count * alike * (1 - alike)),
                              "a mask of another step, place or seed agrees in ", same, " of ", count);
            }
          }
        }) == "");
}

TEST_CASE("a mask depends neither on the layout nor on how the sequences are divided into microbatches",
          "[moe_13]") {
  for (const auto& [data, tensor] : {std::array{1, 1}, std::array{2, 1}, std::array{3, 2}, std::array{1, 4}})
    CHECK(on_ranks(data * tensor,
                   [&, data = data, tensor = tensor](sw::HostCommunicator world, Findings& findings) {
                     const sw::DeviceMesh mesh{world, sw::extent<dp>(data), sw::extent<tp>(tensor)};
                     const sw::DropoutUse use{11, 4, 0.3};
                     const auto one = dropped<Whole>(mesh, {7, 9, 10}, use, {2, 0});
                     findings.expect(dropped<Split>(mesh, {7, 9, 10}, use, {2, 0}) == one, "the layout");
                     auto parts = dropped<Split>(mesh, {3, 9, 10}, use, {2, 0, 3});
                     const auto rest = dropped<Split>(mesh, {4, 9, 10}, use, {2, 3, 4});
                     parts.insert(parts.end(), rest.begin(), rest.end());
                     findings.expect(parts == one, "the division");
                   }) == "");
}

TEST_CASE("the gradient of dropout has the mask of the forward pass, and passes through at rate 0") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(1), sw::extent<tp>(2)};
          const sw::DropoutUse use{11, 4, 0.3};
          const sw::BatchOrigin origin{9, 6};
          Split gradient(mesh, {2, 8, 6});
          sw::fill_normal(gradient, {1, 1});
          const auto before = nn_test::whole(gradient);
          const auto mask = dropped<Split>(mesh, {2, 8, 6}, use, origin);
          sw::Tape<> tape(sw::Recording::training, origin);
          const auto gradient_of = [&](const sw::DropoutUse& used) {
            const auto x = tape.variable(Split(mesh, {2, 8, 6}));
            tape.seed(sw::dropout(x, used), gradient.share());
            tape.backward();
            return tape.gradient(x);
          };
          const auto after = nn_test::whole(gradient_of(use));
          std::size_t different = 0;
          for (std::size_t i = 0; i < mask.size(); ++i)
            different +=
                after[i] != static_cast<double>(static_cast<float>(mask[i]) * static_cast<float>(before[i]));
          findings.expect(different == 0, different, " elements differ");
          tape.restart();
          findings.expect(gradient_of({11, 4, 0}).data() == gradient.data(), "rate 0 copies nothing");
        }) == "");
}

namespace {

/// The mask of a whole tensor, with its rows of a sequence in another order: dimension 1, or tokens of
/// dimension 0.
template <class L>
void check_mask(const sw::DeviceMesh<cp, tp>& mesh, Findings& findings,
                const typename sw::ShardedTensor<L>::Shape& shape, const sw::RowOrder& order,
                const std::string& what) {
  const sw::DropoutUse use{11, 4, 0.3};
  const sw::BatchOrigin origin{2, 6, 3}; // the third microbatch of three sequences
  const auto masked = [&]<class Tensor>(Tensor x, const sw::RowOrder& rows) {
    sw::fill(x, 1);
    return nn_test::whole(sw::dropout(x, use, origin, rows));
  };
  const auto one = masked(sw::ShardedTensor<sw::Layout<L::tensor_rank>>(mesh, shape), {});
  const auto found = masked(sw::ShardedTensor<L>(mesh, shape), order);
  const bool merged = shape[0] != 3;
  const std::int64_t second = shape.size() > 1 ? shape[shape.size() > 1 ? 1 : 0] : 1;
  const auto columns = one.size() / static_cast<std::size_t>(shape[0] * (merged ? 1 : second));
  const bool ordered = merged || (shape.size() > 2 && second == 8);
  std::size_t different = 0;
  for (std::size_t row = 0; row * columns < one.size(); ++row)
    for (std::size_t c = 0; c < columns; ++c)
      different += found[row * columns + c] != one[(ordered ? order.position(row) : row) * columns + c];
  findings.expect(different == 0, different, " of ", one.size(),
                  " mask elements differ from those of one rank: ", what, " over cp=", mesh.extent<cp>(),
                  " tp=", mesh.extent<tp>());
}

} // namespace

TEST_CASE("the mask of a value that is not split like the ids is that of one rank") {
  for (const auto& [context, tensor] : {std::array{1, 2}, std::array{1, 4}, std::array{2, 2}})
    CHECK(
        on_ranks(context * tensor, [&, context = context, tensor = tensor](sw::HostCommunicator world,
                                                                           Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<cp>(context), sw::extent<tp>(tensor)};
          for (const sw::RowOrder order :
               {sw::NaturalOrder::rows(8, context), sw::ZigZagOrder::rows(8, context)}) {
            const auto check = [&]<class L>(L, const auto& shape, const std::string& what) {
              check_mask<L>(mesh, findings, shape, order, what);
            };
            check(sw::Layout<2, sw::Shard<1, tp>>{}, std::array<std::int64_t, 2>{3, 48}, "a pooled value");
            check(sw::Layout<3, sw::Shard<1, cp>>{}, std::array<std::int64_t, 3>{3, 8, 6}, "the ids' split");
            check(sw::Layout<3>{}, std::array<std::int64_t, 3>{3, 8, 6}, "a whole value");
            check(sw::Layout<3, sw::Shard<1, tp>>{}, std::array<std::int64_t, 3>{3, 8, 6}, "a split over tp");
            check(sw::Layout<3, sw::Shard<2, tp>>{}, std::array<std::int64_t, 3>{3, 1, 8}, "a pooled row");
            check(sw::Layout<3, sw::Shard<1, cp>>{}, std::array<std::int64_t, 3>{3, 8, 1}, "a number each");
            if (order.is_natural())
              check(sw::Layout<3, sw::Shard<1, cp>>{}, std::array<std::int64_t, 3>{3, 16, 6},
                    "a longer value");
            check(sw::Layout<4, sw::Shard<1, cp>, sw::Shard<2, tp>>{},
                  std::array<std::int64_t, 4>{3, 8, 4, 5}, "heads");
            check(sw::Layout<2, sw::Shard<0, tp>>{}, std::array<std::int64_t, 2>{24, 6}, "merged tokens");
            check(sw::Layout<2, sw::Shard<1, tp>>{}, std::array<std::int64_t, 2>{24, 8},
                  "as many columns as positions");
            check(sw::Layout<1, sw::Shard<0, tp>>{}, std::array<std::int64_t, 1>{24},
                  "a number each, merged");
          }
        }) == "");
}

TEST_CASE("dropout in ZigZagOrder rejects shapes that do not say where the positions are") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<cp>(2), sw::extent<tp>(1)};
          const auto expect = [&]<std::size_t rank>(const std::array<std::int64_t, rank>& shape,
                                                    const sw::BatchOrigin& origin, const std::string& part) {
            std::string said = "no error";
            try {
              const sw::ShardedTensor<sw::Layout<rank>> x(mesh, shape);
              static_cast<void>(sw::dropout(x, {11, 4, 0.3}, origin, sw::ZigZagOrder::rows(8, 2)));
            } catch (const sw::InvalidArgument& error) {
              said = error.what();
            }
            findings.expect(said.find(part) != std::string::npos, said);
          };
          using One = std::array<std::int64_t, 1>;
          using Two = std::array<std::int64_t, 2>;
          using Three = std::array<std::int64_t, 3>;
          const sw::BatchOrigin third{2, 6, 3};
          expect(Two{3, 8}, third,
                 "dropout: a tensor of two dimensions must hold columns in the second one, but the 8");
          const std::string sequences = "dropout: a tensor must have the batch's sequences of 8 tokens, "
                                        "whose order over the ranks is not that of the text, or one row for "
                                        "each sequence, but it has the shape ";
          expect(Three{3, 9, 6}, third, sequences + "[3, 9, 6] for 3 sequences (drop before");
          expect(Three{3, 7, 6}, third, sequences + "[3, 7, 6]");
          expect(Two{27, 6}, third, sequences + "[27, 6]");
          expect(One{21}, third, sequences + "[21]");
          expect(Three{24, 2, 6}, {2, 0}, sequences + "[24, 2, 6] (drop before");
          expect(Two{24, 6}, {2, 0}, "the number of sequences of the microbatch must be known");
        }) == "");
}

TEST_CASE(
    "without the number of sequences, dropout divides rows of sequences and rejects what may be tokens") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(1)};
          const sw::DropoutUse use{11, 4, 0.3};
          const auto masked = [&]<std::size_t rank>(const std::array<std::int64_t, rank>& shape,
                                                    std::uint64_t first) {
            sw::ShardedTensor<sw::Layout<rank, sw::Shard<0, dp>>> x(mesh, shape);
            sw::fill(x, 1);
            sw::Tape<> tape;
            tape.restart(sw::Recording::training, sw::BatchOrigin{2, first});
            return nn_test::whole(sw::dropout(tape.input(x), use).value());
          };
          using Three = std::array<std::int64_t, 3>;
          const auto all = masked(Three{8, 5, 6}, 0);
          std::vector<double> parts;
          for (const auto& [first, count] : {std::array{0, 2}, std::array{2, 1}, std::array{3, 5}}) {
            const auto part = masked(Three{count, 5, 6}, static_cast<std::uint64_t>(first));
            parts.insert(parts.end(), part.begin(), part.end());
          }
          findings.expect(parts == all, "uneven microbatches");
          using Two = std::array<std::int64_t, 2>;
          findings.expect(masked(Two{10, 6}, 0) ==
                              dropped<sw::ShardedTensor<sw::Layout<2>>>(mesh, {10, 6}, use, {2, 0, 2}),
                          "the first microbatch");
          std::string said = "no error";
          try {
            static_cast<void>(masked(Two{10, 6}, 4));
          } catch (const sw::InvalidArgument& error) {
            said = error.what();
          }
          findings.expect(
              said.find("dropout: the number of sequences of the microbatch must be known for a "
                        "tensor of fewer than three dimensions, whose rows may be tokens, but it "
                        "is 0 for the microbatch at sequence 4 (give its BatchOrigin `sequences`") !=
                  std::string::npos,
              said);
        }) == "");
}

TEST_CASE("merged tokens of the next microbatch have its own part of the step's mask") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(1)};
          using Merged = sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>>>;
          const sw::DropoutUse use{11, 4, 0.3};
          const auto all = dropped<Merged>(mesh, {4 * 5, 6}, use, {2, 0, 4});
          auto parts = dropped<Merged>(mesh, {2 * 5, 6}, use, {2, 0, 2});
          const auto rest = dropped<Merged>(mesh, {2 * 5, 6}, use, {2, 2, 2});
          findings.expect(parts != rest, "two microbatches");
          parts.insert(parts.end(), rest.begin(), rest.end());
          findings.expect(parts == all, "the division");
        }) == "");
}

TEST_CASE("each call of a Dropout in a pass has its own mask, also when it is recomputed") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(1)};
          using L = sw::Layout<2, sw::Shard<0, dp>>;
          sw::ShardedTensor<L> ones(mesh, {8, 16});
          sw::fill(ones, 1);
          sw::Dropout module(0.5);
          module.initialize("module", 3);
          std::vector<double> first, second;
          for (const auto kind : {sw::Recompute::none, sw::Recompute::full, sw::Recompute::selective}) {
            sw::Tape<> tape(sw::Recording::training, sw::BatchOrigin{2, 0, 8});
            const auto x = tape.variable(ones);
            // The gradient of a product of both masks is their product twice over.
            const auto y = sw::recompute(
                [&module](auto v) {
                  auto one = module(v);
                  auto other = module(v);
                  return one * other;
                },
                kind)(x);
            tape.seed(y, ones.share());
            const auto product = nn_test::whole(y.value());
            tape.backward();
            const auto gradient = nn_test::whole(tape.gradient(x));
            sw::Tape<> again(sw::Recording::training, sw::BatchOrigin{2, 0, 8});
            const auto v = again.input(ones);
            first = nn_test::whole(module(v).value());
            second = nn_test::whole(module(v).value());
            std::size_t different = 0;
            for (std::size_t i = 0; i < product.size(); ++i)
              different += product[i] != first[i] * second[i] || gradient[i] != 2 * product[i];
            findings.expect(different == 0, different, " elements differ");
          }
          std::size_t same = 0;
          for (std::size_t i = 0; i < first.size(); ++i)
            same += first[i] == second[i];
          findings.expect(same > 40 && same < 88, "the masks agree in ", same, " of 128 elements");
        }) == "");
}
