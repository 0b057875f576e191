// SPDX-License-Identifier: Apache-2.0
#define CATCH_CONFIG_RUNNER
#include "support/session.hpp"

#include "support/catch.hpp"

namespace shardwright_test {

int run_session(int argc, char** argv) { return Catch::Session().run(argc, argv); }

} // namespace shardwright_test
