// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/decoder/token_batch.hpp>
#include <shardwright/nn/experts/balance_loss.hpp>
#include <shardwright/nn/experts/counts.hpp>
#include <shardwright/nn/experts/global_balance.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/train/step/global_sum.hpp>
#include <shardwright/train/tape/recompute.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using nn_test::Vector;
using shardwright_test::Findings;
using shardwright_test::on_ranks;
using sw::RouterScores;

using Mesh = sw::DeviceMesh<dp, cp, tp>;
using Tokens = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<1, cp, tp>>; // [sequences, positions, experts]
using Counts = std::vector<std::int64_t>;

struct Extents3 {
  int dp, cp, tp;
  [[nodiscard]] int ranks() const { return dp * cp * tp; }
};
constexpr std::array<Extents3, 6> meshes{{{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 3}, {2, 2, 1}, {1, 2, 2}}};

Mesh mesh_of(const sw::HostCommunicator& world, const Extents3& extents) {
  return Mesh(world, sw::extent<dp>(extents.dp), sw::extent<cp>(extents.cp), sw::extent<tp>(extents.tp));
}

constexpr std::int64_t experts = 6;
constexpr std::int64_t sequences = 4;
constexpr std::int64_t positions = 5;
constexpr std::int64_t chosen = 2;
constexpr bool is_padding(std::int64_t token) { return token % 7 == 3; }

/// Sequences [first, first + count) of the batch.
sw::ShardedTensor<Tokens, double> logits_on(const Mesh& mesh, std::int64_t first = 0,
                                            std::int64_t count = sequences) {
  sw::ShardedTensor<Tokens, double> all(mesh, {sequences, positions, experts});
  sw::fill_normal(all, {3, 5});
  const auto whole = sw::redistribute<sw::Layout<3>>(all);
  sw::ShardedTensor<Tokens, double> out(mesh, {count, positions, experts});
  const auto offset = out.local_offset();
  const auto local = out.local_shape();
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(out.local_size()); ++i) {
    const std::int64_t row = i / experts;
    const std::int64_t token = (first + offset[0] + row / local[1]) * positions + offset[1] + row % local[1];
    out.mutable_data()[i] = whole.data()[token * experts + i % experts];
  }
  return out;
}
auto padding_on(const Mesh& mesh, std::int64_t first = 0, std::int64_t count = sequences) {
  sw::ShardedTensor<sw::TokenLayout<Tokens>, std::int32_t> out(mesh, {count, positions});
  const auto offset = out.local_offset();
  const std::int64_t columns = out.local_shape()[1];
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(out.local_size()); ++i)
    out.mutable_data()[i] =
        is_padding((first + offset[0] + i / columns) * positions + offset[1] + i % columns) ? -1 : 0;
  return out;
}
/// The counts of the papers: the largest scores, without bias and groups.
template <class Logits> auto choice_of(const Mesh& mesh, const Logits& logits, std::int64_t first = 0) {
  return sw::choose_experts(logits, {.chosen = chosen},
                            {.padding = padding_on(mesh, first, logits.shape()[0]).share()});
}

/// A loss and its gradient by definition, over token sets of a given number of sequences.
struct Plain {
  double loss = 0;
  Vector gradient;
};
Plain plain_balance(const Vector& z, std::int64_t set, bool sigmoid, double coefficient) {
  Plain out{0, Vector(z.size())};
  const auto count = static_cast<std::size_t>(experts);
  for (std::int64_t first = 0; first < sequences; first += set) {
    Vector counts(count);
    double tokens = 0;
    const auto each = [&](const auto& visit) {
      for (std::int64_t t = first * positions; t < (first + set) * positions; ++t)
        if (!is_padding(t))
          visit(static_cast<std::size_t>(t) * count);
    };
    each([&](std::size_t at) {
      ++tokens;
      for (std::size_t e = 0; e < count; ++e) {
        std::int64_t better = 0;
        for (std::size_t other = 0; other < count; ++other)
          better += z[at + other] > z[at + e] ? 1 : 0;
        counts[e] += better < chosen ? 1 : 0;
      }
    });
    each([&](std::size_t at) {
      Vector s(count);
      double sum = 0;
      for (std::size_t e = 0; e < count; ++e)
        sum += s[e] = sigmoid ? 1 / (1 + std::exp(-z[at + e])) : std::exp(z[at + e]);
      double mean = 0;
      for (std::size_t e = 0; e < count; ++e)
        mean += counts[e] * s[e] / sum;
      const double factor = coefficient * static_cast<double>(experts) / (chosen * tokens);
      out.loss += factor * mean;
      for (std::size_t e = 0; e < count; ++e)
        out.gradient[at + e] = factor * (counts[e] - mean) * s[e] / sum * (sigmoid ? 1 - s[e] : 1);
    });
  }
  return out;
}
Plain plain_z_loss(const Vector& z, double coefficient) {
  Plain out{0, Vector(z.size())};
  for (std::size_t at = 0; at < z.size(); at += experts) {
    if (is_padding(static_cast<std::int64_t>(at) / experts))
      continue;
    double sum = 0;
    for (std::size_t e = 0; e < experts; ++e)
      sum += std::exp(z[at + e]);
    out.loss += coefficient * std::log(sum) * std::log(sum);
    for (std::size_t e = 0; e < experts; ++e)
      out.gradient[at + e] = 2 * coefficient * std::log(sum) * std::exp(z[at + e]) / sum;
  }
  return out;
}

