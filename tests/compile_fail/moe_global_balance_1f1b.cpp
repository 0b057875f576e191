// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Loss: a loss that needs the whole batch before its backward must run under a schedule whose forwards all
// expect: (use GPipe, or CountingFirst for one more forward pass, or a sequence-wise loss, or the aux-loss-free bias)

#include <shardwright/nn/experts/global_balance.hpp>
#include <shardwright/nn/losses/mse.hpp>
#include <shardwright/schedule/policies/one_f_one_b.hpp>
#include <shardwright/train/pipeline/runner.hpp>
#include <shardwright/train/pipeline/stage.hpp>

using namespace shardwright;
using namespace shardwright::axis;

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
