// SPDX-License-Identifier: Apache-2.0
#include <Kokkos_Core.hpp>

static_assert(KOKKOS_VERSION >= 30400, "Kokkos: the version must be 3.4 or newer (install a newer one).");

int main(int argc, char** argv) {
  Kokkos::initialize(argc, argv);
  Kokkos::finalize();
  return 0;
}