/// The sum of a loss over all ranks, which must not count tokens.
template <class Loss> double total_of(const Mesh& mesh, const Loss& loss, Findings& findings) {
  static_assert(std::is_same_v<typename Loss::layout, sw::Layout<0, sw::Partial<sw::Sum, dp, cp, tp>>>);
  findings.expect(loss.tokens.value == 0, "a balance loss counts tokens");
  std::array<double, 1> sum{loss.loss.value};
  sw::detail::sum_over_ranks(mesh.world(), sum);
  return sum[0];
}
double distance(const Vector& a, const Vector& b) {
  double out = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; out < 1 && i < a.size(); ++i)
    out = std::max(out, std::abs(a[i] - b[i]));
  return out;
}

template <class Record>
void compare(const Mesh& mesh, Findings& findings, const Plain& wanted, const std::string& what,
             const Record& record) {
  sw::Tape<> tape;
  const auto logits = logits_on(mesh);
  auto z = tape.variable(logits);
  const double loss = total_of(mesh, record(z, choice_of(mesh, logits)), findings);
  tape.backward();
  findings.expect(std::abs(loss - wanted.loss) < 1e-13, what, " loss ", loss, " for ", wanted.loss);
  const double off = distance(nn_test::whole_of(tape.gradient(z)), wanted.gradient);
  findings.expect(off < 1e-14, what, " gradient is off by ", off);
}

void compare_all(const Mesh& mesh, Findings& findings, const Extents3& extents) {
  const Vector z = nn_test::whole_of(logits_on(mesh));
  for (const bool sigmoid : {false, true}) {
    const sw::BalanceOptions options{0.3, sigmoid ? RouterScores::sigmoid : RouterScores::softmax};
    compare(mesh, findings, plain_balance(z, 1, sigmoid, 0.3), "sequence", [&](auto& x, const auto& choice) {
      return sw::balance_loss<sw::EachSequence>(x, choice, options);
    });
    compare(mesh, findings, plain_balance(z, sequences / extents.dp, sigmoid, 0.3), "microbatch",
            [&](auto& x, const auto& choice) {
              return sw::balance_loss<sw::EachMicrobatch>(x, choice, options);
            });
    compare(mesh, findings, plain_balance(z, sequences, sigmoid, 0.3), "whole",
            [&](auto& x, const auto& choice) {
              return sw::balance_loss<sw::WholeMicrobatch>(x, choice, options);
            });
  }
  compare(mesh, findings, plain_z_loss(z, 0.2), "z",
          [&](auto& x, const auto& choice) { return sw::router_z_loss(x, choice, 0.2); });
}

/// Gradients of the batch in microbatches of a given number of sequences, and the loss.
template <class Record, class AfterForwards>
Plain in_microbatches(const Mesh& mesh, Findings& findings, std::int64_t size, const Record& record,
                      const AfterForwards& after_forwards) {
  Plain out;
  std::vector<sw::Tape<>> tapes(static_cast<std::size_t>(sequences / size));
  std::vector<sw::Var<Tokens, double>> logits;
  for (std::size_t i = 0; i < tapes.size(); ++i) {
    const auto first = static_cast<std::int64_t>(i) * size;
    const auto block = logits_on(mesh, first, size);
    logits.push_back(tapes[i].variable(block));
    out.loss += total_of(mesh, record(logits.back(), choice_of(mesh, block, first)), findings);
  }
  after_forwards();
  for (std::size_t i = 0; i < tapes.size(); ++i) {
    tapes[i].backward();
    const Vector part = nn_test::whole_of(tapes[i].gradient(logits[i]));
    out.gradient.insert(out.gradient.end(), part.begin(), part.end());
  }
  return out;
}

