// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks of index halos and sparse products against plain sums in double, for ranks of any transport.

#include "support/ranks.hpp"

#include <shardwright/tensor/redistribute.hpp>
#include <shardwright/tensor/sparse/csr_matrix.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sparse_test {

using namespace shardwright;
using shardwright_test::Findings;

struct x : axis_tag<x> {
  static constexpr std::string_view name = "x";
};
struct y : axis_tag<y> {
  static constexpr std::string_view name = "y";
};
struct copies : axis_tag<copies> {
  static constexpr std::string_view name = "copies";
};

/// Numbers that look random; the same on all ranks.
inline std::uint64_t hash_of(std::uint64_t a, std::uint64_t b) {
  std::uint64_t h = (a + 1) * 0x9e3779b97f4a7c15u ^ (b + 7) * 0xff51afd7ed558ccdu;
  h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
  return h ^ h >> 32;
}
inline double number_of(std::uint64_t a, std::uint64_t b) {
  return static_cast<double>(hash_of(a, b) % 2000) / 1000 - 1;
}

/// The value of an element of a test vector.
template <class Element = double> Element element_of(std::int64_t index, std::uint64_t seed) {
  const double number = number_of(static_cast<std::uint64_t>(index), seed);
  if constexpr (ComplexElement<Element>)
    return {number, number_of(static_cast<std::uint64_t>(index), seed + 1000)};
  else
    return static_cast<Element>(number);
}

template <class Tensor> void fill_vector(Tensor& tensor, std::uint64_t seed) {
  for (std::size_t i = 0; i < tensor.local_size(); ++i)
    tensor.mutable_data()[i] = element_of<typename Tensor::value_type>(
        tensor.local_offset()[0] + static_cast<std::int64_t>(i), seed);
}

/// The elements that rank `of` of a group reads: none on the last one of several, some twice, some its own.
inline std::vector<std::int64_t> read_by(int of, int ranks, std::int64_t extent) {
  std::vector<std::int64_t> out;
  for (std::uint64_t i = 0; extent > 0 && (ranks == 1 || of + 1 < ranks) && i < 9; ++i)
    out.push_back(static_cast<std::int64_t>(hash_of(static_cast<std::uint64_t>(of), i) %
                                            static_cast<std::uint64_t>(extent)));
  return out;
}

template <class Vector, class Element = double, class Mesh>
void check_halo(const Mesh& mesh, HostCommunicator group, std::int64_t extent, const std::string& name,
                Findings& findings) {
  const std::vector<std::int64_t> reads = read_by(group.rank(), group.size(), extent);
  const IndexHalo<Vector> halo(mesh, extent, reads);
  ShardedTensor<Vector, Element> vector(mesh, {extent});
  fill_vector(vector, 1);
  auto elements = halo.template elements<Element>();
  halo.gather_into(elements, vector);
  const std::int64_t first = vector.local_offset()[0];
  for (const std::int64_t index : reads) {
    const auto at = static_cast<std::size_t>(halo.local_index(index));
    const bool own = at < vector.local_size();
    const Element value = own ? vector.data()[at] : elements.local()(at - vector.local_size());
    findings.expect(
        value == element_of<Element>(index, 1) &&
            own == (index >= first && index < first + static_cast<std::int64_t>(vector.local_size())),
        name, ": element ", index);
  }
  // The adjoint: every reader adds a number for each element, in the order of the ranks.
  for (std::size_t i = 0; i < elements.size(); ++i)
    elements.mutable_local()(i) =
        element_of<Element>(halo.indices()[i], 2 + static_cast<std::uint64_t>(group.rank()));
  halo.scatter_add(elements, vector);
  for (std::size_t i = 0; i < vector.local_size(); ++i) {
    const std::int64_t index = first + static_cast<std::int64_t>(i);
    Element wanted = element_of<Element>(index, 1);
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto theirs = read_by(rank, group.size(), extent);
      if (rank != group.rank() && std::find(theirs.begin(), theirs.end(), index) != theirs.end())
        wanted += element_of<Element>(index, 2 + static_cast<std::uint64_t>(rank));
    }
    findings.expect(vector.data()[i] == wanted, name, ": sum of element ", index);
  }
}

/// The entries of a test matrix, some of them given twice, one row long, and some places of the diagonal
/// empty.
template <class Element>
std::vector<MatrixEntry<Element>> entries_of(const std::array<std::int64_t, 2>& shape) {
  std::vector<MatrixEntry<Element>> out;
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    const std::uint64_t count = row == 2 ? 3 * 11 : hash_of(static_cast<std::uint64_t>(row), 3) % 5;
    for (std::uint64_t i = 0; i < count && shape[1] > 0; ++i)
      out.push_back({row,
                     static_cast<std::int64_t>(hash_of(static_cast<std::uint64_t>(row), 4 + i) %
                                               static_cast<std::uint64_t>(shape[1])),
                     static_cast<Element>(number_of(static_cast<std::uint64_t>(row), 50 + i))});
    if (row < shape[1] && row % 4 != 3)
      out.push_back({row, row, Element(2)});
  }
  return out;
}

