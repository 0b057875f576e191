// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/matchers.hpp"

#include <shardwright/comm/launch_variables.hpp>

#include <cstdlib>
#include <string>

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;

namespace {

struct Variable {
  Variable(const char* variable, const char* value) : name(variable) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  const char* name;
};

/// Unsets every launcher's variables; those of the launcher that runs the tests are restored.
struct PlainShell {
  PlainShell() {
    for (const sw::detail::LauncherSet& one : sw::detail::launcher_sets)
      for (const char* const name : {one.rank, one.other})
        ::unsetenv(name);
  }
};

} // namespace

TEST_CASE("a launcher is recognised by a complete set of its variables", "[comm]") {
  const PlainShell shell;
  CHECK(sw::detail::launcher_set() == nullptr);
  CHECK(sw::detail::stray_variables().empty());
  for (const sw::detail::LauncherSet& one : sw::detail::launcher_sets) {
    INFO(one.launcher);
    {
      const Variable rank(one.rank, "0");
      CHECK(sw::detail::launcher_set() == nullptr);
      CHECK_THAT(sw::detail::stray_variables(),
                 ContainsSubstring(std::string(one.rank) + "=0 is set, but " + one.other + " is not") &&
                     ContainsSubstring("its ranks are threads"));
      const Variable other(one.other, "4");
      CHECK(sw::detail::launcher_set() == &one);
    }
    const Variable other(one.other, "4");
    CHECK(sw::detail::launcher_set() == nullptr);
    CHECK_THAT(sw::detail::stray_variables(), ContainsSubstring(std::string(one.other) + "=4 is set"));
  }
}

TEST_CASE("a variable that is not a number is named with its value", "[comm]") {
  const Variable rank("PMI_RANK", "two\x1b[2J");
  CHECK_THROWS_WITH(
      sw::detail::launch_variable("PMI_RANK", 0),
      ContainsSubstring("PMI_RANK must be a whole number of at least 0, but it is \"two\\x1b[2J\""));
  CHECK_FALSE(sw::detail::launch_variable("PMI_SIZE", 1).has_value());
}
