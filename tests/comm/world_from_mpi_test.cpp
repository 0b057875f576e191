// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi_parts.hpp"
#include "support/catch.hpp"
#include "support/launch_ranks.hpp"
#include "support/matchers.hpp"

#include <shardwright/comm/observe/communication_clock.hpp>
#include <shardwright/launch.hpp>
#include <shardwright/mesh/device_mesh.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace sw = shardwright;
using shardwright_test::ContainsSubstring;

namespace {

const sw::LaunchOptions options{.deadline = std::chrono::seconds(60)};

/// A communicator of the program's own, freed at the end.
class OwnComm {
public:
  OwnComm(int colour, int key) { MPI_Comm_split(MPI_COMM_WORLD, colour, key, &comm_); }
  ~OwnComm() {
    if (comm_ != MPI_COMM_NULL)
      MPI_Comm_free(&comm_);
  }
  OwnComm(const OwnComm&) = delete;
  OwnComm& operator=(const OwnComm&) = delete;
  operator MPI_Comm() const { return comm_; } // NOLINT(google-explicit-constructor)

private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

int job_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int job_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}
int comparison(MPI_Comm one, MPI_Comm other) {
  int out = MPI_UNEQUAL;
  MPI_Comm_compare(one, other, &out);
  return out;
}
int sum_of(MPI_Comm comm, int own) {
  int sum = 0;
  MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm);
  return sum;
}

} // namespace

TEST_CASE("a world made from a program's communicator has the same ranks in the same order", "[comm]") {
  const OwnComm backwards(0, -job_rank());
  sw::HostCommunicator world = sw::world_from(backwards, options);
  CHECK(world.size() == job_size());
  CHECK(world.rank() == job_size() - 1 - job_rank());
  for (const communicator_suite::Part& part : communicator_suite::mpi_parts()) {
    if (std::string(part.name) == "all_reduce")
      continue; // the longest; others reduce as well
    INFO(part.name);
    part.run(world);
  }
}

TEST_CASE("two disjoint worlds in one job do not interfere", "[comm]") {
  const bool odd = job_rank() % 2 == 1;
  const OwnComm half(odd ? 1 : 0, job_rank());
  sw::HostCommunicator world = sw::world_from(half, options);
  CHECK(world.rank() == job_rank() / 2);
  // Different calls, and different numbers of them.
  std::vector<int> numbers(odd ? 5 : 3, 1);
  for (int round = 0; round < (odd ? 7 : 4); ++round)
    world.all_reduce_in_place(numbers, sw::ReduceOp::maximum);
  if (odd && world.size() > 1) {
    numbers.resize(world.rank() == 0 ? 1 : 2);
    CHECK_THROWS_AS(world.all_reduce_in_place(numbers), sw::CollectiveMismatch);
  } else if (!odd) {
    std::vector<int> sum(1, 1);
    world.all_reduce_in_place(sum);
    CHECK(sum[0] == world.size());
  }
  // MPI, and the program's communicators, are as they were.
  CHECK(sum_of(half, 1) == world.size());
  CHECK(sum_of(MPI_COMM_WORLD, 1) == job_size());
}

TEST_CASE("a message to a rank that has left its world does not reach a later world", "[comm]") {
  const int half = job_size() / 2;
  const bool leaves = job_rank() < half;
  const OwnComm part(leaves ? 0 : 1, job_rank());
  std::optional<sw::HostCommunicator> all = sw::world_from(MPI_COMM_WORLD, options);
  all->barrier();
  if (leaves)
    all.reset();
  MPI_Barrier(MPI_COMM_WORLD);
  std::vector<int> numbers(3, 1);
  if (!leaves && half > 0)
    CHECK_THROWS_AS(all->all_reduce_in_place(numbers), sw::Error); // it sends before it finds the error
  all.reset();
  MPI_Barrier(MPI_COMM_WORLD);
  sw::HostCommunicator world = sw::world_from(part, options);
  numbers.assign(3, 1);
  world.all_reduce_in_place(numbers);
  CHECK(numbers == std::vector<int>(3, world.size()));
}

