// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A sparse matrix whose rows are split over a mesh, its products with vectors, and its diagonal.

#include <shardwright/tensor/checks/operation.hpp>
#include <shardwright/tensor/fill.hpp>
#include <shardwright/tensor/sparse/csr_entries.hpp>
#include <shardwright/tensor/sparse/index_halo.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Rows of a matrix in the memory of a target: all rows of a block, or those that `rows` lists.
template <class Element, class Where> struct CsrPart {
  std::size_t count = 0;
  ListOn<std::int32_t, Where> rows, begin, columns;
  ListOn<Element, Where> values;
  CsrRows<Element> in_dry_run; ///< What the lists would hold, if they have no memory.

  CsrPart(TargetResources<Where>& resources, const CsrRows<Element>& from)
      : count(from.count()), rows(list_on(resources, from.rows)), begin(list_on(resources, from.begin)),
        columns(list_on(resources, from.columns)), values(list_on(resources, from.values)) {
    if constexpr (counts_only<Where>)
      in_dry_run = from;
  }

  /// Bytes of a kernel that reads the lists and at most `vector` elements, and writes an element for each
  /// row.
  [[nodiscard]] std::size_t moved_bytes(std::size_t vector) const {
    return (rows.local_size() + count + columns.local_size()) * sizeof(std::int32_t) +
           (values.local_size() + std::min(values.local_size(), vector) + count) * sizeof(Element);
  }

  /// An explicit copy on the host.
  [[nodiscard]] CsrRows<Element> on_host() const {
    if constexpr (counts_only<Where>)
      return in_dry_run;
    CsrRows<Element> out;
    const auto copy = [&](const auto& list, auto& to) {
      to.resize(list.local_size());
      copy_to_host<Where>(list.execution(), list.data(), to.data(), to.size());
    };
    copy(rows, out.rows);
    copy(begin, out.begin);
    copy(columns, out.columns);
    copy(values, out.values);
    return out;
  }

  /// The rows that are listed, or null.
  [[nodiscard]] const std::int32_t* listed() const { return rows.local_size() == 0 ? nullptr : rows.data(); }
};

/// y = part * x, in pieces of at most `piece` rows with `between` after each.
template <class Element, class Where, class X, class Between>
void multiply_rows(const CsrPart<Element, Where>& part, const X& x, Element* y, std::size_t piece,
                   Between between) {
  kernels::moves("sw::spmv", x.execution(), part.moved_bytes(x.local_size()));
  const auto run = [&]<bool listed>(std::bool_constant<listed>) {
    for (std::size_t first = 0; first < part.count; first += piece) {
      kernels::run("sw::spmv", part.begin.execution(), std::min(piece, part.count - first),
                   kernels::RowsTimesVector<Element, listed>{part.listed(), part.begin.data(),
                                                             part.columns.data(), part.values.data(),
                                                             x.data(), y, first});
      between();
    }
  };
  part.listed() == nullptr ? run(std::false_type()) : run(std::true_type());
}

/// Names the layouts of the rows and of the columns.
template <class Rows, class Columns> struct SameAxes {
  static_assert(std::is_same_v<typename Rows::axis_list, typename Columns::axis_list>,
                "CsrMatrix: rows and columns must be split over the same axes (name them in both layouts)");
};
template <class Element> struct MatrixElement {
  static_assert(std::is_same_v<Element, float> || std::is_same_v<Element, double>,
                "CsrMatrix: the elements must be float or double (convert the entries first)");
};

/// Names the matrix, and the layouts of a product's operands: out, and in.
template <class Out, class In, class Y, class X> struct ProductVectors {
  static_assert(
      std::is_same_v<typename X::layout, In>,
      "spmv: the vector must have the layout of the matrix's columns, or of its rows in a transposed product (redistribute it)");
  static_assert(
      std::is_same_v<typename Y::layout, Out>,
      "spmv: the result must have the layout of the matrix's rows, or of its columns in a transposed product (declare it with that layout)");
  static constexpr bool value =
      std::is_same_v<typename X::layout, In> && std::is_same_v<typename Y::layout, Out>;
};

} // namespace detail

