// SPDX-License-Identifier: Apache-2.0
// The target shardwright::compiled: reading and saving checkpoints, compiled once.
#define SHARDWRIGHT_COMPILING
#include <shardwright/io/checkpoint/reader_definitions.hpp>
#include <shardwright/io/checkpoint/saver_definitions.hpp>
