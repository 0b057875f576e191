// SPDX-License-Identifier: Apache-2.0
#include "nn/block_check.hpp"
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/ranks.hpp"

#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/nn/losses/linear_cross_entropy.hpp>
#include <shardwright/nn/losses/mse.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/train/check_gradients.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/tape/recompute.hpp>
#include <shardwright/train/tape/sum_loss.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
using namespace nn_test;
using namespace sw::axis;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;

constexpr std::int64_t tokens = 7;
constexpr std::int64_t vocabulary = 10;

using Rows = sw::Layout<1, sw::Shard<0, dp>>;

/// Targets of which some do not count: negative ones, and ids of 3 if these are ignored.
sw::ShardedTensor<Rows, std::int32_t> targets_on(const Mesh& mesh) {
  sw::ShardedTensor<Rows, std::int32_t> out(mesh, {tokens});
  for (std::size_t i = 0; i < out.local_size(); ++i) {
    const auto token = static_cast<int>(out.local_offset()[0]) + static_cast<int>(i);
    out.mutable_data()[i] = token == 2 ? -1 : token == 4 ? 3 : (3 * token + 1) % static_cast<int>(vocabulary);
  }
  return out;
}

/// The loss of the targets' distributions, by definition.
double plain_loss(const Vector& scores, const Vector& targets, const sw::CrossEntropyOptions& options) {
  double loss = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const int target = static_cast<int>(targets[i]);
    if (target < 0 || target == options.ignored)
      continue;
    const double* row = scores.data() + i * vocabulary;
    double sum = 0;
    for (std::size_t v = 0; v < vocabulary; ++v)
      sum += std::exp(row[v]);
    for (std::size_t v = 0; v < vocabulary; ++v) {
      const double wanted = options.label_smoothing / vocabulary +
                            (static_cast<int>(v) == target ? 1 - options.label_smoothing : 0);
      loss -= wanted * (row[v] - std::log(sum));
    }
  }
  return loss;
}

/// The sums of all ranks.
template <class Loss> std::pair<double, double> totals_of(const Mesh& mesh, const Loss& loss) {
  const bool once = sw::detail::counts_once<typename Loss::layout>(mesh.core());
  std::array<double, 2> sums{once ? loss.loss.value : 0, once ? static_cast<double>(loss.tokens.value) : 0};
  sw::detail::sum_over_ranks(mesh.world(), sums);
  return {sums[0], sums[1]};
}

template <class Scores>
void check_cross_entropy(const Mesh& mesh, Findings& findings, const std::string& where) {
  const auto scores = random_tensor<Scores>(mesh, {tokens, vocabulary}, 1);
  const auto targets = targets_on(mesh);
  for (const sw::CrossEntropyOptions options :
       {sw::CrossEntropyOptions{}, sw::CrossEntropyOptions{.label_smoothing = 0.2},
        sw::CrossEntropyOptions{.label_smoothing = 0.1, .ignored = 3},
        sw::CrossEntropyOptions{.ignored = 3}}) {
    const auto [loss, count] = totals_of(mesh, sw::cross_entropy(scores, targets, options));
    findings.expect(std::abs(loss - plain_loss(whole_of(scores), whole_of(targets), options)) < 1e-12,
                    "loss ", loss, where);
    findings.expect(count == (options.ignored == 3 ? 5 : 6), "count ", count, where);
    for (const auto kind : {sw::Recompute::none, sw::Recompute::full}) {
      const auto worst = sw::check_gradients(
          [&](auto x) {
            return sw::cross_entropy(
                sw::recompute([](auto v) { return sw::square(std::move(v)); }, kind)(std::move(x)), targets,
                options);
          },
          sw::members("scores", scores), {.directions = 1, .elements = 5});
      findings.expect(worst.error < 1e-7, worst.input, " is off by ", worst.error, where);
    }
  }
  std::string message;
  try {
    static_cast<void>(sw::cross_entropy(scores, targets, {.label_smoothing = 1}));
  } catch (const sw::InvalidArgument& error) {
    message = error.what();
  }
  findings.expect(message.find("cross_entropy: the label smoothing must be at least 0 and below 1") == 0,
                  message);
  message.clear();
  try {
    const sw::ShardedTensor<Rows, std::int32_t> more(mesh, {tokens + 1});
    static_cast<void>(sw::cross_entropy(scores, more));
  } catch (const sw::InvalidArgument& error) {
    message = error.what();
  }
  findings.expect(message.find("the tensor of targets must have the shape [7], but it has [8]") !=
                      std::string::npos,
                  message);
}

