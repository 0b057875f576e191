// SPDX-License-Identifier: Apache-2.0

#include "harness.hpp"

#include <plan/specifications.hpp>
#include <shardwright/plan/search/explanation.hpp>
#include <shardwright/plan/search/search.hpp>
#include <shardwright/plan/spec/catalogue_names.hpp>

#include <cmath>

namespace sw = shardwright;

/// A specification is rejected with a sentence, or used for planning: that of a model if the first byte is
/// even, else that of a cluster.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const bool of_model = input.number(2) == 0;
  const std::string text = input.rest();
  sw::ModelSpec model = *sw::find_model("llama-3.1-8b");
  sw::ClusterSpec cluster = *sw::find_cluster("h800x2048");
  if (!fuzz::accepted([&] {
        if (of_model)
          model = plan_example::model_of_json(text, "fuzz.json");
        else
          cluster = plan_example::cluster_of_json(text, "fuzz.json");
      }))
    return 0;
  if (cluster.chips() > 1 << 24) // as read_cluster requires
    return 0;
  const sw::RunSpec run{.sequences = 64, .sequence_length = 4096};
  sw::Searches searches(model);
  const sw::Plan& found = searches.of({cluster, run}).best;
  fuzz::require(!found.found() || (std::isfinite(found.cost.step_seconds) && found.cost.step_seconds > 0),
                "a plan takes time");
  (void)sw::recipe(searches, {cluster, run});
  return 0;
}
