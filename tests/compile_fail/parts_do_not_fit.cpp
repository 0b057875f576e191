// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: Parts: each part must return the stream in the layout that the next one takes (end the part with .as<Stream>())

#include <shardwright/train/pipeline/stage.hpp>

using namespace shardwright;
using namespace shardwright::axis;

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