void check(const sw::HostCommunicator& world, Findings& findings, Extents extents) {
  const Mesh mesh = mesh_of(world, extents);
  const std::string where =
      " on dp " + std::to_string(extents.data) + " tp " + std::to_string(extents.tensor);
  check_cross_entropy<sw::Layout<2, sw::Shard<0, dp>>>(mesh, findings, where);
  check_cross_entropy<sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>>(mesh, findings, where);

  // The head of a language model, its vocabulary over tp.
  using Hidden = sw::Layout<2, sw::Shard<0, dp>>;
  using Table = sw::Layout<2, sw::Shard<0, tp>>;
  using Scores = sw::MatmulLayout<Hidden, Table, sw::MatmulForm::right_transposed>;
  using Raw = sw::MatmulLayout<sw::Gradient<Scores>, Hidden, sw::MatmulForm::left_transposed>;
  const auto x = random_tensor<Hidden>(mesh, {tokens, 4}, 2);
  sw::Parameter<Table, Raw, double> table("table", random_tensor<Table>(mesh, {vocabulary, 4}, 3));
  const auto targets = targets_on(mesh);
  const sw::CrossEntropyOptions options{.label_smoothing = 0.3, .ignored = 3};
  const auto head = sw::check_gradients(
      [&](auto v) { return sw::linear_cross_entropy(std::move(v), table, targets, options); },
      sw::members("x", x, "table", table), {.directions = 1, .elements = 5});
  findings.expect(head.error < 1e-7, "head: ", head.input, " is off by ", head.error, where);

  {
    sw::Tape<> tape;
    const auto v = tape.variable(x);
    const auto watched = totals_of(mesh, sw::cross_entropy(sw::linear_scores(v, table), targets, options));
    const auto trained = totals_of(mesh, sw::linear_cross_entropy(v, table, targets, options));
    findings.expect(std::abs(watched.first - trained.first) < 1e-12 * trained.first &&
                        watched.second == trained.second,
                    "scores that are only watched give ", watched.first, ", not ", trained.first, where);
  }

  // Squared errors, and a scalar that the program defines.
  using Block = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>;
  const auto value = random_tensor<Block>(mesh, {5, 6}, 4);
  const auto wanted = random_tensor<Block>(mesh, {5, 6}, 5);
  const auto [error, elements] = totals_of(mesh, sw::mse(value, wanted));
  double squares = 0;
  for (std::size_t i = 0; i < 30; ++i)
    squares += std::pow(whole_of(value)[i] - whole_of(wanted)[i], 2);
  findings.expect(std::abs(error - squares) < 1e-12 && elements == 30, "mse ", error, where);
  const auto errors = sw::check_gradients([&](auto v) { return sw::mse(sw::tanh(std::move(v)), wanted); },
                                          sw::members("value", value), {.elements = 3});
  findings.expect(errors.error < 1e-7, "mse is off by ", errors.error, where);
  using OverDp = sw::Layout<0, sw::Partial<sw::Sum, dp>>;
  for (const std::int64_t counted : {5, 7}) {
    sw::Tape<> tape;
    const auto loss = sw::sum_loss(sw::sum(sw::exp(tape.input(value))).template as<OverDp>(),
                                   sw::TokenCount<OverDp>{counted});
    findings.expect(totals_of(mesh, loss).second == static_cast<double>(counted * extents.data), "of ",
                    counted, " tokens", where);
  }
  const auto own = sw::check_gradients(
      [&](auto v) {
        return sw::sum_loss(sw::sum(sw::exp(v)).template as<OverDp>(), sw::TokenCount<OverDp>{5});
      },
      sw::members("value", value), {.elements = 3});
  findings.expect(own.error < 1e-7, "sum_loss is off by ", own.error, where);
}

} // namespace

TEST_CASE("losses and their gradients equal those of whole tensors on every mesh") {
  for (const Extents extents : block_meshes)
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            check(world, findings, extents);
          }) == "");
}

