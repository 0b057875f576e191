// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief From the entries of a sparse matrix, given on any rank, to the compressed rows of each rank.

#include <shardwright/tensor/sparse/index_plan.hpp>
#include <shardwright/tensor/sparse/matrix_entry.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::inline SHARDWRIGHT_ABI {

namespace detail {

/// Compressed rows on the host: those of a block, or those that `rows` lists.
template <class Element> struct CsrRows {
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> begin{0};
  std::vector<std::int32_t> columns; ///< Local: in this rank's block of the vector, or after it.
  std::vector<Element> values;

  void add(std::int32_t column, Element value) {
    columns.push_back(column);
    values.push_back(value);
  }
  void end_row() { begin.push_back(static_cast<std::int32_t>(columns.size())); }
  [[nodiscard]] std::size_t count() const { return begin.size() - 1; }
  [[nodiscard]] std::int32_t length(std::size_t i) const { return begin[i + 1] - begin[i]; }
  /// The row of the block that is at a place.
  [[nodiscard]] std::int32_t row(std::size_t i) const {
    return rows.empty() ? static_cast<std::int32_t>(i) : rows[i];
  }
};

/// The same rows, listed so that those of one length follow each other, in windows that keep memory near. If
/// most rows are as long as the one before, as they are.
///
/// A processor predicts where a row ends by the ones before it: for the Laplacian of a random graph, the
/// products take half the time so.
template <class Element> [[nodiscard]] CsrRows<Element> grouped_by_length(CsrRows<Element> from) {
  constexpr std::size_t window = 256;
  std::size_t changes = 0;
  for (std::size_t i = 1; i < from.count(); ++i)
    changes += from.length(i) != from.length(i - 1) ? 1 : 0;
  if (2 * changes <= from.count())
    return from;
  std::vector<std::size_t> order(from.count());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t first = 0; first < order.size(); first += window)
    std::stable_sort(order.begin() + static_cast<std::ptrdiff_t>(first),
                     order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), first + window)),
                     [&](std::size_t a, std::size_t b) { return from.length(a) < from.length(b); });
  CsrRows<Element> out;
  out.columns.reserve(from.columns.size());
  out.values.reserve(from.values.size());
  for (const std::size_t i : order) {
    out.rows.push_back(from.row(i));
    for (auto k = static_cast<std::size_t>(from.begin[i]); k < static_cast<std::size_t>(from.begin[i + 1]);
         ++k)
      out.add(from.columns[k], from.values[k]);
    out.end_row();
  }
  return out;
}

/// Those of a rank's rows: by row and column, each place once.
template <class Element> struct OwnEntries { std::vector<MatrixEntry<Element>> list; };

/// The first thing that is wrong with a rank's entries, or nothing.
template <class Element>
[[nodiscard]] std::string fault_of_entries(const HostCommunicator& ranks, const VectorBlocks& rows,
                                           const std::array<std::int64_t, 2>& shape,
                                           std::span<const MatrixEntry<Element>> entries) {
  // The columns are split over the same axes.
  for (const auto& [extent, what] : {std::pair(shape[0], "rows"), std::pair(shape[1], "columns")})
    if (std::string fault = fault_of_extent(extent, rows.ranks(), what); !fault.empty())
      return fault;
  for (const auto& [row, column, value] : entries)
    if (row < 0 || row >= shape[0] || column < 0 || column >= shape[1])
      return "every entry must be inside the matrix of " + std::to_string(shape[0]) + " rows and " +
             std::to_string(shape[1]) + " columns, but rank " + std::to_string(ranks.world_rank()) +
             " gives one in row " + std::to_string(row) + ", column " + std::to_string(column) +
             " (count from 0)";
  return {};
}

