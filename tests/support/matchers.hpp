// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Matchers of strings and numbers under one name for Catch2 2 and 3.

#include "support/catch.hpp"

#include <string>

namespace shardwright_test {

using Catch::Matchers::EndsWith;

#if __has_include(<catch2/catch_all.hpp>)
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#else
using Catch::Detail::Approx;
inline auto ContainsSubstring(const std::string& part) { return Catch::Matchers::Contains(part); }
#endif

} // namespace shardwright_test