/// Of the tokens of a step, 48 of 128 have targets that count: the answers.
void check_counted_share(const Mesh& mesh, Findings& findings) {
  using Ids = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, cp>>;
  using Batch = sw::TokenBatch<sw::NaturalOrder, Ids>;
  std::vector<Batch> step;
  for (std::int64_t pass = 0; pass < 2; ++pass) {
    typename Batch::Ids targets(mesh, {4, 16});
    const auto offset = targets.local_offset(), local = targets.local_shape();
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(targets.local_size()); ++i) {
      const std::int64_t row = offset[0] + i / local[1], position = offset[1] + i % local[1];
      targets.mutable_data()[i] = position >= 16 - 3 * (row + pass) ? 1 : -1;
    }
    step.push_back({targets.share(), targets.share()});
  }
  sw::set_counted_share(std::span(step));
  for (const Batch& batch : step)
    findings.expect(batch.counted_share == 48.0 / 128, "a share of ", batch.counted_share);
}

/// A microbatch of tokens with two experts, one of which each token chose: test vectors from the literature.
struct TwoExperts {
  int tokens;
  double first; ///< Probability of expert 0.
  int tokens_of_first;
};
using Rows = sw::Layout<2, sw::Shard<0, dp>>;
struct Given {
  sw::ShardedTensor<Rows, double> logits;
  sw::ExpertChoice<Rows> choice;
};
Given given(const Mesh& mesh, const TwoExperts& batch) {
  sw::ShardedTensor<Rows, double> logits(mesh, {batch.tokens, 2});
  sw::ShardedTensor<Rows, std::int32_t> choice(mesh, {batch.tokens, 1});
  for (std::size_t i = 0; i < choice.local_size(); ++i) {
    logits.mutable_data()[2 * i] = std::log(batch.first);
    logits.mutable_data()[2 * i + 1] = std::log(1 - batch.first);
    choice.mutable_data()[i] =
        choice.local_offset()[0] + static_cast<std::int64_t>(i) < batch.tokens_of_first ? 0 : 1;
  }
  return {std::move(logits), choice.share()};
}

} // namespace

TEST_CASE("balance and z-losses and their gradients agree with the formulas on every mesh") {
  for (const Extents3& extents : meshes) {
    INFO("dp " << extents.dp << " cp " << extents.cp << " tp " << extents.tp);
    CHECK(on_ranks(extents.ranks(), [&](const sw::HostCommunicator& world, Findings& findings) {
            compare_all(mesh_of(world, extents), findings, extents);
          }) == "");
  }
}

TEST_CASE("losses of routers are means over the routed tokens, however few of their targets count") {
  for (const Extents3& extents : {Extents3{1, 1, 1}, Extents3{2, 2, 1}}) {
    INFO("dp " << extents.dp << " cp " << extents.cp);
    CHECK(
        on_ranks(extents.ranks(), [&](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, extents);
          check_counted_share(mesh, findings);
          const Vector z = nn_test::whole_of(logits_on(mesh));
          Plain wanted = plain_balance(z, 1, false, 0.5);
          const Plain squares = plain_z_loss(z, 0.1), whole = plain_balance(z, sequences, false, 0.3);
          wanted.loss += squares.loss + whole.loss;
          for (std::size_t i = 0; i < z.size(); ++i)
            wanted.gradient[i] += squares.gradient[i] + whole.gradient[i];
          sw::GlobalBalance<Tokens> balance(mesh, experts, {.coefficient = 0.3});
          balance.initialize("balance", 1);
          sw::Tape<> tape;
          tape.set_counted_share(0.375);
          const auto logits = logits_on(mesh);
          const auto choice = choice_of(mesh, logits);
          auto x = tape.variable(logits);
          auto loss = sw::balance_loss<sw::EachSequence>(x, choice, {.coefficient = 0.5});
          loss += sw::router_z_loss(x, choice, 0.1);
          balance(x, choice);
          balance.end_forwards();
          tape.backward();
          loss += balance.take_loss();
          const double total = total_of(mesh, loss, findings);
          findings.expect(std::abs(total - 0.375 * wanted.loss) < 1e-13, total, " for ", 0.375 * wanted.loss);
          for (double& each : wanted.gradient)
            each *= 0.375;
          findings.expect(distance(nn_test::whole_of(tape.gradient(x)), wanted.gradient) < 1e-14, "gradient");
        }) == "");
  }
}