/// @brief A sparse matrix in compressed rows. A rank holds the rows that the layout `Rows` gives it; it
/// multiplies vectors of the layout `Columns`, and knows by an IndexHalo which of their elements others own.
///
/// Entries of a row are in the order of their columns, and products add them in this order: with
/// -ffp-contract=off the same bits on any number of ranks, and otherwise but for fused multiplications. Rows
/// whose columns the rank owns itself are computed while the others' elements are on their way. Over axes
/// that neither layout names, ranks hold copies. A matrix belongs to its rank's thread. Cost: per entry 4
/// bytes and an element, per row 4 bytes, or 8 where lengths vary; the first transposed product makes a
/// transposed copy.
template <LayoutType Rows, LayoutType Columns = Rows, class Element = double, Target Where = DefaultTarget>
class CsrMatrix {
  static_assert(sizeof(detail::OwnedVector<Rows>) != 0 && sizeof(detail::SameAxes<Rows, Columns>) != 0 &&
                sizeof(detail::MatrixElement<Element>) != 0);

public:
  using rows = Rows;
  using columns = Columns;
  using value_type = Element;
  using target = Where;
  using halo = IndexHalo<Columns, CsrMatrix, Where>;

  /// @brief Collective over the axes of the layouts: makes the matrix from entries that any of these ranks
  /// may give; they are sent to their owners. Entries of the same place are added in the order of the ranks
  /// that give them, and of each one's list. Cost: two all_to_alls of the entries, and the plan of an
  /// IndexHalo.
  /// @param shape rows and columns, the same on all ranks
  /// @throws InvalidArgument on every rank for an entry outside the matrix, or more rows, columns or entries
  /// on a rank than 32 bits can number; ConfigurationMismatch if the shapes differ.
  template <class... Axes>
  CsrMatrix(const DeviceMesh<Axes...>& mesh, const std::array<std::int64_t, 2>& shape,
            std::span<const MatrixEntry<Element>> entries, SourceLocation where = SourceLocation::current())
      : CsrMatrix(mesh, shape,
                  detail::own_entries(mesh.core(), row_blocks(mesh, shape[0]), shape, entries, where),
                  where) {}

  /// @brief Rows and columns.
  [[nodiscard]] const std::array<std::int64_t, 2>& shape() const noexcept { return shape_; }
  /// @brief Entries that this rank holds.
  [[nodiscard]] std::size_t local_entries() const noexcept {
    return inner().values.local_size() + edge().values.local_size();
  }
  /// @brief The plan for the columns.
  [[nodiscard]] const halo& plan() const noexcept { return plan_; }
  /// @brief The rows of this rank, in a matrix with so many.
  /// @throws InvalidArgument for a negative number, or more rows on a rank than 32 bits can number.
  template <class... Axes>
  [[nodiscard]] static DimensionBlock row_block(const DeviceMesh<Axes...>& mesh, std::int64_t rows,
                                                SourceLocation where = SourceLocation::current()) {
    const detail::VectorBlocks blocks = row_blocks(mesh, rows);
    if (const std::string fault = detail::fault_of_extent(rows, blocks.ranks(), "rows"); !fault.empty())
      detail::reject_operation("CsrMatrix", fault, mesh.core(), where);
    return blocks.own();
  }

