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

/// Units of data sheets: dense peaks in TFLOP/s and 10^12 exponentials/s; memory in GB and GB/s; bandwidths
/// in GB/s per chip and direction.
struct SheetPeaks {
  double bf16 = 0, fp8 = 0, fp4 = 0, exponentials = 0;
};
struct SheetMemory {
  double gigabytes = 0, bandwidth = 0;
};
struct SheetDomain {
  int chips = 0;
  double bandwidth = 0;
  int torus_dimensions = 0;
};
[[nodiscard]] constexpr ChipSpec of_sheet(std::string_view name, ChipGeneration generation,
                                          const SheetPeaks& peaks, const SheetMemory& memory,
                                          const SheetDomain& domain, double scale_out,
                                          std::string_view source, double sustained = 1) {
  constexpr double tera = 1e12, giga = 1e9;
  return {name,
          generation,
          peaks.bf16 * tera,
          peaks.fp8 * tera,
          peaks.fp4 * tera,
          memory.gigabytes * giga,
          memory.bandwidth * giga,
          domain.chips,
          domain.bandwidth * giga,
          scale_out * giga,
          domain.torus_dimensions,
          source,
          sustained,
          peaks.exponentials * tera};
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
/// The last figure is how clocks under load are assumed to follow the power of the board over the usual one
/// (700 W for Hopper, 1000 W for B200, 1200 W for GB200): the square root of the ratio for Hopper (500 W),
/// itself for Blackwell (1100 W of B300, 1400 W of GB300). No source gives these exponents; they were chosen
/// with published runs in sight.
namespace chip {

/// @brief A chip of the catalogue, under its name in data sheets.
inline constexpr ChipSpec a100_40 =
    detail::of_sheet("A100-40GB-SXM", ChipGeneration::ampere, {312, 0, 0, 2.4}, {40, 1555}, {8, 300}, 25,
                     "NVIDIA A100 data sheet, 2021");
inline constexpr ChipSpec a100_80 =
    detail::of_sheet("A100-80GB-SXM", ChipGeneration::ampere, {312, 0, 0, 2.4}, {80, 2039}, {8, 300}, 25,
                     "NVIDIA A100 data sheet, 2021");
inline constexpr ChipSpec h100 =
    detail::of_sheet("H100-80GB-SXM", ChipGeneration::hopper, {989, 1979, 0, 3.9}, {80, 3350}, {8, 450}, 50,
                     "NVIDIA H100 data sheet, 2023");
inline constexpr ChipSpec h100_96 = detail::of_sheet(
    "H100-96GB-HBM2e (500W)", ChipGeneration::hopper, {989, 1979, 0, 3.9}, {96, 2400}, {8, 450}, 50,
    "github.com/pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md", 0.85);
inline constexpr ChipSpec h800 =
    detail::of_sheet("H800", ChipGeneration::hopper, {989, 1979, 0, 3.9}, {80, 3350}, {8, 200}, 50,
                     "DeepSeek-V3, arXiv 2412.19437, section 3.1; arXiv 2505.09343, section 2");
inline constexpr ChipSpec h200 = detail::of_sheet("H200", ChipGeneration::hopper, {989, 1979, 0, 3.9},
                                                  {141, 4800}, {8, 450}, 50, "NVIDIA H200 data sheet, 2024");
inline constexpr ChipSpec b200 =
    detail::of_sheet("B200", ChipGeneration::blackwell, {2250, 4500, 9000, 5}, {180, 8000}, {8, 900}, 50,
                     "NVIDIA DGX B200 data sheet, 2025");
inline constexpr ChipSpec b300 =
    detail::of_sheet("B300", ChipGeneration::blackwell, {2250, 4500, 13500, 10.7}, {288, 8000}, {8, 900}, 100,
                     "NVIDIA DGX B300 data sheet, 2025", 1.1);
inline constexpr ChipSpec gb200 =
    detail::of_sheet("GB200 (NVL72)", ChipGeneration::blackwell, {2450, 4900, 9800, 5}, {186, 8000},
                     {72, 900}, 50, "NVIDIA GB200 NVL72 data sheet, 2025");
inline constexpr ChipSpec gb300 =
    detail::of_sheet("GB300 (NVL72)", ChipGeneration::blackwell, {2450, 4900, 14700, 10.7}, {288, 8000},
                     {72, 900}, 100, "NVIDIA GB300 NVL72 data sheet, 2025", 1.17);
inline constexpr ChipSpec tpu_v4 =
    detail::of_sheet("TPUv4", ChipGeneration::tpu, {275}, {32, 1228}, {4096, 270, 3}, 6.25,
                     "cloud.google.com/tpu/docs/v4; links: jax-ml.github.io/scaling-book/tpus");
inline constexpr ChipSpec tpu_v5e =
    detail::of_sheet("TPUv5e", ChipGeneration::tpu, {197}, {16, 820}, {256, 180, 2}, 3.125,
                     "cloud.google.com/tpu/docs/v5e; links: jax-ml.github.io/scaling-book/tpus");
inline constexpr ChipSpec tpu_v5p =
    detail::of_sheet("TPUv5p", ChipGeneration::tpu, {459}, {95, 2765}, {8960, 540, 3}, 6.25,
                     "cloud.google.com/tpu/docs/v5p; links: jax-ml.github.io/scaling-book/tpus");
inline constexpr ChipSpec tpu_v6e =
    detail::of_sheet("TPUv6e", ChipGeneration::tpu, {918}, {32, 1640}, {256, 360, 2}, 6.25,
                     "cloud.google.com/tpu/docs/v6e; links: jax-ml.github.io/scaling-book/tpus");
inline constexpr ChipSpec tpu_7x = detail::of_sheet("TPU7x", ChipGeneration::tpu, {2307, 4614}, {192, 7380},
                                                    {9216, 600, 3}, 12.5, "cloud.google.com/tpu/docs/tpu7x");
// Of AMD's chips, peaks are compute units x operations x clock; seven links join the eight of a node in
// pairs.
inline constexpr ChipSpec mi300x =
    detail::of_sheet("MI300X", ChipGeneration::generic, {1307.4, 2614.9}, {192, 5300}, {8, 448}, 50,
                     "AMD Instinct MI300X data sheet, 2023: 304 x 4096 x 2.1 GHz, links of 64 GB/s");
inline constexpr ChipSpec mi325x =
    detail::of_sheet("MI325X", ChipGeneration::generic, {1307.4, 2614.9}, {256, 6000}, {8, 448}, 50,
                     "AMD Instinct MI325X data sheet, 2024: an MI300X with other memory");
inline constexpr ChipSpec mi350x =
    detail::of_sheet("MI350X", ChipGeneration::generic, {2306.9, 4613.7, 9227.5}, {288, 8000}, {8, 537.6}, 50,
                     "AMD Instinct MI350X data sheet, 2025: an MI355X at 2.2 GHz");
inline constexpr ChipSpec mi355x = detail::of_sheet(
    "MI355X", ChipGeneration::generic, {2516.6, 5033.2, 10066.3}, {288, 8000}, {8, 537.6}, 50,
    "AMD Instinct MI355X data sheet, 2025; Hot Chips 2025: 256 x 8192 x 2.4 GHz, links of 76.8 GB/s");
inline constexpr ChipSpec gaudi_2 = detail::of_sheet(
    "Gaudi2", ChipGeneration::generic, {432}, {96, 2460}, {8, 262.5}, 37.5,
    "Intel at Hot Chips 2024; 21 of 24 ports of 100 Gbit/s inside a node, as docs.habana.ai says of Gaudi 3");
inline constexpr ChipSpec gaudi_3 = detail::of_sheet(
    "Gaudi3", ChipGeneration::generic, {1835, 1835}, {128, 3670}, {8, 525}, 75,
    "Intel at Hot Chips 2024; docs.habana.ai, network configuration: 21 and 3 ports of 200 Gbit/s");
// Four links of 48 GB/s and direction join the 16 chips of a trn1.32xlarge in a torus of 4 x 4.
inline constexpr ChipSpec trainium_1 = detail::of_sheet(
    "Trainium1", ChipGeneration::generic, {190}, {34.4, 820}, {16, 192, 2}, 6.25,
    "awsdocs-neuron.readthedocs-hosted.com, Trainium, Trn1 and Trainium2 architecture: 384 GB/s both ways");
inline constexpr ChipSpec trainium_2 =
    detail::of_sheet("Trainium2", ChipGeneration::generic, {667, 1299}, {103.1, 2900}, {16, 512, 2}, 25,
                     "awsdocs-neuron.readthedocs-hosted.com, Trainium2 and Trn2 architecture");

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
