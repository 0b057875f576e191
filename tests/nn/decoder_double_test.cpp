// SPDX-License-Identifier: Apache-2.0
#include "nn/same_on_every_mesh.hpp"
#include "support/finish_gradient.hpp"
#include "support/larger.hpp"
#include "support/matchers.hpp"
#include "support/ranks.hpp"

#include <shardwright/io/packed_tokens.hpp>
#include <shardwright/tensor/load_rows.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Double precision: losses to 1e-10, gradients compared with finite differences, and the separate passes of a
// layer.

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using nn_test::Problem;
using nn_test::Way;
using shardwright_test::ContainsSubstring;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

/// Small, but with every feature: grouped queries, masked targets, two layers, and a hidden dimension and a
/// vocabulary of which two ranks hold different parts.
Problem small_problem(bool tied) {
  Problem problem;
  problem.config.layers = 2;
  problem.config.width = 16;
  problem.config.heads = 4;
  problem.config.kv_heads = 2;
  problem.config.hidden = 7;
  problem.config.vocabulary = 11;
  problem.config.sequence = 6;
  problem.config.tied_embedding = tied;
  problem.config.initial_deviation = 0.4; // well away from the linear regime of a fresh model
  problem.batch = 4;
  return problem;
}

/// The address of a global element of a tensor, or nothing if this rank does not hold it.
template <class Tensor> double* element_at(Tensor& tensor, std::uint64_t global) {
  const auto offset = tensor.local_offset();
  std::array<std::int64_t, offset.size()> index{};
  for (std::size_t d = offset.size(); d-- > 0;) {
    const auto extent = static_cast<std::uint64_t>(tensor.shape()[d]);
    index[d] = static_cast<std::int64_t>(global % extent);
    global /= extent;
  }
  std::size_t local = 0;
  for (std::size_t d = 0; d < offset.size(); ++d) {
    const std::int64_t inside = index[d] - offset[d];
    if (inside < 0 || inside >= tensor.local_shape()[d])
      return nullptr;
    local = local * static_cast<std::size_t>(tensor.local_shape()[d]) + static_cast<std::size_t>(inside);
  }
  return tensor.mutable_data() + local;
}

template <class Layouts> struct Fixture {
  using Model = sw::SingleStageModel<sw::Decoder<Layouts, double>>;
  using Ids = typename Model::Batch::Ids;
  using Mesh = sw::DecoderMesh;

  Fixture(const sw::HostCommunicator& world, const Problem& problem, Way way)
      : mesh(sw::decoder_mesh(world, way.extents())), model(mesh, problem.config, problem.seed),
        ids(mesh, {problem.batch, problem.config.sequence}),
        targets(mesh, {problem.batch, problem.config.sequence}) {
    nn_test::fill_batch(problem, 0, 0, ids, targets);
  }

  [[nodiscard]] typename Model::Batch batch() const { return {ids.share(), targets.share()}; }
  /// The loss of the whole batch, summed.
  double loss() {
    const auto sums = model.evaluate(batch());
    return sw::mean_over_mesh(mesh, sums.loss, sums.tokens).value * tokens;
  }

  Mesh mesh;
  Model model;
  Ids ids, targets;
  double tokens = 1;
};

/// Central differences of the summed loss with respect to a few elements of every parameter.
template <class Layouts>
void check_gradients(const sw::HostCommunicator& world, Findings& findings, const Problem& problem, Way way) {
  Fixture<Layouts> at(world, problem, way);
  sw::GradAccumulator accumulator(at.model);
  const auto sums = at.model.forward_backward(at.batch());
  accumulator.add(sums.loss, sums.tokens);
  const sw::GradientSummary summary = accumulator.finish();
  at.tokens = static_cast<double>(summary.tokens);
  findings.expect(std::abs(at.loss() / (summary.loss.value * at.tokens) - 1) < 1e-13,
                  "evaluate() and forward_backward() give one loss");

  double squares = 0;
  std::uint64_t number = 0;
  at.model.for_each_parameter([&](auto& parameter) {
    const std::vector<double> gradient = nn_test::whole(parameter.gradient());
    double largest = 0;
    for (const double each : gradient) {
      squares += each * each;
      largest = std::max(largest, std::abs(each));
    }
    findings.expect(largest > 0, parameter.name(), " has a gradient");
    constexpr double step = 2e-4;
    for (std::uint64_t trial = 0; trial < 6; ++trial) {
      const std::uint64_t i =
          sw::random_words({problem.seed, 1u << 22}, 64 * number + trial).word[0] % gradient.size();
      double* element = nullptr;
      parameter.fill_weights([&](auto& weights) { element = element_at(weights, i); });
      const double before = element != nullptr ? *element : 0;
      const auto loss_at = [&](double shift) {
        if (element != nullptr)
          *element = before + shift;
        const double value = at.loss();
        if (element != nullptr)
          *element = before;
        return value;
      };
      // Fourth order: the differences at one and at two steps cancel the error of the second.
      const double difference =
          (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) / (12 * step);
      findings.expect(std::abs(difference - gradient[i]) <= 1e-7 * largest, way.text(), " ", parameter.name(),
                      "[", i, "]: gradient ", gradient[i], ", finite difference ", difference, ", largest ",
                      largest);
    }
    ++number;
  });
  const double norm = std::sqrt(squares) * summary.scale.factor();
  findings.expect(std::abs(summary.gradient_norm / norm - 1) < 1e-12, way.text(), " norm ",
                  summary.gradient_norm, " of gathered gradients ", norm);
}

