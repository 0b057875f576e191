// SPDX-License-Identifier: Apache-2.0
// The target shardwright::compiled: meshes, transitions, schedules and checks of what ranks pass, compiled
// once.
#define SHARDWRIGHT_COMPILING
#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/layout/mesh_check.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/buffer_pool.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/schedule/message_turns.hpp>
#include <shardwright/schedule/text/explain.hpp>
#include <shardwright/tensor/checks/id_faults.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/transition/bound.hpp>
#include <shardwright/tensor/transition/step_geometry.hpp>
#include <shardwright/train/checks/replica_check.hpp>
#include <shardwright/train/pipeline/agreement.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/pipeline/plan.hpp>
#include <shardwright/train/step/guard.hpp>
#include <shardwright/train/step/loss_axes.hpp>

template void shardwright::check_mesh<std::int64_t>(std::span<const std::string_view> axes,
                                                    std::span<const std::int64_t> extents,
                                                    std::int64_t ranks);
template std::vector<std::vector<std::string>>
shardwright::gather_texts<std::string>(const HostCommunicator& ranks, const std::vector<std::string>& own,
                                       SourceLocation where);
