// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/mimic_target.hpp"
#include "support/predicted_run.hpp"
#include "support/ranks.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/nn/layers/dropout.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/norms.hpp>
#include <shardwright/tensor/quantize.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/train/dry_run.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// The counts of a dry run; decoder_dry_run_test.cpp compares them with complete trainings.

namespace {

namespace sw = shardwright;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using sw::axis::dp;
using sw::axis::tp;
using Counting = sw::Counting<sw::DefaultTarget>;

/// Bytes in use after each of some transitions of tensors on four data ranks, and the peak.
template <class Target>
[[nodiscard]] std::vector<std::size_t> transitions(const sw::HostCommunicator& world) {
  using Sharded = sw::Layout<2, sw::Shard<0, dp>>;
  using Unfinished = sw::Layout<2, sw::Partial<sw::Sum, dp>>;
  using Whole = sw::Layout<2>;
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size())};
  std::vector<std::size_t> out;
  const auto note = [&] {
    const sw::PoolStatistics now = mesh.template pool_statistics<Target>();
    out.insert(out.end(), {now.used_bytes, now.requested_bytes, now.peak_bytes, now.allocations});
  };
  sw::ShardedTensor<Sharded, float, Target> part(mesh, {1023, 5});
  sw::fill(part, 1.0F);
  note();
  const auto whole = sw::redistribute<Whole>(part); // an all_gather leaves its input
  note();
  sw::ShardedTensor<Unfinished, float, Target> sum(mesh, {1023, 5});
  sw::fill_zero(sum);
  note();
  auto finished = sw::redistribute<Whole>(std::move(sum)); // an all_reduce works in place
  note();
  const auto scattered = sw::redistribute<Sharded>(finished); // a slice
  const auto turned = sw::redistribute<sw::Layout<2, sw::Shard<1, dp>>>(scattered);
  note();
  const auto alike = sw::redistribute<Sharded>(part); // nothing moves, memory is shared
  note();
  const double total =
      static_cast<double>(sw::item(sw::redistribute<sw::Layout<0>>(sw::reduce_all<sw::Sum>(turned))));
  note();
  if constexpr (sw::counts_only<Target>)
    out.push_back(total == 1 ? 1 : 0);
  else
    out.push_back(total == 0 ? 1 : 0); // of zeros
  return out;
}

constexpr std::int64_t matrices = 16; ///< Of one size, so that the temporaries for one of them are small.
constexpr std::int64_t elements = 4096 * 1024;

/// Matrices in a step, bfloat16 with masters.
template <class Zero> struct Matrices {
  using target = Counting;
  using Weight =
      sw::Parameter<sw::Layout<2>, sw::Layout<2, sw::Partial<sw::Sum, dp>>, sw::bfloat16, Zero, Counting>;
  explicit Matrices(const sw::DeviceMesh<dp, sw::axis::cp>& mesh) {
    for (std::int64_t i = 0; i < matrices; ++i)
      weights.emplace_back(mesh, std::array<std::int64_t, 2>{4096 / matrices, 1024},
                           sw::Initial::normal(0.1));
    sw::initialize(*this, 1);
  }
  auto members() { return sw::members("weights", weights); }
  std::deque<Weight> weights;
};
/// Kinds of memory of one of `ranks` data ranks, in bytes per element, when the second step holds the most.
template <class Zero> [[nodiscard]] sw::MemoryTable state_of(int ranks, int rank) {
  return sw::dry_run(
             ranks, rank,
             [](const sw::HostCommunicator& world) {
               const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size()), sw::extent<sw::axis::cp>(1)};
               Matrices<Zero> model(mesh);
               sw::GradAccumulator accumulator(model);
               sw::AdamW optimizer;
               using Rows = sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>>, sw::bfloat16, Counting>;
               using OverDp = sw::Layout<0, sw::Partial<sw::Sum, dp>>;
               for (int step = 0; step < 2; ++step) {
                 sw::Tape<Counting> tape;
                 for (auto& weight : model.weights) {
                   const auto y = sw::matmul(tape.input(Rows(mesh, {world.size(), 4096 / matrices})), weight);
                   tape.seed(y, y.value());
                 }
                 tape.backward();
                 tape.restart();
                 accumulator.add(sw::LossSum<OverDp>{1}, sw::TokenCount<OverDp>{1});
                 const auto summary = accumulator.finish();
                 optimizer.step(model, summary, 0.1);
                 accumulator.restart();
               }
             })
      .memory;
}

