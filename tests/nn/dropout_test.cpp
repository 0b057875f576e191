// SPDX-License-Identifier: Apache-2.0
#include "nn/small_training.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/dropout.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
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
            auto parts = dropped<Split>(mesh, {3, 9, 10}, use, {2, 0});
            const auto rest = dropped<Split>(mesh, {4, 9, 10}, use, {2, 3});
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
