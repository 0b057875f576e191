// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The kernels that a piece of work runs on the device, with their times and kinds.

#include "kernel_times.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#if defined(GPU_BENCHMARK_WITH_CUPTI)
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <mutex>
#include <stdexcept>
#endif

namespace gpu {

#if defined(GPU_BENCHMARK_WITH_CUPTI)

namespace {

// The record that this toolkit's CUPTI writes for a kernel (CUPTI documentation, "CUPTI Activity API").
#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
#else
using KernelRecord = CUpti_ActivityKernel9;
#endif

std::mutex guard; // CUPTI delivers records on its own thread
KernelTimes recorded;

void check(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS)
    return;
  const char* text = "unknown";
  static_cast<void>(cuptiGetResultString(result, &text));
  throw std::runtime_error(std::string(call) + ": CUPTI must accept the call, but says '" + text + "'");
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
  *size = std::size_t{4} << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(64, *size));
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  const std::lock_guard lock(guard);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
      continue;
    const auto* const kernel = reinterpret_cast<const KernelRecord*>(record);
    recorded[kernel->name == nullptr ? "" : kernel->name] +=
        1e-9 * static_cast<double>(kernel->end - kernel->start);
  }
  std::free(buffer);
}

} // namespace

bool KernelTrace::available() noexcept { return true; }

void KernelTrace::begin() {
  {
    const std::lock_guard lock(guard);
    recorded.clear();
  }
  check(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
  check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
}

KernelTimes KernelTrace::end() {
  static_cast<void>(cudaDeviceSynchronize());
  check(cuptiActivityFlushAll(0), "cuptiActivityFlushAll");
  check(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityDisable");
  const std::lock_guard lock(guard);
  return std::exchange(recorded, {});
}

#else

bool KernelTrace::available() noexcept { return false; }
void KernelTrace::begin() {}
KernelTimes KernelTrace::end() { return {}; }

#endif

std::string_view kind_of_kernel(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  struct Kind {
    std::string_view kind;
    std::vector<std::string_view> words;
  };
  // The first kind that lists a word of the name.
  static const std::vector<Kind> kinds{
      {"attention", {"attention", "flash", "fmha", "sdpa"}},
      {"matrix products", {"gemm", "nvjet", "cutlass", "xmma", "cublas", "matmul", "splitk"}},
      {"optimizer",
       {"adam", "multi_tensor", "optimizer", "squaresofeither", "totals", "clippedstep", "judgestep",
        "publishreport", "updatelossscale"}},
      {"loss",
       {"crossentropy", "cross_entropy", "nll", "softmax", "sumlosses", "logitgradient", "rowstatistics",
        "rebasesums", "tokenloss"}},
      {"embedding", {"embedding", "indexselect", "vectorized_gather"}},
      {"norms", {"norm", "partialcolumnsums", "sumpartials"}},
      {"rotary and SwiGLU", {"rotary", "swiglu", "silu", "catarray"}},
      {"fused by a compiler", {"triton"}},
      {"copies and fills", {"copy", "memset", "memcpy", "fill", "zeroelements", "upload"}},
      {"elementwise", {"elementwise", "reduce", "elements", "activation"}},
  };
  for (const Kind& kind : kinds)
    for (const std::string_view word : kind.words)
      if (lower.find(word) != std::string::npos)
        return kind.kind;
  return "others";
}

std::vector<KindTimes> compare(const KernelTimes& ours, double our_step, const KernelTimes& theirs,
                               double their_step) {
  std::map<std::string_view, KindTimes> kinds;
  KindTimes rest{"between kernels", our_step, their_step};
  for (const auto& [name, seconds] : ours) {
    kinds[kind_of_kernel(name)].ours += seconds;
    rest.ours -= seconds;
  }
  for (const auto& [name, seconds] : theirs) {
    kinds[kind_of_kernel(name)].theirs += seconds;
    rest.theirs -= seconds;
  }
  std::vector<KindTimes> rows{rest};
  for (const auto& [kind, times] : kinds)
    rows.push_back({kind, times.ours, times.theirs});
  std::sort(rows.begin(), rows.end(),
            [](const KindTimes& a, const KindTimes& b) { return a.ours - a.theirs > b.ours - b.theirs; });
  return rows;
}

} // namespace gpu
