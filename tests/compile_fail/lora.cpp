// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/models.hpp>

using namespace shardwright;
using namespace shardwright::axis;

namespace lora_of_a_trained_model {
// expect: Lora: adapters are added beside frozen weights, but no linear layer of this model has any (give the model FrozenLayouts, or a plan with Frozen<Zero>)

using Layouts = DecoderLayouts<true, Zero1>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Model = Adapted<Decoder<Layouts>>;
#else
using Model = Adapted<Decoder<FrozenLayouts<Layouts>>>;
#endif

static_assert(sizeof(Model::Config) > 0);
} // namespace lora_of_a_trained_model

namespace lora_of_a_trained_layer {
// expect: Lora: adapters are added beside frozen weights, but no linear layer of this model has any

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Plan = ModelPlan<float, Zero2>;
#else
using Plan = ModelPlan<float, Frozen<Zero2>>;
#endif

void prepare(Linear<Layout<2, Shard<0, dp>>, Layout<2, Shard<1, tp>>, Plan>& layer) {
  static_cast<void>(adapt(layer, {.rank = 8}, "layer"));
}
} // namespace lora_of_a_trained_layer

namespace lora_merged_into_quantized_weights {
// expect: Lora: adapters must not be merged into quantized weights, which would round them again (merge them into the same model with FrozenLayouts, or unquantized weights from a file)

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Plan = ModelPlan<float, Frozen<Zero3, NormalFloat4>>;
#else
using Plan = ModelPlan<float, Frozen<Zero3>>;
#endif

void merge(Linear<Layout<2, Shard<0, dp>>, Layout<2, Shard<1, tp>>, Plan>& layer) { merge_adapters(layer); }
} // namespace lora_merged_into_quantized_weights

namespace lora_exchanged_without_adapters {
// expect: Lora: values must be exchanged with those of adapters, but no layer of this model can have any (make a model of Adapted<Model>, or adapt() a module with frozen weights)

using Model = Decoder<FrozenLayouts<DecoderLayouts<true>>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
using Others = OtherAdapters<SingleStageModel<Model>>;
#else
using Others = OtherAdapters<SingleStageModel<Adapted<Model>>>;
#endif

static_assert(sizeof(Others) > 0);
} // namespace lora_exchanged_without_adapters