TEST_CASE("losses of sequences and of the global batch do not depend on the size of microbatches") {
  for (const Extents3& extents : {Extents3{1, 1, 1}, Extents3{2, 1, 2}}) {
    INFO("dp " << extents.dp << " tp " << extents.tp);
    CHECK(on_ranks(extents.ranks(), [&](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world, extents);
            const Vector z = nn_test::whole_of(logits_on(mesh));
            for (const std::int64_t size : {1, 2, 4}) {
              const auto expect = [&](const char* what, const Plain& got, const Plain& wanted) {
                findings.expect(std::abs(got.loss - wanted.loss) < 1e-13, what, " of ", size, ": ", got.loss);
                findings.expect(distance(got.gradient, wanted.gradient) < 1e-14, what, " gradient of ", size);
              };
              const auto sequence = [](auto& x, const auto& choice) {
                auto loss = sw::balance_loss<sw::EachSequence>(x, choice, {.coefficient = 0.5});
                return loss += sw::router_z_loss(x, choice, 0.1);
              };
              Plain both = plain_balance(z, 1, false, 0.5);
              const Plain squares = plain_z_loss(z, 0.1);
              both.loss += squares.loss;
              for (std::size_t i = 0; i < z.size(); ++i)
                both.gradient[i] += squares.gradient[i];
              expect("sequence", in_microbatches(mesh, findings, size, sequence, [] {}), both);

              sw::GlobalBalance<Tokens> balance(mesh, experts, {.coefficient = 0.5});
              balance.initialize("balance", 1);
              const auto global = [&](auto& x, const auto& choice) {
                balance(x, choice);
                return decltype(balance.take_loss()){};
              };
              Plain got = in_microbatches(mesh, findings, size, global, [&] { balance.end_forwards(); });
              got.loss = total_of(mesh, balance.take_loss(), findings);
              expect("global", got, plain_balance(z, sequences, false, 0.5));
            }
          }) == "");
  }
}

TEST_CASE(
    "two microbatches that are unbalanced in opposite ways are balanced together: 1.8, 1.4, 1.2, 1.05, 1") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {2, 1, 1});
          using Layout = sw::Layout<0, sw::Partial<sw::Sum, dp>>;
          // Divided once by all tokens, as a GradAccumulator does.
          const auto mean = [&](const sw::CountedLoss<Layout>& loss, int tokens) {
            std::array<double, 1> sum{loss.loss.value};
            sw::detail::sum_over_ranks(mesh.world(), sum);
            return sum[0] / tokens;
          };
          const auto one = [&](const TwoExperts& batch) {
            sw::Tape<> tape;
            const auto [logits, choice] = given(mesh, batch);
            return sw::balance_loss<sw::WholeMicrobatch>(tape.variable(logits), choice, {.coefficient = 1});
          };
          const auto global = [&](const std::vector<TwoExperts>& batches) {
            sw::GlobalBalance<Rows> balance(mesh, 2, {.coefficient = 1});
            balance.initialize("balance", 1);
            std::vector<sw::Tape<>> tapes(batches.size());
            for (std::size_t i = 0; i < batches.size(); ++i) {
              const auto [logits, choice] = given(mesh, batches[i]);
              balance(tapes[i].variable(logits), choice);
            }
            balance.end_forwards();
            for (auto& tape : tapes)
              tape.backward();
            return balance.take_loss();
          };
          const auto expect = [&](double got, double wanted) {
            findings.expect(std::abs(got - wanted) < 1e-14, got, " for ", wanted);
          };
          const TwoExperts first{10, 0.9, 10};
          const TwoExperts mirrored{10, 0.1, 0};
          const TwoExperts even{30, 0.5, 15};
          auto sum = one(first);
          sum += one(mirrored);
          expect(mean(sum, 20), 1.8);
          expect(mean(global({first, mirrored}), 20), 1);
          sum = one(first);
          sum += one(even);
          expect(mean(sum, 40), 1.2); // and not the mean of means, 1.4
          expect((mean(one(first), 10) + mean(one(even), 30)) / 2, 1.4);
          expect(mean(global({first, even}), 40), 1.05);

          // Counts that run along with the microbatches give 1.4, but only in this order.
          sw::ExpertCounts<Rows> counts(mesh, 2);
          sw::Tape<> tape;
          double running = 0;
          counts.add(tape.first_pass(), given(mesh, first).choice);
          running += mean(one(first), 10) / 2;
          counts.add(tape.first_pass(), given(mesh, mirrored).choice);
          const auto both = counts.finish();
          const auto [logits, choice] = given(mesh, mirrored);
          running +=
              mean(sw::stale_balance_loss(tape.variable(logits), choice, both, {.coefficient = 1}), 10) / 2;
          expect(running, 1.4);
          findings.expect(both.experts() == Counts{10, 10} && both.tokens() == 20, "counts");
          // Before the first step, none are known.
          const sw::StaleCounts<> none;
          expect(mean(sw::stale_balance_loss(tape.variable(logits), choice, none), 10), 0);
          findings.expect(!none.known() && none.experts().empty() && none.tokens() == 0, "none");
        }) == "");
}

