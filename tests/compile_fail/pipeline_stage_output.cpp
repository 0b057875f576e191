// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: PipelineRunner: a stage's output must have the layout of the next stage's input
// expect: (redistribute it at the end of the stage)

#include <shardwright/train/pipeline/runner.hpp>

using namespace shardwright;
using namespace shardwright::axis;

struct Stage {
  using Input = ShardedTensor<Layout<2, Shard<0, dp>>>;
#ifdef SHARDWRIGHT_EXPECT_FAIL
  using Output = ShardedTensor<Layout<2, Shard<0, dp>, Shard<1, tp>>>;
#else
  using Output = ShardedTensor<Layout<2, Shard<0, dp>>>;
#endif
  struct Batch {};
  struct Saved {};
  struct Loss {
    Loss& operator+=(const Loss&) { return *this; }
  };
  Input make_input(const Batch&);
  std::optional<Output> forward(std::optional<Input>, const Batch&, Saved&, Loss&);
  std::optional<Input> backward(std::optional<Output>, const Batch&, Saved&, PassPosition);
  std::optional<Input> input_gradient(std::optional<Output>, Saved&);
  void weight_gradient(const Batch&, Saved&, PassPosition);
};

using Runner = PipelineRunner<Stage>;
static_assert(sizeof(Runner) != 0);
