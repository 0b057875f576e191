// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/nn/experts/global_balance.hpp>
#include <shardwright/nn/losses/mse.hpp>
#include <shardwright/schedule/policies/gpipe.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/schedule/whole_batch_loss.hpp>
#include <shardwright/train/pipeline/runner.hpp>
#include <shardwright/train/pipeline/stage.hpp>

using namespace shardwright;
using namespace shardwright::axis;

namespace moe_global_balance_1f1b {
// expect: Loss: a loss that needs the whole batch before its backward must run under a schedule whose forwards all
// expect: (use GPipe, or CountingFirst for one more forward pass, or a sequence-wise loss, or the aux-loss-free bias)

using Tokens = Layout<2, Shard<0, dp>>;

struct Sequences {
  ShardedTensor<Tokens> x;
};

struct First {
  auto operator()(Tape<>& tape, const Sequences& batch) { return tape.input(batch.x); }
  auto members() { return shardwright::members(); }
};

struct Last { // that its members need the whole batch makes the model's loss one that does
  GlobalBalance<Tokens> balance;
  auto operator()(Var<Tokens> x, const Sequences& batch) {
    balance(x, choose_experts(x.value(), {.chosen = 2}));
    return mse(std::move(x), batch.x);
  }
  auto members() { return shardwright::members("balance", balance); }
};

struct Model {
  struct Config {};
  using Batch = Sequences;
  using target = DefaultTarget;
  using Parts = shardwright::Parts<First, Last>;
  static std::array<std::int64_t, 2> boundary(const Config&, const Batch& batch) { return batch.x.shape(); }
};

auto schedule_of(int microbatches) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return make_schedule<OneFOneB>(2, microbatches);
#else
  return CountingFirst(make_schedule<OneFOneB>(2, microbatches));
#endif
}

static_assert(carries_loss<Stage<Model>::Loss, decltype(schedule_of(8))>);
} // namespace moe_global_balance_1f1b

namespace pipeline_whole_batch_loss {
// expect: Loss: a loss that needs the whole batch before its backward must run under a schedule whose forwards all
// expect: (use GPipe, or CountingFirst for one more forward pass, or a sequence-wise loss, or the aux-loss-free bias)

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
} // namespace pipeline_whole_batch_loss

namespace whole_batch_loss_1f1b {
// expect: Loss: a loss that needs the whole batch before its backward must run under a schedule whose forwards all precede its backwards
// expect: (use GPipe, or CountingFirst for one more forward pass, or a sequence-wise loss, or the aux-loss-free bias)

struct GlobalBalanceLoss {
  static constexpr bool needs_whole_batch = true;
};

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Policy = OneFOneB;
#else
using Policy = GPipe;
#endif

static_assert(carries_loss<GlobalBalanceLoss, PolicySchedule<Policy>>);
} // namespace whole_batch_loss_1f1b
