// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/train/pipeline/runner.hpp>
#include <shardwright/train/pipeline/stage.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/pass_counter.hpp>

#include <array>

using namespace shardwright;
using namespace shardwright::axis;

namespace parts_do_not_fit {
// expect: Parts: each part must return the stream in the layout that the next one takes (end the part with .as<Stream>())

using Stream = Layout<2, Shard<0, dp>>;

#ifdef SHARDWRIGHT_EXPECT_FAIL
using Given = Layout<2>; // a part that forgets to bring its result back
#else
using Given = Stream;
#endif

struct Model {
  using target = DefaultTarget;
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
  struct Middle {
    template <class Place> Middle(const Place&, const Config&);
    Var<Given> operator()(Var<Stream> x);
    auto members() { return shardwright::members(); }
  };
  struct Last {
    template <class Place> Last(const Place&, const Config&);
    Loss operator()(Var<Stream> x, const Batch& batch);
    auto members() { return shardwright::members(); }
  };
  using Parts = shardwright::Parts<First, Middle, Last>;
};

void run(Stage<Model>& stage, const Model::Batch& batch, Stage<Model>::Saved& saved,
         Stage<Model>::Loss& loss) {
  static_cast<void>(stage.forward(std::nullopt, batch, saved, loss));
}
} // namespace parts_do_not_fit

namespace pass_counter_without_pass {
// expect: PassCounter: add() must be given the FirstPass, or a replay would count again
// expect: (pass first_pass() of the tape or of a Var on it)

void count(Var<Layout<1>> routed, PassCounter<int>& tokens_per_expert) {
  const std::array<int, 2> amounts{3, 5};
#ifdef SHARDWRIGHT_EXPECT_FAIL
  tokens_per_expert.add(routed, amounts);
#else
  tokens_per_expert.add(routed.first_pass(), amounts);
#endif
}
} // namespace pass_counter_without_pass

namespace pipeline_stage_output {
// expect: PipelineRunner: a stage's output must have the layout of the next stage's input
// expect: (redistribute it at the end of the stage)

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
} // namespace pipeline_stage_output

namespace pipeline_stage_partial {
// expect: PipelineRunner: a stage's output must not be Partial, an incomplete sum whose gradient has a different layout
// expect: (redistribute it at the end of the stage)

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
} // namespace pipeline_stage_partial
