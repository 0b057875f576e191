// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The run-time part of a device mesh: extents, coordinates, communicators and memory pools of one
/// rank.

#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/hash.hpp>
#include <shardwright/core/kept_memory.hpp>
#include <shardwright/mesh/buffer_pool.hpp>
#include <shardwright/mesh/target.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Distinguishes types at run time without RTTI.
template <class Type> inline constexpr char type_identity = 0;

/// Kinds of communication that overlap with a rank's passes, each on separate communicators, so that calls of
/// one kind never queue behind those of another.
enum class Background : std::uint8_t { reductions, gathers };

/// A mesh without its types. Axes are numbered from the outermost (slowest links) to the innermost.
class MeshCore {
public:
  static constexpr int max_axes = 8;
  /// Number of every axis that the mesh lacks: it has extent 1.
  static constexpr int absent_axis = max_axes;

  /// Collective over `world`: every rank must pass the same axes, in the same order.
  MeshCore(const HostCommunicator& world, std::span<const std::string_view> names,
           std::span<const int> extents);
  MeshCore(const MeshCore&) = delete;
  MeshCore& operator=(const MeshCore&) = delete;
  /// Pools, which are made first, go before the records that their calls may still write.
  ~MeshCore();

  [[nodiscard]] const HostCommunicator& world() const noexcept { return world_; }
  [[nodiscard]] int axis_count() const noexcept { return axis_count_; }
  [[nodiscard]] std::string_view name(int axis) const noexcept {
    return names_[static_cast<std::size_t>(axis)];
  }
  [[nodiscard]] int extent(int axis) const noexcept { return extents_[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] int coordinate(int axis) const noexcept {
    return coordinates_[static_cast<std::size_t>(axis)];
  }

  /// Coordinate along an axis of a rank of the world.
  [[nodiscard]] int coordinate_of(int rank, int axis) const noexcept {
    for (int inner = axis_count_ - 1; inner > axis; --inner)
      rank /= extent(inner);
    return rank % extent(axis);
  }

  /// Number of the axis with this name, or absent_axis.
  [[nodiscard]] int axis_index(std::string_view name) const noexcept {
    for (int axis = 0; axis < axis_count_; ++axis) {
      const std::string_view candidate = names_[static_cast<std::size_t>(axis)];
      if (candidate.data() == name.data() || candidate == name)
        return axis;
    }
    return absent_axis;
  }

  /// The group of ranks that differ from this one only along the axes of `mask`, ranked in mesh order.
  [[nodiscard]] HostCommunicator& communicator(unsigned mask) { return communicators_[mask & wide_]; }

  /// The same ranks, for calls that overlap with the passes.
  [[nodiscard]] HostCommunicator& background(unsigned mask, Background purpose) {
    return background_[static_cast<std::size_t>(purpose)][mask & wide_];
  }

  /// The same groups for the blocks of a target. For a device target, the communicator is made at its first
  /// use, by its ranks, over their host group.
  template <class Where> [[nodiscard]] CommunicatorOf<Where>& communicator(unsigned mask) {
    if constexpr (Where::host_accessible)
      return communicator(mask);
    else
      return device_group<Where>(0, mask & wide_, communicator(mask));
  }
  template <class Where> [[nodiscard]] CommunicatorOf<Where>& background(unsigned mask, Background purpose) {
    if constexpr (Where::host_accessible)
      return background(mask, purpose);
    else
      return device_group<Where>(1 + static_cast<std::size_t>(purpose), mask & wide_,
                                 background(mask, purpose));
  }

  /// Pool and execution instance of a target.
  template <class Target> [[nodiscard]] TargetResources<Target>& resources() {
    return part<TargetResources<Target>>();
  }
  /// The object of a type that belongs to this mesh, made at its first use: a pool, or what a layer above
  /// keeps, such as a cache.
  template <class Part> [[nodiscard]] Part& part() {
    for (const MeshPart& known : parts_)
      if (known.type == &type_identity<Part>)
        return *static_cast<Part*>(known.object.get());
    std::shared_ptr<Part> made;
    if constexpr (std::is_constructible_v<Part, MeshCore&>)
      made = std::make_shared<Part>(*this);
    else
      made = std::make_shared<Part>();
    keep_part(&type_identity<Part>, made);
    return *made;
  }
  /// Memory of the vectors of a step, which the next step reuses.
  [[nodiscard]] const KeptMemory& kept_memory() const noexcept { return kept_memory_; }

private:
  friend void retain(MeshCore&) noexcept;
  friend void release(MeshCore&) noexcept;

  struct MeshPart {
    const char* type; // the address of its identity
    std::shared_ptr<void> object;
  };

  template <class Where>
  [[nodiscard]] DeviceCommunicator& device_group(std::size_t use, unsigned mask, HostCommunicator& ranks) {
    TargetResources<Where>& own = resources<Where>();
    if (own.groups().empty())
      own.groups().resize(communicators_.size() * (1 + background_.size()));
    DeviceCommunicator& group = own.groups()[use * communicators_.size() + mask];
    if (!group.valid())
      group = Where::connect(ranks, own.execution());
    return group;
  }

  void keep_part(const char* type, std::shared_ptr<void> object);

  [[nodiscard]] std::string text(const std::uint64_t* extents) const;

  /// Names of the axes of a set, such as "dp,tp".
  [[nodiscard]] std::string label(unsigned mask) const;

  // Ranks with different meshes would form groups that do not match, and silently move the wrong blocks.
  void check_agreement();

  // All groups are made here, in one order on all ranks: making one later, inside a transition, would need
  // every rank of the world to take part in it.
  void split_all();

  HostCommunicator world_;
  int axis_count_;
  unsigned wide_ = 0; // axes of extent above 1
  std::array<std::string_view, max_axes> names_{};
  std::array<int, max_axes + 1> extents_{};
  std::array<int, max_axes + 1> coordinates_{};
  std::vector<HostCommunicator> communicators_;             // those of narrow axes have no group
  std::array<std::vector<HostCommunicator>, 2> background_; // by purpose
  std::vector<MeshPart> parts_;
  const KeptMemory kept_memory_ = make_kept_memory();
  long references_ = 1; // the mesh handles and every buffer that is in use
};

inline void retain(MeshCore& core) noexcept { ++core.references_; }
inline int world_rank_of(const MeshCore& core) { return core.world().world_rank(); }
void destroy(MeshCore& core) noexcept;
inline void release(MeshCore& core) noexcept {
  if (--core.references_ == 0)
    destroy(core);
}

#if !defined(SHARDWRIGHT_COMPILED)
SHARDWRIGHT_INLINE void destroy(MeshCore& core) noexcept { delete &core; }

SHARDWRIGHT_INLINE MeshCore::MeshCore(const HostCommunicator& world, std::span<const std::string_view> names,
                                      std::span<const int> extents)
    : world_(world), axis_count_(static_cast<int>(names.size())) {
  extents_[absent_axis] = 1;
  int stride = world.size();
  int below = world.rank();
  for (std::size_t axis = 0; axis < names.size(); ++axis) {
    names_[axis] = names[axis];
    extents_[axis] = extents[axis];
    stride /= extents[axis];
    coordinates_[axis] = below / stride;
    below %= stride;
    if (extents[axis] > 1)
      wide_ |= 1u << axis;
  }
  check_agreement();
  split_all();
}

SHARDWRIGHT_INLINE MeshCore::~MeshCore() {
  for (MeshPart& part : parts_)
    part.object.reset();
}

SHARDWRIGHT_INLINE void MeshCore::keep_part(const char* type, std::shared_ptr<void> object) {
  parts_.push_back({type, std::move(object)});
}

SHARDWRIGHT_INLINE std::string MeshCore::text(const std::uint64_t* extents) const {
  std::string out;
  for (int axis = 0; axis < axis_count_; ++axis)
    out.append(axis == 0 ? "" : ",").append(name(axis)).append("=").append(std::to_string(extents[axis]));
  return out;
}

SHARDWRIGHT_INLINE std::string MeshCore::label(unsigned mask) const {
  std::string out;
  for (int axis = 0; axis < axis_count_; ++axis)
    if ((mask >> axis & 1u) != 0)
      out.append(out.empty() ? "" : ",").append(name(axis));
  return out;
}

SHARDWRIGHT_INLINE void MeshCore::check_agreement() {
  if (world_.size() == 1)
    return;
  constexpr std::size_t words = 1 + max_axes;
  std::array<std::uint64_t, words> own{};
  Fnv1a names;
  for (int axis = 0; axis < axis_count_; ++axis) {
    names.add(name(axis)).add(std::uint64_t{0xff}); // which ends the name
    own[1 + static_cast<std::size_t>(axis)] = static_cast<std::uint64_t>(extent(axis));
  }
  own[0] = names.value();
  std::vector<std::uint64_t> all(words * static_cast<std::size_t>(world_.size()));
  world_.all_gather(own, all);
  for (int rank = 1; rank < world_.size(); ++rank) {
    const std::uint64_t* theirs = all.data() + words * static_cast<std::size_t>(rank);
    if (std::equal(theirs, theirs + words, all.data()))
      continue;
    const bool named_alike = theirs[0] == all[0];
    throw ConfigurationMismatch(
        "DeviceMesh: all ranks must pass the same axes with the same extents, but rank " +
            std::to_string(rank) + " differs from rank 0" +
            (named_alike && all[0] == own[0]
                 ? " (" + text(theirs + 1) + " against " + text(all.data() + 1) + ")"
                 : " in the names or the order of the axes") +
            " (read them from one configuration)",
        {.rank = world_.rank(), .group = world_.name(), .operation = "DeviceMesh"});
  }
}

SHARDWRIGHT_INLINE void MeshCore::split_all() {
  communicators_.resize(std::size_t{1} << axis_count_);
  for (auto& groups : background_)
    groups.resize(communicators_.size());
  for (unsigned mask = 0; mask < communicators_.size(); ++mask) {
    if ((mask & ~wide_) != 0)
      continue;
    const auto rule = [this, mask](int rank) {
      GroupPlace place;
      for (int axis = 0; axis < axis_count_; ++axis) {
        const bool inside = (mask >> axis & 1u) != 0;
        int& number = inside ? place.key : place.colour;
        number = number * extent(axis) + coordinate_of(rank, axis);
      }
      return place;
    };
    communicators_[mask] = mask == wide_ ? world_ : world_.split_by(rule, label(mask));
    for (const Background purpose : {Background::reductions, Background::gathers})
      background_[static_cast<std::size_t>(purpose)][mask] =
          world_.split_by(rule, label(mask) + (purpose == Background::gathers ? " gathers" : " reductions"));
  }
}
#else
extern template TargetResources<DefaultTarget>& MeshCore::part<TargetResources<DefaultTarget>>();
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
