// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Loss: a loss that needs the whole batch before its backward must run under a schedule whose forwards all
// expect: (use GPipe, or CountingFirst for one more forward pass, or a sequence-wise loss, or the aux-loss-free bias)

#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/train/pipeline/runner.hpp>

using namespace shardwright;
using namespace shardwright::axis;

struct Stage {
  using Input = ShardedTensor<Layout<2, Shard<0, dp>>>;
  using Output = Input;
  struct Batch {};
  struct Saved {};
  struct Loss { // such as a balance of experts over all tokens of the step
    static constexpr bool needs_whole_batch = true;
    Loss& operator+=(const Loss&) { return *this; }
  };
  Input make_input(const Batch&);
  std::optional<Output> forward(std::optional<Input>, const Batch&, Saved&, Loss&);
  std::optional<Input> backward(std::optional<Output>, const Batch&, Saved&, PassPosition);
  std::optional<Input> input_gradient(std::optional<Output>, Saved&);
  void weight_gradient(const Batch&, Saved&, PassPosition);
  void end_forwards();
};

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Policy = OneFOneB;
#else
using Policy = GPipe;
#endif

void start(HostCommunicator& ranks, Stage& stage) {
  PipelineRunner<Stage> runner(ranks, make_schedule<Policy>(4, 8), {&stage});
}
