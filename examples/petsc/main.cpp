// SPDX-License-Identifier: Apache-2.0
//
// PETSc solves a Poisson equation whose products this library computes: PETSc's vectors are the blocks of
// tensors, and its matrix calls spmv. Run it directly, or with mpirun.
#include "petsc/adapter.hpp"
#include "sparse/conjugate_gradient.hpp"

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>

namespace sw = shardwright;

struct Solver {
  KSP ksp = nullptr;
  ~Solver() { static_cast<void>(KSPDestroy(&ksp)); }
};

//! [solve]
int solve(const sw::HostCommunicator& world) {
  const sw::DeviceMesh mesh{world, sw::extent<sparse::rows>(world.size())};
  constexpr std::int64_t side = 20, points = side * side * side;
  const sparse::Matrix a(mesh, {points, points},
                         sparse::poisson(side, sparse::Matrix::row_block(mesh, points)));
  sparse::Vector b(mesh, {points}), x(mesh, {points}), ours(mesh, {points});
  sw::fill_uniform(b, {.seed = 1, .tensor = 0}, -1, 1);
  sw::fill(x, 0.0);

  const auto matrix = petsc::shell_matrix<sparse::rows>(
      mesh, points, [&](auto& y, const auto& from) { sw::spmv_into(y, a, from); });
  const petsc::VectorOver<sparse::rows> right(mesh, b), solution(mesh, x);
  Solver solver;
  petsc::check(KSPCreate(sw::mpi_communicator(mesh.communicator<sparse::rows>()), &solver.ksp));
  petsc::check(KSPSetOperators(solver.ksp, matrix, matrix));
  petsc::check(KSPSetType(solver.ksp, KSPCG));
  PC preconditioner = nullptr;
  petsc::check(KSPGetPC(solver.ksp, &preconditioner));
  petsc::check(PCSetType(preconditioner, PCNONE)); // PETSc cannot see the matrix's entries
  petsc::check(KSPSetTolerances(solver.ksp, 1e-12, PETSC_DEFAULT, PETSC_DEFAULT, 1000));
  petsc::check(KSPSolve(solver.ksp, right, solution)); // the solution is in x
  //! [solve]

  PetscInt steps = 0;
  petsc::check(KSPGetIterationNumber(solver.ksp, &steps));
  sparse::solve(a, b, ours, 1e-12, 1000);
  sw::axpy(-1, x, ours);
  const double difference = sw::norm_max_value(ours);
  if (world.rank() == 0)
    std::printf("%lld points on %d ranks: %d steps of PETSc; the largest difference from the library's own "
                "solver is %.1e\n",
                static_cast<long long>(points), world.size(), static_cast<int>(steps), difference);
  return difference < 1e-9 ? 0 : 1;
}

//! [main]
int main(int argc, char** argv) {
  try {
    petsc::check(PetscInitialize(&argc, &argv, nullptr, nullptr)); // and MPI, if the program has not
    int code = 0;
    {
      const Kokkos::ScopeGuard kokkos(argc, argv);
      code = solve(sw::world_from(PETSC_COMM_WORLD));
    } // what uses MPI ends before it
    petsc::check(PetscFinalize());
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
//! [main]
