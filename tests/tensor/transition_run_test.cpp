// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "tensor/reference.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/transition/run.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Every legal pair of layouts, on values: one class executes the steps of a transition for all layouts, so no
// pair needs a separate type.

namespace {

using namespace tensor_test;
using shardwright_test::Findings;
using shardwright_test::on_ranks;

struct a : axis_tag<a> {
  static constexpr std::string_view name = "a";
};
struct b : axis_tag<b> {
  static constexpr std::string_view name = "b";
};
struct c : axis_tag<c> {
  static constexpr std::string_view name = "c";
};

bool legal(const LayoutValue& from, const LayoutValue& to, int axes) {
  for (int axis = 0; axis < axes; ++axis)
    if (transition_fault(from, to, axis, true) != TransitionFault::none)
      return false;
  return true;
}

/// The steps that a type would have.
std::vector<TransitionStep> compile_time_steps(const LayoutValue& from, const LayoutValue& to) {
  std::vector<TransitionStep> steps;
  LayoutValue layout = from;
  for (const TransitionMove& move : plan_transition(from, to)) {
    TransitionStep step;
    static_cast<TransitionMove&>(step) = move;
    step.before = layout;
    step.after = layout = apply(move, layout);
    steps.push_back(step);
  }
  return steps;
}

template <class Element> class PairRunner {
public:
  PairRunner(detail::MeshCore& core, const Table& table, const detail::AxisBinding& binding,
             Findings& findings)
      : resources_(core.resources<DefaultTarget>()), table_(table), binding_(binding), findings_(findings) {}

  void check(const LayoutValue& from, const LayoutValue& to, const Shape& shape, bool asynchronous) {
    const Reference reference(table_, from, {++seed_, 6});
    const std::vector<double> source = reference.block(from, shape);
    const std::vector<double> wanted = reference.block(to, shape);
    const std::vector<Element> in(source.begin(), source.end());
    std::vector<Element> out(wanted.size(), Element(77));
    const std::vector<TransitionStep>& steps = kept_.emplace_back(compile_time_steps(from, to));
    detail::BoundTransition bound{binding_, steps, 0, nullptr};
    detail::count_steps(bound);
    if (bound.effective > 1 && bound.has_trivial_axis) {
      bound.use(kept_.emplace_back(detail::steps_at(binding_, from, to)));
    }
    if (bound.trivial()) {
      findings_.expect(without_trivial_axes(from, binding_.extents) ==
                           without_trivial_axes(to, binding_.extents),
                       text_of(from), " to ", text_of(to), " has no steps");
      out = in;
    } else {
      detail::TransitionRun<Element, DefaultTarget> run(resources_, bound, shape, in.data(), out.data(), {},
                                                        SourceLocation::current());
      if (asynchronous) {
        run.start();
        run.complete();
      } else {
        run.run();
      }
    }
    bool equal = out.size() == wanted.size();
    for (std::size_t i = 0; equal && i < out.size(); ++i)
      equal = out[i] == static_cast<Element>(wanted[i]);
    findings_.expect(equal, "rank ", resources_.core().world().rank(), ": ", text_of(from), " to ",
                     text_of(to), asynchronous ? ", asynchronous" : "");
  }

private:
  detail::TargetResources<DefaultTarget>& resources_;
  Table table_;
  detail::AxisBinding binding_;
  Findings& findings_;
  std::deque<std::vector<TransitionStep>> kept_; // the mesh knows its calls by the address of their step
  std::uint64_t seed_ = 0;
};

template <class... Axes, std::size_t... indices>
DeviceMesh<Axes...> mesh_of(const HostCommunicator& world, std::array<int, sizeof...(Axes)> extents,
                            std::index_sequence<indices...>) {
  return DeviceMesh<Axes...>(world, extent<Axes>(extents[indices])...);
}

template <class Element, class... Axes>
std::string check_all_pairs(std::array<int, sizeof...(Axes)> extents, int tensor_rank, const Shape& shape,
                            const std::vector<ReduceOp>& ops) {
  int ranks = 1;
  for (const int extent : extents)
    ranks *= extent;
  const std::vector<LayoutValue> layouts = all_layouts(tensor_rank, sizeof...(Axes), ops);
  return on_ranks(ranks, [&](HostCommunicator world, Findings& findings) {
    const auto mesh = mesh_of<Axes...>(world, extents, std::index_sequence_for<Axes...>{});
    // As in a Transition, the table is sorted by name, whatever the mesh's order.
    const detail::AxisBinding binding = detail::bind_axes(mesh.core(), SortedAxes<Axes...>::names);
    Table table{sizeof...(Axes), binding.extents, binding.coordinates};
    PairRunner<Element> runner(mesh.core(), table, binding, findings);
    std::size_t number = 0;
    for (const LayoutValue& from : layouts)
      for (const LayoutValue& to : layouts)
        if (legal(from, to, sizeof...(Axes)))
          runner.check(from, to, shape, number++ % 3 == 2);
  });
}

const std::vector<ReduceOp> sum_only{ReduceOp::sum};
const std::vector<ReduceOp> sum_and_average{ReduceOp::sum, ReduceOp::average};

} // namespace

