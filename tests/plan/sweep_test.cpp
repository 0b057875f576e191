// SPDX-License-Identifier: Apache-2.0

#include "plan/dense_model.hpp"
#include "support/catch.hpp"

#include <shardwright/plan/search/explanation.hpp>
#include <shardwright/plan/search/sweep.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>

#include <algorithm>
#include <vector>

using namespace shardwright;
using plan_test::dense;
using plan_test::experts;

namespace {

/// 64 chips that need a pipeline for their memory and their network.
Situation narrow() {
  Situation now{cluster_of(chip::h100, 64, 8, 1e9), {64, 2048}};
  now.cluster.chip.memory_bytes = 14e9;
  return now;
}

/// Domains ascend in size, each holds a whole number of the domains inside it, and the last one is the
/// cluster.
void require_well_formed(const ClusterSpec& cluster, std::int64_t chips) {
  REQUIRE(cluster.chips() == chips);
  for (int level = 1; level < cluster.domain_count; ++level) {
    const auto at = static_cast<std::size_t>(level);
    REQUIRE(cluster.domains[at].chips > cluster.domains[at - 1].chips);
    REQUIRE(cluster.domains[at].chips % cluster.domains[at - 1].chips == 0);
    REQUIRE(cluster.domains[at].bandwidth > 0);
  }
}

} // namespace

TEST_CASE("more of a resource changes that resource and nothing else", "[sweep]") {
  const Situation now{cluster_of(chip::h100, 1024), {512, 4096}};
  for (std::size_t i = 0; i < resource_names.size(); ++i)
    for (const double factor : {0.25, 1.0, 2.0, 8.0}) {
      const Situation more = with_more(now, static_cast<Resource>(i), factor);
      CAPTURE(resource_names[i], factor);
      for (std::size_t j = 0; j < resource_names.size(); ++j)
        REQUIRE(amount_of(more, static_cast<Resource>(j)) ==
                amount_of(now, static_cast<Resource>(j)) * (i == j ? factor : 1));
      require_well_formed(more.cluster, more.cluster.chips());
    }
}

TEST_CASE("domains are laid out again around more chips or larger domains", "[sweep]") {
  const RunSpec run{512, 4096};
  const ClusterSpec pod = *find_cluster("tpu7x-pod");
  const ClusterSpec two = with_more({pod, run}, Resource::chips, 2).cluster;
  REQUIRE(two.domain_count == 2);
  REQUIRE((two.domains[0].chips == 9216 && two.domains[1].bandwidth == pod.chip.scale_out_bandwidth));
  require_well_formed(two, 18432);
  const ClusterSpec split = with_more({pod, run}, Resource::domain, 1.0 / 16).cluster;
  REQUIRE((split.domain_count == 2 && split.domains[0].chips == 576));
  require_well_formed(split, 9216);
  REQUIRE(with_more({cluster_of(chip::h100, 4), run}, Resource::chips, 2).cluster.domain_count == 1);
  REQUIRE(with_more({cluster_of(chip::h100, 64), run}, Resource::domain, 100).cluster.domain_count == 1);

  ClusterSpec three = cluster_of(chip::h100, 256);
  three.domains[2] = {1024, 25e9, 5e-6, 0};
  three.domain_count = 3;
  const ClusterSpec larger = with_more({three, run}, Resource::domain, 2).cluster;
  REQUIRE((larger.domain_count == 3 && larger.domains[1].chips == 256));
  const ClusterSpec swallowed = with_more({three, run}, Resource::domain, 64).cluster;
  REQUIRE((swallowed.domain_count == 2 && swallowed.domains[1].bandwidth == 25e9));
  const ClusterSpec fewer = with_more({three, run}, Resource::chips, 0.125).cluster;
  REQUIRE((fewer.domain_count == 2 && fewer.domains[1].chips == 128 && fewer.domains[1].bandwidth == 25e9));
}

TEST_CASE("the factors of a sweep ascend, leave everything whole and hold 1", "[sweep]") {
  for (const char* name : {"h100x1024", "h800x2048", "gb200x2016", "h100x24", "v5px64"})
    for (std::size_t i = 0; i < resource_names.size(); ++i) {
      const Situation now{*cluster_of_name(name), {96, 4096}};
      const auto resource = static_cast<Resource>(i);
      CAPTURE(name, resource_names[i]);
      if (resource == Resource::scale_out_bandwidth && now.cluster.domain_count == 1) {
        REQUIRE_THROWS_WITH(sweep_factors(now, resource),
                            Catch::Contains("it has no bandwidth between domains"));
        continue;
      }
      const std::vector<double> factors = sweep_factors(now, resource);
      REQUIRE(std::count(factors.begin(), factors.end(), 1.0) == 1);
      for (std::size_t at = 0; at < factors.size(); ++at) {
        REQUIRE((at == 0 || factors[at] > factors[at - 1]));
        const Situation there = with_more(now, resource, factors[at]);
        REQUIRE(amount_of(there, resource) == Approx(amount_of(now, resource) * factors[at]).epsilon(1e-12));
        require_well_formed(there.cluster, there.cluster.chips());
      }
    }
}