/// The entries of this rank's rows from those of all ranks of the group. Collective.
template <class Element>
[[nodiscard]] OwnEntries<Element>
own_entries(MeshCore& core, const VectorBlocks& rows, const std::array<std::int64_t, 2>& shape,
            std::span<const MatrixEntry<Element>> entries, SourceLocation where) {
  using Entry = MatrixEntry<Element>;
  HostCommunicator& ranks = core.communicator(rows.mask());
  const std::array numbers{GivenNumber("number of rows", shape[0]),
                           GivenNumber("number of columns", shape[1])};
  require_agreement(ranks, "CsrMatrix", numbers, where);
  require_no_fault(ranks, "CsrMatrix", fault_of_entries(ranks, rows, shape, entries), where);
  std::vector<std::size_t> counts(rows.ranks());
  for (const Entry& entry : entries)
    ++counts[rows.owner_of(entry.row)];
  const std::vector<StridedBlock> blocks = packed_blocks(counts);
  std::vector<Entry> by_owner(entries.size());
  std::fill(counts.begin(), counts.end(), 0);
  for (const Entry& entry : entries) {
    const std::size_t owner = rows.owner_of(entry.row);
    by_owner[blocks[owner].offset + counts[owner]++] = entry;
  }
  std::vector<Entry> own = exchange_values(ranks, by_owner, blocks, where).values;
  // In a dry run, a rank receives what it sends: only its own rows are of use.
  own.erase(std::remove_if(own.begin(), own.end(), [&](const Entry& entry) { return !rows.owns(entry.row); }),
            own.end());
  const auto before = [](const Entry& a, const Entry& b) {
    return std::pair(a.row, a.column) < std::pair(b.row, b.column);
  };
  if (!std::is_sorted(own.begin(), own.end(), before))
    std::stable_sort(own.begin(), own.end(), before); // in a place, in the order of the ranks
  std::size_t kept = 0;
  for (const Entry& entry : own)
    if (kept > 0 && !before(own[kept - 1], entry))
      own[kept - 1].value += entry.value;
    else
      own[kept++] = entry;
  own.resize(kept);
  const bool many = kept > static_cast<std::size_t>(most_local_indices);
  require_no_fault(ranks, "CsrMatrix",
                   many ? "a rank must hold fewer than 2147483648 entries, but rank " +
                              std::to_string(ranks.world_rank()) + " would hold " + std::to_string(kept) +
                              " (split the rows over more ranks)"
                        : std::string(),
                   where);
  return {std::move(own)};
}

template <class Element>
[[nodiscard]] std::vector<std::int64_t> columns_of(const std::vector<MatrixEntry<Element>>& entries) {
  std::vector<std::int64_t> out;
  out.reserve(entries.size());
  for (const MatrixEntry<Element>& entry : entries)
    out.push_back(entry.column);
  return out;
}

/// The rows of a block that read only this rank's elements, the others of them empty; and those others.
template <class Element>
[[nodiscard]] std::array<CsrRows<Element>, 2> split_rows(const DimensionBlock& block, const IndexPlan& plan,
                                                         const std::vector<MatrixEntry<Element>>& entries) {
  std::array<CsrRows<Element>, 2> out;
  auto& [inner, edge] = out;
  auto next = entries.begin();
  for (std::int64_t row = 0; row < block.size; ++row) {
    const auto first = next;
    bool own = true;
    for (; next != entries.end() && next->row == block.offset + row; ++next)
      own = own && plan.vector.owns(next->column);
    CsrRows<Element>& to = own ? inner : edge;
    for (auto entry = first; entry != next; ++entry)
      to.add(plan.local_index(entry->column), entry->value);
    if (!own) {
      edge.rows.push_back(static_cast<std::int32_t>(row));
      edge.end_row();
    }
    inner.end_row();
  }
  return out;
}

/// The columns as rows: those that this rank owns, and those of its neighbours. Entries keep their order.
template <class Element>
[[nodiscard]] std::array<CsrRows<Element>, 2> transposed_rows(const CsrRows<Element>& inner,
                                                              const CsrRows<Element>& edge, std::size_t owned,
                                                              std::size_t borrowed) {
  std::array<CsrRows<Element>, 2> out;
  const auto place = [&](std::int32_t column) {
    const auto at = static_cast<std::size_t>(column);
    return at < owned ? std::pair(std::size_t{0}, at) : std::pair(std::size_t{1}, at - owned);
  };
  for (std::size_t half = 0; half < 2; ++half)
    out[half].begin.assign((half == 0 ? owned : borrowed) + 1, 0);
  for (const auto* part : {&inner, &edge})
    for (const std::int32_t column : part->columns) {
      const auto [half, at] = place(column);
      ++out[half].begin[at + 1];
    }
  std::array<std::vector<std::int32_t>, 2> next;
  for (std::size_t half = 0; half < 2; ++half) {
    auto& begin = out[half].begin;
    for (std::size_t i = 1; i < begin.size(); ++i)
      begin[i] += begin[i - 1];
    out[half].columns.resize(static_cast<std::size_t>(begin.back()));
    out[half].values.resize(out[half].columns.size());
    next[half] = begin;
  }
  const auto put = [&](const CsrRows<Element>& part, std::size_t i) {
    const std::int32_t row = part.row(i);
    for (auto k = static_cast<std::size_t>(part.begin[i]); k < static_cast<std::size_t>(part.begin[i + 1]);
         ++k) {
      const auto [half, at] = place(part.columns[k]);
      const auto to = static_cast<std::size_t>(next[half][at]++);
      out[half].columns[to] = row;
      out[half].values[to] = part.values[k];
    }
  };
  // By row: each has entries in one of the parts.
  std::vector<std::pair<const CsrRows<Element>*, std::size_t>> at(inner.count());
  for (const auto* part : {&inner, &edge})
    for (std::size_t i = 0; i < part->count(); ++i)
      at[static_cast<std::size_t>(part->row(i))] = {part, i};
  for (const auto& [part, i] : at)
    put(*part, i);
  return out;
}

} // namespace detail
} // namespace shardwright::inline SHARDWRIGHT_ABI
