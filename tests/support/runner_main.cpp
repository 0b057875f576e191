// SPDX-License-Identifier: Apache-2.0
#include "support/session.hpp"

#include <shardwright/tensor/kernels/product/blas.hpp>

#include <Kokkos_Core.hpp>

int main(int argc, char** argv) {
  shardwright::kernels::use_single_threaded_blas(); // ranks are the parallelism
  Kokkos::initialize();
  const int status = shardwright_test::run_session(argc, argv);
  Kokkos::finalize();
  return status;
}
