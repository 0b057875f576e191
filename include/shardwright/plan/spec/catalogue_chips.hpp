// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Chips with figures from their data sheets, and clusters that published runs used.

#include <shardwright/core/config.hpp>
#include <shardwright/plan/spec/cluster.hpp>

#include <array>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace chip {

/// @brief The units used in the tables below.
inline constexpr double tera = 1e12, giga = 1e9;

/// @brief Dense peaks (no structured sparsity); bandwidths per chip and direction.
///
/// Columns: name, generation, bf16, fp8, fp4 FLOP/s, memory bytes, bytes/s, scale-up chips, scale-up bytes/s,
/// scale-out bytes/s, torus dimensions, source. If sheets differ, NVIDIA's for the SXM or NVL72 board is
/// used; scale-out is the usual node's one 200 or 400 Gbit/s port per chip, or for a TPU its share of the
/// host's data-centre network. The last column is the square root of the board's power over the usual power
/// of its generation (700 W for Hopper, 1000 W for B200, 1200 W for GB200), which clocks under load follow.
inline constexpr ChipSpec a100_40{"A100-40GB-SXM",
                                  ChipGeneration::ampere,
                                  312 * tera,
                                  0,
                                  0,
                                  40 * giga,
                                  1555 * giga,
                                  8,
                                  300 * giga,
                                  25 * giga,
                                  0,
                                  "NVIDIA A100 data sheet, 2021"};
inline constexpr ChipSpec a100_80{"A100-80GB-SXM",
                                  ChipGeneration::ampere,
                                  312 * tera,
                                  0,
                                  0,
                                  80 * giga,
                                  2039 * giga,
                                  8,
                                  300 * giga,
                                  25 * giga,
                                  0,
                                  "NVIDIA A100 data sheet, 2021"};
inline constexpr ChipSpec h100{"H100-80GB-SXM",
                               ChipGeneration::hopper,
                               989 * tera,
                               1979 * tera,
                               0,
                               80 * giga,
                               3350 * giga,
                               8,
                               450 * giga,
                               50 * giga,
                               0,
                               "NVIDIA H100 data sheet, 2023"};
inline constexpr ChipSpec h100_96{
    "H100-96GB-HBM2e (500W)",
    ChipGeneration::hopper,
    989 * tera,
    1979 * tera,
    0,
    96 * giga,
    2400 * giga,
    8,
    450 * giga,
    50 * giga,
    0,
    "github.com/pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md",
    0.85};
inline constexpr ChipSpec h800{
    "H800",      ChipGeneration::hopper,
    989 * tera,  1979 * tera,
    0,           80 * giga,
    3350 * giga, 8,
    200 * giga,  50 * giga,
    0,           "DeepSeek-V3, arXiv 2412.19437, section 3.1; arXiv 2505.09343, section 2"};
inline constexpr ChipSpec h200{"H200",      ChipGeneration::hopper,
                               989 * tera,  1979 * tera,
                               0,           141 * giga,
                               4800 * giga, 8,
                               450 * giga,  50 * giga,
                               0,           "NVIDIA H200 data sheet, 2024"};
inline constexpr ChipSpec b200{"B200",      ChipGeneration::blackwell,
                               2250 * tera, 4500 * tera,
                               9000 * tera, 180 * giga,
                               8000 * giga, 8,
                               900 * giga,  50 * giga,
                               0,           "NVIDIA DGX B200 data sheet, 2025"};
inline constexpr ChipSpec b300{"B300",
                               ChipGeneration::blackwell,
                               2250 * tera,
                               4500 * tera,
                               13500 * tera,
                               288 * giga,
                               8000 * giga,
                               8,
                               900 * giga,
                               100 * giga,
                               0,
                               "NVIDIA DGX B300 data sheet, 2025",
                               1.05};
inline constexpr ChipSpec gb200{"GB200 (NVL72)",
                                ChipGeneration::blackwell,
                                2450 * tera,
                                4900 * tera,
                                9800 * tera,
                                186 * giga,
                                8000 * giga,
                                72,
                                900 * giga,
                                50 * giga,
                                0,
                                "NVIDIA GB200 NVL72 data sheet, 2025"};