/// Three steps of a row-parallel product, whose result is summed over tp and its gradient over dp.
template <class Target> struct OneProduct {
  using target = Target;
  using Weight =
      sw::Parameter<sw::Layout<2, sw::Shard<0, tp>>,
                    sw::Layout<2, sw::Shard<0, tp>, sw::Partial<sw::Sum, dp>>, float, sw::Zero2, Target>;
  explicit OneProduct(const sw::DeviceMesh<dp, tp>& mesh) : weight(mesh, {64, 48}, sw::Initial::normal(0.1)) {
    sw::initialize(*this, 1);
  }
  auto members() { return sw::members("weight", weight); }

  static void train(const sw::HostCommunicator& world, const auto& at_step) {
    using In = sw::Layout<3, sw::Shard<0, dp>, sw::Shard<2, tp>>;
    using Out = sw::Layout<3, sw::Shard<0, dp>>;
    using OverDp = sw::Layout<0, sw::Partial<sw::Sum, dp>>;
    const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(2)};
    OneProduct model(mesh);
    sw::GradAccumulator accumulator(model);
    sw::AdamW optimizer;
    for (int step = 0; step < 3; ++step) {
      sw::ShardedTensor<In, float, Target> x(mesh, {4, 32, 64});
      sw::fill_normal(x, {1, 2});
      sw::Tape<Target> tape;
      {
        const auto y = sw::gelu_tanh(sw::matmul(tape.input(std::move(x)), model.weight).template as<Out>());
        tape.seed(y, y.value());
      }
      tape.backward();
      tape.restart();
      accumulator.add(sw::LossSum<OverDp>{1}, sw::TokenCount<OverDp>{1});
      const auto summary = accumulator.finish();
      optimizer.step(model, summary, 0.1);
      accumulator.restart();
      at_step(step, mesh.template pool_statistics<Target>());
    }
  }
  Weight weight;
};

/// A program that leaves a collective out on one rank.
struct Program {
  int odd = -1;
  void operator()(sw::HostCommunicator world) const {
    const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(world.size() / 2)};
    std::array<float, 8> numbers{};
    mesh.communicator<tp>().all_reduce_in_place(numbers);
    if (world.rank() != odd)
      mesh.communicator<dp>().all_reduce_in_place(numbers);
    mesh.communicator<dp>().broadcast(numbers, 0);
    if (world.rank() < 2)
      world.send(std::array<int, 3>{}, world.rank() + 2, 5);
    else if (world.rank() < 4)
      world.receive(std::array<int, 3>{}, world.rank() - 2, world.rank() == odd ? 6 : 5);
  }
};
[[nodiscard]] std::vector<sw::DryRun> runs_of(const Program& program) {
  std::vector<sw::DryRun> out;
  for (int rank = 0; rank < 4; ++rank)
    out.push_back(sw::dry_run(4, rank, program));
  return out;
}

} // namespace

TEST_CASE("transitions on a counting target take and return the same blocks as real ones") {
  for (const int ranks : {1, 2, 3, 4})
    CHECK(on_ranks(ranks, [ranks](const sw::HostCommunicator& world, Findings& findings) {
            std::vector<std::size_t> counted;
            const sw::DryRun run =
                sw::dry_run(ranks, world.rank(), [&](const sw::HostCommunicator& pretended) {
                  counted = transitions<Counting>(pretended);
                });
            const std::vector<std::size_t> real = transitions<sw::DefaultTarget>(world);
            findings.expect(counted == real, "rank ", world.rank());
            findings.expect(real.back() == 1, "the sum, which is 1 in a dry run");
            findings.expect(run.rank == world.rank() &&
                                run.memory.total() == static_cast<std::int64_t>(real[real.size() - 3]),
                            "the peak");
          }) == "");
}

