// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/failures.hpp"
#include "support/finish_gradient.hpp"
#include "support/ranks.hpp"

#include <shardwright/layout/block.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/parameter.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// One parameter through a step: its memory, its gathers and its mistakes.

namespace {

namespace sw = shardwright;
using shardwright_test::failure_of;
using shardwright_test::Findings;
using shardwright_test::has;
using shardwright_test::on_ranks;
using sw::axis::cp;
using sw::axis::dp;

using Weight = sw::Layout<2>;
using Raw = sw::Layout<2, sw::Partial<sw::Sum, dp>>;
template <class Element, class Zero> using Matrix = sw::Parameter<Weight, Raw, Element, Zero>;

/// Blocks of powers of two, which the pool hands out without rounding.
constexpr std::int64_t rows = 256;
constexpr std::int64_t columns = 64;
constexpr double elements = static_cast<double>(rows * columns);

/// A model that has only parameters.
template <class P> struct Matrices {
  std::vector<P> list{};
  auto members() { return sw::members("", list); }
};

template <class P> P make(const sw::DeviceMesh<dp, cp>& mesh) {
  sw::ShardedTensor<typename P::stored_layout, typename P::accumulation_element> weights(mesh,
                                                                                         {rows, columns});
  sw::fill_normal(weights, {1, 2});
  return P("matrix", std::move(weights));
}

template <class P> void add_gradient(P& parameter) {
  const auto slot = parameter.gradient_slot();
  sw::fill_zero(slot.tensor);
}

/// Bytes per element of weights, gradients and optimizer state when most of them exist at once.
template <class Element, class Zero> double model_state(const sw::HostCommunicator& world) {
  using P = Matrix<Element, Zero>;
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size()), sw::extent<cp>(1)};
  Matrices<P> model;
  model.list.push_back(make<P>(mesh));
  P& parameter = model.list.front();
  const sw::GradAccumulator accumulator(model);
  const auto used = [&] { return static_cast<double>(mesh.pool_statistics().used_bytes) / elements; };
  sw::AdamW optimizer;
  const auto update = [&] {
    shardwright_test::finish_gradient(parameter);
    optimizer.update(parameter, parameter.gradient(), optimizer.begin(sw::GradientScale(1), 1e-3));
  };
  add_gradient(parameter);
  update();
  parameter.gradient_state().drop();
  add_gradient(parameter);
  if constexpr (!P::reduces_each_microbatch)
    return used();
  shardwright_test::finish_gradient(parameter);
  return used();
}

template <class Element, class Zero>
void expect_state(const sw::HostCommunicator& world, Findings& findings, double whole, double shared,
                  const char* what) {
  const double expected = whole + shared / world.size();
  const double measured = model_state<Element, Zero>(world);
  findings.expect(measured == expected, what, " of ", world.size(), " ranks takes ", measured, " bytes, not ",
                  expected);
}

/// Bytes per element of this rank's block of the weights in the layout in which they are read: stored
/// weights, gradients between microbatches, moments and master weights, on a mesh of dpr, dp, cp and two
/// tensor-parallel ranks.
template <class Element, class Zero>
constexpr double bytes_per_parameter(int dp_ranks, int cp_ranks, int dpr_ranks = 1) {
  using sw::axis::dpr;
  using sw::axis::tp;
  using P = sw::Parameter<sw::Layout<2, sw::Shard<1, tp>>,
                          sw::Layout<2, sw::Shard<1, tp>, sw::Partial<sw::Sum, dpr, dp, cp>>, Element, Zero>;
  constexpr std::array<std::int64_t, 2> shape{64, 32};
  constexpr auto main = static_cast<double>(sizeof(typename P::accumulation_element));
  const auto elements_of = [&](auto of) {
    using L = typename decltype(of)::type;
    std::array<int, sw::max_axes> extents{};
    for (std::size_t i = 0; i < L::axes.size(); ++i)
      extents[i] = L::axes[i] == dpr::name  ? dpr_ranks
                   : L::axes[i] == dp::name ? dp_ranks
                   : L::axes[i] == cp::name ? cp_ranks
                                            : 2;
    constexpr std::array<int, sw::max_axes> first{};
    std::int64_t count = 1;
    for (int d = 0; d < 2; ++d)
      count *= sw::dimension_block(L::value, d, extents, first, shape[static_cast<std::size_t>(d)]).size;
    return static_cast<double>(count);
  };
  const double state = elements_of(std::type_identity<typename P::state_layout>{});
  return (elements_of(std::type_identity<typename P::stored_layout>{}) * sizeof(Element) +
          elements_of(std::type_identity<typename P::accumulator_layout>{}) * main +
          state * (P::has_master ? 3 : 2) * main) /
         elements_of(std::type_identity<typename P::compute_layout>{});
}

} // namespace