TEST_CASE("a global balance rejects passes in an order that would miscount, and says what to do") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {1, 1, 1});
          const Given batch = given(mesh, {10, 0.9, 10});
          sw::GlobalBalance<Rows> balance(mesh, 2);
          const auto refused = [&](const std::string& sentence, const auto& action) {
            std::string text;
            try {
              action();
            } catch (const sw::LifecycleError& error) {
              text = error.what();
            }
            findings.expect(text.find(sentence) == 0, text);
          };
          refused("GlobalBalance: it must be a part of its model", [&] {
            sw::Tape<> tape;
            balance(tape.variable(batch.logits), batch.choice);
          });
          balance.initialize("balance", 1);
          refused("GlobalBalance: the counts of the whole batch must be final", [&] {
            sw::Tape<> tape;
            balance(tape.variable(batch.logits), batch.choice);
            tape.backward();
          });
          sw::Tape<> tape;
          balance(tape.variable(batch.logits), batch.choice); // and the one above
          balance.end_forwards();
          refused("GlobalBalance: all microbatches of a step must be counted before its first backward pass",
                  [&] {
                    sw::Tape<> late;
                    balance(late.variable(batch.logits), batch.choice);
                  });
          sw::Tape<> watched(sw::Recording::evaluation);
          balance(watched.input(batch.logits), batch.choice); // counts nothing
        }) == "");
}

TEST_CASE("a coefficient of a balance loss that differs between ranks is found in the first step") {
  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {2, 1, 1});
          const auto logits = logits_on(mesh);
          const auto choice = sw::choose_experts(logits, {.chosen = chosen});
          const sw::BalanceOptions own{.coefficient = world.rank() == 0 ? 0.25 : 0.5};
          const auto differs = [&](const auto& loss) {
            sw::Tape<> tape;
            tape.check_inputs(true);
            std::string text;
            try {
              loss(tape.variable(logits));
            } catch (const sw::ConfigurationMismatch& error) {
              text = error.what();
            }
            findings.expect(
                text.find("balance_loss: all ranks along dp must give the same coefficient, but it is "
                          "0.25 on rank 0 and 0.5 on rank 1") == 0,
                text);
          };
          sw::GlobalBalance<Tokens> balance(mesh, experts, own);
          balance.initialize("balance", 1);
          differs([&](const auto& on_tape) { balance(on_tape, choice); });
          differs([&](const auto& on_tape) {
            static_cast<void>(sw::balance_loss<sw::EachSequence>(on_tape, choice, own));
          });
        }) == "");
}