/// Three layers of a decoder, each on a separate tape.
template <class Layouts> struct Layers {
  using target = sw::DefaultTarget;
  using Model = sw::Decoder<Layouts, double>;

  Layers(const sw::DecoderMesh& mesh, const sw::DecoderConfig& config) {
    for (std::size_t number = 0; number < 3; ++number)
      list.emplace_back(sw::ModelPlace<sw::DecoderMesh>{mesh, shared, number}, config);
  }
  auto members() { return sw::members("layers", list); }

  sw::SharedParts shared;
  std::deque<typename Model::Layer> list;
};

/// When weight gradients are asked for.
enum class Weights : std::uint8_t { with_inputs, after_each_input, after_all_inputs };

/// The layers on a random stream: the gradient of the input and the accumulated ones of the parameters.
template <class Layouts>
std::vector<std::vector<double>> gradients_of_layers(const sw::HostCommunicator& world,
                                                     const Problem& problem, Way way, Weights order) {
  using Residual = sw::ShardedTensor<typename Layouts::Residual, double>;
  const sw::DecoderConfig& config = problem.config;
  const sw::DecoderMesh mesh = sw::decoder_mesh(world, way.extents());
  Layers<Layouts> layers(mesh, config);
  sw::initialize(layers, problem.seed);
  const sw::GradAccumulator accumulator(layers);
  typename Layers<Layouts>::Model::Ids ids(mesh, {problem.batch, config.sequence});
  const typename Layers<Layouts>::Model::Batch batch{ids.share(), ids.share()};

  Residual input(mesh, {problem.batch, config.sequence, config.width});
  sw::fill_normal(input, {problem.seed, 1u << 24});
  auto stream = input.share();
  std::array<sw::Tape<>, 3> tapes;
  using Stream = sw::Var<typename Layouts::Residual, double>;
  std::vector<Stream> in, out;
  for (std::size_t i = 0; i < 3; ++i) {
    in.push_back(tapes[i].variable(stream));
    out.push_back(layers.list[i](in.back(), batch));
    stream = out.back().value();
  }

  Residual upstream(mesh, {problem.batch, config.sequence, config.width});
  sw::fill_normal(upstream, {problem.seed, 1u << 25});
  auto gradient = upstream.share();
  for (std::size_t i = 3; i-- > 0;) {
    tapes[i].seed(out[i], gradient.share());
    if (order == Weights::with_inputs)
      tapes[i].backward();
    else
      tapes[i].backward_inputs();
    gradient = tapes[i].gradient(in[i]);
    if (order == Weights::after_each_input)
      tapes[i].backward_weights();
  }
  if (order == Weights::after_all_inputs)
    for (const std::size_t i : {1u, 0u, 2u})
      tapes[i].backward_weights();

  std::vector<std::vector<double>> all{nn_test::whole(gradient)};
  sw::for_each_parameter(layers, [&](auto& parameter) {
    shardwright_test::finish_gradient(parameter);
    all.push_back(nn_test::whole(parameter.gradient()));
  });
  return all;
}

