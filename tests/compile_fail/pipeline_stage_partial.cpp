// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: PipelineRunner: a stage's output must not be Partial, an incomplete sum whose gradient has a different layout
// expect: (redistribute it at the end of the stage)

#include <shardwright/train/pipeline/runner.hpp>

using namespace shardwright;
using namespace shardwright::axis;

struct Stage {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  using Input = ShardedTensor<Layout<2, Shard<0, dp>, Partial<Sum, tp>>>;
#else
  using Input = ShardedTensor<Layout<2, Shard<0, dp>>>;
#endif
  using Output = Input;
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