TEST_CASE("model state agrees with the formulas of ZeRO, with gradients in single precision") {
  // Rajbhandari et al., arXiv 1910.02054, section 3. Weights of two bytes, gradients, moments and master
  // weights of four: 18, 6 + 12/N, 2 + 16/N, 18/N.
  using sw::bfloat16;
  STATIC_REQUIRE(bytes_per_parameter<bfloat16, sw::DataParallel>(1, 1) == 18);
  STATIC_REQUIRE(bytes_per_parameter<bfloat16, sw::DataParallel>(8, 1) == 18);
  STATIC_REQUIRE(bytes_per_parameter<bfloat16, sw::Zero1>(4, 1) == 6 + 12.0 / 4);
  STATIC_REQUIRE(bytes_per_parameter<bfloat16, sw::Zero1>(4, 2) == 6 + 12.0 / 8);
  STATIC_REQUIRE(bytes_per_parameter<bfloat16, sw::Zero2>(4, 2) == 2 + 16.0 / 8);
  STATIC_REQUIRE(bytes_per_parameter<bfloat16, sw::Zero3>(4, 2) == 18.0 / 8);
  // Weights of four bytes are their own master copy: 16, 8 + 8/N, 4 + 12/N, 16/N.
  STATIC_REQUIRE(bytes_per_parameter<float, sw::DataParallel>(4, 1) == 16);
  STATIC_REQUIRE(bytes_per_parameter<float, sw::Zero1>(4, 1) == 8 + 8.0 / 4);
  STATIC_REQUIRE(bytes_per_parameter<float, sw::Zero2>(4, 1) == 4 + 12.0 / 4);
  STATIC_REQUIRE(bytes_per_parameter<float, sw::Zero3>(4, 1) == 16.0 / 4);
  // Replicas of a shard group divide nothing.
  STATIC_REQUIRE(bytes_per_parameter<bfloat16, sw::Zero3>(4, 1, 2) == 18.0 / 4);
}

TEST_CASE("model state takes the bytes per parameter of its ZeRO stage") {
  for (const int ranks : {1, 2, 4})
    CHECK(on_ranks(ranks, [](sw::HostCommunicator world, Findings& findings) {
            // Rajbhandari et al., arXiv 1910.02054, section 3: gradients in single precision.
            expect_state<float, sw::DataParallel>(world, findings, 16, 0, "float");
            expect_state<float, sw::Zero1>(world, findings, 8, 8, "float, ZeRO-1");
            expect_state<float, sw::Zero2>(world, findings, 4, 12, "float, ZeRO-2");
            expect_state<float, sw::Zero3>(world, findings, 0, 16, "float, ZeRO-3");
            expect_state<sw::bfloat16, sw::DataParallel>(world, findings, 18, 0, "bfloat16");
            expect_state<sw::bfloat16, sw::Zero1>(world, findings, 6, 12, "bfloat16, ZeRO-1");
            expect_state<sw::bfloat16, sw::Zero2>(world, findings, 2, 16, "bfloat16, ZeRO-2");
            expect_state<sw::bfloat16, sw::Zero3>(world, findings, 0, 18, "bfloat16, ZeRO-3");
          }) == "");
}

TEST_CASE(
    "gathered weights are complete while they are used, and their memory is returned after the last use") {
  CHECK(on_ranks(3, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size()), sw::extent<cp>(1)};
          using P = Matrix<float, sw::Zero3>;
          P parameter = make<P>(mesh);
          sw::ShardedTensor<Weight> whole(mesh, {rows, columns});
          sw::fill_normal(whole, {1, 2});
          const auto used = [&] { return mesh.pool_statistics().used_bytes; };
          const std::size_t before = used();
          using Failure = sw::LifecycleError;
          findings.expect(has(failure_of<Failure>([&] { static_cast<void>(parameter.weight()); }),
                              "Parameter matrix: the weights must be gathered before they are read"),
                          "read before the gather");
          for (int turn = 0; turn < 2; ++turn) {
            parameter.start_gather();
            parameter.start_gather(); // another use, which begins before the first one ends
            parameter.finish_gather();
            findings.expect(used() == before + whole.local_size() * sizeof(float),
                            "gathered once: ", used() - before, " bytes");
            findings.expect(
                std::equal(whole.data(), whole.data() + whole.local_size(), parameter.weight().data()),
                "the gathered weights");
            const std::string updated = failure_of<Failure>([&] { parameter.update_weights([](auto&) {}); });
            findings.expect(has(updated, "the weights must not be updated while they are gathered"), updated);
            parameter.release();
            static_cast<void>(parameter.weight());
            parameter.release();
            findings.expect(used() == before, "released: ", used() - before, " bytes");
          }
          parameter.start_gather(); // a use that turned out not to be needed
          parameter.release();
          findings.expect(used() == before, "never waited for");
        }) == "");
}