template <class Matrix, class Element>
void check_diagonal(const Matrix& matrix, const std::vector<MatrixEntry<Element>>& all,
                    const std::string& name, Findings& findings) {
  if (matrix.shape()[0] != matrix.shape()[1]) {
    try {
      static_cast<void>(diagonal(matrix));
      findings.expect(false, name, ": a diagonal of a matrix that is not square");
    } catch (const InvalidArgument& error) {
      findings.expect(
          std::string(error.what()).find("the matrix must be square, but it has 13 rows and 30") !=
              std::string::npos,
          error.what());
    }
    return;
  }
  const auto found = diagonal(matrix);
  std::vector<double> wanted(static_cast<std::size_t>(matrix.shape()[0]));
  for (const auto& [row, column, value] : all)
    if (row == column)
      wanted[static_cast<std::size_t>(row)] += static_cast<double>(value);
  for (std::size_t i = 0; i < found.local_size(); ++i)
    findings.expect(
        std::abs(found.data()[i] - wanted[static_cast<std::size_t>(found.local_offset()[0]) + i]) <= 1e-14,
        name, ": diagonal ", i);
}

template <class Rows, class Columns, class Element, class Mesh>
void check_matrix(const Mesh& mesh, HostCommunicator group, const std::array<std::int64_t, 2>& shape,
                  const std::string& name, Findings& findings) {
  const auto all = entries_of<Element>(shape);
  std::vector<MatrixEntry<Element>> given; // wherever their rows are
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % static_cast<std::size_t>(group.size()) == static_cast<std::size_t>(group.rank()))
      given.push_back(all[i]);
  const CsrMatrix<Rows, Columns, Element> matrix(mesh, shape, given);
  ShardedTensor<Columns, Element> v(mesh, {shape[1]});
  ShardedTensor<Rows, Element> product(mesh, {shape[0]}), w(mesh, {shape[0]});
  ShardedTensor<Columns, Element> transposed(mesh, {shape[1]});
  fill_vector(v, 5);
  fill_vector(w, 6);
  spmv_into(product, matrix, v);
  spmv_transposed_into(transposed, matrix, w.share());
  const auto check = [&](const auto& tensor, bool by_rows, const char* what) {
    std::vector<double> wanted(static_cast<std::size_t>(by_rows ? shape[0] : shape[1]));
    for (const auto& [row, column, value] : all)
      wanted[static_cast<std::size_t>(by_rows ? row : column)] +=
          static_cast<double>(value) *
          static_cast<double>(static_cast<Element>(element_of(by_rows ? column : row, by_rows ? 5 : 6)));
    for (std::size_t i = 0; i < tensor.local_size(); ++i) {
      const double number = wanted[static_cast<std::size_t>(tensor.local_offset()[0]) + i];
      findings.expect(std::abs(static_cast<double>(tensor.data()[i]) - number) <=
                          (std::is_same_v<Element, float> ? 1e-5 : 1e-14),
                      name, ": ", what, " ", i);
    }
  };
  check(product, true, "row");
  check(transposed, false, "column");
  if constexpr (std::is_same_v<Rows, Columns>)
    check_diagonal(matrix, all, name, findings);
}

/// Plans and matrices on every mesh of a number of ranks, with blocks that are even, uneven and empty.
inline void check_meshes(const HostCommunicator& world, Findings& findings) {
  for (int a = 1; a <= world.size(); ++a) {
    if (world.size() % a != 0)
      continue;
    const DeviceMesh mesh{world, extent<x>(a), extent<y>(world.size() / a)};
    using Line = Layout<1, Shard<0, x>>;    // copies along y
    using Both = Layout<1, Shard<0, y, x>>; // not in the order of the ranks
    for (const std::int64_t extent : {0, 1, 5, 24}) {
      const std::string name =
          std::to_string(extent) + " on " + std::to_string(a) + " of " + std::to_string(world.size());
      check_halo<Line>(mesh, mesh.communicator<x>(), extent, "line of " + name, findings);
      check_halo<Line, std::complex<double>>(mesh, mesh.communicator<x>(), extent, "complex line of " + name,
                                             findings);
      check_halo<Both>(mesh, mesh.communicator<x, y>(), extent, "both of " + name, findings);
      check_matrix<Both, Both, double>(mesh, mesh.communicator<x, y>(), {extent, extent}, "square of " + name,
                                       findings);
    }
    const std::string on = " on " + std::to_string(a) + " of " + std::to_string(world.size());
    check_matrix<Line, Line, float>(mesh, mesh.communicator<x>(), {13, 30}, "wide" + on, findings);
    check_matrix<Both, Layout<1, Shard<0, x, y>>, double>(mesh, mesh.communicator<x, y>(), {30, 7},
                                                          "tall" + on, findings);
  }
}

} // namespace sparse_test