TEST_CASE("the tape's loss scale multiplies the gradients of losses, but not their sums") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {1, 2});
          using Block = sw::Layout<2, sw::Shard<1, tp>>;
          const auto value = random_tensor<Block>(mesh, {5, 6}, 4);
          const auto wanted = random_tensor<Block>(mesh, {5, 6}, 5);
          sw::ShardedTensor<sw::Layout<1>, std::int32_t> targets(mesh, {5});
          sw::fill(targets, 2);
          const auto gradient_at = [&](int exponent, auto loss_of) {
            sw::Tape<> tape;
            tape.set_loss_scale(sw::LossScale::power_of_two(exponent));
            const auto variable = tape.variable(value);
            const double loss = loss_of(variable).loss.value;
            tape.backward();
            Vector out = whole_of(tape.gradient(variable));
            out.push_back(loss);
            return out;
          };
          const auto check = [&](const char* what, auto loss_of) {
            const Vector plain = gradient_at(0, loss_of);
            const Vector scaled = gradient_at(3, loss_of);
            findings.expect(plain.back() == scaled.back(), what, ": the loss");
            for (std::size_t i = 0; i + 1 < plain.size(); ++i)
              findings.expect(8 * plain[i] == scaled[i] && plain[i] != 0, what, " ", i);
          };
          check("mse", [&](const auto& v) { return sw::mse(v, wanted); });
          check("cross_entropy", [&](const auto& v) { return sw::cross_entropy(v, targets); });
          check("sum_loss", [&](const auto& v) {
            return sw::sum_loss(sw::sum(sw::square(v)).template as<sw::Layout<0>>(),
                                sw::TokenCount<sw::Layout<0>>{1});
          });
        }) == "");
}

TEST_CASE("the head's weight gradient in a later pass has its input, which is recomputed") {
  for (const Extents extents : {Extents{1, 1}, {2, 1}, {2, 2}})
    CHECK(on_ranks(extents.data * extents.tensor, [extents](sw::HostCommunicator world, Findings& findings) {
            const Mesh mesh = mesh_of(world, extents);
            using Hidden = sw::Layout<2, sw::Shard<0, dp>>;
            using Table = sw::Layout<2, sw::Shard<0, tp>>;
            using Scores = sw::MatmulLayout<Hidden, Table, sw::MatmulForm::right_transposed>;
            using Raw = sw::MatmulLayout<sw::Gradient<Scores>, Hidden, sw::MatmulForm::left_transposed>;
            struct Head {
              sw::Parameter<Table, Raw, double> table;
              auto members() { return sw::members("table", table); }
            };
            Head head{{"table", random_tensor<Table>(mesh, {vocabulary, 4}, 3)}};
            sw::GradAccumulator accumulator(head);
            const auto x = random_tensor<Hidden>(mesh, {tokens, 4}, 2);
            const auto targets = targets_on(mesh);
            const auto gradients = [&](sw::Recompute kind, bool apart) {
              sw::Tape<> tape;
              {
                // Its operands are released after the input pass.
                auto h = sw::recompute([](auto z) { return sw::gelu_tanh(std::move(z)); },
                                       kind)(sw::square(tape.variable(x)));
                const auto sums = sw::linear_cross_entropy(std::move(h), head.table, targets);
                accumulator.add(sums.loss, sums.tokens);
              }
              if (apart) {
                tape.backward_inputs();
                tape.backward_weights();
              } else {
                tape.backward();
              }
              static_cast<void>(accumulator.finish());
              Vector out = whole_of(head.table.gradient());
              accumulator.restart();
              return out;
            };
            const Vector kept = gradients(sw::Recompute::none, false);
            for (const auto kind : {sw::Recompute::none, sw::Recompute::full, sw::Recompute::selective})
              for (const bool apart : {false, true})
                findings.expect(gradients(kind, apart) == kept, "the gradients differ");
          }) == "");
}

namespace {

/// A trained table of words, in a loop of the program's own.
struct OwnHead {
  using Hidden = sw::Layout<2, sw::Shard<0, dp>>;
  using Table = sw::Layout<2>;
  using Raw = sw::Layout<2, sw::Partial<sw::Sum, dp>>;
  sw::Parameter<Table, Raw, double> table;
  auto members() { return sw::members("table", table); }

  explicit OwnHead(const Mesh& mesh) : table("table", random_tensor<Table>(mesh, {vocabulary, 4}, 3)) {}
};
struct TwoHeads {
  OwnHead first, second;
  auto members() { return sw::members("first", first, "second", second); }

  explicit TwoHeads(const Mesh& mesh) : first(mesh), second(mesh) {}
};

} // namespace