TEST_CASE("memory by kind agrees with the formulas of ZeRO, with masters and sums in float") {
  const auto check = [&](const sw::MemoryTable& table, int ranks, std::int64_t parameters,
                         std::int64_t shared) {
    INFO(ranks << " ranks");
    using Kind = sw::MemoryKind;
    CHECK(table[Kind::parameters] == parameters);
    CHECK(table[Kind::master_weights] * shared == 4 * elements);
    CHECK(table[Kind::optimizer_state] * shared == 8 * elements);
    CHECK(table[Kind::gradients] > 0);
  };
  // Without ZeRO the peak is in the optimizer, with one rounded matrix beside the old weights; if a rank has
  // a share of the state, the peak is in the gradients.
  constexpr std::int64_t rounded = 2 * elements / matrices;
  for (const int ranks : {1, 8, 1024})
    check(state_of<sw::DataParallel>(ranks, ranks - 1), ranks, 2 * elements + rounded, 1);
  check(state_of<sw::Zero1>(1, 0), 1, 2 * elements + rounded, 1);
  check(state_of<sw::Zero3>(1, 0), 1, 2 * elements + rounded, 1);
  check(state_of<sw::Zero1>(8, 0), 8, 2 * elements, 8);
  check(state_of<sw::Zero2>(8, 4), 8, 2 * elements, 8);
  check(state_of<sw::Zero3>(8, 7), 8, 2 * elements / 8, 8);
  // Whole gradients, and the shares that have been reduced by then; no weight is gathered at that time.
  const std::int64_t gradients = state_of<sw::Zero1>(8, 0)[sw::MemoryKind::gradients];
  CHECK(gradients > 4 * elements);
  CHECK(gradients <= 4 * elements + 4 * elements / 8);
  CHECK(state_of<sw::Zero3>(8, 0)[sw::MemoryKind::gathered_weights] == 0);
}

TEST_CASE("memory and calls of a training on a reproducible target are predicted") {
  using Ordered = sw::Reproducible<sw::DefaultTarget>;
  CHECK(on_ranks(4, [&](sw::HostCommunicator world, Findings& findings) {
          const sw::DryRun predicted =
              sw::dry_run(4, world.rank(), [](const sw::HostCommunicator& pretended) {
                OneProduct<sw::Counting<Ordered>>::train(pretended, [](int, const sw::PoolStatistics&) {});
              });
          shardwright_test::expect_predicted(
              predicted, world,
              [](const sw::HostCommunicator& logged, const auto& at_step) {
                OneProduct<Ordered>::train(logged, at_step);
              },
              "ordered", findings);
          const auto bytes = [&](std::string_view group, sw::Operation operation) {
            std::size_t sum = 0;
            for (const sw::RecordedCall& call : predicted.calls)
              if (call.group == group && call.operation == operation)
                sum += call.bytes;
            return sum;
          };
          // A tree over tp moves floats, as the usual sum; gradients over dp are integers of 8 bytes.
          const auto over_tp = bytes("tp", sw::Operation::all_reduce);
          const auto over_dp = bytes("dp reductions", sw::Operation::reduce_scatter);
          findings.expect(over_tp == 3 * (2 * 32 * 48) * sizeof(float), "over tp: ", over_tp);
          findings.expect(over_dp == 3 * (32 * 48) * sizeof(sw::FixedPoint), "over dp: ", over_dp);
        }) == "");
}

TEST_CASE("operations are counted, and can be counted anew") {
  using Tensor = sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>>, float, Counting>;
  using Matrix = sw::ShardedTensor<sw::Layout<2>, float, Counting>;
  const auto product = [](const sw::HostCommunicator& world) {
    const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size())};
    static_cast<void>(sw::matmul(Tensor(mesh, {1 << 20, 1 << 12}), Matrix(mesh, {1 << 12, 1 << 10})));
  };
  const sw::DryRun once = sw::dry_run(64, 3, product);
  CHECK(once.flops == 2.0 * (1 << 14) * (1 << 12) * (1 << 10));
  CHECK(once.kernel_bytes == sw::KernelBytes{{"sw::matmul", 4.0 * ((1 << 26) + (1 << 22) + (1 << 24))}});
  CHECK(once.memory.requested() == std::int64_t{4} * ((1 << 26) + (1 << 22) + (1 << 24)));
  CHECK_FALSE(once.calls.empty()); // the mesh is compared between ranks
  const sw::DryRun anew = sw::dry_run(64, 3, [&](const sw::HostCommunicator& world) {
    product(world);
    sw::count_anew();
  });
  CHECK(anew.flops == 0);
  CHECK(anew.kernel_bytes.empty());
  CHECK(anew.calls.empty());
  CHECK(anew.memory == once.memory);
  sw::count_anew(); // nothing outside a dry run
}

