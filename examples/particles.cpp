// SPDX-License-Identifier: Apache-2.0
//
// Particles in a periodic box of cells, which are split over a grid of ranks. They fly, change owners, and
// exchange velocities with others in their cell. In whole numbers, so that the state after all steps is that
// of one rank, which every rank computes too, to compare. Run it directly (four threads), with --ranks N, or
// under mpirun with the same.
#include "particles/neighbour_exchange.hpp"

#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sw = shardwright;

struct rows : sw::axis_tag<rows> {
  static constexpr std::string_view name = "rows";
};
struct columns : sw::axis_tag<columns> {
  static constexpr std::string_view name = "columns";
};
using Mesh = sw::DeviceMesh<rows, columns>;

constexpr std::int64_t cells = 24, cell = 1000, box = cells * cell; // along each side, and their length
constexpr std::int64_t particle_count = 3000, fastest = 700;        // units a step, less than a cell
constexpr int steps = 60;

struct Particle {
  std::int64_t id = 0;
  std::array<std::int64_t, 2> at{}, velocity{};

  friend bool operator==(const Particle&, const Particle&) = default;
};

/// Which rank owns a cell, and this rank's neighbours: the owners of the cells around its own.
class Owners {
public:
  explicit Owners(const Mesh& mesh)
      : ranks_(mesh.communicator<rows, columns>()), extents_{mesh.extent<rows>(), mesh.extent<columns>()},
        neighbours_(static_cast<std::size_t>(ranks_.size())) {
    for (std::int64_t row = 0; row < cells; ++row)
      for (std::int64_t column = 0; column < cells; ++column)
        if (owns({row * cell, column * cell}))
          for (const std::int64_t i : {-1, 0, 1})
            for (const std::int64_t j : {-1, 0, 1})
              neighbours_[static_cast<std::size_t>(
                  owner_of({(row + i + cells) % cells * cell, (column + j + cells) % cells * cell}))] = true;
  }

  [[nodiscard]] sw::HostCommunicator& ranks() noexcept { return ranks_; }
  [[nodiscard]] bool owns(const std::array<std::int64_t, 2>& at) const {
    return owner_of(at) == ranks_.rank();
  }
  /// Of every rank, whether it is one.
  [[nodiscard]] const std::vector<bool>& neighbours() const noexcept { return neighbours_; }
  [[nodiscard]] int owner_of(const std::array<std::int64_t, 2>& at) const {
    int rank = 0;
    for (std::size_t d = 0; d < 2; ++d) { // blocks of a Shard: of equal length, the last ones shorter
      const std::int64_t block = sw::ceil_div(cells, std::int64_t{extents_[d]});
      rank = rank * extents_[d] + static_cast<int>(at[d] / cell / block);
    }
    return rank;
  }

private:
  sw::HostCommunicator ranks_;
  std::array<int, 2> extents_;
  std::vector<bool> neighbours_;
};

/// In every cell, the particles exchange velocities in pairs, by their numbers: the momentum stays.
void collide(std::vector<Particle>& own) {
  std::sort(own.begin(), own.end(), [](const Particle& a, const Particle& b) { return a.id < b.id; });
  std::map<std::array<std::int64_t, 2>, Particle*> waiting;
  for (Particle& one : own) {
    Particle*& other = waiting[{one.at[0] / cell, one.at[1] / cell}];
    if (other != nullptr) {
      std::swap(other->velocity, one.velocity);
      other = nullptr;
    } else {
      other = &one;
    }
  }
}

/// A whole number below `below` that looks random.
std::int64_t random_below(std::int64_t below, std::int64_t id, std::uint64_t what) {
  std::uint64_t hash =
      (static_cast<std::uint64_t>(id) + 1) * 0x9e3779b97f4a7c15u ^ (what + 7) * 0xff51afd7ed558ccdu;
  hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9u;
  return static_cast<std::int64_t>((hash ^ hash >> 32) % static_cast<std::uint64_t>(below));
}

/// The particles of this rank's cells at the beginning.
std::vector<Particle> first_particles(const Owners& owners) {
  std::vector<Particle> own;
  for (std::int64_t id = 0; id < particle_count; ++id) {
    const auto velocity = [&](std::uint64_t d) { return random_below(2 * fastest + 1, id, 2 + d) - fastest; };
    const Particle one{id, {random_below(box, id, 0), random_below(box, id, 1)}, {velocity(0), velocity(1)}};
    if (owners.owns(one.at))
      own.push_back(one);
  }
  return own;
}

/// Their number, momentum, and a hash of their ids, over all ranks. Collective.
std::array<std::int64_t, 4> totals(Owners& owners, const std::vector<Particle>& own) {
  std::array<std::int64_t, 4> out{};
  for (const Particle& one : own) {
    out[0] += 1;
    out[1] += one.velocity[0];
    out[2] += one.velocity[1];
    out[3] += random_below(std::int64_t{1} << 40, one.id, 9);
  }
  owners.ranks().all_reduce_in_place(out);
  return out;
}

/// This rank's particles after all steps. @throws InvalidArgument if something was lost on the way.
std::vector<Particle> simulate(const Mesh& mesh) {
  Owners owners(mesh);
  std::vector<Particle> own = first_particles(owners);
  const auto before = totals(owners, own);
  particles::NeighbourExchange<Particle> exchange(owners.ranks(), owners.neighbours());
  for (int step = 0; step < steps; ++step) {
    for (Particle& one : own)
      for (std::size_t d = 0; d < 2; ++d)
        one.at[d] = (one.at[d] + one.velocity[d] + box) % box;
    exchange(own, [&](const Particle& one) { return owners.owner_of(one.at); });
    collide(own);
  }
  for (const Particle& one : own)
    if (!owners.owns(one.at))
      throw sw::InvalidArgument("particles: every particle must be with its owner, but number " +
                                std::to_string(one.id) + " is not (correct the exchange)");
  if (totals(owners, own) != before)
    throw sw::InvalidArgument(
        "particles: their number, momentum and ids must stay, but they do not (correct the exchange)");
  return own;
}

int program(sw::HostCommunicator world) {
  int across = 1;
  while ((across + 1) * (across + 1) <= world.size() && world.size() % (across + 1) == 0)
    ++across;
  const auto own =
      simulate(Mesh(world, sw::extent<rows>(across), sw::extent<columns>(world.size() / across)));
  const auto all = simulate(Mesh(world.split(world.rank(), 0), sw::extent<rows>(1), sw::extent<columns>(1)));
  for (const Particle& one : own)
    if (one != all[static_cast<std::size_t>(one.id)])
      throw sw::InvalidArgument("particles: every particle must be where it is on one rank, but number " +
                                std::to_string(one.id) + " is not (correct the exchange)");
  std::array<std::int64_t, 1> most{static_cast<std::int64_t>(own.size())};
  world.all_reduce_in_place(most, sw::ReduceOp::maximum);
  if (world.rank() == 0)
    std::printf("%lld particles, %d steps on %d x %d ranks, as on one rank; at most %lld on a rank\n",
                static_cast<long long>(particle_count), steps, across, world.size() / across,
                static_cast<long long>(most[0]));
  return 0;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
