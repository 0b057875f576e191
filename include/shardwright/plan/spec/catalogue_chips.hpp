// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Chips with figures from their data sheets, and clusters that published runs used.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/cluster.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// A chip whose figures are in the units of data sheets: dense peaks in TFLOP/s and 10^12 exponentials/s;
/// memory in GB and GB/s; bandwidths in GB/s per chip and direction.
[[nodiscard]] constexpr ChipSpec of_sheet(ChipSpec chip) noexcept {
  for (double ChipSpec::*figure :
       {&ChipSpec::peak_bf16, &ChipSpec::peak_fp8, &ChipSpec::peak_fp4, &ChipSpec::exponentials})
    chip.*figure *= 1e12;
  for (double ChipSpec::*figure : {&ChipSpec::memory_bytes, &ChipSpec::memory_bandwidth,
                                   &ChipSpec::scale_up_bandwidth, &ChipSpec::scale_out_bandwidth})
    chip.*figure *= 1e9;
  return chip;
}

} // namespace detail

/// @brief Chips with the figures of their data sheets, without structured sparsity.
///
/// If sheets differ, NVIDIA's for the SXM or NVL72 board is used; scale-out is the usual node's one 200 or
/// 400 Gbit/s port per chip, or for a TPU its share of the host's data-centre network. Exponentials are 16
/// per multiprocessor and cycle of Ampere and Hopper (arXiv 2407.08608, section 3: 3.9 on an H100); 5 of
/// Blackwell and 10.7 of Blackwell Ultra are from NVIDIA's article "Inside NVIDIA Blackwell Ultra: The Chip
/// Powering the AI Factory Era" (developer.nvidia.com/blog, 2025), table "Attention acceleration (SFU EX2)".
///
/// Rows are in the order of ChipSpec: peaks in bf16, fp8 and fp4, memory, scale-up domain, scale-out, torus;
/// then source, sustained share of the peaks, and exponentials.
///
/// The sustained share is how clocks under load are assumed to follow the power of the board over the usual
/// one (700 W for Hopper, 1000 W for B200, 1200 W for GB200): the square root of the ratio for Hopper (500
/// W), itself for Blackwell (1100 W of B300, 1400 W of GB300). No source gives these exponents; they were
/// chosen with published runs in sight.
namespace chip {

using detail::of_sheet;
using enum ChipGeneration;

/// @brief A chip of the catalogue, under its name in data sheets.
// clang-format off
inline constexpr ChipSpec a100_40 = of_sheet({"A100-40GB-SXM", ampere, 312, 0, 0, 40, 1555, 8, 300, 25, 0,
  "NVIDIA A100 data sheet, 2021", 1, 2.4});
inline constexpr ChipSpec a100_80 = of_sheet({"A100-80GB-SXM", ampere, 312, 0, 0, 80, 2039, 8, 300, 25, 0,
  "NVIDIA A100 data sheet, 2021", 1, 2.4});
inline constexpr ChipSpec h100 = of_sheet({"H100-80GB-SXM", hopper, 989, 1979, 0, 80, 3350, 8, 450, 50, 0,
  "NVIDIA H100 data sheet, 2023", 1, 3.9});
inline constexpr ChipSpec h100_96 = of_sheet({"H100-96GB-HBM2e (500W)", hopper, 989, 1979, 0, 96, 2400, 8,
  450, 50, 0, "github.com/pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md", 0.85, 3.9});
inline constexpr ChipSpec h800 = of_sheet({"H800", hopper, 989, 1979, 0, 80, 3350, 8, 200, 50, 0,
  "DeepSeek-V3, arXiv 2412.19437, section 3.1; arXiv 2505.09343, section 2", 1, 3.9});
inline constexpr ChipSpec h200 = of_sheet({"H200", hopper, 989, 1979, 0, 141, 4800, 8, 450, 50, 0,
  "NVIDIA H200 data sheet, 2024", 1, 3.9});
inline constexpr ChipSpec b200 = of_sheet({"B200", blackwell, 2250, 4500, 9000, 180, 8000, 8, 900, 50, 0,
  "NVIDIA DGX B200 data sheet, 2025", 1, 5});
inline constexpr ChipSpec b300 = of_sheet({"B300", blackwell, 2250, 4500, 13500, 288, 8000, 8, 900, 100, 0,
  "NVIDIA DGX B300 data sheet, 2025", 1.1, 10.7});
inline constexpr ChipSpec gb200 = of_sheet({"GB200 (NVL72)", blackwell, 2450, 4900, 9800, 186, 8000, 72, 900,
  50, 0, "NVIDIA GB200 NVL72 data sheet, 2025", 1, 5});
inline constexpr ChipSpec gb300 = of_sheet({"GB300 (NVL72)", blackwell, 2450, 4900, 14700, 288, 8000, 72, 900,
  100, 0, "NVIDIA GB300 NVL72 data sheet, 2025", 1.17, 10.7});
inline constexpr ChipSpec tpu_v4 = of_sheet({"TPUv4", tpu, 275, 0, 0, 32, 1228, 4096, 270, 6.25, 3,
  "cloud.google.com/tpu/docs/v4; links: jax-ml.github.io/scaling-book/tpus"});
inline constexpr ChipSpec tpu_v5e = of_sheet({"TPUv5e", tpu, 197, 0, 0, 16, 820, 256, 180, 3.125, 2,
  "cloud.google.com/tpu/docs/v5e; links: jax-ml.github.io/scaling-book/tpus"});
inline constexpr ChipSpec tpu_v5p = of_sheet({"TPUv5p", tpu, 459, 0, 0, 95, 2765, 8960, 540, 6.25, 3,
  "cloud.google.com/tpu/docs/v5p; links: jax-ml.github.io/scaling-book/tpus"});
inline constexpr ChipSpec tpu_v6e = of_sheet({"TPUv6e", tpu, 918, 0, 0, 32, 1640, 256, 360, 6.25, 2,
  "cloud.google.com/tpu/docs/v6e; links: jax-ml.github.io/scaling-book/tpus"});
inline constexpr ChipSpec tpu_7x = of_sheet({"TPU7x", tpu, 2307, 4614, 0, 192, 7380, 9216, 600, 12.5, 3,
  "cloud.google.com/tpu/docs/tpu7x"});
// Of AMD's chips, peaks are compute units x operations x clock; seven links join the eight of a node in
// pairs.
inline constexpr ChipSpec mi300x = of_sheet({"MI300X", generic, 1307.4, 2614.9, 0, 192, 5300, 8, 448, 50, 0,
  "AMD Instinct MI300X data sheet, 2023: 304 x 4096 x 2.1 GHz, links of 64 GB/s"});
inline constexpr ChipSpec mi325x = of_sheet({"MI325X", generic, 1307.4, 2614.9, 0, 256, 6000, 8, 448, 50, 0,
  "AMD Instinct MI325X data sheet, 2024: an MI300X with other memory"});
inline constexpr ChipSpec mi350x = of_sheet({"MI350X", generic, 2306.9, 4613.7, 9227.5, 288, 8000, 8, 537.6,
  50, 0, "AMD Instinct MI350X data sheet, 2025: an MI355X at 2.2 GHz"});
inline constexpr ChipSpec mi355x = of_sheet({"MI355X", generic, 2516.6, 5033.2, 10066.3, 288, 8000, 8, 537.6,
  50, 0, "AMD Instinct MI355X data sheet, 2025; Hot Chips 2025: 256 x 8192 x 2.4 GHz, links of 76.8 GB/s"});
inline constexpr ChipSpec gaudi_2 = of_sheet({"Gaudi2", generic, 432, 0, 0, 96, 2460, 8, 262.5, 37.5, 0,
  "Intel at Hot Chips 2024; 21 of 24 ports of 100 Gbit/s inside a node, as docs.habana.ai says of Gaudi 3"});
inline constexpr ChipSpec gaudi_3 = of_sheet({"Gaudi3", generic, 1835, 1835, 0, 128, 3670, 8, 525, 75, 0,
  "Intel at Hot Chips 2024; docs.habana.ai, network configuration: 21 and 3 ports of 200 Gbit/s"});
// Four links of 48 GB/s and direction join the 16 chips of a trn1.32xlarge in a torus of 4 x 4.
inline constexpr ChipSpec trainium_1 = of_sheet({"Trainium1", generic, 190, 0, 0, 34.4, 820, 16, 192, 6.25, 2,
  "awsdocs-neuron.readthedocs-hosted.com, Trainium, Trn1 and Trainium2 architecture: 384 GB/s both ways"});
inline constexpr ChipSpec trainium_2 = of_sheet({"Trainium2", generic, 667, 1299, 0, 103.1, 2900, 16, 512, 25,
  2, "awsdocs-neuron.readthedocs-hosted.com, Trainium2 and Trn2 architecture"});
// clang-format on

} // namespace chip

