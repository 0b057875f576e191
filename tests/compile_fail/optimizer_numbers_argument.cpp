// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Optimizer: numbers() of an optimizer of your own must take no argument, be const, and return GivenNumbers that all ranks must give alike

#include <shardwright/train/training.hpp>

using namespace shardwright;
using namespace shardwright::axis;

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