TEST_CASE("a kernel's bytes are those that it reads and writes, without workspaces") {
  const sw::DryRun run = sw::dry_run(1, 0, [](const sw::HostCommunicator& world) {
    const sw::DeviceMesh mesh{world, sw::extent<dp>(1)};
    sw::ShardedTensor<sw::Layout<1>, float, Counting> x(mesh, {1 << 16});
    static_cast<void>(sw::norm1_value(x));
    static_cast<void>(sw::reduce_all<sw::Sum>(x));
    const auto words = sw::quantize<sw::NormalFloat4>(x);
    static_cast<void>(sw::widen<sw::NormalFloat4, double>(words));
    static_cast<void>(
        sw::operation::Dropout{{.tensor = 1, .rate = 0.5}, {}, {}}.forward({}, std::move(x))); // in place
  });
  constexpr double elements = 1 << 16, words = 9 * elements / 64;
  CHECK(run.kernel_bytes == sw::KernelBytes{{"sw::absolutes", 4 * elements},
                                            {"sw::sum_order", 8},
                                            {"sw::reduce", 4 * (elements + 1)},
                                            {"sw::quantize", 4 * (elements + words)},
                                            {"sw::widen", 8 * elements + 4 * words},
                                            {"dropout", 2 * 4 * elements}});
}

TEST_CASE("an exception of the program is passed on, and leaves no dry run behind") {
  const auto fail = [](const sw::HostCommunicator&) { throw std::runtime_error("out of ideas"); };
  CHECK_THROWS_WITH(sw::dry_run(2, 0, fail), "out of ideas");
  CHECK(sw::detail::DryRunRecord::current() == nullptr);
  CHECK_THROWS_AS(sw::dry_run(2, 2, [](const sw::HostCommunicator&) {}), sw::InvalidArgument);
  sw::DryRun inner;
  const sw::DryRun outer = sw::dry_run(2, 0, [&](sw::HostCommunicator world) {
    inner = sw::dry_run(3, 1, [](sw::HostCommunicator other) { other.barrier(); });
    world.barrier();
    world.barrier();
  });
  CHECK(inner.calls.size() == 1);
  CHECK(outer.calls.size() == 2);
}

TEST_CASE("a mesh may outlive its dry run, and one on a counting target needs a dry run") {
  using Rows = sw::ShardedTensor<sw::Layout<2, sw::Shard<0, dp>>, float, Counting>;
  std::optional<sw::DeviceMesh<dp>> mesh;
  std::optional<Rows> tensor;
  const sw::DryRun run = sw::dry_run(2, 0, [&](const sw::HostCommunicator& world) {
    mesh.emplace(world, sw::extent<dp>(2));
    tensor.emplace(*mesh, Rows::Shape{64, 8});
  });
  std::vector<Rows> more;
  for (std::int64_t rows = 2; rows < 4096; rows *= 2)
    more.emplace_back(*mesh, Rows::Shape{rows, 8});
  more.clear();
  tensor.reset();
  CHECK(mesh->pool_statistics<Counting>().used_bytes == 0);
  CHECK(run.memory.requested() == 32 * 8 * 4);
  mesh.reset();

  CHECK(on_ranks(2, [](const sw::HostCommunicator& world, Findings& findings) {
          using Device = sw::Counting<shardwright_test::MimicTarget>;
          const sw::DeviceMesh real{world, sw::extent<dp>(2)};
          const sw::ShardedTensor<sw::Layout<1, sw::Shard<0, dp>>, float, Device> part(real, {6});
          const std::string said = failure_of<sw::LifecycleError>(
              [&] { static_cast<void>(sw::redistribute<sw::Layout<1>>(part)); });
          findings.expect(
              has(said, "Counting: a counting target must be used inside a dry run (call dry_run()"), said);
        }) == "");
}

