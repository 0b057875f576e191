// SPDX-License-Identifier: Apache-2.0
#include "nn/small_training.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/layout/token_order.hpp>
#include <shardwright/nn/dropout.hpp>
#include <shardwright/train/recompute.hpp>

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
    CHECK(on_ranks(data * tensor, [&](sw::HostCommunicator world, Findings& findings) {
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
  const auto columns = one.size() / static_cast<std::size_t>(shape[0] * (merged ? 1 : shape[1]));
  const bool ordered = merged || (shape.size() > 2 && shape[1] == 8);
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
        on_ranks(context * tensor, [&](sw::HostCommunicator world, Findings& findings) {
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
            check(sw::Layout<3, sw::Shard<1, cp>>{}, std::array<std::int64_t, 3>{3, 16, 6}, "a longer value");
            check(sw::Layout<4, sw::Shard<1, cp>, sw::Shard<2, tp>>{},
                  std::array<std::int64_t, 4>{3, 8, 4, 5}, "heads");
            check(sw::Layout<2, sw::Shard<0, tp>>{}, std::array<std::int64_t, 2>{24, 6}, "merged tokens");
          }
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
          // Without the number of sequences a mask depends on the division, but no two share a part.
          const auto unknown = dropped<Merged>(mesh, {2 * 5, 6}, use, {2, 2});
          std::size_t shared = 0;
          for (std::size_t i = 0; i < unknown.size(); ++i)
            shared += unknown[i] == parts[(i + 12) % parts.size()];
          findings.expect(shared < 50, shared, " of 60 elements are those of two rows further on");
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
