// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/mimic_target.hpp"
#include "support/ranks.hpp"

#include <shardwright/core/philox.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/memory/host_copy.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/optimizer/lion.hpp>
#include <shardwright/train/optimizer/optimizer_for.hpp>
#include <shardwright/train/optimizer/sgd.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// Each optimizer against its algorithm, written out in double, on gradients that the test invents.

namespace {

namespace sw = shardwright;
using namespace sw::axis;
using shardwright_test::Findings;
using shardwright_test::MimicTarget;
using shardwright_test::on_ranks;
using Values = std::vector<double>;

/// One parameter of an algorithm: its values, and its state.
struct Plain {
  Values value;
  Values first = Values(value.size());
  Values second = Values(value.size());
};

void plain_step(const sw::AdamWOptions& o, Plain& p, const Values& gradient, double rate, double scale,
                double decay, int step) {
  for (std::size_t i = 0; i < p.value.size(); ++i) {
    const double g = scale * gradient[i];
    p.first[i] = o.beta1 * p.first[i] + (1 - o.beta1) * g;
    p.second[i] = o.beta2 * p.second[i] + (1 - o.beta2) * g * g;
    const double m = p.first[i] / (1 - std::pow(o.beta1, step));
    const double v = p.second[i] / (1 - std::pow(o.beta2, step));
    p.value[i] -= rate * (m / (std::sqrt(v) + o.epsilon) + decay * p.value[i]);
  }
}
void plain_step(const sw::SgdOptions& o, Plain& p, const Values& gradient, double rate, double scale,
                double decay, int) {
  for (std::size_t i = 0; i < p.value.size(); ++i) {
    const double g = scale * gradient[i] + decay * p.value[i];
    p.first[i] = o.momentum * p.first[i] + g;
    p.value[i] -= rate * (o.nesterov ? g + o.momentum * p.first[i] : p.first[i]);
  }
}
void plain_step(const sw::LionOptions& o, Plain& p, const Values& gradient, double rate, double scale,
                double decay, int) {
  for (std::size_t i = 0; i < p.value.size(); ++i) {
    const double g = scale * gradient[i];
    const double c = o.beta1 * p.first[i] + (1 - o.beta1) * g;
    p.value[i] -= rate * ((c > 0 ? 1 : c < 0 ? -1 : 0) + decay * p.value[i]);
    p.first[i] = o.beta2 * p.first[i] + (1 - o.beta2) * g;
  }
}

template <class Element, class Zero, class Target> struct Model {
  using target = Target;
  using element = Element;
  using Matrix =
      sw::Parameter<sw::Layout<2, sw::Shard<1, tp>>,
                    sw::Layout<2, sw::Shard<1, tp>, sw::Partial<sw::Sum, dp>>, Element, Zero, Target>;
  using Vector =
      sw::Parameter<sw::Layout<1>, sw::Layout<1, sw::Partial<sw::Sum, dp, tp>>, Element, Zero, Target>;
  Matrix matrix;
  Vector vector;

  template <class Mesh>
  explicit Model(const Mesh& mesh)
      : matrix(mesh, {3, 70}, sw::Initial::normal(1.0)), vector(mesh, {7}, sw::Initial::normal(1.0)) {
    sw::initialize(*this, 1);
  }
  auto members() { return sw::members("matrix", matrix, "vector", vector); }

  /// Random numbers, different on every rank.
  void add_gradients(std::uint64_t seed, int rank) {
    std::uint64_t number = 0;
    sw::for_each_parameter(*this, [&](auto& parameter) {
      ++number;
      const auto slot = parameter.gradient_slot();
      auto* const data = slot.tensor.mutable_data();
      for (std::size_t i = 0; i < slot.tensor.local_size(); ++i) {
        const auto word = sw::random_words({seed, 16 * number + static_cast<std::uint64_t>(rank)}, i).word[0];
        data[i] = static_cast<sw::AccumulationElement<Element>>(2 * sw::unit_interval(word) - 1);
      }
      parameter.gradient_state().end_pass(sw::PassPosition::middle);
    });
  }
};

template <class Tensor> Values whole(const Tensor& tensor) {
  const auto all = sw::redistribute<sw::Layout<Tensor::tensor_rank>>(tensor);
  Values out(all.local_size());
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] =
        static_cast<double>(static_cast<sw::AccumulationElement<typename Tensor::value_type>>(all.data()[i]));
  return out;
}

using OverDp = sw::Layout<0, sw::Partial<sw::Sum, dp>>;

