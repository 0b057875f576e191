// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Safetensors files, read and written: needs nlohmann-json and no other part of the library, neither
/// Kokkos nor MPI.

#include <shardwright/io/safetensors/dtype.hpp>
#include <shardwright/io/safetensors/file.hpp>
#include <shardwright/io/safetensors/files.hpp>
#include <shardwright/io/safetensors/header.hpp>
#include <shardwright/io/safetensors/write.hpp>
