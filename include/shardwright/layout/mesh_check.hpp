// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Run-time checks of mesh extents against the number of ranks, with the nearest meshes that fit.

#include <shardwright/core/config.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/integers.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

/// @brief The axes of a mesh and their extents: "dp=2,tp=4".
[[nodiscard]] inline std::string mesh_text(std::span<const std::string_view> axes,
                                           std::span<const std::int64_t> extents) {
  std::string out;
  for (std::size_t i = 0; i < axes.size(); ++i)
    out.append(i == 0 ? "" : ",").append(axes[i]).append("=").append(std::to_string(extents[i]));
  return out;
}

namespace detail {

[[noreturn]] inline void fail_extent(std::string_view axis, std::int64_t extent) {
  throw InvalidArgument("Mesh: the extent of axis " + std::string(axis) + " must be positive, not " +
                        std::to_string(extent) + " (use 1 for an axis that is not needed)");
}

[[noreturn]] inline void fail_product(std::span<const std::string_view> axes,
                                      std::span<const std::int64_t> extents) {
  throw InvalidArgument("Mesh: the product of the extents " + mesh_text(axes, extents) +
                        " must be less than 2^31 (lower them)");
}

/// Checks that the extents are positive and that their product is a number of ranks, and returns the
/// product.
/// @throws InvalidArgument for a zero, negative or overflowing extent.
constexpr std::int64_t check_extents(std::span<const std::string_view> axes,
                                     std::span<const std::int64_t> extents) {
  CheckedInteger product{1, true};
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] <= 0)
      fail_extent(axes[i], extents[i]);
    if (product.fits)
      product = checked_multiply(product.value, extents[i]);
  }
  if (!product.fits || product.value > std::numeric_limits<int>::max())
    fail_product(axes, extents);
  return product.value;
}

} // namespace detail

/// @brief Meshes with exactly `ranks` ranks that change the fewest extents, by the smallest factors.
///
/// Tries one changed axis, then two, then the factors of `ranks` distributed over all axes; at most `limit`
/// meshes.
/// @tparam Extent a parameter only so that units without a mesh need not compile it
template <class Extent = std::int64_t>
[[nodiscard]] std::vector<std::vector<Extent>>
nearest_meshes(std::span<const std::type_identity_t<Extent>> extents, std::int64_t ranks,
               std::size_t limit = 3);

/// @brief Checks that a mesh, by the extents of its axes, has exactly one place for every rank of the world.
/// @throws InvalidArgument naming the product, the number of ranks and the nearest meshes that fit.
template <class Extent = std::int64_t>
void check_mesh(std::span<const std::string_view> axes, std::span<const std::type_identity_t<Extent>> extents,
                std::int64_t ranks) {
  const std::int64_t product = detail::check_extents(axes, extents);
  if (product == ranks)
    return;
  const auto counted = [](std::int64_t count) {
    return std::to_string(count) + (count == 1 ? " rank" : " ranks");
  };
  std::string fitting;
  for (const auto& mesh : nearest_meshes<Extent>(extents, ranks))
    fitting += (fitting.empty() ? ", or choose a mesh that fits: " : "; ") + mesh_text(axes, mesh);
  throw InvalidArgument("Mesh: the product of the extents " + mesh_text(axes, extents) + " is " +
                        std::to_string(product) + " but the world has " + counted(ranks) +
                        ": they must be equal (start " + counted(product) + fitting + ")");
}

namespace detail {

/// The distance of one mesh from another: changed axes first, then the product of the ratios of the extents.
struct MeshDistance {
  int changed = 0;
  double ratio = 1;
  friend bool operator<(const MeshDistance& left, const MeshDistance& right) {
    return left.changed != right.changed ? left.changed < right.changed : left.ratio < right.ratio;
  }
};

inline MeshDistance mesh_distance(std::span<const std::int64_t> from, std::span<const std::int64_t> to) {
  MeshDistance distance;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto larger = static_cast<double>(from[i] > to[i] ? from[i] : to[i]);
    const auto smaller = static_cast<double>(from[i] > to[i] ? to[i] : from[i]);
    distance.changed += from[i] == to[i] ? 0 : 1;
    distance.ratio *= larger / smaller;
  }
  return distance;
}