  /// @brief y = A x. @throws as spmv_into
  template <AnyShardedTensor Y, AnyShardedTensor X>
  void multiply(Y& y, const X& x, SourceLocation where = SourceLocation::current()) const {
    if constexpr (fits<Rows, Columns, Y, X>()) {
      check("spmv", y, shape_[0], x, shape_[1], where);
      Element* const out = y.mutable_data();
      detail::BegunExchange exchange = plan_.start_gather(elements_, x, where);
      multiply_rows(inner(), x, out, piece, [&] { exchange.poll(); });
      exchange.wait();
      kernels::moves("sw::spmv_edge", y.execution(), edge().moved_bytes(x.local_size() + elements_.size()));
      kernels::run("sw::spmv_edge", y.execution(), edge().count,
                   kernels::ListedRowsTimesVector<Element>{
                       edge().rows.data(), edge().begin.data(), edge().columns.data(), edge().values.data(),
                       x.data(), elements_.local().data(), static_cast<std::int32_t>(x.local_size()), out});
    }
  }

  /// @brief y = A' x. @throws as spmv_transposed_into
  template <AnyShardedTensor Y, AnyShardedTensor X>
  void multiply_transposed(Y& y, const X& x, SourceLocation where = SourceLocation::current()) const {
    if constexpr (fits<Columns, Rows, Y, X>()) {
      check("spmv_transposed", y, shape_[1], x, shape_[0], where);
      Element* const out = y.mutable_data();
      if (transposed_.empty())
        transpose(y.local_size());
      multiply_rows(transposed_[1], x, elements_.mutable_local().data(), piece, [] {});
      detail::BegunExchange exchange = plan_.start_scatter(elements_, y, where);
      multiply_rows(transposed_[0], x, out, piece, [&] { exchange.poll(); });
      exchange.wait();
      plan_.add_arrived(elements_, y);
    }
  }

  /// @brief The diagonal. @throws as diagonal()
  [[nodiscard]] auto diagonal(SourceLocation where = SourceLocation::current()) const {
    static_assert(
        std::is_same_v<Rows, Columns>,
        "diagonal: rows and columns of the matrix must have the same layout (make a matrix with one layout for both)");
    if (shape_[0] != shape_[1])
      detail::reject_operation("diagonal",
                               "the matrix must be square, but it has " + std::to_string(shape_[0]) +
                                   " rows and " + std::to_string(shape_[1]) +
                                   " columns (make it with as many rows as columns)",
                               inner().begin.core(), where);
    ShardedTensor<Rows, Element, Where> out(inner().begin.resources(), {shape_[0]}, where);
    fill(out, Element(0));
    for (const auto* part : {&inner(), &edge()}) {
      kernels::moves("sw::diagonal", out.execution(), part->moved_bytes(0));
      kernels::run("sw::diagonal", out.execution(), part->count,
                   kernels::DiagonalOfRows<Element>{part->listed(), part->begin.data(), part->columns.data(),
                                                    part->values.data(), out.mutable_data()});
    }
    return out;
  }

private:
  using Part = detail::CsrPart<Element, Where>;

  /// Rows of one kernel, after which messages may move.
  static constexpr std::size_t piece = Where::host_accessible ? std::size_t{1} << 14 : ~std::size_t{0};

  template <class... Axes>
  [[nodiscard]] static detail::VectorBlocks row_blocks(const DeviceMesh<Axes...>& mesh, std::int64_t rows) {
    static_cast<void>(fits_mesh<Rows, typename DeviceMesh<Axes...>::axis_list>);
    return {mesh.core(), Rows::value, Rows::axes, rows};
  }

  template <class... Axes>
  CsrMatrix(const DeviceMesh<Axes...>& mesh, const std::array<std::int64_t, 2>& shape,
            const detail::OwnEntries<Element>& own, SourceLocation where)
      : shape_(shape), plan_(mesh, shape[1], detail::columns_of(own.list), where),
        elements_(plan_.template elements<Element>()) {
    for (const auto& part : detail::split_rows(row_block(mesh, shape[0]), plan_.plan(), own.list))
      parts_.emplace_back(mesh.core().template resources<Where>(), detail::grouped_by_length(part));
  }

