// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief launch(): runs one program on several ranks, threads of this process or the processes that mpirun
/// started. Compiles the transports, so that a program includes it where it launches and nowhere else.

#include <shardwright/comm/launch.hpp>
