// SPDX-License-Identifier: Apache-2.0
// What PETSc passes on, as an error code and in its own words, where a product throws or a shape does not
// fit; and that the vectors are whole afterwards. Under mpiexec, on any number of ranks.
#include "petsc/adapter.hpp"

#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/fill.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

namespace {

namespace sw = shardwright;
using sw::axis::dp;
using Tensor = sw::ShardedTensor<petsc::Split<dp>, PetscScalar>;

/// Keeps the first sentence of an error, which PETSc's own handler would print with a trace.
PetscErrorCode keep_sentence(MPI_Comm, int, const char*, const char*, PetscErrorCode code,
                             PetscErrorType kind, const char* sentence, void* kept) {
  if (kind == PETSC_ERROR_INITIAL)
    *static_cast<std::string*>(kept) = sentence;
  return code;
}

/// What an exception of `call` says, after what PETSc said.
template <class Call> std::string failure_of(std::string& said, const Call& call) {
  said.clear();
  try {
    call();
  } catch (const std::exception& error) {
    return said + "|" + error.what();
  }
  return "nothing";
}

int check(const sw::HostCommunicator& world) {
  const sw::DeviceMesh mesh{world, sw::extent<dp>(world.size())};
  int failures = 0;
  const auto expect = [&](bool holds, const char* what, const std::string& found) {
    if (!holds) {
      ++failures;
      std::fprintf(stderr, "rank %d: %s, but: %s\n", world.rank(), what, found.c_str());
    }
  };
  std::string said;
  petsc::check(PetscPushErrorHandler(&keep_sentence, &said));
  Tensor x(mesh, {10}), y(mesh, {10}), longer(mesh, {11});
  sw::fill(x, 3.0);
  sw::fill(y, 0.0);
  const petsc::VectorOver<dp> from(mesh, x), to(mesh, y), other(mesh, longer);
  int calls = 0;
  const auto matrix = petsc::shell_matrix<dp>(mesh, 10, [&calls](auto& result, const auto& of) {
    ++calls;
    if (calls == 1)
      throw std::runtime_error("the product's own reason");
    if (calls == 2)
      throw 7;
    for (std::size_t i = 0; i < of.local_size(); ++i)
      result.mutable_data()[i] = 2 * of.data()[i];
  });

  const std::string code = "|PETSc: its functions must succeed, but one returned error ";
  std::string found = failure_of(said, [&] { petsc::check(MatMult(matrix, from, to)); });
  expect(found.starts_with("the product's own reason" + code), "a product that throws", found);
  found = failure_of(said, [&] { petsc::check(MatMult(matrix, from, to)); });
  expect(found.starts_with("the product threw what is not a std::exception" + code),
         "a product that throws a number", found);
  found = failure_of(said, [&] { petsc::check(MatMult(matrix, other, to)); });
  expect(found.find("dim") != std::string::npos && found.find(code) != std::string::npos && calls == 2,
         "a vector of another length", found);
  petsc::check(MatMult(matrix, from, to)); // the vectors' memory was given back
  for (std::size_t i = 0; i < y.local_size(); ++i)
    expect(y.data()[i] == 6, "a product after errors", std::to_string(y.data()[i]));
  if constexpr (sizeof(PetscInt) == 4) {
    found = failure_of(said, [] { static_cast<void>(petsc::count_of(std::int64_t{1} << 31)); });
    expect(found.find("a PetscInt can number, but it has 2147483648 (build PETSc with 64-bit indices)") !=
               std::string::npos,
           "a vector that is too long", found);
  }
  petsc::check(PetscPopErrorHandler());
  return failures;
}

} // namespace

int main(int argc, char** argv) {
  try {
    petsc::check(PetscInitialize(&argc, &argv, nullptr, nullptr));
    int failures = 0;
    {
      const Kokkos::ScopeGuard kokkos(argc, argv);
      failures = check(sw::world_from(PETSC_COMM_WORLD));
    }
    petsc::check(PetscFinalize());
    return failures == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
