// SPDX-License-Identifier: Apache-2.0
// The target shardwright::compiled: host kernels of the usual element types, compiled once.
#define SHARDWRIGHT_COMPILING
#include <shardwright/tensor/elementwise/binary.hpp>
#include <shardwright/tensor/kernels/attention/host.hpp>
#include <shardwright/tensor/kernels/attention/host_backward.hpp>
#include <shardwright/tensor/kernels/column_sums.hpp>
#include <shardwright/tensor/kernels/cross_entropy.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/embedding.hpp>
#include <shardwright/tensor/kernels/formulas.hpp>
#include <shardwright/tensor/kernels/norm.hpp>
#include <shardwright/tensor/kernels/optimizer/adamw.hpp>
#include <shardwright/tensor/kernels/positions.hpp>
#include <shardwright/tensor/kernels/product/widened.hpp>
#include <shardwright/tensor/kernels/quantize.hpp>
#include <shardwright/tensor/kernels/random.hpp>
#include <shardwright/tensor/kernels/rotary.hpp>
#include <shardwright/tensor/kernels/swiglu.hpp>
#include <shardwright/tensor/kernels/terms.hpp>

#include <shardwright/tensor/kernels/compiled.hpp>