/// The best few meshes found so far, nearest first.
template <class Extent> class NearestMeshes {
public:
  NearestMeshes(std::span<const Extent> wanted, std::size_t limit) : wanted_(wanted), limit_(limit) {}

  void offer(const std::vector<Extent>& mesh) {
    const MeshDistance distance = mesh_distance(wanted_, mesh);
    std::size_t place = meshes_.size();
    for (std::size_t i = 0; i < meshes_.size(); ++i) {
      if (meshes_[i] == mesh)
        return;
      if (place == meshes_.size() && distance < mesh_distance(wanted_, meshes_[i]))
        place = i;
    }
    meshes_.insert(meshes_.begin() + static_cast<std::ptrdiff_t>(place), mesh);
    if (meshes_.size() > limit_)
      meshes_.pop_back();
  }
  [[nodiscard]] std::vector<std::vector<Extent>> take() { return std::move(meshes_); }
  [[nodiscard]] bool empty() const { return meshes_.empty(); }

private:
  std::span<const Extent> wanted_;
  std::size_t limit_;
  std::vector<std::vector<Extent>> meshes_;
};

} // namespace detail

template <class Extent>
std::vector<std::vector<Extent>> nearest_meshes(std::span<const std::type_identity_t<Extent>> extents,
                                                std::int64_t ranks, std::size_t limit) {
  if (ranks <= 0 || extents.empty())
    return {};
  detail::NearestMeshes<Extent> best(extents, limit);
  const std::vector<Extent> wanted(extents.begin(), extents.end());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    for (std::size_t j = i; j < wanted.size(); ++j) {
      std::int64_t rest = ranks; // the product that axes i and j must have, 0 if the others do not divide
      for (std::size_t k = 0; k < wanted.size(); ++k)
        if (k != i && k != j && rest != 0)
          rest = wanted[k] > 0 && rest % wanted[k] == 0 ? rest / wanted[k] : 0;
      if (rest == 0)
        continue;
      std::vector<Extent> mesh = wanted;
      const auto offer = [&](std::int64_t first) {
        mesh[i] = first;
        mesh[j] = rest / first;
        best.offer(mesh);
      };
      if (i == j) {
        mesh[i] = rest;
        best.offer(mesh);
        continue;
      }
      for (std::int64_t first = 1; first * first <= rest; ++first)
        if (rest % first == 0) {
          offer(first);
          offer(rest / first);
        }
    }
  if (best.empty()) {
    // No two axes suffice: give each prime factor, largest first, to the axis that is furthest below its
    // requested extent.
    std::vector<Extent> mesh(wanted.size(), 1);
    std::vector<Extent> primes;
    std::int64_t rest = ranks;
    for (std::int64_t p = 2; p * p <= rest; ++p)
      for (; rest % p == 0; rest /= p)
        primes.insert(primes.begin(), p);
    if (rest > 1)
      primes.insert(primes.begin(), rest);
    for (const std::int64_t prime : primes) {
      std::size_t shortest = 0;
      for (std::size_t k = 1; k < mesh.size(); ++k)
        if (static_cast<double>(wanted[k]) / static_cast<double>(mesh[k]) >
            static_cast<double>(wanted[shortest]) / static_cast<double>(mesh[shortest]))
          shortest = k;
      mesh[shortest] *= prime;
    }
    best.offer(mesh);
  }
  return best.take();
}

#if defined(SHARDWRIGHT_COMPILED)
extern template void check_mesh<std::int64_t>(std::span<const std::string_view> axes,
                                              std::span<const std::int64_t> extents, std::int64_t ranks);
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
