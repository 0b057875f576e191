// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Attention of 16-bit elements on NVIDIA GPUs by cuDNN, through its header-only frontend: one handle
/// and set of plans per stream. The backward pass is the deterministic one.

#include <shardwright/core/error.hpp>
#include <shardwright/tensor/kernels/attention/problem.hpp>
#include <shardwright/tensor/kernels/device/cuda_streams.hpp>

#include <Kokkos_Core.hpp>
#include <cuda_runtime_api.h>

#if !defined(CUDNN_FRONTEND_SKIP_JSON_LIB)
#define CUDNN_FRONTEND_SKIP_JSON_LIB // no plan is written to a file
#endif
#include <cstring> // which the frontend needs but does not include
#include <cudnn_frontend.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail {

[[noreturn]] inline void fail_cudnn(int status, const std::string& said) {
  ErrorContext context;
  context.operation = "attention";
  throw DeviceError(status,
                    "attention: cuDNN must start what it has planned, but it says " + said +
                        " (look for an earlier error of the device, or for exhausted memory).",
                    context);
}

/// cuDNN on one stream.
class Cudnn {
public:
  struct Plan {
    std::unique_ptr<cudnn_frontend::graph::Graph> graph;
    std::size_t workspace;
  };

  /// On the calling thread's device, which is the stream's.
  explicit Cudnn(cudaStream_t stream) {
    cudnnHandle_t handle = nullptr;
    check(cudnnCreate(&handle));
    handle_.reset(handle);
    check(cudnnSetStream(handle, stream));
  }

  /// Nothing if cuDNN has no kernel for the problem on this GPU.
  // One function: the frontend builds a graph by calls on it, of which each line states one.
  [[nodiscard]] std::optional<Plan> plan(const AttentionProblem& problem) {
    namespace fe = cudnn_frontend;
    auto graph = std::make_unique<fe::graph::Graph>();
    graph
        ->set_io_data_type(problem.element == ElementType::float16 ? fe::DataType_t::HALF
                                                                   : fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const auto input = [&](Operand name, std::int64_t heads, std::int64_t width, const HeadStrides& at) {
      return graph->tensor(fe::graph::Tensor_attributes()
                               .set_uid(name)
                               .set_dim({problem.batch, heads, problem.sequence, width})
                               .set_stride({at.batch, at.head, at.row, 1}));
    };
    const auto output = [&](const auto& tensor, Operand name, std::int64_t heads, std::int64_t width,
                            const HeadStrides& at) {
      tensor->set_output(true)
          .set_uid(name)
          .set_dim({problem.batch, heads, problem.sequence, width})
          .set_stride({at.batch, at.head, at.row, 1});
    };
    const auto set = [&](auto&& options) {
      options.set_attn_scale(graph->tensor(fe::graph::Tensor_attributes()
                                               .set_uid(Operand::scale)
                                               .set_dim({1, 1, 1, 1})
                                               .set_stride({1, 1, 1, 1})
                                               .set_is_pass_by_value(true)
                                               .set_data_type(fe::DataType_t::FLOAT)));
      if (problem.causal)
        options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
      if (problem.window != 0) // a query sees the keys less than this many before it
        options.set_diagonal_band_left_bound(static_cast<int>(problem.window));
      return options;
    };
    const auto query = input(Operand::query, problem.heads, problem.head_dim, problem.query);
    const auto key = input(Operand::key, problem.kv_heads, problem.head_dim, problem.key);
    const auto value = input(Operand::value, problem.kv_heads, problem.value_width, problem.key);
    if (problem.backward) {
      const auto out = input(Operand::out, problem.heads, problem.value_width, problem.out);
      const auto d_out = input(Operand::d_out, problem.heads, problem.value_width, problem.d_out);
      const auto sums = input(Operand::sums, problem.heads, 1, problem.sums);
      sums->set_data_type(fe::DataType_t::FLOAT);
      const auto [d_query, d_key, d_value] =
          graph->sdpa_backward(query, key, value, out, d_out, sums,
                               set(fe::graph::SDPA_backward_attributes().set_deterministic_algorithm(true)));
      output(d_query, Operand::d_query, problem.heads, problem.head_dim, problem.d_query);
      output(d_key, Operand::d_key, problem.kv_heads, problem.head_dim, problem.d_key);
      output(d_value, Operand::d_value, problem.kv_heads, problem.value_width, problem.d_key);
    } else {
      const auto [out, sums] =
          graph->sdpa(query, key, value, set(fe::graph::SDPA_attributes().set_generate_stats(true)));
      output(out, Operand::out, problem.heads, problem.value_width, problem.out);
      output(sums, Operand::sums, problem.heads, 1, problem.sums);
      sums->set_data_type(fe::DataType_t::FLOAT);
    }
    if (graph->build(handle_.get(), {fe::HeurMode_t::A}).is_bad())
      return std::nullopt;
    std::int64_t bytes = 0;
    if (graph->get_workspace_size(bytes).is_bad())
      return std::nullopt;
    return Plan{std::move(graph), static_cast<std::size_t>(bytes)};
  }

  [[nodiscard]] static std::size_t workspace(const Plan& plan) { return plan.workspace; }

  void run(const AttentionProblem& problem, Plan& plan, AttentionOperands operands, void* workspace) {
    const auto memory = [](const void* of) { return const_cast<void*>(of); }; // as the frontend expects it
    std::unordered_map<std::int64_t, void*> pack{
        {Operand::query, memory(operands.query)}, {Operand::key, memory(operands.key)},
        {Operand::value, memory(operands.value)}, {Operand::out, operands.out},
        {Operand::sums, operands.sums},           {Operand::scale, &operands.scale}};
    if (problem.backward) {
      pack.emplace(Operand::d_out, memory(operands.d_out));
      pack.emplace(Operand::d_query, operands.d_query);
      pack.emplace(Operand::d_key, operands.d_key);
      pack.emplace(Operand::d_value, operands.d_value);
    }
    if (auto status = plan.graph->execute(handle_.get(), pack, workspace); status.is_bad())
      fail_cudnn(static_cast<int>(status.get_code()), status.get_message());
  }

private:
  /// The frontend's numbers of the tensors.
  enum Operand : std::int64_t { query = 1, key, value, out, sums, scale, d_out, d_query, d_key, d_value };

  static void check(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS)
      fail_cudnn(static_cast<int>(status), cudnnGetErrorString(status));
  }

  Owned<cudnnHandle_t, cudnnDestroy> handle_;
};

template <> struct LibraryAttention<Kokkos::Cuda> {
  static constexpr bool available = true;

  [[nodiscard]] static AttentionPlans<Cudnn>& plans(const Kokkos::Cuda& execution) {
    return of_stream<AttentionPlans<Cudnn>, Cudnn>(execution);
  }
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::kernels::detail