TEST_CASE("each token counts once: only in first passes, not per copy, and in 64 bits") {
  CHECK(on_ranks(4, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {2, 1, 2});
          // Tokens are not split over tp, whose ranks all have them.
          using Copied = sw::Layout<3, sw::Shard<0, dp>>;
          sw::ShardedTensor<Copied, double> logits(mesh, {3, 4, experts});
          sw::fill_normal(logits, {1, 9});
          sw::ExpertCounts<Copied> counts(mesh, experts);
          static_assert(std::is_same_v<decltype(counts)::layout, sw::Layout<1, sw::Partial<sw::Sum, dp>>>);
          sw::Tape<> tape;
          auto x = tape.variable(logits);
          auto gates = sw::recompute([&](auto z) {
            auto routing = sw::route(z * 2.0, {.chosen = chosen});
            counts.add(z.first_pass(), routing.experts);
            return routing.gates * routing.gates;
          })(x);
          sw::ShardedTensor<Copied, double> seed(mesh, gates.shape());
          sw::fill(seed, 1.0);
          tape.seed(gates, std::move(seed));
          tape.backward();
          const auto once = counts.finish();
          findings.expect(once.tokens() == 12, "tokens ", once.tokens());
          std::int64_t sum = 0;
          for (const std::int64_t each : once.experts())
            sum += each;
          findings.expect(sum == 12 * chosen, "slots ", sum);
          static_assert(
              std::is_same_v<std::remove_cvref_t<decltype(counts.part())>::value_type, std::int64_t>);
          findings.expect(counts.finish().tokens() == 0, "the next step begins at 0");
        }) == "");
}

TEST_CASE("losses of a router whose tokens are split further are added to token losses, each counted once") {
  for (const Extents3& extents : meshes)
    CHECK(on_ranks(extents.ranks(), [&extents](const sw::HostCommunicator& world, Findings& findings) {
            const Mesh mesh = mesh_of(world, extents);
            sw::Tape<> tape;
            const auto logits = logits_on(mesh);
            const auto balance = sw::router_z_loss(tape.variable(logits), choice_of(mesh, logits));
            using Split = sw::Layout<0, sw::Partial<sw::Sum, dp, cp, tp>>;
            static_assert(std::is_same_v<decltype(balance)::layout, Split>);
            // Ranks of dp have 3 tokens each, of loss 1 and 2 and so on; those of cp and tp have copies.
            const int rows = mesh.coordinate<dp>() + 1;
            const sw::CountedLoss<sw::Layout<0, sw::Partial<sw::Sum, dp>>> losses{{3.0 * rows}, {3}};
            auto all = sw::as_sum_over<Split>(mesh, losses);
            all += balance;
            const double tokens = 3.0 * extents.dp;
            const double wanted = 3.0 * extents.dp * (extents.dp + 1) / 2 + total_of(mesh, balance, findings);
            const double mean = sw::mean_over_mesh(mesh, all.loss, all.tokens).value;
            findings.expect(std::abs(mean - wanted / tokens) < 1e-13, mean, " for ", wanted / tokens);
          }) == "");
}

TEST_CASE("ranks without tokens, sets without tokens and one expert for all take part in balance losses") {
  CHECK(on_ranks(3, [](const sw::HostCommunicator& world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {3, 1, 1});
          sw::ShardedTensor<Tokens, double> logits(mesh, {2, 3, 4}); // none on the last rank
          sw::fill(logits, 0.25);
          sw::ShardedTensor<sw::TokenLayout<Tokens>, std::int32_t> padding(mesh, {2, 3});
          sw::fill(padding, mesh.rank() == 1 ? -1 : 0); // all of the second sequence
          sw::Tape<> tape;
          auto z = tape.variable(logits);
          const auto choice = sw::choose_experts(logits, {.chosen = 1}, {.padding = padding.share()});
          const auto total = [&](const auto& loss) { return total_of(mesh, loss, findings); };
          // All to expert 0, with p = 1/4: L = 1, and T of L = 3.
          const sw::BalanceOptions options{.coefficient = 1};
          findings.expect(std::abs(total(sw::balance_loss<sw::EachSequence>(z, choice, options)) - 3) < 1e-14,
                          "seq");
          findings.expect(
              std::abs(total(sw::balance_loss<sw::EachMicrobatch>(z, choice, options)) - 3) < 1e-14, "mb");
          findings.expect(
              std::abs(total(sw::balance_loss<sw::WholeMicrobatch>(z, choice, options)) - 3) < 1e-14, "all");
          tape.backward();
          const Vector gradient = nn_test::whole_of(tape.gradient(z));
          for (std::size_t i = 12; i < gradient.size(); ++i)
            findings.expect(gradient[i] == 0, "the gradient of padding is ", gradient[i]);
        }) == "");
}
