// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The message of a call that must fail.

#include <string>

namespace shardwright_test {

/// @brief The message of the failure of this type; any other ends the test.
template <class Failure, class Call> [[nodiscard]] std::string failure_of(Call call) {
  try {
    call();
  } catch (const Failure& error) {
    return error.what();
  }
  return "no failure of the type";
}

[[nodiscard]] inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace shardwright_test