template <class Target, class Accumulator>
void add_loss(Accumulator& accumulator, sw::detail::MeshCore& core, std::int64_t tokens) {
  if constexpr (Target::host_accessible) {
    accumulator.add(sw::LossSum<OverDp>{1}, sw::TokenCount<OverDp>{tokens});
  } else {
    sw::detail::Scalars<2, Target> sums(core.template resources<Target>());
    sums.view().data()[0] = 1;
    sums.view().data()[1] = static_cast<double>(tokens);
    accumulator.add(sw::DeviceLoss<OverDp, Target>(std::move(sums)));
  }
}

/// The factor of the learning rate of a group in a step: matrices learn slower from the fifth on, vectors in
/// the third and fourth.
[[nodiscard]] double factor_in(std::size_t group, int step) {
  return group == 0 ? (step >= 5 ? 0.5 : 1) : step == 3 || step == 4 ? 0.25 : 1;
}

/// Parameters and states after six steps, compared with the algorithm's.
template <class Optimizer, class Element, class Zero, class Target>
std::vector<Values> trained(const sw::HostCommunicator& world, Findings& findings, int data, int tensor,
                            const typename Optimizer::Options& options, double tolerance) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(data), sw::extent<cp>(1), sw::extent<tp>(tensor)};
  Model<Element, Zero, Target> model(mesh);
  sw::GradAccumulator accumulator(model);
  Optimizer optimizer(options);
  std::vector<Plain> plain;
  sw::for_each_parameter(model, [&](auto& parameter) { plain.push_back({whole(parameter.stored())}); });
  for (int step = 1; step <= 6; ++step) {
    model.add_gradients(static_cast<std::uint64_t>(step), mesh.rank());
    add_loss<Target>(accumulator, mesh.core(), 1 + step);
    const auto summary = accumulator.finish();
    const double rate = 0.01 * step;
    std::vector<Values> gradients;
    double squares = 0;
    sw::for_each_parameter(model, [&](auto& parameter) {
      gradients.push_back(whole(parameter.gradient()));
      for (const double each : gradients.back())
        squares += each * each;
    });
    const double tokens = data * (1 + step);
    const double coefficient = sw::clip_coefficient(std::sqrt(squares) / tokens, options.max_norm);
    for (std::size_t p = 0; p < plain.size(); ++p) { // matrices decay, vectors do not
      plain_step(options, plain[p], gradients[p], rate * factor_in(p, step), coefficient / tokens,
                 p == 0 ? options.weight_decay : 0, step);
      if (factor_in(p, step) != factor_in(p, step - 1))
        optimizer.set_factor(p, factor_in(p, step));
    }
    optimizer.step(model, summary, rate);
    accumulator.restart();
  }
  std::vector<Values> out;
  std::size_t p = 0;
  sw::for_each_parameter(model, [&](auto& parameter) {
    out.push_back(whole(parameter.stored()));
    double difference = 0;
    for (std::size_t i = 0; i < out.back().size(); ++i)
      difference = std::max(difference, std::abs(out.back()[i] - plain[p].value[i]));
    findings.expect(difference <= tolerance, parameter.name(), " differs by ", difference, " on dp ", data,
                    " tp ", tensor);
    std::string states;
    optimizer.for_each_state(parameter, [&](std::string_view name, auto& state) {
      states += std::string(name) + ";";
      out.push_back(whole(state));
    });
    const bool is_adamw = std::is_same_v<Optimizer, sw::AdamW>;
    bool kept = true;
    if constexpr (std::is_same_v<Optimizer, sw::Sgd>)
      kept = options.momentum > 0;
    findings.expect(states == (is_adamw ? "first moment;second moment;" : kept ? "momentum;" : ""), states);
    ++p;
  });
  return out;
}