/// Two rows of documents of very different lengths: one of a single token, one without a target, one as long
/// as a row, and some that four ranks cannot share evenly.
std::vector<std::vector<sw::Document>> packed_documents(std::size_t vocabulary) {
  constexpr std::array<std::size_t, 7> lengths{1, 9, 2, 5, 14, 32, 0};
  std::vector<std::vector<sw::Document>> rows(1);
  std::uint64_t number = 0;
  for (const std::size_t length : lengths) {
    std::size_t filled = 0;
    for (const sw::Document& each : rows.back())
      filled += each.tokens.size() - 1;
    if (length == 0 || filled + length > 32)
      rows.emplace_back();
    sw::Document document;
    for (std::size_t i = 0; length > 0 && i < length + 1; ++i) {
      const std::uint32_t drawn = sw::random_words({5, 7}, 64 * number + i).word[0];
      document.tokens.push_back(static_cast<std::int32_t>(drawn % vocabulary));
      document.learned.push_back(length != 5 && (i < 2 || drawn >> 31 == 0));
    }
    if (length > 0)
      rows.back().push_back(std::move(document));
    ++number;
  }
  rows.pop_back();
  return rows;
}

Problem packed_problem() {
  Problem problem = small_problem(true);
  problem.config.width = 32;
  problem.config.heads = problem.config.kv_heads = 16; // as tp x cp = 16 needs for all-to-all
  problem.config.sequence = 32;
  return problem;
}

/// The summed loss, the number of targets, and the gradient of every parameter.
struct Sums {
  double loss = 0;
  std::int64_t tokens = 0;
  std::vector<std::vector<double>> gradients;
};

/// One pass over batches, in each of which all rows are of the first one's length.
template <class Layouts>
Sums sums_of(const sw::HostCommunicator& world, const Problem& problem, Way way,
             const std::vector<std::vector<sw::PackedTokens>>& batches, bool apart, bool arranged = false) {
  using Model = sw::SingleStageModel<sw::Decoder<Layouts, double>>;
  using Ids = typename Model::Batch::Ids;
  using Starts = sw::ShardedTensor<typename decltype(Model::Batch::mask)::starts_layout, std::int32_t>;
  const sw::DecoderMesh mesh = sw::decoder_mesh(world, way.extents());
  Model model(mesh, problem.config, problem.seed);
  sw::GradAccumulator accumulator(model);
  for (const std::vector<sw::PackedTokens>& rows : batches) {
    const std::array<std::int64_t, 2> shape{static_cast<std::int64_t>(rows.size()),
                                            static_cast<std::int64_t>(rows.front().ids().size())};
    Ids ids(mesh, shape), targets(mesh, shape);
    Starts starts(mesh, shape);
    const auto load = [&](auto& tensor, auto column) {
      sw::load_rows(tensor, [&](std::int64_t row, std::span<std::int32_t> out) {
        const auto from = (rows[static_cast<std::size_t>(row)].*column)();
        std::copy(from.begin(), from.end(), out.begin());
      });
    };
    load(starts, &sw::PackedTokens::starts);
    if constexpr (requires { ids.arrange({}); })
      if (arranged) {
        const sw::TextOrder order = sw::order_of_documents(ids, starts);
        ids.arrange(order);
        targets.arrange(order);
      }
    load(ids, &sw::PackedTokens::ids);
    load(targets, &sw::PackedTokens::targets);
    typename Model::Batch batch{ids.share(), targets.share()};
    if (apart)
      batch.mask = sw::documents(sw::causal, starts);
    const auto sums = model.forward_backward(batch);
    accumulator.add(sums.loss, sums.tokens);
  }
  const sw::GradientSummary summary = accumulator.finish();
  Sums out{summary.loss.value * static_cast<double>(summary.tokens), summary.tokens, {}};
  model.for_each_parameter(
      [&](auto& parameter) { out.gradients.push_back(nn_test::whole(parameter.gradient())); });
  return out;
}

/// The largest difference of losses and gradients, relative to the largest element.
double largest_difference(const Sums& sums, const Sums& reference) {
  double largest = std::abs(sums.loss / reference.loss - 1);
  for (std::size_t p = 0; p < reference.gradients.size(); ++p) {
    double difference = sums.gradients[p].size() == reference.gradients[p].size() ? 0 : INFINITY, size = 0;
    for (std::size_t i = 0; i < sums.gradients[p].size(); ++i) {
      size = std::max(size, std::abs(reference.gradients[p][i]));
      difference =
          shardwright_test::larger(difference, std::abs(sums.gradients[p][i] - reference.gradients[p][i]));
    }
    largest = shardwright_test::larger(largest, difference / size);
  }
  return largest;
}

} // namespace