TEST_CASE("a reproducible cross entropy refuses ranks that share no parts, on every rank") {
  CHECK(on_ranks(3, [](sw::HostCommunicator world, Findings& findings) {
          using Scores =
              sw::ShardedTensor<sw::Layout<2, sw::Shard<1, tp>>, float, sw::Reproducible<sw::DefaultTarget>>;
          const Scores scores(mesh_of(world, {1, 3}), {tokens, 8}); // blocks of 3, 3 and 2 words
          const auto said = failure_of<sw::InvalidArgument>(
              [&] { static_cast<void>(sw::detail::vocabulary_parts(scores, {})); });
          findings.expect(has(said, "3 ranks share 8 words (pad"), said);
        }) == "");
}

TEST_CASE("a tape's loss scale travels with its sums, and the accumulator removes it") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {2, 1});
          const auto x = random_tensor<OwnHead::Hidden>(mesh, {tokens, 4}, 2);
          const auto targets = targets_on(mesh);
          OwnHead head(mesh);
          sw::GradAccumulator accumulator(head);
          const auto add_with = [&](int exponent, const auto& add_sums) {
            sw::Tape<> tape;
            tape.set_loss_scale(sw::LossScale::power_of_two(exponent));
            auto sums = sw::linear_cross_entropy(tape.input(x), head.table, targets);
            tape.backward();
            add_sums(sums);
          };
          const auto add = [&](int exponent) {
            add_with(exponent, [&](const auto& sums) { accumulator.add(sums); });
          };
          const auto norm_with = [&](int exponent, auto add_sums) {
            add_with(exponent, add_sums);
            add_with(exponent, add_sums);
            const double norm = accumulator.finish().gradient_norm;
            accumulator.restart();
            return norm;
          };
          const auto norm_at = [&](int exponent) {
            return norm_with(exponent, [&](const auto& sums) { accumulator.add(sums); });
          };
          const double plain = norm_at(0), scaled = norm_at(10);
          findings.expect(plain == scaled, "the norm is ", scaled, " instead of ", plain);
          using OverDp = sw::Layout<0, sw::Partial<sw::Sum, dp>>;
          const double rebuilt = norm_with(10, [&](const sw::CountedLoss<OverDp>& sums) {
            accumulator.add(sw::LossSum<OverDp>{sums.loss.value}, sw::TokenCount<OverDp>{sums.tokens.value});
          });
          findings.expect(plain == rebuilt, "with rebuilt sums ", rebuilt, " instead of ", plain);
          const double assumed = norm_with(10, [&](const sw::CountedLoss<OverDp>& sums) {
            std::array<double, 2> totals{sums.loss.value, static_cast<double>(sums.tokens.value)};
            sw::HostCommunicator(world).all_reduce_in_place(std::span<double>(totals));
            const sw::CountedLoss<sw::Layout<0>> reduced{{totals[0]}, {static_cast<std::int64_t>(totals[1])}};
            accumulator.add(sw::assume_replicated(reduced));
          });
          findings.expect(plain == assumed, "with reduced sums ", assumed, " instead of ", plain);
          const std::string other = failure_of<sw::LifecycleError>([&] {
            static_cast<void>(norm_with(10, [&](const sw::CountedLoss<OverDp>& sums) {
              accumulator.add(sw::CountedLoss<OverDp>{
                  {sums.loss.value, {.scale = sw::LossScale::power_of_two(9)}}, sums.tokens});
            }));
          });
          findings.expect(has(other, "all losses of a step must have one loss scale"), other);
          accumulator.restart();
          add(3);
          const std::string two = failure_of<sw::LifecycleError>([&] { add(4); });
          findings.expect(has(two, "all losses of a step must have one loss scale"), two);
          sw::Tape<> tape;
          static_cast<void>(tape.input(x));
          const std::string late = failure_of<sw::LifecycleError>([&] { tape.set_loss_scale({}); });
          findings.expect(has(late, "the loss scale must be set before anything is recorded"), late);
        }) == "");
}