TEST_CASE("memory in a dry run is not attributed to what the surrounding program was doing") {
  const std::string outside = "layers.7";
  const sw::detail::MemoryOfPart part(outside);
  const sw::DryRun run = sw::dry_run(1, 0, [&](const sw::HostCommunicator& world) {
    const sw::DeviceMesh mesh{world, sw::extent<dp>(1)};
    const sw::ShardedTensor<sw::Layout<1>, float, Counting> tensor(mesh, {64});
  });
  REQUIRE(run.holders.size() == 1);
  CHECK(run.holders[0].name.empty());
  CHECK(sw::detail::memory_purpose().part == outside);
}

TEST_CASE("ranks whose calls agree show no difference, and a rank that skips a collective is detected") {
  CHECK(sw::call_differences(runs_of({})).empty());
  const std::vector<std::string> found = sw::call_differences(runs_of({.odd = 3}));
  REQUIRE(found.size() == 2);
  // Rank 3 shares dp with rank 1, and gets its message from there.
  CHECK(has(found[0], "call 1 on dp: rank 1 all_reduce of 32 bytes at "));
  CHECK(has(found[0], "dry_run_test.cpp"));
  CHECK(has(found[0], ", rank 3 broadcast of 32 bytes of rank 1 at "));
  CHECK(has(found[1], "call 1 on world: rank 1 send of 12 bytes to rank 3 at "));
  CHECK(has(found[1], ", rank 3 receive of 12 bytes from rank 1 at "));
  // Ranks that were not run are not reported as missing.
  std::vector<sw::DryRun> some = runs_of({.odd = 3});
  some.pop_back();
  CHECK(sw::call_differences(some).empty());
  // A call that is missing at the end.
  some = runs_of({});
  some[1].calls.pop_back();
  const std::vector<std::string> end = sw::call_differences(some);
  REQUIRE(end.size() == 1);
  CHECK(has(end[0], "rank 1 none, rank 3 receive of 12 bytes from rank 1"));
}

TEST_CASE("what is compared between ranks, and what has nobody to be compared with, is named") {
  const std::vector<sw::DryRun> all = runs_of({});
  for (const sw::ComparedCalls& each : sw::compared_calls(all))
    CHECK(each.ranks.size() > 1);
  // Ranks 0 and 3 share only the world.
  const std::vector<sw::DryRun> corners{all[0], all[3]};
  CHECK(sw::call_differences(corners).empty());
  std::size_t alone = 0;
  for (const sw::ComparedCalls& each : sw::compared_calls(corners)) {
    CHECK(each.calls > 0);
    CHECK((each.ranks.size() == 2) == (each.group == "world" && !each.messages));
    alone += each.ranks.size() == 1 ? 1 : 0;
  }
  CHECK(alone >= 2);
}

TEST_CASE("uneven blocks are not a difference, a different element type or operation is") {
  const auto run = [](auto program) {
    std::vector<sw::DryRun> out;
    for (int rank = 0; rank < 2; ++rank)
      out.push_back(sw::dry_run(2, rank, program));
    return sw::call_differences(out);
  };
  CHECK(run([](const sw::HostCommunicator& world) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(2)};
          const sw::ShardedTensor<sw::Layout<1, sw::Shard<0, dp>>, float, Counting> odd(mesh, {7});
          static_cast<void>(sw::redistribute<sw::Layout<1>>(odd));
        }).empty());
  CHECK(run([](sw::HostCommunicator world) {
          std::array<float, 4> floats{};
          std::array<std::int32_t, 4> numbers{};
          if (world.rank() == 0)
            world.all_reduce_in_place(floats);
          else
            world.all_reduce_in_place(numbers);
        }).size() == 1);
  CHECK(run([](sw::HostCommunicator world) {
          std::array<float, 4> numbers{};
          world.all_reduce_in_place(numbers, world.rank() == 0 ? sw::ReduceOp::sum : sw::ReduceOp::maximum);
        }).size() == 1);
}
