// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/layout/quantized.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/tensor/quantize.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/optimizer/states.hpp>

using namespace shardwright;
using namespace shardwright::axis;

template <class Zero> using Matrix = Parameter<Layout<2>, Layout<2, Partial<Sum, dp>>, float, Zero>;
using FrozenMatrix = Matrix<Frozen<Zero1>>;
using TrainedMatrix = Matrix<Zero1>;

namespace frozen_gradient {
// expect: Parameter: a frozen one has no gradient and no optimizer state, and no step changes it
// expect: (visit the trained ones with for_each_trained_parameter(), set its weights with fill_weights(), or give it a Zero type that is not Frozen)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weight = FrozenMatrix;
#else
using Weight = TrainedMatrix;
#endif

auto read(const Weight& weight) { return weight.gradient(); }
} // namespace frozen_gradient

namespace frozen_gradient_added {
// expect: Parameter: a frozen one has no gradient and no optimizer state, and no step changes it

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weight = Matrix<Frozen<Zero2>>;
#else
using Weight = Matrix<Zero2>;
#endif

void add(Weight& weight) { fill_zero(weight.gradient_slot().tensor); }
} // namespace frozen_gradient_added

namespace frozen_in_a_loop {
// expect: Parameter: a frozen one has no gradient and no optimizer state, and no step changes it

struct Model {
  Matrix<Frozen<DataParallel>> base;
  Matrix<DataParallel> head;
  auto members() { return shardwright::members("base", base, "head", head); }
};

void descend(Model& model) {
  const auto step = [](auto& parameter) { static_cast<void>(parameter.gradient()); };
#ifdef SHARDWRIGHT_EXPECT_FAIL
  for_each_parameter(model, step);
#else
  for_each_trained_parameter(model, step);
#endif
}
} // namespace frozen_in_a_loop

namespace frozen_optimized {
// expect: Parameter: a frozen one has no gradient and no optimizer state, and no step changes it

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weight = Matrix<Frozen<Zero3>>;
#else
using Weight = Matrix<Zero3>;
#endif

void step(AdamW& optimizer, Weight& weight, const ShardedTensor<Weight::gradient_layout>& gradient) {
  optimizer.update(weight, gradient, optimizer.begin(GradientScale(1), 1e-3));
}
} // namespace frozen_optimized

namespace frozen_in_a_group {
// expect: Parameter: a frozen one has no gradient and no optimizer state, and no step changes it

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weight = Matrix<Frozen<ReduceOncePerStep<Zero2>>>;
#else
using Weight = Matrix<ReduceOncePerStep<Zero2>>;
#endif

double decay(OptimizerStates<1>& states, const Weight& weight) {
  return states.of(weight, decay_matrices()).weight_decay_factor;
}
} // namespace frozen_in_a_group

namespace frozen_changed {
// expect: Parameter: a frozen one has no gradient and no optimizer state, and no step changes it

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weight = Parameter<Layout<1>, Layout<1, Partial<Sum, dp>>, double, Frozen<DataParallel>>;
void halve(Weight& weight) {
  weight.update_weights([](auto& weights) { scale_in_place(weights, 0.5); });
}
#else
using Weight = Parameter<Layout<1>, Layout<1, Partial<Sum, dp>>, double, Frozen<DataParallel>>;
void halve(Weight& weight) {
  weight.fill_weights([](auto& weights) { scale_in_place(weights, 0.5); });
}
#endif
} // namespace frozen_changed

namespace frozen_half_a_norm {
// expect: norm: gain and bias must both be trained or both be frozen, as one pass computes both gradients (give both parameters the same Zero type)

using Rows = Layout<2, Shard<0, dp>>;
template <class Zero>
using Vector = Parameter<Layout<1>, GainGradientLayout<Rows, operation::layer_norm>, float, Zero>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Bias = Vector<Frozen<DataParallel>>;
#else
using Bias = Vector<DataParallel>;
#endif

void normalise(const Var<Rows>& x, Vector<DataParallel>& gain, Bias& bias) {
  static_cast<void>(layer_norm(x, gain, bias, 1e-5));
}
} // namespace frozen_half_a_norm

namespace quantized_gradient {
// expect: Parameter: a frozen one has no gradient and no optimizer state, and no step changes it

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weight = Matrix<Frozen<Zero2, NormalFloat4>>;
#else
using Weight = Matrix<Zero2>;
#endif

auto read(const Weight& weight) { return weight.gradient(); }
} // namespace quantized_gradient

namespace quantized_optimized {
// expect: Parameter: a frozen one has no gradient and no optimizer state, and no step changes it

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weight = Matrix<Frozen<Zero3, Int8>>;
#else
using Weight = Matrix<Zero3>;
#endif

void step(AdamW& optimizer, Weight& weight, const ShardedTensor<Weight::gradient_layout>& gradient) {
  optimizer.update(weight, gradient, optimizer.begin(GradientScale(1), 1e-3));
}
} // namespace quantized_optimized

namespace quantized_in_a_group {
// expect: Parameter: a frozen one has no gradient and no optimizer state, and no step changes it

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weight = Matrix<Frozen<Zero1, NormalFloat4>>;
#else
using Weight = Matrix<Zero1>;
#endif

double decay(OptimizerStates<1>& states, const Weight& weight) {
  return states.of(weight, decay_matrices()).weight_decay_factor;
}
} // namespace quantized_in_a_group

namespace quantized_element {
// expect: Frozen: the form of quantized weights must be Int8 or NormalFloat4 (write Frozen<Zero3, NormalFloat4>, or Frozen<Zero3> for weights in their own element type)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Choice = Frozen<Zero3, bfloat16>;
#else
using Choice = Frozen<Zero3, NormalFloat4>;
#endif

static_assert(sizeof(Choice) > 0);
} // namespace quantized_element

namespace quantized_cut {
// expect: Quantized weights: their layout must not be Partial or have halos, which would cut or repeat blocks (keep such weights whole, with Frozen<Zero>)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Weights = Layout<2, Shard<1, tp, Halo<1>>>;
#else
using Weights = Layout<2, Shard<1, tp>>;
#endif

auto store(const ShardedTensor<Weights>& weights) { return quantize<Int8>(weights); }
} // namespace quantized_cut