namespace {

/// Sets weights and takes a step that changes nothing, which rounds them from the master copy again.
template <class Element, class Zero>
void expect_kept(const sw::HostCommunicator& world, Findings& findings, const char* what) {
  using P = Matrix<Element, Zero>;
  static_assert(std::is_same_v<decltype(std::declval<P&>().stored()), const typename P::Stored&>);
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size()), sw::extent<cp>(1)};
  Matrices<P> model;
  model.list.push_back(make<P>(mesh));
  P& parameter = model.list.front();
  const sw::GradAccumulator accumulator(model);
  sw::AdamW optimizer({.weight_decay = 0});
  sw::ShardedTensor<Weight, typename P::accumulation_element> wanted(mesh, {rows, columns});
  sw::fill_normal(wanted, {7, 7});
  const auto check = [&](const char* when) {
    const auto found = sw::redistribute<Weight>(parameter.stored());
    bool equal = true;
    for (std::size_t i = 0; i < wanted.local_size(); ++i)
      equal = equal && found.data()[i] == Element(wanted.data()[i]);
    if constexpr (P::has_master) {
      const auto master = sw::redistribute<Weight>(*parameter.master());
      equal = equal && std::equal(wanted.data(), wanted.data() + wanted.local_size(), master.data());
    }
    findings.expect(equal, what, " ", when, " on ", world.size(), " ranks");
  };
  const auto step = [&] {
    add_gradient(parameter);
    shardwright_test::finish_gradient(parameter);
    optimizer.update(parameter, parameter.gradient(), optimizer.begin(sw::GradientScale(1), 1e-3));
    parameter.gradient_state().drop();
  };
  parameter.fill_weights([](auto& weights) { sw::fill_normal(weights, {7, 7}); });
  check("set");
  step();
  check("set, after a step");
  sw::fill_normal(wanted, {8, 8});
  parameter.update_weights([](auto& weights) { sw::fill_normal(weights, {8, 8}); });
  step();
  check("changed, after a step");
}

} // namespace

TEST_CASE("weights are set and changed together with their master copy, whatever layout each has") {
  for (const int ranks : {1, 3})
    CHECK(on_ranks(ranks, [](const sw::HostCommunicator& world, Findings& findings) {
            expect_kept<float, sw::Zero1>(world, findings, "float, ZeRO-1");
            expect_kept<sw::bfloat16, sw::DataParallel>(world, findings, "bfloat16");
            expect_kept<sw::bfloat16, sw::Zero1>(world, findings, "bfloat16, ZeRO-1");
            expect_kept<sw::float16, sw::Zero3>(world, findings, "float16, ZeRO-3");
            const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size()), sw::extent<cp>(1)};
            Matrix<float, sw::DataParallel> unlisted(mesh, {2, 2}, sw::Initial::zeros());
            const std::string said =
                failure_of<sw::LifecycleError>([&] { unlisted.fill_weights([](auto&) {}); });
            findings.expect(has(said, "must have values before it is read or changed"), said);
          }) == "");
}

TEST_CASE("buckets join small gradients, and each parameter gets its own sum") {
  CHECK(on_ranks(3, [](sw::HostCommunicator world, Findings& findings) {
          const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size()), sw::extent<cp>(1)};
          using P = Matrix<float, sw::Zero2>;
          Matrices<P> model;
          for (int i = 0; i < 7; ++i)
            model.list.push_back(make<P>(mesh));
          std::vector<P>& parameters = model.list;
          sw::GradAccumulator accumulator(model);
          accumulator.set_bucket_bytes(3 * rows * columns * sizeof(float));
          sw::record_background(mesh, true);
          for (int pass = 1; pass <= 2; ++pass) {
            for (int i = 0; i < 7; ++i) {
              P& parameter = parameters[static_cast<std::size_t>(i)];
              const auto slot = parameter.gradient_slot();
              for (std::size_t e = 0; e < slot.tensor.local_size(); ++e)
                slot.tensor.mutable_data()[e] =
                    static_cast<float>(pass * (100 * i + world.rank()) + static_cast<int>(e % 17));
              parameter.gradient_state().end_pass(pass == 2 ? sw::PassPosition::last
                                                            : sw::PassPosition::middle);
            }
          }
          // 14 gradients, three per bucket: the last one is sent when the last gradient is complete.
          findings.expect(mesh.core().part<sw::detail::BackgroundLog>().calls.size() == 5,
                          "collectives: ", mesh.core().part<sw::detail::BackgroundLog>().calls.size());
          for (P& parameter : parameters)
            shardwright_test::finish_gradient(parameter);
          findings.expect(mesh.core().part<sw::detail::BackgroundLog>().calls.size() == 5,
                          "and none after the last pass");
          for (int i = 0; i < 7; ++i) {
            const auto& gradient = parameters[static_cast<std::size_t>(i)].gradient();
            const auto offset = static_cast<std::size_t>(gradient.local_offset()[0] * columns);
            bool right = true;
            for (std::size_t e = 0; e < gradient.local_size(); ++e)
              right = right &&
                      gradient.data()[e] == static_cast<float>(3 * (3 * 100 * i + 0 + 1 + 2) +
                                                               2 * 3 * static_cast<int>((offset + e) % 17));
            findings.expect(right, "the gradient of parameter ", i);
          }
        }) == "");
}
