// SPDX-License-Identifier: Apache-2.0
// The target shardwright::compiled: meshes, transitions, gradients, schedules and checks of what ranks pass,
// compiled once.
#define SHARDWRIGHT_COMPILING
#include <shardwright/comm/all_gather_v.hpp>
#include <shardwright/comm/turns.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/device/driven_transports.hpp>
#include <shardwright/io/matrix_market_file.hpp>
#include <shardwright/layout/describe.hpp>
#include <shardwright/layout/mesh_check.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/buffer_pool.hpp>
#include <shardwright/mesh/mesh_core.hpp>
#include <shardwright/mesh/ordered_axes.hpp>
#include <shardwright/schedule/layer_partition.hpp>
#include <shardwright/schedule/message_turns.hpp>
#include <shardwright/schedule/schedule.hpp>
#include <shardwright/schedule/text/csv_text.hpp>
#include <shardwright/schedule/text/explain.hpp>
#include <shardwright/tensor/checks/id_faults.hpp>
#include <shardwright/tensor/checks/input.hpp>
#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/halo/geometry.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/local_extents.hpp>
#include <shardwright/tensor/ordered_products.hpp>
#include <shardwright/tensor/quantize.hpp>
#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/tensor/sparse/index_plan.hpp>
#include <shardwright/tensor/transition/bound.hpp>
#include <shardwright/tensor/transition/step_geometry.hpp>
#include <shardwright/train/checks/mesh_hash.hpp>
#include <shardwright/train/checks/replica_check.hpp>
#include <shardwright/train/gradient/gathered_weight.hpp>
#include <shardwright/train/gradient/group.hpp>
#include <shardwright/train/members.hpp>
#include <shardwright/train/optimizer/states.hpp>
#include <shardwright/train/parameter_base.hpp>
#include <shardwright/train/pipeline/agreement.hpp>
#include <shardwright/train/pipeline/model.hpp>
#include <shardwright/train/pipeline/plan.hpp>
#include <shardwright/train/pipeline/timeline.hpp>
#include <shardwright/train/pipeline/weights_in_use.hpp>
#include <shardwright/train/step/dynamic_loss_scale.hpp>
#include <shardwright/train/step/guard.hpp>
#include <shardwright/train/step/loss_axes.hpp>
#include <shardwright/train/tape/core.hpp>
#include <shardwright/train/tape/row_axes.hpp>
#include <shardwright/train/tape/slot.hpp>
#include <shardwright/train/tape/var.hpp>

template class shardwright::CommunicatorHandle<shardwright::HostCommunicator>;
template void shardwright::check_mesh<std::int64_t>(std::span<const std::string_view> axes,
                                                    std::span<const std::int64_t> extents,
                                                    std::int64_t ranks);
template std::vector<std::vector<std::string>>
shardwright::gather_texts<std::string>(const HostCommunicator& ranks, const std::vector<std::string>& own,
                                       SourceLocation where);

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

template class TypedCall<HostCommunicator>;
template class TargetResources<DefaultTarget>;
template TargetResources<DefaultTarget>& MeshCore::part<TargetResources<DefaultTarget>>();

// Templates that no layout changes, for the usual element types; gradients are summed as float or double.
template class TransitionRun<float, DefaultTarget>;
template BufferHandle memory_after<float>(TargetResources<DefaultTarget>&, const TransitionSteps&,
                                          std::span<const std::int64_t>, BufferHandle, SourceLocation);
template class WeightGather<float, DefaultTarget>;
template class TransitionRun<double, DefaultTarget>;
template BufferHandle memory_after<double>(TargetResources<DefaultTarget>&, const TransitionSteps&,
                                           std::span<const std::int64_t>, BufferHandle, SourceLocation);
template class WeightGather<double, DefaultTarget>;
template class TransitionRun<bfloat16, DefaultTarget>;
template BufferHandle memory_after<bfloat16>(TargetResources<DefaultTarget>&, const TransitionSteps&,
                                             std::span<const std::int64_t>, BufferHandle, SourceLocation);
template class WeightGather<bfloat16, DefaultTarget>;

template class AnyParameterGradient<DefaultTarget>;
template class GradientGroup<DefaultTarget>;
template class BucketQueue<float, DefaultTarget>;
template class GradientSum<float, DefaultTarget>;
template class ParameterGradient<float, DefaultTarget>;
template void GradientGroup<DefaultTarget>::hold<float>(ParameterBase&, const GradientLayouts&,
                                                        TargetResources<DefaultTarget>&);
template class BucketQueue<double, DefaultTarget>;
template class GradientSum<double, DefaultTarget>;
template class ParameterGradient<double, DefaultTarget>;
template void GradientGroup<DefaultTarget>::hold<double>(ParameterBase&, const GradientLayouts&,
                                                         TargetResources<DefaultTarget>&);

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