TEST_CASE("packed documents train as each document alone, on cp x tp, by all-to-all and by a ring") {
  const Problem problem = packed_problem();
  const auto rows = packed_documents(static_cast<std::size_t>(problem.config.vocabulary));
  REQUIRE(rows.size() == 2);
  std::vector<std::vector<sw::PackedTokens>> packed(1), alone;
  std::int64_t learned = 0;
  for (const std::vector<sw::Document>& row : rows) {
    packed.front().emplace_back(32);
    for (const sw::Document& document : row) {
      packed.front().back().add(document);
      alone.push_back({sw::PackedTokens(document.tokens.size() - 1)});
      alone.back().front().add(document);
      learned += std::count(document.learned.begin() + 1, document.learned.end(), true);
    }
  }
  Sums one;
  CHECK(on_ranks(1, [&](sw::HostCommunicator world, Findings& findings) {
          one = sums_of<sw::DecoderLayouts<true>>(world, problem, {}, alone, false);
          findings.expect(one.tokens == learned, one.tokens, " targets of ", learned);
          const Sums mixed = sums_of<sw::DecoderLayouts<true>>(world, problem, {}, packed, false);
          findings.expect(largest_difference(mixed, one) > 1e-3,
                          "documents that see others make no difference");
        }) == "");
  for (const int cp : {1, 2, 4})
    for (const int tp : {1, 2, 4}) {
      const Way way{.tp = tp, .sequence_parallel = true, .cp = cp};
      INFO(way.text());
      CHECK(on_ranks(cp * tp, [&](sw::HostCommunicator world, Findings& findings) {
              using Ring = sw::DecoderLayouts<true, sw::DataParallel, sw::RingContext>;
              const auto check = [&](const Sums& sums, const char* name) {
                findings.expect(sums.tokens == one.tokens, name, " has ", sums.tokens, " targets of ",
                                one.tokens);
                findings.expect(largest_difference(sums, one) <= 1e-12, name, " differs by ",
                                largest_difference(sums, one));
              };
              check(sums_of<sw::DecoderLayouts<true>>(world, problem, way, packed, true), "all-to-all");
              check(sums_of<Ring>(world, problem, way, packed, true), "the ring");
              if (cp > 1)
                check(sums_of<Ring>(world, problem, way, packed, true, true), "the balanced ring");
            }) == "");
    }
}

TEST_CASE("tokens are arranged by an order that the ranks can have, ids and targets by the same") {
  CHECK(on_ranks(2, [&](sw::HostCommunicator world, Findings& findings) {
          using Ring = sw::DecoderLayouts<true, sw::DataParallel, sw::RingContext>;
          using Batch = sw::Decoder<Ring, double>::Batch;
          const sw::DecoderMesh mesh = sw::decoder_mesh(world, Way{.cp = 2}.extents());
          Batch::Ids ids(mesh, {1, 8}), targets(mesh, {1, 8});
          const auto order = [](std::vector<std::int32_t> text) {
            return std::make_shared<const std::vector<std::int32_t>>(std::move(text));
          };
          const auto expect = [&](const char* part, const auto& call) {
            std::string found = "no error";
            try {
              call();
            } catch (const sw::InvalidArgument& error) {
              found = error.what();
            }
            findings.expect(found.find(part) != found.npos, found);
          };
          expect("it has 4 places", [&] { ids.arrange(order({0, 1, 2, 3})); });
          expect("place 7 has position 6 (take it from order_of_documents)", [&] {
            ids.arrange(order({0, 1, 2, 3, 4, 5, 7, 6}));
          });
          expect("has position 3", [&] { ids.arrange(order({0, 1, 2, 3, 3, 5, 6, 7})); });
          ids.arrange(order({0, 1, 4, 5, 6, 7, 2, 3})); // two documents of four tokens, one on each rank
          sw::load_rows(ids, [](std::int64_t, std::span<std::int32_t> row) {
            for (std::size_t i = 0; i < row.size(); ++i)
              row[i] = static_cast<std::int32_t>(i);
          });
          for (std::size_t i = 0; i < 4; ++i)
            findings.expect(ids.data()[i] == static_cast<std::int32_t>(i) + 4 * world.rank(), "row ", i);
          expect("ids and targets must be in one order", [&] {
            static_cast<void>(Batch{ids.share(), targets.share()}.row_order());
          });
          using Starts = sw::ShardedTensor<decltype(Batch::mask)::starts_layout, std::int32_t>;
          expect("order_of_documents: the tensor of the starts of documents must have the shape [1, 8]", [&] {
            static_cast<void>(sw::order_of_documents(ids, Starts(mesh, {1, 12})));
          });
          const sw::ShardedTensor<sw::Layout<3, sw::Shard<1, cp>>, double> x(mesh, {1, 8, 2});
          expect("masks are keyed by positions, but documents are arranged over the ranks", [&] {
            static_cast<void>(sw::dropout(x, {.tensor = 1, .rate = 0.5}, {.sequences = 1}, ids.row_order()));
          });
        }) == "");
}