inline constexpr ChipSpec gb300{"GB300 (NVL72)",
                                ChipGeneration::blackwell,
                                2450 * tera,
                                4900 * tera,
                                14700 * tera,
                                288 * giga,
                                8000 * giga,
                                72,
                                900 * giga,
                                100 * giga,
                                0,
                                "NVIDIA GB300 NVL72 data sheet, 2025",
                                1.08};
inline constexpr ChipSpec tpu_v4{
    "TPUv4",     ChipGeneration::tpu,
    275 * tera,  0,
    0,           32 * giga,
    1228 * giga, 4096,
    270 * giga,  6.25 * giga,
    3,           "cloud.google.com/tpu/docs/v4; links: jax-ml.github.io/scaling-book/tpus"};
inline constexpr ChipSpec tpu_v5e{
    "TPUv5e",   ChipGeneration::tpu,
    197 * tera, 0,
    0,          16 * giga,
    820 * giga, 256,
    180 * giga, 3.125 * giga,
    2,          "cloud.google.com/tpu/docs/v5e; links: jax-ml.github.io/scaling-book/tpus"};
inline constexpr ChipSpec tpu_v5p{
    "TPUv5p",    ChipGeneration::tpu,
    459 * tera,  0,
    0,           95 * giga,
    2765 * giga, 8960,
    540 * giga,  6.25 * giga,
    3,           "cloud.google.com/tpu/docs/v5p; links: jax-ml.github.io/scaling-book/tpus"};
inline constexpr ChipSpec tpu_v6e{
    "TPUv6e",    ChipGeneration::tpu,
    918 * tera,  0,
    0,           32 * giga,
    1640 * giga, 256,
    360 * giga,  6.25 * giga,
    2,           "cloud.google.com/tpu/docs/v6e; links: jax-ml.github.io/scaling-book/tpus"};
inline constexpr ChipSpec tpu_7x{
    "TPU7x",    ChipGeneration::tpu, 2307 * tera, 4614 * tera,
    0,          192 * giga,          7380 * giga, 9216,
    600 * giga, 12.5 * giga,         3,           "cloud.google.com/tpu/docs/tpu7x"};

} // namespace chip

/// @brief All chips of the catalogue.
inline constexpr std::array<ChipSpec, 15> chip_catalogue{
    {chip::a100_40, chip::a100_80, chip::h100, chip::h100_96, chip::h800, chip::h200, chip::b200, chip::b300,
     chip::gb200, chip::gb300, chip::tpu_v4, chip::tpu_v5e, chip::tpu_v5p, chip::tpu_v6e, chip::tpu_7x}};

/// @brief Clusters of published runs, and those used to study when a pipeline is needed.
inline constexpr std::array<ClusterSpec, 6> cluster_catalogue{{
    [] {
      auto c = cluster_of(chip::h800, 2048);
      c.name = "h800x2048";
      c.source = "arXiv 2412.19437, section 3.1";
      return c;
    }(),
    [] {
      auto c = cluster_of(chip::h100, 16384);
      c.name = "h100x16384";
      c.source = "arXiv 2407.21783, section 3.3.1";
      return c;
    }(),
    [] {
      auto c = cluster_of(chip::a100_80, 3072);
      c.name = "a100x3072";
      c.source = "arXiv 2104.04473, section 5";
      return c;
    }(),
    [] {
      auto c = cluster_of(chip::gb200, 16128);
      c.name = "gb200x16128";
      c.source = "NVIDIA GB200 NVL72 data sheet, 224 racks";
      return c;
    }(),
    [] {
      auto c = cluster_of(chip::tpu_v5p, 8960);
      c.name = "v5p-pod";
      c.source = "cloud.google.com/tpu/docs/v5p";
      return c;
    }(),
    [] {
      auto c = cluster_of(chip::tpu_7x, 9216);
      c.name = "tpu7x-pod";
      c.source = "cloud.google.com/tpu/docs/tpu7x";
      return c;
    }(),
}};

} // namespace shardwright::inline SHARDWRIGHT_ABI