TEST_CASE("microbatches whose sums or backward pass are missing, and sums that are added twice, are errors") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {2, 1});
          const auto x = random_tensor<OwnHead::Hidden>(mesh, {tokens, 4}, 2);
          const auto targets = targets_on(mesh);
          OwnHead head(mesh);
          sw::GradAccumulator accumulator(head);
          sw::Tape<> tape;
          const auto loss = [&](sw::Recording recording) {
            tape.restart(recording);
            return sw::linear_cross_entropy(tape.input(x), head.table, targets);
          };
          const auto microbatch = [&](bool goes_back, bool adds) {
            const auto sums = loss(sw::Recording::training);
            if (goes_back)
              tape.backward();
            if (adds)
              accumulator.add(sums);
          };
          const auto refusal = [&](const auto& second) {
            microbatch(true, true);
            std::string said = failure_of<sw::LifecycleError>([&] {
              second();
              static_cast<void>(accumulator.finish());
            });
            accumulator.restart();
            return said;
          };
          const std::string without_backward = refusal([&] { microbatch(false, true); });
          findings.expect(has(without_backward, "sums of 2 were added, and backward passes of only 1 gave"),
                          without_backward);
          const std::string unadded = refusal([&] { microbatch(true, false); });
          findings.expect(has(unadded, "2 backward passes gave gradients, and sums of only 1"), unadded);
          const std::string evaluated = refusal([&] { accumulator.add(loss(sw::Recording::evaluation)); });
          findings.expect(has(evaluated, "and add no evaluation"), evaluated);
          const std::string twice = refusal([&] {
            const auto sums = loss(sw::Recording::training);
            tape.backward();
            accumulator.add(sums);
            accumulator.add(sums);
          });
          findings.expect(has(twice, "the sums of a loss must be added once"), twice);

          // Right: losses of one tape, added apart or together, sums before the backward pass, a recording
          // that is dropped, and gradients that come from another tape.
          const auto total = [&](bool together) {
            auto first = loss(sw::Recording::training);
            const auto second = sw::linear_cross_entropy(tape.input(x), head.table, targets);
            if (!together)
              accumulator.add(first);
            if (together)
              accumulator.add(first += second);
            else
              accumulator.add(second);
            tape.backward();
            microbatch(false, false);
            const double norm = accumulator.finish().gradient_norm;
            accumulator.restart();
            return norm;
          };
          const double apart = total(false);
          findings.expect(apart == total(true), "two losses of one tape");
          microbatch(true, true);
          findings.expect(std::abs(accumulator.finish().gradient_norm / apart - 1) < 1e-14, "one loss");
          accumulator.restart();

          TwoHeads heads(mesh);
          sw::GradAccumulator of_heads(heads);
          for (OwnHead* const head_of_task :
               {&heads.first, &heads.second}) { // each has a microbatch of its own
            tape.restart();
            of_heads.add(sw::linear_cross_entropy(tape.input(x), head_of_task->table, targets));
            tape.backward();
          }
          findings.expect(of_heads.finish().finite(), "a microbatch needs not reach every parameter");

          sw::Tape<> upper;
          for (int half = 0; half < 2;
               ++half) { // the sums of one tape, gradients of two recordings of another
            tape.restart();
            const auto scores = sw::matmul_transposed(tape.input(x), head.table);
            upper.restart();
            const auto above = upper.variable(scores.value());
            const auto sums = sw::cross_entropy(above, targets);
            upper.backward();
            tape.seed(scores, upper.gradient(above).clone());
            tape.backward();
            if (half == 0)
              accumulator.add(sums);
          }
          findings.expect(accumulator.finish().finite(), "seeded gradients are not compared");
        }) == "");
}

namespace {

/// A head whose parameters' gradients have no axis in common over which all are sums: each data rank has rows
/// of its own in `shift`.
struct ShiftedHead : OwnHead {
  using Shift = sw::Layout<2, sw::Shard<0, dp>>;
  explicit ShiftedHead(const Mesh& mesh)
      : OwnHead(mesh), shift("shift", random_tensor<Shift>(mesh, {6, vocabulary}, 7)) {}
  sw::Parameter<Shift, Shift, double> shift;
  auto members() { return sw::members("table", table, "shift", shift); }
};

} // namespace

