// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Compares conjugate gradients over a CsrMatrix with PETSc's, with the same preconditioner.
///
/// Under mpirun both take turns in the same processes, over the same rows; the figure is the median of the
/// ratios of neighbouring turns. PETSc tests the natural norm, which it has from the iteration, as ours does.
#include "sparse/conjugate_gradient.hpp"
#include "timing.hpp"

#include <shardwright/io/matrix_market.hpp>
#include <shardwright/launch.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <petscksp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace sw = shardwright;
using Entries = std::vector<sw::MatrixEntry<double>>;

struct Options {
  std::string matrix; ///< A file, or nothing: a Poisson equation.
  std::int64_t side = 64;
  int iterations = 100;
  int turns = 9;
  bool check = true;
};

void petsc(PetscErrorCode code) {
  if (code != 0)
    throw std::runtime_error("sparse_solver: PETSc must succeed, but it returned " + std::to_string(code));
}

class Petsc {
public:
  Petsc(std::int64_t size, sw::DimensionBlock rows, const Entries& entries) {
    const auto local = static_cast<PetscInt>(rows.size), all = static_cast<PetscInt>(size);
    std::vector<PetscInt> own(static_cast<std::size_t>(rows.size)), others(own.size());
    for (const auto& [row, column, value] : entries)
      ++(column >= rows.offset && column < rows.offset + rows.size
             ? own
             : others)[static_cast<std::size_t>(row - rows.offset)];
    petsc(MatCreateAIJ(PETSC_COMM_WORLD, local, local, all, all, 0, own.data(), 0, others.data(), &matrix_));
    for (const auto& [row, column, value] : entries)
      petsc(
          MatSetValue(matrix_, static_cast<PetscInt>(row), static_cast<PetscInt>(column), value, ADD_VALUES));
    petsc(MatAssemblyBegin(matrix_, MAT_FINAL_ASSEMBLY));
    petsc(MatAssemblyEnd(matrix_, MAT_FINAL_ASSEMBLY));
    petsc(MatCreateVecs(matrix_, &x_, &b_));
    petsc(KSPCreate(PETSC_COMM_WORLD, &solver_));
    petsc(KSPSetOperators(solver_, matrix_, matrix_));
    petsc(KSPSetType(solver_, KSPCG));
    petsc(KSPSetNormType(solver_, KSP_NORM_NATURAL));
    PC preconditioner = nullptr;
    petsc(KSPGetPC(solver_, &preconditioner));
    petsc(PCSetType(preconditioner, PCJACOBI));
    petsc(KSPSetUp(solver_));
  }
  Petsc(const Petsc&) = delete;
  Petsc& operator=(const Petsc&) = delete;
  ~Petsc() {
    KSPDestroy(&solver_);
    VecDestroy(&b_);
    VecDestroy(&x_);
    MatDestroy(&matrix_);
  }

  /// Returns the steps, given the right-hand side of this rank.
  int solve(const double* b, double factor, int most) {
    PetscInt size = 0, steps = 0;
    PetscScalar* to = nullptr;
    petsc(VecGetLocalSize(b_, &size));
    petsc(VecGetArray(b_, &to));
    std::copy_n(b, size, to);
    petsc(VecRestoreArray(b_, &to));
    petsc(KSPSetTolerances(solver_, factor, 0, 1e300, most));
    petsc(KSPSolve(solver_, b_, x_));
    petsc(KSPGetIterationNumber(solver_, &steps));
    return static_cast<int>(steps);
  }
  /// The largest difference from this rank's part of a solution.
  double difference(const double* x) {
    PetscInt size = 0;
    const PetscScalar* own = nullptr;
    petsc(VecGetLocalSize(x_, &size));
    petsc(VecGetArrayRead(x_, &own));
    double out = 0;
    for (PetscInt i = 0; i < size; ++i)
      out = std::max(out, std::abs(own[i] - x[i]));
    petsc(VecRestoreArrayRead(x_, &own));
    return out;
  }

private:
  Mat matrix_ = nullptr;
  Vec x_ = nullptr, b_ = nullptr;
  KSP solver_ = nullptr;
};

int compare(sw::HostCommunicator world, const Options& options) {
  const sw::DeviceMesh mesh{world, sw::extent<sparse::rows>(world.size())};
  std::int64_t size = options.side * options.side * options.side;
  Entries entries;
  if (options.matrix.empty()) {
    entries = sparse::poisson(options.side, sparse::Matrix::row_block(mesh, size));
  } else {
    sw::detail::MatrixMarketFile file(options.matrix);
    size = file.shape()[0];
    const sw::DimensionBlock rows = sparse::Matrix::row_block(mesh, size);
    for (sw::MatrixEntry<double> entry; file.next(entry);)
      if (entry.row >= rows.offset && entry.row < rows.offset + rows.size)
        entries.push_back(entry);
  }
  const sparse::Matrix a(mesh, {size, size}, entries);
  Petsc theirs(size, sparse::Matrix::row_block(mesh, size), entries);
  sparse::Vector b(mesh, {size}), x(mesh, {size});
  sw::fill_uniform(b, {.seed = 1, .tensor = 0}, -1, 1);

  const auto converged = sparse::solve(a, b, x, 1e-10, 100000);
  const int steps = theirs.solve(b.data(), 1e-10, 100000);
  std::array<double, 1> difference{theirs.difference(x.data())};
  world.all_reduce_in_place(difference, sw::ReduceOp::maximum);

  const auto turn = [&](auto solve) {
    world.barrier();
    const auto begin = benchmark::Clock::now();
    solve();
    world.barrier();
    return benchmark::seconds_since(begin) / options.iterations;
  };
  std::vector<double> times, ratios;
  for (int i = -1; i < options.turns; ++i) {
    const double mine = turn([&] { sparse::solve(a, b, x, 0, options.iterations); });
    const double other = turn([&] { theirs.solve(b.data(), 0, options.iterations); });
    if (i < 0)
      continue; // memory and pages
    times.push_back(mine);
    ratios.push_back(mine / other);
  }
  if (world.rank() == 0)
    std::printf(
        "%d ranks, %lld rows, %s: %d steps (PETSc %d, difference %.1e); %.3f ms an iteration, %.2f of PETSc's\n",
        world.size(), static_cast<long long>(size), options.check ? "calls compared" : "unchecked",
        converged.steps, steps, difference[0], benchmark::median(times) * 1e3, benchmark::median(ratios));
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Conjugate gradients over a sparse matrix against PETSc's");
  app.add_option("--matrix", options.matrix,
                 "a file in Matrix Market's format; without it, a Poisson equation");
  app.add_option("--side", options.side, "points of the Poisson equation in each direction");
  app.add_option("--iterations", options.iterations, "iterations per turn");
  app.add_option("--turns", options.turns, "pairs of turns; figures are medians over them");
  app.add_flag("!--unchecked", options.check, "ranks do not compare their calls");
  CLI11_PARSE(app, argc, argv);
  const Kokkos::ScopeGuard kokkos(argc, argv);
  try {
    return sw::launch({.check = options.check}, [&](sw::HostCommunicator world) {
      petsc(PetscInitialize(nullptr, nullptr, nullptr, nullptr));
      const int code = compare(std::move(world), options);
      petsc(PetscFinalize());
      return code;
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
