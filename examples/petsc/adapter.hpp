// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief PETSc beside Shardwright: a Vec over a tensor's block, and a Mat that calls an operator on tensors.

#include <shardwright/comm/mpi/transport.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/tensor/tensor_over.hpp>

#include <Kokkos_Core.hpp>
#include <petscksp.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace petsc {

namespace sw = shardwright;

/// @throws std::runtime_error for a code that is not 0; PETSc has then written the reason to stderr.
inline void check(PetscErrorCode code) {
  if (code != 0)
    throw std::runtime_error("PETSc: its functions must succeed, but one returned error " +
                             std::to_string(code) + " (see the lines on stderr)");
}

/// A number of elements as PETSc counts them.
[[nodiscard]] inline PetscInt count_of(std::int64_t count) {
  if (count > std::numeric_limits<PetscInt>::max())
    throw sw::InvalidArgument(
        "PETSc: a vector must have no more elements than a PetscInt can number, but it has " +
        std::to_string(count) + " (build PETSc with 64-bit indices)");
  return static_cast<PetscInt>(count);
}

/// The layout of PETSc's vectors: consecutive elements on consecutive ranks.
template <class Axis> using Split = sw::Layout<1, sw::Shard<0, Axis>>;

//! [vector]
/// A Vec whose memory is a tensor's block, which must outlive it: nothing is copied. After writing the tensor
/// other than through PETSc, call PetscObjectStateIncrease, as PETSc remembers norms.
template <class Axis> class VectorOver {
public:
  /// Collective over the axis.
  template <class Mesh> VectorOver(const Mesh& mesh, sw::ShardedTensor<Split<Axis>, PetscScalar>& tensor) {
    check(VecCreateMPIWithArray(sw::mpi_communicator(mesh.template communicator<Axis>()), 1,
                                count_of(tensor.local_shape()[0]), count_of(tensor.shape()[0]),
                                tensor.mutable_data(), &vector_));
  }
  //! [vector]
  VectorOver(const VectorOver&) = delete;
  VectorOver& operator=(const VectorOver&) = delete;
  ~VectorOver() { static_cast<void>(VecDestroy(&vector_)); }
  operator Vec() const noexcept { return vector_; } // NOLINT(google-explicit-constructor)

private:
  Vec vector_ = nullptr;
};

//! [matrix]
/// A square Mat that has only a product, y = A x: `multiply(y, x)`, given tensors over the memory of PETSc's
/// vectors.
template <class Axis, class Mesh, class Multiply> class ShellMatrix {
public:
  /// Collective over the axis.
  ShellMatrix(const Mesh& mesh, std::int64_t size, Multiply multiply)
      : mesh_(mesh), size_(size), multiply_(std::move(multiply)) {
    const PetscInt own = count_of(sw::block_shape<Split<Axis>>(mesh, {size})[0]);
    check(MatCreateShell(sw::mpi_communicator(mesh.template communicator<Axis>()), own, own, count_of(size),
                         count_of(size), this, &matrix_));
    check(MatShellSetOperation(matrix_, MATOP_MULT, reinterpret_cast<void (*)()>(&product)));
  }
  //! [matrix]
  ShellMatrix(const ShellMatrix&) = delete;
  ShellMatrix& operator=(const ShellMatrix&) = delete;
  ~ShellMatrix() { static_cast<void>(MatDestroy(&matrix_)); }
  operator Mat() const noexcept { return matrix_; } // NOLINT(google-explicit-constructor)

private:
  /// A tensor over the memory of a Vec; of const elements, a read-only handle.
  template <class Element> [[nodiscard]] auto tensor_in(Element* memory) const {
    const auto own = static_cast<std::size_t>(sw::block_shape<Split<Axis>>(mesh_, {size_})[0]);
    return sw::tensor_over<Split<Axis>>(mesh_, Kokkos::View<Element*, Kokkos::HostSpace>(memory, own),
                                        {size_});
  }

  //! [product]
  static PetscErrorCode product(Mat matrix, Vec x, Vec y) {
    ShellMatrix* self = nullptr;
    const PetscScalar* from = nullptr;
    PetscScalar* to = nullptr;
    PetscFunctionBeginUser;
    PetscCall(MatShellGetContext(matrix, &self));
    PetscCall(VecGetArrayRead(x, &from));
    PetscCall(VecGetArray(y, &to));
    std::exception_ptr thrown; // which must not pass through PETSc, a library in C
    try {
      auto result = self->tensor_in(to);
      self->multiply_(result, self->tensor_in(from));
    } catch (...) {
      thrown = std::current_exception();
    }
    PetscCall(VecRestoreArray(y, &to));
    PetscCall(VecRestoreArrayRead(x, &from));
    try {
      if (thrown)
        std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      SETERRQ(PETSC_COMM_SELF, PETSC_ERR_LIB, "%s", error.what());
    } catch (...) {
      SETERRQ(PETSC_COMM_SELF, PETSC_ERR_LIB, "the product threw what is not a std::exception");
    }
    PetscFunctionReturn(0);
  }
  //! [product]

  Mesh mesh_;
  std::int64_t size_;
  Multiply multiply_;
  Mat matrix_ = nullptr;
};

/// The matrix of a product, whose type follows.
template <class Axis, class Mesh, class Multiply>
[[nodiscard]] ShellMatrix<Axis, Mesh, Multiply> shell_matrix(const Mesh& mesh, std::int64_t size,
                                                             Multiply multiply) {
  return {mesh, size, std::move(multiply)};
}

} // namespace petsc