template <class Optimizer> void check(const typename Optimizer::Options& options) {
  for (const auto& [data, tensor] : {std::pair{1, 1}, std::pair{3, 1}, std::pair{2, 2}}) {
    CAPTURE(data, tensor);
    const int d = data;
    const int t = tensor;
    CHECK(on_ranks(d * t, [&, d, t](sw::HostCommunicator world, Findings& findings) {
            using Host = sw::DefaultTarget;
            static_cast<void>(
                trained<Optimizer, double, sw::DataParallel, Host>(world, findings, d, t, options, 1e-12));
            static_cast<void>(
                trained<Optimizer, double, sw::Zero1, Host>(world, findings, d, t, options, 1e-12));
            static_cast<void>(
                trained<Optimizer, double, sw::Zero3, Host>(world, findings, d, t, options, 1e-12));
            // Updates of narrow weights follow those of their masters.
            static_cast<void>(trained<Optimizer, sw::bfloat16, sw::DataParallel, Host>(world, findings, d, t,
                                                                                       options, 0.03));
          }) == "");
  }
  // The device's way, with its numbers in memory, gives the same bits.
  CHECK(on_ranks(1, [&](sw::HostCommunicator world, Findings& findings) {
          using Host = sw::DefaultTarget;
          findings.expect(
              trained<Optimizer, double, sw::DataParallel, MimicTarget>(world, findings, 1, 1, options,
                                                                        1e-12) ==
                  trained<Optimizer, double, sw::DataParallel, Host>(world, findings, 1, 1, options, 1e-12),
              "a device has the same bits");
          findings.expect(trained<Optimizer, sw::bfloat16, sw::DataParallel, MimicTarget>(world, findings, 1,
                                                                                          1, options, 0.03) ==
                              trained<Optimizer, sw::bfloat16, sw::DataParallel, Host>(world, findings, 1, 1,
                                                                                       options, 0.03),
                          "a device has the same bits of bfloat16");
        }) == "");
}

} // namespace

TEST_CASE("AdamW is its algorithm on every mesh, sharded or not, on host and device") {
  check<sw::AdamW>({.beta1 = 0.8, .weight_decay = 0.3, .max_norm = 0.3});
}

TEST_CASE("Sgd is its algorithm with and without momentum, Nesterov's and decay") {
  check<sw::Sgd>({.momentum = 0.9, .nesterov = false, .weight_decay = 0.2, .max_norm = 0.3});
  check<sw::Sgd>({.momentum = 0.8, .nesterov = true, .weight_decay = 0.1});
  check<sw::Sgd>({.momentum = 0, .weight_decay = 0.1});
}

TEST_CASE("Lion is its algorithm on every mesh, sharded or not, on host and device") {
  check<sw::Lion>({.beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.5, .max_norm = 0.3});
}

TEST_CASE("matrices decay, vectors and biases of several dimensions do not") {
  const auto factor = [](const char* name, int tensor_rank) {
    return sw::factors_of(sw::decay_matrices(), {name, tensor_rank}).weight_decay_factor;
  };
  CHECK(factor("layers.3.attention.qkv.weight", 3) == 1);
  CHECK(factor("layers.3.down", 2) == 1);
  CHECK(factor("layers.3.debias", 2) == 1);
  CHECK(factor("layers.3.norm.gain", 1) == 0);
  CHECK(factor("layers.3.attention.qkv.bias", 2) == 0);
  CHECK(factor("bias", 2) == 0);
  CHECK(sw::factors_of({}, {"bias", 2}).weight_decay_factor == 1);
}

TEST_CASE(
    "the library's optimizers are optimizers for models on hosts and devices, and an empty class is not") {
  using OnHost = Model<double, sw::DataParallel, sw::DefaultTarget>;
  using OnDevice = Model<double, sw::DataParallel, MimicTarget>;
  STATIC_REQUIRE(sw::OptimizerFor<sw::AdamW, OnHost>);
  STATIC_REQUIRE(sw::OptimizerFor<sw::Sgd, OnDevice>);
  STATIC_REQUIRE(sw::OptimizerFor<sw::Lion, OnDevice>);
  struct Nothing {};
  STATIC_REQUIRE(!sw::OptimizerFor<Nothing, OnHost>);
}

TEST_CASE("a factor must be that of a group") {
  sw::AdamW optimizer;
  optimizer.set_factor(1, 0.5);
  const std::string name = "anything";
  CHECK(optimizer.numbers_of({name, 1})[1].bits == std::bit_cast<std::uint64_t>(0.5));
  CHECK(optimizer.numbers_of({name, 2})[1].bits == std::bit_cast<std::uint64_t>(1.0));
  const std::string said =
      shardwright_test::failure_of<sw::InvalidArgument>([&] { optimizer.set_factor(2, 1); });
  CHECK(shardwright_test::has(said,
                              "set_factor must name one of its 2 groups, numbered from 0, but it names 2"));
}

TEST_CASE("a group must have a predicate") {
  const std::string said = shardwright_test::failure_of<sw::InvalidArgument>([] {
    static_cast<void>(sw::ParameterGroup{.matches = std::function<bool(const sw::ParameterInfo&)>()});
  });
  CHECK(
      shardwright_test::has(said, "a group must say which parameters belong to it, but matches is an empty"));
}

