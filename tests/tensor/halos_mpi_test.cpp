// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"
#include "support/launch_ranks.hpp"
#include "support/ranks.hpp"
#include "tensor/exchange_cases.hpp"
#include "tensor/grid_product_cases.hpp"
#include "tensor/halo_cases.hpp"
#include "tensor/ordered_cases.hpp"
#include "tensor/sparse_cases.hpp"
#if defined(SHARDWRIGHT_WITH_FFTW)
#include "tensor/fourier_cases.hpp"
#endif

#include <chrono>

namespace {

using namespace tensor_test;

TEST_CASE("halos of processes equal their owners' elements on every mesh") {
  Findings findings;
  shardwright_test::launch_ranks({.deadline = std::chrono::minutes(1)}, [&](const HostCommunicator& world) {
    check_meshes<double>(world, findings);
    check_meshes<float>(world, findings);
  });
  CHECK(findings.checks() > 0);
  CHECK(findings.text() == "");
}

TEST_CASE("index halos and sparse products of processes equal plain sums on every mesh") {
  Findings findings;
  shardwright_test::launch_ranks({.deadline = std::chrono::minutes(1)}, [&](const HostCommunicator& world) {
    sparse_test::check_meshes(world, findings);
  });
  CHECK(findings.checks() > 0);
  CHECK(findings.text() == "");
}

TEST_CASE("items that change their process arrive in order, in one message to each neighbour") {
  Findings findings;
  shardwright_test::launch_ranks({.deadline = std::chrono::minutes(1)}, [&](const HostCommunicator& world) {
    exchange_test::check_exchanges(world, findings);
  });
  CHECK(findings.checks() > 0);
  CHECK(findings.text() == "");
}

TEST_CASE("sums of processes on a reproducible target are those of a plain tree") {
  Findings findings;
  shardwright_test::launch_ranks({.deadline = std::chrono::minutes(1)}, [&](const HostCommunicator& world) {
    ordered_test::check_world(world, findings);
  });
  CHECK(findings.checks() > 0);
  CHECK(findings.text() == "");
}

#if defined(SHARDWRIGHT_WITH_FFTW)
TEST_CASE("Fourier transforms of processes equal the plain formula") {
  Findings findings;
  shardwright_test::launch_ranks({.deadline = std::chrono::minutes(1)}, [&](const HostCommunicator& world) {
    fourier_test::check_world(world, findings);
  });
  CHECK(findings.checks() > 0);
  CHECK(findings.text() == "");
}
#endif

TEST_CASE("products over a grid of processes equal plain sums, and move the bytes of their plan") {
  Findings findings;
  shardwright_test::launch_ranks({.deadline = std::chrono::minutes(1)}, [&](const HostCommunicator& world) {
    check_grid_products(world, findings);
  });
  CHECK(findings.checks() > 0);
  CHECK(findings.text() == "");
}

} // namespace
