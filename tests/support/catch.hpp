// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Catch2, version 2 or 3.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