TEST_CASE("biases and gains do not decay, whatever their number of dimensions, and matrices do") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(1)};
          using Whole3 = sw::Layout<3>;
          /// A product into heads, whose bias is a matrix, and a norm.
          struct Heads {
            sw::BiasedLinear<Whole3, Whole3, sw::ModelPlan<double>> qkv;
            sw::LayerNorm<sw::Layout<2>, sw::ModelPlan<double>> norm;
            auto members() { return sw::members("qkv", qkv, "norm", norm); }
          } heads{{mesh, {6, 2, 12}, sw::Initial::normal(0.3)}, {mesh, 6, 1e-5}};
          sw::initialize(heads, 1);
          findings.expect(std::remove_cvref_t<decltype(heads.qkv.bias())>::tensor_rank == 2, "a matrix");
          sw::OptimizerStates<1> states({"sum"});
          std::string decaying;
          sw::for_each_parameter(heads, [&](const auto& parameter) {
            if (states.of(parameter, sw::decay_matrices()).weight_decay_factor != 0)
              decaying += parameter.name() + " ";
          });
          findings.expect(decaying == "qkv.weight ", decaying);
        }) == "");
}

TEST_CASE("optimizer state belongs to the parameter, not to its address") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(1), sw::extent<cp>(1), sw::extent<tp>(1)};
          using Small = Model<double, sw::DataParallel, sw::DefaultTarget>;
          sw::AdamW optimizer;
          const auto states = [&](Small& model) {
            std::vector<Values> out;
            optimizer.for_each_state(
                model.matrix, [&](std::string_view, const auto& state) { out.push_back(whole(state)); });
            return out;
          };
          std::optional<Small> model(std::in_place, mesh);
          {
            sw::GradAccumulator accumulator(*model);
            model->add_gradients(1, 0);
            add_loss<sw::DefaultTarget>(accumulator, mesh.core(), 1);
            optimizer.step(*model, accumulator.finish(), 0.1);
          }
          const auto kept = states(*model);
          Small moved = std::move(*model);
          findings.expect(kept.size() == 2 && states(moved) == kept, "of a model that is moved");
          model.emplace(mesh);
          findings.expect(states(*model).empty(), "of another model at the old place");
        }) == "");
}

namespace {

/// Weights of two parts after some steps, of which the second takes only those from `first` on. One optimizer
/// updates both, or one each.
template <class Target> std::vector<Values> two_parts(const sw::HostCommunicator& world, bool one_optimizer) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(1), sw::extent<cp>(1), sw::extent<tp>(1)};
  using Part = Model<double, sw::DataParallel, Target>;
  Part left(mesh), right(mesh);
  sw::GradAccumulator of_left(left), of_right(right);
  sw::AdamW first, second;
  const auto step = [&](Part& part, auto& accumulator, std::uint64_t seed, sw::AdamW& optimizer) {
    part.add_gradients(seed, 0);
    add_loss<Target>(accumulator, mesh.core(), 3);
    optimizer.step(part, accumulator.finish(), 0.1);
    accumulator.restart();
  };
  for (std::uint64_t number = 1; number <= 4; ++number) {
    step(left, of_left, number, first);
    if (number > 2)
      step(right, of_right, 10 + number, one_optimizer ? first : second);
  }
  std::vector<Values> out;
  for (Part* part : {&left, &right})
    sw::for_each_parameter(*part, [&](auto& parameter) {
      out.push_back(whole(parameter.stored()));
      sw::AdamW& counts = part == &left || one_optimizer ? first : second;
      out.push_back({static_cast<double>(counts.parameter_steps(parameter))});
    });
  return out;
}

} // namespace

TEST_CASE("one optimizer that updates two parts of a model counts the steps of each") {
  CHECK(on_ranks(1, [](const sw::HostCommunicator& world, Findings& findings) {
          const std::vector<Values> wanted = two_parts<sw::DefaultTarget>(world, false);
          findings.expect(wanted[1] == Values{4} && wanted[5] == Values{2}, "steps of each part");
          findings.expect(two_parts<sw::DefaultTarget>(world, true) == wanted, "on a host");
          findings.expect(two_parts<MimicTarget>(world, true) == wanted, "on a device");
          findings.expect(two_parts<MimicTarget>(world, false) == wanted, "on a device, one optimizer each");
        }) == "");
}

TEST_CASE("the clip coefficient reduces a norm to the limit and never increases it, for every optimizer") {
  CHECK(sw::clip_coefficient(0.5, 1.0) == 1.0);
  CHECK(sw::clip_coefficient(4.0, 1.0) == 1.0 / (4.0 + 1e-6));
  CHECK(sw::clip_coefficient(4.0, 0.0) == 1.0);
}
