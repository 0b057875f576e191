// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#include <shardwright/mesh/kernel_notes.hpp>

#include <array>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using shardwright::detail::KernelNotes;

/// As in Kokkos: read by every launch, extended by the first one on a device, without a lock.
struct Maps {
  std::map<int, int> of_kernel;
  std::map<int, int> of_devices;
  std::map<int, int>::size_type first_launches = 0;

  int launch(int device) {
    if (of_kernel.find(device) == of_kernel.end()) {
      of_kernel.emplace(device, 10 * device);
      ++first_launches;
    }
    return of_kernel.at(device) + of_devices.at(device);
  }
};

} // namespace

TEST_CASE("threads on several devices write to Kokkos' maps one by one, and read while nobody writes",
          "[mesh]") {
  constexpr int devices = 6, threads = 12;
  Maps maps;
  KernelNotes notes;
  std::array<int, threads> sums{};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < threads; ++rank)
    ranks.emplace_back([&, rank] {
      const int device = rank % devices;
      {
        const std::lock_guard makes_an_instance(shardwright::detail::kokkos_maps());
        maps.of_devices[device] = device;
      }
      for (int launch = 0; launch < 50; ++launch)
        notes.run(device, true, [&] { sums[static_cast<std::size_t>(rank)] += maps.launch(device); });
    });
  for (std::thread& rank : ranks)
    rank.join();
  CHECK(maps.first_launches == devices);
  for (int rank = 0; rank < threads; ++rank)
    CHECK(sums[static_cast<std::size_t>(rank)] == 50 * 11 * (rank % devices));
}

TEST_CASE("only a kernel's first successful launch on a device locks the maps exclusively", "[mesh]") {
  KernelNotes notes;
  std::string held;
  const auto look = [&held] {
    std::thread([&held] {
      auto& maps = shardwright::detail::kokkos_maps();
      if (std::unique_lock(maps, std::try_to_lock).owns_lock())
        held += "free ";
      else
        held += std::shared_lock(maps, std::try_to_lock).owns_lock() ? "shared " : "alone ";
    }).join();
  };
  CHECK_THROWS(notes.run(3, false, [] { throw 1; }));
  for (const bool several : {false, false, true})
    notes.run(3, several, look);
  notes.run(0, true, look);
  CHECK(held == "alone free shared alone ");
}
