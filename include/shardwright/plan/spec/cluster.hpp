// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A cluster: one kind of chip in nested domains, from innermost to outermost.

#include <shardwright/core/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The set of fitted constants to use for a chip.
enum class ChipGeneration : std::uint8_t { ampere, hopper, blackwell, tpu, generic };

/// @brief Number format of matrix products.
enum class Precision : std::uint8_t { bf16, fp16, fp8, fp4 };

/// @brief The host that launches a chip's kernels; layers of many small experts wait for it.
enum class HostKind : std::uint8_t {
  separate, ///< A CPU behind PCI Express, as in nodes of eight GPUs.
  coupled,  ///< A CPU on the board that shares memory with the chip (Grace).
  compiled  ///< None: the whole step is one program (XLA on a TPU, Neuron on Trainium).
};

/// @brief A chip with figures from its data sheet: dense peaks in FLOP/s, memory in bytes and bytes/s.
struct ChipSpec {
  std::string_view name{};
  ChipGeneration generation = ChipGeneration::generic;
  double peak_bf16 = 0; ///< Also of fp16.
  double peak_fp8 = 0;  ///< 0 if the chip has none: bf16 is used.
  double peak_fp4 = 0;
  double memory_bytes = 0;
  double memory_bandwidth = 0;
  int scale_up_chips = 0;         ///< Chips of the usual scale-up domain.
  double scale_up_bandwidth = 0;  ///< One way and per chip.
  double scale_out_bandwidth = 0; ///< One way and per chip.
  int torus_dimensions = 0;       ///< Of the scale-up domain; 0 if a switch joins it.
  std::string_view source{};
  double sustained = 1;    ///< Share of the peaks that its power sustains, over that of the usual board.
  double exponentials = 0; ///< Per second; 0 if they are not published, or do not limit attention.

  /// @brief The usual host; `coupled` if a rack is one domain of GPUs. Chips in a torus run compiled
  /// programs.
  [[nodiscard]] constexpr HostKind host() const noexcept {
    return generation == ChipGeneration::tpu || torus_dimensions > 0 ? HostKind::compiled
           : scale_up_chips > 8                                      ? HostKind::coupled
                                                                     : HostKind::separate;
  }

  [[nodiscard]] constexpr double peak(Precision precision) const noexcept {
    const double eight = peak_fp8 > 0 ? peak_fp8 : peak_bf16;
    return precision == Precision::fp4   ? (peak_fp4 > 0 ? peak_fp4 : eight)
           : precision == Precision::fp8 ? eight
                                         : peak_bf16;
  }
  friend constexpr bool operator==(const ChipSpec&, const ChipSpec&) = default;
};

/// @brief Chips connected by one network; each domain consists of whole domains of the next level inside it.
struct DomainSpec {
  std::int64_t chips = 0;
  double bandwidth = 0;       ///< Bytes/s, one way and per chip, all links together.
  double latency_seconds = 0; ///< Of one message.
  int torus_dimensions = 0;   ///< 0: a switch; 2 or 3: neighbours only, `bandwidth` over all of them.
  friend constexpr bool operator==(const DomainSpec&, const DomainSpec&) = default;
};

/// @brief Chips and their domains from inner to outer; the last domain is the cluster.
struct ClusterSpec {
  static constexpr std::size_t most_domains = 4;

  std::string_view name{};
  ChipSpec chip{};
  std::array<DomainSpec, most_domains> domains{};
  int domain_count = 0;
  std::string_view source{};

  [[nodiscard]] constexpr std::int64_t chips() const noexcept {
    return domain_count == 0 ? 0 : domains[static_cast<std::size_t>(domain_count - 1)].chips;
  }
  friend constexpr bool operator==(const ClusterSpec&, const ClusterSpec&) = default;
};

namespace detail {

/// The network between scale-up domains, over `chips` in total.
[[nodiscard]] constexpr DomainSpec scale_out_domain(const ChipSpec& chip, double bandwidth,
                                                    std::int64_t chips) {
  return {chips, bandwidth > 0 ? bandwidth : chip.scale_out_bandwidth, 3.5e-6, 0};
}

} // namespace detail

/// @brief A cluster with a chip's usual domains: `chips` in scale-up domains of `domain_chips` (0: the chip's
/// own), connected by its scale-out network.
/// @param scale_out_bandwidth bytes/s per chip; 0: the chip's own
[[nodiscard]] constexpr ClusterSpec cluster_of(const ChipSpec& chip, std::int64_t chips,
                                               std::int64_t domain_chips = 0,
                                               double scale_out_bandwidth = 0) {
  const std::int64_t each = domain_chips > 0 ? domain_chips : chip.scale_up_chips;
  ClusterSpec cluster;
  cluster.name = chip.name;
  cluster.chip = chip;
  cluster.domains[0] = {each < chips ? each : chips, chip.scale_up_bandwidth, 1e-6, chip.torus_dimensions};
  cluster.domain_count = 1;
  if (each < chips) {
    cluster.domains[1] = detail::scale_out_domain(chip, scale_out_bandwidth, chips);
    cluster.domain_count = 2;
  }
  cluster.source = chip.source;
  return cluster;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
