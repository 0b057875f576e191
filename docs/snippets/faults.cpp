// SPDX-License-Identifier: Apache-2.0
//
// What the library reports when ranks disagree, do not arrive, or fail. Prints the messages shown on the page
// about hangs.
#include <shardwright/launch.hpp>
#include <shardwright/shardwright.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

namespace sw = shardwright;
using namespace sw::axis;

/// Removes the directory of this file, which differs between machines.
std::string said(const std::exception& error) {
  const std::string file = __FILE__;
  const std::string directory = file.substr(0, file.rfind('/') + 1);
  std::string text = error.what();
  for (auto at = text.find(directory); at != std::string::npos; at = text.find(directory))
    text.erase(at, directory.size());
  return text;
}

void mesh_that_does_not_fit() {
  try {
    //! [mesh]
    sw::launch({.ranks = 6}, [](sw::HostCommunicator world) {
      const sw::DeviceMesh mesh{world, sw::extent<dp>(2), sw::extent<tp>(4)};
    });
    //! [mesh]
  } catch (const sw::InvalidArgument& error) {
    std::printf("InvalidArgument: %s\n", said(error).c_str());
  }
}

void different_calls() {
  try {
    sw::launch({.ranks = 2}, [](sw::HostCommunicator world) {
      try {
        //! [mismatch]
        std::array<float, 4> numbers{};
        if (world.rank() == 0)
          world.all_reduce_in_place(std::span<float>(numbers));
        else
          world.barrier();
        //! [mismatch]
      } catch (const sw::CollectiveMismatch& error) {
        if (world.rank() == 0)
          std::printf("CollectiveMismatch: %s\n", said(error).c_str());
        throw;
      }
    });
  } catch (const sw::CollectiveMismatch&) {
    // Every rank has entered; rank 0 has said so.
  }
}

void rank_that_does_not_come() {
  std::atomic<bool> told{false};
  try {
    //! [deadline]
    const auto program = [&told](sw::HostCommunicator world) {
      if (world.rank() == 0) {
        world.barrier();
      } else {
        while (!told) // stands in for a rank that is stuck in its own work
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    sw::launch({.ranks = 2, .deadline = std::chrono::milliseconds(200)}, [&](sw::HostCommunicator world) {
      try {
        program(world);
      } catch (const sw::DeadlineExceeded& error) {
        std::printf("DeadlineExceeded: %s\n", said(error).c_str());
        told = true;
        throw;
      }
    });
    //! [deadline]
  } catch (const sw::DeadlineExceeded&) {
    told = true;
  }
}

void rank_that_fails() {
  try {
    //! [failure]
    sw::launch({.ranks = 2}, [](sw::HostCommunicator world) {
      if (world.rank() == 1)
        throw std::runtime_error("the disk is full");
      try {
        world.barrier();
      } catch (const sw::PeerFailed& error) {
        const std::string text = said(error);
        std::printf("PeerFailed: %s\n", text.substr(0, text.rfind(" [")).c_str());
        throw;
      }
    });
    //! [failure]
  } catch (const std::runtime_error& error) {
    std::printf("launch throws the first cause: %s\n", error.what());
  }
}

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  mesh_that_does_not_fit();
  different_calls();
  rank_that_does_not_come();
  rank_that_fails();
}
