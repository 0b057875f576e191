// SPDX-License-Identifier: Apache-2.0

#include "harness.hpp"

#include <plan/published/run.hpp>
#include <plan/published/validation.hpp>

/// A table is rejected with a sentence, or every row of it is predicted or says what is missing.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  (void)fuzz::accepted([&] {
    for (const plan_example::RunOutcome& one :
         plan_example::evaluate_runs(plan_example::read_published_runs(text)))
      fuzz::require(one.handled() || !one.run.not_handled.empty(), "a row is predicted or says why not");
  });
  return 0;
}
