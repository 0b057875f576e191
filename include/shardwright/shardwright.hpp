// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Shardwright: distributed tensors whose types choose the communication. Includes what tensor
/// programs need, layer by layer; headers of schedule/, plan/, train/, nn/ and io/ are included one by one,
/// and <shardwright/launch.hpp> where ranks are launched.

// Errors, integers, counter-based random numbers.
#include <shardwright/core/config.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/integers.hpp>
#include <shardwright/core/philox.hpp>

// Descriptions: axes, layouts, transitions, propagation.
#include <shardwright/layout/axis.hpp>
#include <shardwright/layout/block.hpp>
#include <shardwright/layout/elementwise_layout.hpp>
#include <shardwright/layout/embedding_layout.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/matmul_layout.hpp>
#include <shardwright/layout/mesh_shape.hpp>
#include <shardwright/layout/operation.hpp>
#include <shardwright/layout/placement.hpp>
#include <shardwright/layout/reduction_layout.hpp>
#include <shardwright/layout/shape_layout.hpp>
#include <shardwright/layout/transition.hpp>
#include <shardwright/layout/zero.hpp>

// Communicators.
#include <shardwright/comm/device_communicator.hpp>
#include <shardwright/comm/host_communicator.hpp>

// Meshes, tensors and their operations.
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/dot.hpp>
#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/halos.hpp>
#include <shardwright/tensor/matmul.hpp>
#include <shardwright/tensor/mdspan.hpp>
#include <shardwright/tensor/norms.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/reduce.hpp>
#include <shardwright/tensor/reshape.hpp>
#include <shardwright/tensor/scatter_gather.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/tensor/tensor_over.hpp>
#include <shardwright/tensor/transpose.hpp>
