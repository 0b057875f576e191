// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tensors in files of parallel HDF5: every rank writes and reads its block as a hyperslab.

#include <shardwright/comm/mpi/transport.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace hdf5 {

namespace sw = shardwright;

/// An object of HDF5, closed at the end of its scope.
class Handle {
public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
    if (id < 0)
      throw std::runtime_error("HDF5: " + what + " must succeed (see the lines on stderr)");
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (id_ >= 0)
      static_cast<void>(close_(id_));
  }
  operator hid_t() const noexcept { return id_; } // NOLINT(google-explicit-constructor)

private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};
inline void check(herr_t status, const std::string& what) {
  if (status < 0)
    throw std::runtime_error("HDF5: " + what + " must succeed (see the lines on stderr)");
}

//! [file]
/// A file that the ranks of a world open together. Collective.
inline Handle open_file(const sw::HostCommunicator& world, const std::string& path, bool create) {
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "H5Pcreate");
  check(H5Pset_fapl_mpio(access, sw::mpi_communicator(world), MPI_INFO_NULL), "H5Pset_fapl_mpio");
  if (create)
    return {H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose, "creating " + path};
  return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose, "opening " + path};
}
//! [file]

/// HDF5's name of an element type.
template <class Element> [[nodiscard]] hid_t type_of() {
  static_assert(std::is_same_v<Element, double> || std::is_same_v<Element, float>,
                "hdf5: the elements must be float or double (add the type here)");
  return std::is_same_v<Element, double> ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
}

/// Whether ranks hold copies of a block, and this one is not the first of them.
template <class Layout, class Mesh> [[nodiscard]] bool holds_copy(const Mesh& mesh) {
  return [&]<class... Axes>(sw::AxisList<Axes...>) {
    return (false || ... || (Layout::template index_of<Axes> < 0 && mesh.template coordinate<Axes>() > 0));
  }(typename Mesh::axis_list());
}

//! [select]
/// Selects a rank's block in a file, or nothing; returns the block's shape in memory.
template <class Tensor> Handle select_block(hid_t space, const Tensor& tensor, bool select) {
  constexpr auto rank = static_cast<std::size_t>(Tensor::tensor_rank);
  static_assert(rank > 0 && !Tensor::layout::value.has_partial() && !Tensor::layout::value.has_halos(),
                "hdf5: the tensor must be whole, without halos (redistribute it first)");
  std::array<hsize_t, rank> first{}, count{};
  for (std::size_t d = 0; d < rank; ++d) {
    first[d] = static_cast<hsize_t>(tensor.local_offset()[d]);
    count[d] = static_cast<hsize_t>(tensor.local_shape()[d]);
  }
  Handle memory(H5Screate_simple(static_cast<int>(rank), count.data(), nullptr), H5Sclose,
                "H5Screate_simple");
  if (select && tensor.local_size() > 0) {
    check(H5Sselect_hyperslab(space, H5S_SELECT_SET, first.data(), nullptr, count.data(), nullptr),
          "H5Sselect_hyperslab");
  } else { // takes part in the call without elements
    check(H5Sselect_none(space), "H5Sselect_none");
    check(H5Sselect_none(memory), "H5Sselect_none");
  }
  return memory;
}
//! [select]

[[nodiscard]] inline Handle collective_transfer() {
  Handle transfer(H5Pcreate(H5P_DATASET_XFER), H5Pclose, "H5Pcreate");
  check(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE), "H5Pset_dxpl_mpio");
  return transfer;
}

/// Writes a tensor as a new dataset. Collective over the file's ranks.
template <class Mesh, class Tensor>
void write(hid_t file, const std::string& name, const Mesh& mesh, const Tensor& tensor) {
  std::array<hsize_t, static_cast<std::size_t>(Tensor::tensor_rank)> shape{};
  std::copy(tensor.shape().begin(), tensor.shape().end(), shape.begin());
  const hid_t type = type_of<typename Tensor::value_type>();
  const Handle space(H5Screate_simple(Tensor::tensor_rank, shape.data(), nullptr), H5Sclose,
                     "H5Screate_simple");
  const Handle dataset(H5Dcreate2(file, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                       H5Dclose, "creating " + name);
  const Handle memory = select_block(space, tensor, !holds_copy<typename Tensor::layout>(mesh));
  check(H5Dwrite(dataset, type, memory, space, collective_transfer(), tensor.data()), "writing " + name);
}

/// Reads a dataset of the tensor's shape. Collective over the file's ranks.
template <class Tensor> void read(hid_t file, const std::string& name, Tensor& tensor) {
  const Handle dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose, "opening " + name);
  const Handle space(H5Dget_space(dataset), H5Sclose, "H5Dget_space");
  std::array<hsize_t, H5S_MAX_RANK> shape{};
  const int rank = H5Sget_simple_extent_dims(space, shape.data(), nullptr);
  if (rank != Tensor::tensor_rank || !std::equal(tensor.shape().begin(), tensor.shape().end(), shape.begin()))
    throw sw::InvalidArgument("hdf5: the tensor must have the shape of the dataset " + name +
                              " (read its shape first)");
  const Handle memory = select_block(space, tensor, true);
  check(H5Dread(dataset, type_of<typename Tensor::value_type>(), memory, space, collective_transfer(),
                tensor.mutable_data()),
        "reading " + name);
}

} // namespace hdf5
