// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/optimizer/states.hpp>
#include <shardwright/train/training.hpp>

using namespace shardwright;
using namespace shardwright::axis;

using Weight = Parameter<Layout<2, Shard<1, tp>>, Layout<2, Shard<1, tp>, Partial<Sum, dp>>>;

struct Model {
  using target = DefaultTarget;
  using Stream = Layout<2, Shard<0, dp>>;
  struct Config {};
  struct Batch {
    ShardedTensor<Stream> rows;
  };
  struct Loss {
    Loss& operator+=(const Loss&) { return *this; }
  };
  struct First {
    template <class Place> First(const Place&, const Config&);
    Var<Stream> operator()(Tape<>& tape, const Batch& batch);
    auto members() { return shardwright::members(); }
  };
  struct Last {
    template <class Place> Last(const Place&, const Config&);
    Loss operator()(Var<Stream> x, const Batch& batch);
    auto members() { return shardwright::members(); }
  };
  using Parts = shardwright::Parts<First, Last>;
};

namespace adamw_gradient_layout {
// expect: Optimizer: the optimizer state must have the layout of the gradient (redistribute the gradient to the parameter's gradient_layout, or choose the Zero type that shards both alike)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Given = Layout<2, Shard<0, tp>>;
#else
using Given = Layout<2, Shard<1, tp>>;
#endif

void step(AdamW& optimizer, Weight& weight, const ShardedTensor<Given>& gradient) {
  optimizer.update(weight, gradient, optimizer.begin(GradientScale(1), 1e-3));
}
} // namespace adamw_gradient_layout

namespace adamw_partial_gradient {
// expect: Optimizer: the gradient must not be Partial, an incomplete sum (finish() the GradAccumulator, or redistribute it to the parameter's gradient_layout)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Given = Layout<2, Shard<1, tp>, Partial<Sum, dp>>;
#else
using Given = Layout<2, Shard<1, tp>>;
#endif

void step(AdamW& optimizer, Weight& weight, const ShardedTensor<Given>& gradient) {
  optimizer.update(weight, gradient, optimizer.begin(GradientScale(1), 1e-3));
}
} // namespace adamw_partial_gradient

namespace gradient_scaled_twice {
// expect: GradientScale: gradients must be scaled once, and this factor already includes the tokens
// expect: and the loss scale (pass the summary's scale to the optimizer unchanged)

kernels::OptimizerStep begin_step(AdamW& optimizer, const GradientSummary& summary, LossScale scale,
                                  double rate) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return optimizer.begin(summary.scale / scale, rate);
#else
  static_cast<void>(scale);
  return optimizer.begin(summary.scale, rate);
#endif
}
} // namespace gradient_scaled_twice

namespace optimizer_numbers_argument {
// expect: Optimizer: numbers() of an optimizer of your own must take no argument, be const, and return GivenNumbers that all ranks must give alike

struct Descent {
  template <class Parts> void step(Parts& model, const GradientSummary& summary, double learning_rate);
  std::int64_t steps(const auto& resources) const;
  void set_steps(const auto& resources, std::int64_t steps);
  template <class P, class Visitor> void for_each_state(const P& parameter, Visitor visit);
  template <class P, class Visitor> void for_each_state_made(const P& parameter, Visitor visit);
#ifdef SHARDWRIGHT_EXPECT_FAIL
  std::array<GivenNumber, 1> numbers(double learning_rate) const;
#else
  std::array<GivenNumber, 1> numbers() const;
#endif
};

std::size_t size() { return sizeof(Training<SingleStageModel<Model>, Descent>); }
} // namespace optimizer_numbers_argument

namespace optimizer_without_states {
// expect: Optimizer: an optimizer of your own must have for_each_state(parameter, visit) and for_each_state_made(parameter, visit)

struct Descent {
  template <class Parts> void step(Parts& model, const GradientSummary& summary, double learning_rate);
  std::int64_t steps(const auto& resources) const;
  void set_steps(const auto& resources, std::int64_t steps);
#ifndef SHARDWRIGHT_EXPECT_FAIL
  template <class P, class Visitor> void for_each_state(const P& parameter, Visitor visit);
  template <class P, class Visitor> void for_each_state_made(const P& parameter, Visitor visit);
#endif
};

std::size_t size() { return sizeof(Training<SingleStageModel<Model>, Descent>); }
} // namespace optimizer_without_states

namespace optimizer_without_step {
// expect: Optimizer: an optimizer of your own must have step(model, summary, learning_rate), which updates every parameter from its gradient (take the GradientSummary by const reference)

struct Descent {
#ifndef SHARDWRIGHT_EXPECT_FAIL
  template <class Parts> void step(Parts& model, const GradientSummary& summary, double learning_rate);
#endif
  std::int64_t steps(const auto& resources) const;
  void set_steps(const auto& resources, std::int64_t steps);
  template <class P, class Visitor> void for_each_state(const P& parameter, Visitor visit);
  template <class P, class Visitor> void for_each_state_made(const P& parameter, Visitor visit);
};

std::size_t size() { return sizeof(Training<SingleStageModel<Model>, Descent>); }
} // namespace optimizer_without_step

namespace optimizer_without_steps {
// expect: Optimizer: an optimizer of your own must have steps(resources) and set_steps(resources, steps), from which a run resumes (count the calls of step)

struct Descent {
  template <class Parts> void step(Parts& model, const GradientSummary& summary, double learning_rate);
#ifndef SHARDWRIGHT_EXPECT_FAIL
  std::int64_t steps(const auto& resources) const;
  void set_steps(const auto& resources, std::int64_t steps);
#endif
  template <class P, class Visitor> void for_each_state(const P& parameter, Visitor visit);
  template <class P, class Visitor> void for_each_state_made(const P& parameter, Visitor visit);
};

std::size_t size() { return sizeof(Training<SingleStageModel<Model>, Descent>); }
} // namespace optimizer_without_steps

namespace parameter_group_without_matches {
// expect: ParameterGroup: a group must say which parameters belong to it (set matches; for all parameters, to [](const ParameterInfo&) { return true; })

ParameterGroup without_decay() {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return {.weight_decay_factor = 0};
#else
  return {.matches = [](const ParameterInfo&) { return true; }, .weight_decay_factor = 0};
#endif
}
} // namespace parameter_group_without_matches