/// @brief All chips of the catalogue.
inline constexpr std::array<ChipSpec, 23> chip_catalogue{
    {chip::a100_40, chip::a100_80, chip::h100,    chip::h100_96,    chip::h800,      chip::h200,
     chip::b200,    chip::b300,    chip::gb200,   chip::gb300,      chip::tpu_v4,    chip::tpu_v5e,
     chip::tpu_v5p, chip::tpu_v6e, chip::tpu_7x,  chip::mi300x,     chip::mi325x,    chip::mi350x,
     chip::mi355x,  chip::gaudi_2, chip::gaudi_3, chip::trainium_1, chip::trainium_2}};

namespace detail {

[[nodiscard]] constexpr ClusterSpec named_cluster(std::string_view name, const ChipSpec& chip,
                                                  std::int64_t chips, std::string_view source) {
  ClusterSpec cluster = cluster_of(chip, chips);
  cluster.name = name;
  cluster.source = source;
  return cluster;
}

} // namespace detail

/// @brief Clusters of published runs, and those used to study when a pipeline is needed.
inline constexpr std::array<ClusterSpec, 6> cluster_catalogue{{
    detail::named_cluster("h800x2048", chip::h800, 2048, "arXiv 2412.19437, section 3.1"),
    detail::named_cluster("h100x16384", chip::h100, 16384, "arXiv 2407.21783, section 3.3.1"),
    detail::named_cluster("a100x3072", chip::a100_80, 3072, "arXiv 2104.04473, section 5"),
    detail::named_cluster("gb200x16128", chip::gb200, 16128, "NVIDIA GB200 NVL72 data sheet, 224 racks"),
    detail::named_cluster("v5p-pod", chip::tpu_v5p, 8960, "cloud.google.com/tpu/docs/v5p"),
    detail::named_cluster("tpu7x-pod", chip::tpu_7x, 9216, "cloud.google.com/tpu/docs/tpu7x"),
}};

} // namespace shardwright::inline SHARDWRIGHT_ABI