TEST_CASE("a loss that is read away from its axes cannot be counted by one rank's tokens") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {2, 1});
          const auto x = random_tensor<OwnHead::Hidden>(mesh, {6, 4}, 2);
          ShiftedHead head(mesh);
          sw::GradAccumulator accumulator(head);
          const auto sums_of = [&](const auto& read, const auto& count) {
            sw::Tape<> tape;
            auto scores = sw::matmul_transposed(tape.input(x), head.table);
            auto sums = sw::sum_loss(read(sw::sum(sw::square(std::move(scores) + head.shift))), count);
            tape.backward();
            return sums;
          };
          using OverDp = sw::Layout<0, sw::Partial<sw::Sum, dp>>;
          using Whole = sw::Layout<0>;
          const auto over_dp = [](auto loss) { return loss.template as<OverDp>(); };
          const auto whole = [](auto loss) { return loss.template as<Whole>(); };
          accumulator.add(sums_of(over_dp, sw::TokenCount<OverDp>{3}));
          const sw::GradientSummary summary = accumulator.finish();
          accumulator.restart();
          const auto rejects = [&](const auto& read) {
            const std::string said = failure_of<sw::InvalidArgument>(
                [&] { static_cast<void>(sums_of(read, sw::TokenCount<Whole>{3})); });
            findings.expect(
                has(said,
                    "sum_loss: loss and count must be Partial over dp, whose 2 ranks have different rows") &&
                    has(said, "the 3 tokens of rank " + std::to_string(world.rank())) &&
                    has(said, "losses_test.cpp"),
                said);
          };
          rejects(whole);
          rejects([&](auto loss) { return sw::as_var(loss.template as<Whole>()); }); // a Var of Layout<0>
          rejects([&](auto loss) { return sw::as_var(loss.template as<Whole>()) * 1.0; });
          static_cast<void>(sums_of(whole, sw::TokenCount<Whole>{0})); // counts nothing wrongly
          accumulator.restart();
          accumulator.add(sums_of(whole, sw::assume_replicated(sw::TokenCount<Whole>{6}))); // of both ranks
          const sw::GradientSummary same = accumulator.finish();
          findings.expect(same.tokens == 6 && std::abs(same.loss.value / summary.loss.value - 1) < 1e-14 &&
                              std::abs(same.gradient_norm / summary.gradient_norm - 1) < 1e-14,
                          "loss ", same.loss.value, " norm ", same.gradient_norm);
        }) == "");
}

TEST_CASE("a loss from gathered rows, or from features that are split, is counted without the axis") {
  CHECK(on_ranks(4, [](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {2, 2});
          using Split = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>;
          using OverDp = sw::Layout<0, sw::Partial<sw::Sum, dp>>;
          const auto x = random_tensor<Split>(mesh, {6, 4}, 2);
          double squares = 0;
          for (const double element : whole_of(x))
            squares += element * element;
          sw::Tape<> tape;
          const auto value = tape.input(x);
          const auto gathered = sw::sum_loss(sw::sum(sw::square(value.template as<sw::Layout<2>>())),
                                             sw::TokenCount<sw::Layout<0>>{6});
          const auto own =
              sw::sum_loss(sw::sum(sw::square(value)).template as<OverDp>(), sw::TokenCount<OverDp>{3});
          findings.expect(std::abs(gathered.loss.value / squares - 1) < 1e-14, gathered.loss.value);
          findings.expect(own.tokens.value == 3 && totals_of(mesh, own).second == 6, own.loss.value);
        }) == "");
}

TEST_CASE("weights must not change between a forward pass and its backward pass") {
  CHECK(on_ranks(2, [](sw::HostCommunicator world, Findings& findings) {
          const Mesh mesh = mesh_of(world, {2, 1});
          const auto x = random_tensor<OwnHead::Hidden>(mesh, {tokens, 4}, 2);
          const auto targets = targets_on(mesh);
          OwnHead head(mesh);
          sw::GradAccumulator accumulator(head);
          sw::AdamW optimizer;
          sw::Tape<> tape, ahead;
          const auto forward = [&](sw::Tape<>& on) {
            on.restart();
            return sw::linear_cross_entropy(on.variable(x), head.table, targets);
          };
          const auto first = forward(tape);
          static_cast<void>(forward(ahead));
          tape.backward();
          accumulator.add(first);
          optimizer.step(head, accumulator.finish(), 0.1);
          accumulator.restart();
          const std::string said = failure_of<sw::LifecycleError>([&] { ahead.backward(); });
          findings.expect(
              has(said, "Parameter table: its weights must stay the same from a forward pass until"), said);
          accumulator.restart();
          const auto again = forward(ahead);
          ahead.backward();
          accumulator.add(again);
          findings.expect(accumulator.finish().finite(), "recorded again, it runs");
        }) == "");
}
