// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Reads and writes safetensors files; needs nlohmann-json, but neither Kokkos nor MPI nor other parts
/// of the library.

#include <shardwright/io/safetensors/dtype.hpp>
#include <shardwright/io/safetensors/file.hpp>
#include <shardwright/io/safetensors/files.hpp>
#include <shardwright/io/safetensors/header.hpp>
#include <shardwright/io/safetensors/write.hpp>