TEST_CASE("every pair of layouts over one axis, of every tensor rank and reduction") {
  for (const int ranks : {1, 2, 3, 4, 6, 8}) {
    INFO("ranks " << ranks);
    for (const ReduceOp op :
         {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::maximum, ReduceOp::minimum}) {
      INFO(name_of(op));
      CHECK(check_all_pairs<float, a>({ranks}, 1, {7}, {op}) == "");
      CHECK(check_all_pairs<double, a>({ranks}, 2, {5, 3}, {op}) == "");
      if (op != ReduceOp::average)
        CHECK(check_all_pairs<std::int32_t, a>({ranks}, 3, {3, 4, 2}, {op}) == "");
    }
  }
}

TEST_CASE("every pair of layouts over two axes, including uneven and empty blocks") {
  CHECK(check_all_pairs<float, a, b>({2, 2}, 2, {5, 6}, sum_and_average) == "");
  CHECK(check_all_pairs<double, a, b>({2, 2}, 1, {3}, sum_only) == "");
  CHECK(check_all_pairs<std::int32_t, a, b>({2, 3}, 2, {7, 4}, sum_only) == "");
  CHECK(check_all_pairs<float, a, b>({3, 2}, 3, {2, 5, 3}, sum_only) == "");
  CHECK(check_all_pairs<float, a, b>({2, 4}, 2, {4, 1}, {ReduceOp::maximum}) == "");
}

TEST_CASE("axes of extent 1 need no step") {
  CHECK(check_all_pairs<float, a, b>({1, 1}, 2, {3, 2}, sum_only) == "");
  CHECK(check_all_pairs<float, a, b>({1, 3}, 2, {4, 5}, sum_only) == "");
  CHECK(check_all_pairs<double, a, b>({2, 1}, 2, {4, 5}, sum_only) == "");
  CHECK(check_all_pairs<float, a, b, c>({1, 2, 1}, 2, {3, 4}, sum_only) == "");
}

TEST_CASE("every pair of layouts over three axes") {
  CHECK(check_all_pairs<float, a, b, c>({2, 1, 2}, 2, {5, 3}, sum_only) == "");
  CHECK(check_all_pairs<double, a, b, c>({2, 2, 2}, 1, {11}, sum_only) == "");
}

TEST_CASE("every pair of layouts of a matrix over three axes on eight ranks") {
  CHECK(check_all_pairs<float, a, b, c>({2, 2, 2}, 2, {7, 5}, sum_only) == "");
}

TEST_CASE("every pair of layouts works for tensors without elements or with one") {
  CHECK(check_all_pairs<float, a, b>({2, 2}, 2, {0, 3}, sum_only) == "");
  CHECK(check_all_pairs<float, a, b>({2, 2}, 2, {3, 0}, sum_only) == "");
  CHECK(check_all_pairs<double, a, b>({3, 1}, 2, {1, 1}, sum_only) == "");
}

TEST_CASE("axes of the mesh in a different order from the table of names") {
  CHECK(check_all_pairs<float, b, a>({2, 3}, 2, {5, 4}, sum_only) == "");
}