TEST_CASE("a sweep's points agree with searches, and its pipeline ends between two of them", "[sweep]") {
  const Situation now = narrow();
  int ends = 0;
  Searches searches(dense);
  for (const Resource resource :
       {Resource::memory, Resource::scale_out_bandwidth, Resource::scale_up_bandwidth, Resource::domain,
        Resource::tokens, Resource::chips}) {
    CAPTURE(resource_names[static_cast<std::size_t>(resource)]);
    const std::vector<double> factors = sweep_factors(now, resource);
    const Sweep swept = sweep(searches, now, resource, factors);
    REQUIRE(swept.points.size() == factors.size());
    bool pipeline_before = false, pipeline_after = false;
    for (const SweepPoint& point : swept.points) {
      const Situation at = with_more(now, resource, point.factor);
      Searches alone(dense);
      REQUIRE(alone.of(at).best.configuration == point.best.configuration);
      const Plan& flat = alone.without_pipeline(at).best;
      const bool has_none = point.best.found() && point.best.configuration.pp == 1;
      const Plan& expected = has_none ? point.best : flat;
      REQUIRE(expected.problem == point.without_pipeline.problem);
      REQUIRE((!expected.found() || expected.configuration == point.without_pipeline.configuration));
      const bool pipeline = !point.best.found() || point.best.configuration.pp > 1;
      (swept.pipeline_ends && point.factor >= *swept.pipeline_ends ? pipeline_after : pipeline_before) |=
          pipeline;
    }
    REQUIRE(!pipeline_after);
    if (!swept.pipeline_ends) {
      const Plan& last = swept.points.back().best;
      REQUIRE((!pipeline_before || !last.found() || last.configuration.pp > 1));
      continue;
    }
    ++ends;
    const auto pp_at = [&](double factor) {
      const Situation at = with_more(now, resource, factor);
      const Plan plan = Searches(dense).of(at).best;
      return plan.found() ? plan.configuration.pp : 0;
    };
    REQUIRE(pp_at(*swept.pipeline_ends) == 1);
    REQUIRE(pp_at(*swept.pipeline_ends / (is_continuous(resource) ? 1.03 : 2)) != 1);
  }
  REQUIRE(ends >= 2);
  REQUIRE_THROWS_WITH(sweep(searches, now, Resource::memory, {4, 0.5, 1}),
                      "Sweep: the factors must ascend, but 0.5 follows 4 (sort them, and name each once)");
  REQUIRE_THROWS_AS(sweep(searches, now, Resource::tokens, {1, 1}), InvalidArgument);
}

TEST_CASE("less memory is searched again if the fastest plan no longer fits, and the chosen one does",
          "[sweep]") {
  Situation now{cluster_of(chip::h100, 16), {96, 2048}};
  now.cluster.chip.memory_bytes = 40e9;
  const SearchSpace space{.tolerance = 0.03};
  Searches searches(experts);
  const FinishedSearch& known = searches.of(now, space);
  double fastest = 0;
  for (const auto& one : known.state.fastest)
    if (one.measure == known.state.best_seconds)
      fastest = evaluate(experts, now.cluster, now.run, one.plan).memory.total();
  const double chosen = known.best.cost.memory.total();
  REQUIRE(fastest > chosen);
  const double factor = (chosen + fastest) / 2 / (40e9 * (1 - space.headroom));
  const Sweep swept = sweep(searches, now, Resource::memory, {factor, 1}, space);
  const Situation less = with_more(now, Resource::memory, factor);
  REQUIRE(swept.points[0].best.configuration == Searches(experts).of(less, space).best.configuration);
  REQUIRE(swept.points[0].best.configuration != known.best.configuration);
  REQUIRE(swept.points[1].best.configuration == known.best.configuration);
}

TEST_CASE("the point where plans begin has a plan, and smaller factors do not", "[sweep]") {
  Situation now{cluster_of(chip::h100, 8), {64, 2048}};
  now.cluster.chip.memory_bytes = 2.5e9;
  REQUIRE(!search(dense, now.cluster, now.run).found());
  Searches searches(dense);
  for (const Resource resource : {Resource::memory, Resource::chips}) {
    const std::optional<double> factor = plan_begins(searches, now, resource);
    REQUIRE(factor);
    const auto found_at = [&](double times) {
      const Situation at = with_more(now, resource, times);
      return search(dense, at.cluster, at.run).found();
    };
    REQUIRE((found_at(*factor) && !found_at(*factor / (is_continuous(resource) ? 1.03 : 2))));
  }
  REQUIRE(!plan_begins(searches, now, Resource::scale_up_bandwidth, 16));
}
