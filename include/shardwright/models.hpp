// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Everything that model programs include: tapes, parameters, modules, optimizers, training steps, and
/// the decoder. For a pipeline, add train/pipeline/model.hpp; to predict memory and calls, train/dry_run.hpp.

#include <shardwright/shardwright.hpp>

// Values on tapes, and parameters.
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/constant_operand.hpp>
#include <shardwright/train/tape/detach.hpp>
#include <shardwright/train/tape/recompute.hpp>

// Modules and operations of models.
#include <shardwright/nn/attention/context.hpp>
#include <shardwright/nn/attention/context_attention.hpp>
#include <shardwright/nn/attention/latent.hpp>
#include <shardwright/nn/attention/mask.hpp>
#include <shardwright/nn/attention/self.hpp>
#include <shardwright/nn/decoder/model_plan.hpp>
#include <shardwright/nn/decoder/token_batch.hpp>
#include <shardwright/nn/experts/balance_loss.hpp>
#include <shardwright/nn/experts/capacity.hpp>
#include <shardwright/nn/experts/counts.hpp>
#include <shardwright/nn/experts/dispatch.hpp>
#include <shardwright/nn/experts/global_balance.hpp>
#include <shardwright/nn/experts/layer.hpp>
#include <shardwright/nn/experts/load.hpp>
#include <shardwright/nn/experts/mlp.hpp>
#include <shardwright/nn/experts/report.hpp>
#include <shardwright/nn/experts/route.hpp>
#include <shardwright/nn/experts/router.hpp>
#include <shardwright/nn/experts/router_options.hpp>
#include <shardwright/nn/layers/dropout.hpp>
#include <shardwright/nn/layers/embedding.hpp>
#include <shardwright/nn/layers/head_norm.hpp>
#include <shardwright/nn/layers/linear.hpp>
#include <shardwright/nn/layers/lora.hpp>
#include <shardwright/nn/layers/mlp.hpp>
#include <shardwright/nn/layers/norm.hpp>
#include <shardwright/nn/layers/output_table.hpp>
#include <shardwright/nn/layers/position_embedding.hpp>
#include <shardwright/nn/layers/sequential.hpp>
#include <shardwright/nn/losses/cross_entropy.hpp>
#include <shardwright/nn/losses/linear_cross_entropy.hpp>
#include <shardwright/nn/losses/mse.hpp>

// Gradient checks.
#include <shardwright/train/check_gradients.hpp>

// Tensor operations that only models need, and batches.
#include <shardwright/tensor/elementwise/choices.hpp>
#include <shardwright/tensor/insert_columns.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/tensor/slice.hpp>
#include <shardwright/tensor/softmax.hpp>

// Training steps.
#include <shardwright/train/optimizer/adamw.hpp>
#include <shardwright/train/optimizer/learning_rate.hpp>
#include <shardwright/train/optimizer/lion.hpp>
#include <shardwright/train/optimizer/sgd.hpp>
#include <shardwright/train/pipeline/model_parts.hpp>
#include <shardwright/train/pipeline/single_stage_model.hpp>
#include <shardwright/train/tape/sum_loss.hpp>
#include <shardwright/train/training.hpp>

// A complete model.
#include <shardwright/nn/decoder.hpp>