TEST_CASE("a wait in one world advances the started calls of another", "[comm]") {
  sw::HostCommunicator one = sw::world_from(MPI_COMM_WORLD, options);
  sw::HostCommunicator other = sw::world_from(MPI_COMM_WORLD, options);
  std::vector<float> data(std::size_t{1} << 20, 1.0F); // several steps
  if (one.rank() == 0) {
    sw::Pending sum = one.async().all_reduce_in_place(data);
    other.barrier();
    sum.wait();
  } else {
    one.all_reduce_in_place(data);
    other.barrier();
  }
  CHECK(data.back() == static_cast<float>(one.size()));
}

TEST_CASE("the MPI communicator of a group has the same ranks in the same order", "[comm]") {
  const OwnComm backwards(0, -job_rank());
  sw::HostCommunicator world = sw::world_from(backwards, options);
  const MPI_Comm all = sw::mpi_communicator(world);
  CHECK(comparison(all, backwards) == MPI_CONGRUENT);
  CHECK(sw::mpi_communicator(world) == all);
  // A part with ranks in another order, beside a second part.
  sw::HostCommunicator part = world.split(world.rank() % 2, -world.rank(), "part");
  const MPI_Comm part_comm = sw::mpi_communicator(part);
  const OwnComm expected(world.rank() % 2, -world.rank());
  CHECK(comparison(part_comm, expected) == MPI_CONGRUENT);
  CHECK(sum_of(part_comm, 1) == part.size());
  std::vector<int> sum(1, 1);
  part.all_reduce_in_place(sum);
  CHECK(sum[0] == part.size());
  // A part that some ranks are not in.
  if (sw::HostCommunicator first = world.split(world.rank() == 0 ? -1 : 0, world.rank(), "others");
      first.valid())
    CHECK(sum_of(sw::mpi_communicator(first), 1) == world.size() - 1);
  // Below decorators, and of a mesh.
  CHECK(comparison(sw::mpi_communicator(sw::timed(world, std::make_shared<sw::CommunicationClock>())), all) ==
        MPI_IDENT);
  const sw::DeviceMesh mesh{world, sw::extent<sw::axis::dp>(world.size())};
  CHECK(comparison(sw::mpi_communicator(mesh.communicator<sw::axis::dp>()), backwards) == MPI_CONGRUENT);
}

TEST_CASE("groups outside MPI, and communicators without this process, are rejected", "[comm]") {
  CHECK_THROWS_WITH(sw::world_from(MPI_COMM_NULL), ContainsSubstring("call world_from on its members only"));
  CHECK_THROWS_WITH(sw::world_from(MPI_COMM_WORLD, {.ranks = 99}),
                    ContainsSubstring("LaunchOptions::ranks is 99"));
  CHECK_THROWS_WITH(sw::world_from(MPI_COMM_WORLD, {.deadline = std::chrono::seconds(0)}),
                    ContainsSubstring("the deadline must be positive"));
  if (job_size() > 1) {
    const int half = job_rank() % 2;
    const OwnComm own(half, job_rank());
    MPI_Comm between = MPI_COMM_NULL;
    MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, 1 - half, 5, &between);
    CHECK_THROWS_WITH(sw::world_from(between), ContainsSubstring("intercommunicator"));
    MPI_Comm_free(&between);
  }
  shardwright_test::launch_thread_ranks({.ranks = 2}, [](sw::HostCommunicator threads) {
    CHECK_THROWS_WITH(sw::mpi_communicator(threads), ContainsSubstring("must be processes under MPI"));
  });
}

TEST_CASE("a rank whose world ends by an exception is not waited for until the deadline", "[comm]") {
  if (job_size() == 1)
    return;
  const auto use = [] {
    sw::HostCommunicator world = sw::world_from(MPI_COMM_WORLD, {.deadline = std::chrono::minutes(10)});
    if (world.rank() == 0)
      throw std::runtime_error("the disk is full");
    world.barrier();
  };
  if (job_rank() == 0)
    CHECK_THROWS_WITH(use(), "the disk is full");
  else
    CHECK_THROWS_WITH(use(), ContainsSubstring("rank 0 left: an exception ended its use of the world"));
}