  /// Whether operands have the layouts of a product, out and in; the trace names the one that does not.
  template <class Out, class In, class Y, class X> [[nodiscard]] static consteval bool fits() {
    if constexpr (detail::ProductVectors<Out, In, Y, X>::value && detail::SameElementAndTarget<X, Y>::value)
      return detail::SameElementAndTarget<X, CsrMatrix>::value;
    else
      return false;
  }

  void transpose(std::size_t owned) const {
    auto& resources = inner().begin.resources();
    for (const auto& part :
         detail::transposed_rows(inner().on_host(), edge().on_host(), owned, elements_.size()))
      transposed_.emplace_back(resources, detail::grouped_by_length(part));
  }

  template <class Y, class X>
  void check(const char* name, const Y& y, std::int64_t y_extent, const X& x, std::int64_t x_extent,
             const SourceLocation& where) const {
    detail::require_one_mesh(name, x, y, where);
    detail::require_one_mesh(name, x, inner().begin, where);
    detail::require_shape(name, "vector", x.shape(), std::array{x_extent}, x.core(), where);
    detail::require_shape(name, "result", y.shape(), std::array{y_extent}, y.core(), where);
    // An empty block of the pool has an address, too, so that all ranks decide alike; one of the program's
    // own memory need not have one.
    const void *const read = x.data(), *const x_itself = &x, *const y_itself = &y;
    if (x_itself == y_itself || (read == y.data() && read != nullptr))
      detail::reject_operation(
          name,
          "the result must be another tensor than the vector, which the product still reads (declare one)",
          x.core(), where);
  }

  [[nodiscard]] const Part& inner() const noexcept { return parts_[0]; }
  [[nodiscard]] const Part& edge() const noexcept { return parts_[1]; }

  std::array<std::int64_t, 2> shape_;
  halo plan_;
  mutable HaloElements<halo, Element> elements_; ///< Of the vector in a product.
  std::vector<Part> parts_;                      ///< Rows that read only this rank's elements; others.
  mutable std::vector<Part> transposed_;         ///< Columns of this rank; those of others.
};

namespace detail {

template <class Type> inline constexpr bool is_csr_matrix = false;
template <class Rows, class Columns, class Element, class Where>
inline constexpr bool is_csr_matrix<CsrMatrix<Rows, Columns, Element, Where>> = true;

} // namespace detail

/// @brief A sparse matrix in compressed rows.
template <class Type>
concept AnyCsrMatrix = detail::is_csr_matrix<std::remove_cvref_t<Type>>;

/// @brief y = A x. Collective over the axes of the matrix: one message to and from each neighbour, beside the
/// rows that need none. Allocates nothing.
///
/// x may be a read-only handle.
/// @throws InvalidArgument if the extents or the meshes differ, or x and y are one tensor; the typed errors
/// of communicators.
template <AnyShardedTensor Y, AnyCsrMatrix Matrix, AnyShardedTensor X>
void spmv_into(Y& y, const Matrix& matrix, const X& x, SourceLocation where = SourceLocation::current()) {
  matrix.multiply(y, x, where);
}

/// @brief y = A' x, the adjoint: a rank adds its rows by columns, and sends what belongs to neighbours, which
/// add it in the order of the ranks. Cost and errors as spmv_into; the first call makes a transposed copy.
template <AnyShardedTensor Y, AnyCsrMatrix Matrix, AnyShardedTensor X>
void spmv_transposed_into(Y& y, const Matrix& matrix, const X& x,
                          SourceLocation where = SourceLocation::current()) {
  matrix.multiply_transposed(y, x, where);
}

/// @brief The diagonal of a square matrix; 0 where it has no entry. No communication.
/// @throws InvalidArgument for a matrix that is not square.
template <AnyCsrMatrix Matrix>
[[nodiscard]] auto diagonal(const Matrix& matrix, SourceLocation where = SourceLocation::current()) {
  return matrix.diagonal(where);
}

} // namespace shardwright::inline SHARDWRIGHT_ABI
