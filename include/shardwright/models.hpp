// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Everything that model programs include: tapes, parameters, modules, optimizers, training steps, and
/// the decoder. For a pipeline, add train/pipeline_model.hpp; to predict memory and calls, train/dry_run.hpp.

#include <shardwright/shardwright.hpp>

// Values on tapes, and parameters.
#include <shardwright/train/constant_operand.hpp>
#include <shardwright/train/grad_accumulator.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/parameter.hpp>
#include <shardwright/train/recompute.hpp>
#include <shardwright/train/tape.hpp>

// Modules and operations of models.
#include <shardwright/nn/attention_mask.hpp>
#include <shardwright/nn/balance_loss.hpp>
#include <shardwright/nn/context.hpp>
#include <shardwright/nn/context_attention.hpp>
#include <shardwright/nn/cross_entropy.hpp>
#include <shardwright/nn/dropout.hpp>
#include <shardwright/nn/embedding.hpp>
#include <shardwright/nn/expert_capacity.hpp>
#include <shardwright/nn/expert_counts.hpp>
#include <shardwright/nn/expert_dispatch.hpp>
#include <shardwright/nn/expert_load.hpp>
#include <shardwright/nn/expert_mlp.hpp>
#include <shardwright/nn/expert_report.hpp>
#include <shardwright/nn/global_balance.hpp>
#include <shardwright/nn/head_norm.hpp>
#include <shardwright/nn/latent_attention.hpp>
#include <shardwright/nn/layer_norm.hpp>
#include <shardwright/nn/linear.hpp>
#include <shardwright/nn/linear_cross_entropy.hpp>
#include <shardwright/nn/mlp.hpp>
#include <shardwright/nn/model_plan.hpp>
#include <shardwright/nn/moe_layer.hpp>
#include <shardwright/nn/mse.hpp>
#include <shardwright/nn/position_embedding.hpp>
#include <shardwright/nn/rms_norm.hpp>
#include <shardwright/nn/route.hpp>
#include <shardwright/nn/router.hpp>
#include <shardwright/nn/router_options.hpp>
#include <shardwright/nn/self_attention.hpp>
#include <shardwright/nn/sequential.hpp>
#include <shardwright/nn/token_batch.hpp>

// Gradient checks.
#include <shardwright/train/check_gradients.hpp>

// Tensor operations that only models need, and batches.
#include <shardwright/tensor/insert_columns.hpp>
#include <shardwright/tensor/load_rows.hpp>
#include <shardwright/tensor/softmax.hpp>

// Training steps.
#include <shardwright/train/adamw.hpp>
#include <shardwright/train/learning_rate.hpp>
#include <shardwright/train/lion.hpp>
#include <shardwright/train/model_parts.hpp>
#include <shardwright/train/sgd.hpp>
#include <shardwright/train/sum_loss.hpp>
#include <shardwright/train/training.hpp>
#include <shardwright/train/whole_model.hpp>

// A complete model.
#include <shardwright/nn/decoder.hpp>
