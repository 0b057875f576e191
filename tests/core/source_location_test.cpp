// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/core/error.hpp>
#include <shardwright/core/source_location.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace {

using shardwright::ErrorContext;
using shardwright::LifecycleError;
using shardwright::SourceLocation;

/// An object that knows where it was made, like a parameter.
struct Made {
  explicit Made(int, SourceLocation made = SourceLocation::current()) : where(made) {}
  SourceLocation where;
};

} // namespace

TEST_CASE("a location is the line of the call that leaves it out") {
  const int line = __LINE__ + 1;
  const Made made(1);
  CHECK(made.where.text() == std::string(__FILE__) + ":" + std::to_string(line));
  CHECK(made.where.text_after(" at ") == " at " + made.where.text());
  CHECK(SourceLocation{}.text().empty());
  CHECK(SourceLocation{}.text_after(" at ").empty());
}

TEST_CASE("an error never names a line of the standard library as the place of a call") {
  std::optional<Made> later;
  later.emplace(1);
  std::vector<Made> many;
  many.emplace_back(1);
  for (const SourceLocation where : {std::make_unique<Made>(1)->where, std::make_shared<Made>(1)->where,
                                     later->where, many.front().where}) {
    INFO(where.file);
    CHECK(where.text().empty());
    CHECK(where.text_after(" at ").empty());
    CHECK(std::string(LifecycleError("Lock: it is held.", {.rank = 2, .where = where}).what()) ==
          "Lock: it is held. [rank 2]");
  }
}