TEST_CASE("a decoder trains alike on every mesh in double precision") {
  const nn_test::MeshComparisons compared = nn_test::compare_meshes<double>();
  CHECK(compared.learns);
  REQUIRE(compared.meshes.size() == 2 * nn_test::ways().size());
  for (const nn_test::MeshComparison& each : compared.meshes) {
    INFO(each.text);
    CHECK(each.same_ranks);
    CHECK(each.same_tokens);
    CHECK(each.losses <= 1e-10);
    CHECK(each.norms <= 1e-8);
    CHECK(each.parameters <= 1e-7);
  }
}

TEST_CASE("two runs on one mesh give the same bits in double precision") {
  CHECK(nn_test::meshes_that_do_not_repeat<double>() == "");
}

TEST_CASE("accumulation over three microbatches is the step of one batch") {
  const auto one = nn_test::train_on_threads<double>(nn_test::problem_of({}, true), {}).front();
  const auto three =
      nn_test::train_on_threads<double>(nn_test::problem_of({}, true), {.accumulation = 3}).front();
  CHECK(one.tokens == three.tokens);
  CHECK(nn_test::largest_difference(three.losses, one.losses) <= 1e-10);
}

TEST_CASE("the gradient of every parameter agrees with finite differences") {
  const bool tied = GENERATE(false, true);
  for (const Way& way : {Way{}, Way{.dp = 2, .tp = 2}, Way{.dp = 2, .tp = 2, .sequence_parallel = true}}) {
    INFO(way.text() << (tied ? " tied" : " untied"));
    CHECK(on_ranks(way.dp * way.tp, [&](sw::HostCommunicator world, Findings& findings) {
            if (way.sequence_parallel)
              check_gradients<sw::DecoderLayouts<true>>(world, findings, small_problem(tied), way);
            else
              check_gradients<sw::DecoderLayouts<false>>(world, findings, small_problem(tied), way);
          }) == "");
  }
}

TEST_CASE("weight gradients may be computed after all input gradients, in any order, with the same bits") {
  for (const Way& way : {Way{}, Way{.dp = 1, .tp = 2}, Way{.dp = 2, .tp = 2, .sequence_parallel = true}}) {
    INFO(way.text());
    CHECK(on_ranks(way.dp * way.tp, [&](sw::HostCommunicator world, Findings& findings) {
            const auto run = [&](Weights order) {
              return way.sequence_parallel
                         ? gradients_of_layers<sw::DecoderLayouts<true>>(world, small_problem(false), way,
                                                                         order)
                         : gradients_of_layers<sw::DecoderLayouts<false>>(world, small_problem(false), way,
                                                                          order);
            };
            const auto together = run(Weights::with_inputs);
            findings.expect(together.size() == 1 + 3 * 6, "all parameters: ", together.size());
            findings.expect(run(Weights::after_each_input) == together,
                            "the gradients differ layer by layer");
            findings.expect(run(Weights::after_all_inputs) == together, "the gradients differ");
          }) == "");
  }
}

TEST_CASE("a decoder whose sizes do not fit the mesh is an error with both numbers") {
  const auto sentence = [](Way way, auto change) {
    Problem problem = small_problem(false);
    change(problem.config);
    try {
      static_cast<void>(nn_test::train_on_threads<double>(problem, way));
    } catch (const sw::InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const auto nothing = [](sw::DecoderConfig&) {};
  CHECK_THAT(sentence({.tp = 3}, nothing),
             ContainsSubstring("kv_heads 2 must be a multiple of the tensor-parallel ranks, tp = 3"));
  CHECK_THAT(
      sentence({.tp = 2, .sequence_parallel = true}, [](sw::DecoderConfig& config) { config.sequence = 7; }),
      ContainsSubstring(
          "sequence 7 must be a multiple of the tensor-parallel ranks under sequence parallelism, tp = 2"));
}
