// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Runs the plan of a matrix product over a grid of ranks: panels move while earlier ones are
/// multiplied.

#include <shardwright/comm/call.hpp>
#include <shardwright/comm/pending.hpp>
#include <shardwright/core/element.hpp>
#include <shardwright/layout/grid_product.hpp>
#include <shardwright/tensor/kernels/product/matmul.hpp>
#include <shardwright/tensor/local_extents.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/tensor/transition/block_copy.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// Sums of panels are added in the result's memory.
template <class Element> struct GridElement {
  static constexpr bool value = !is_narrow<Element>;
  static_assert(
      value,
      "matmul: a product over a grid adds panels in its result, which must not be of 16 bits (use float or double, or matmul_into a float destination)");
};

/// The panels of one operand: every one is broadcast by the rank that holds it, along the axes that split the
/// contracted dimension.
template <class Element, class Where> class PanelBroadcast {
public:
  /// @param axes those that split the contracted dimension
  PanelBroadcast(MeshCore& core, const AxisBinding& binding, const AxisSequence& axes)
      : binding_(&binding), axes_(&axes), own_(place_of(axes, binding.extents, binding.coordinates)) {
    unsigned mask = 0;
    for (const int axis : axes)
      if (binding.extents[static_cast<std::size_t>(axis)] > 1)
        mask |= 1u << binding.mesh_axis[static_cast<std::size_t>(axis)];
    if (mask != 0)
      group_ = &core.template communicator<Where>(mask);
  }

  [[nodiscard]] bool meets() const noexcept { return group_ != nullptr; }
  [[nodiscard]] bool holds(int place) const noexcept { return place == own_; }

  /// Begins to send or receive a panel, contiguous in memory.
  void start(Element* panel, std::size_t count, int holder, const SubjectShape& subject,
             const SourceLocation& where) {
    pending_.emplace(group_->start({.operation = Operation::broadcast,
                                    .element = element_type_of<Element>(),
                                    .root = group_rank(holder),
                                    .count = count,
                                    .in = panel,
                                    .out = panel,
                                    .subject = subject,
                                    .where = where}));
  }
  /// Lets messages move: over MPI they do so only inside calls.
  void poll() const {
    if (pending_)
      static_cast<void>(pending_->done());
  }
  void wait() {
    if (pending_)
      pending_->wait();
    pending_.reset();
  }

private:
  /// Ranks of a group are numbered in mesh order, whatever the order of its axes.
  [[nodiscard]] int group_rank(int place) const {
    const auto at = at_place(*axes_, binding_->extents, place);
    int rank = 0;
    for (int mesh_axis = 0; mesh_axis < MeshCore::max_axes; ++mesh_axis)
      for (const int axis : *axes_)
        if (const auto a = static_cast<std::size_t>(axis); binding_->mesh_axis[a] == mesh_axis)
          rank = rank * binding_->extents[a] + at[a];
    return rank;
  }

  const AxisBinding* binding_;
  const AxisSequence* axes_;
  int own_;
  CommunicatorOf<Where>* group_ = nullptr; ///< None of a single rank.
  std::optional<Pending> pending_;
};

/// One product over a grid. The next panels move while this rank multiplies those that have arrived.
template <class X, class W, class Y> class GridRun {
  using Element = typename X::value_type;
  using Where = typename X::target;
  using Plan = GridProduct<typename Y::layout>;

public:
  GridRun(const X& x, const W& w, Y& y, SourceLocation where)
      : x_(x), w_(w), out_(y.mutable_data()), where_(where), binding_(bind_axes(y.core(), Y::layout::axes)),
        left_(y.core(), binding_, Plan::column_axes), right_(y.core(), binding_, Plan::row_axes),
        rows_(size(y.local_shape()[0])), columns_(size(y.local_shape()[1])),
        first_left_(block_at(Y::layout::value, 1, binding_, x.shape()[1]).offset),
        first_right_(block_at(Y::layout::value, 0, binding_, x.shape()[1]).offset) {}

  void run(double beta) {
    std::optional<ProductPanel> before;
    const std::int64_t k = x_.shape()[1];
    Plan::for_each_panel(binding_.extents, binding_.coordinates, k, [&](const ProductPanel& panel) {
      arrive();
      start(panel);
      if (before)
        multiply(*before, std::exchange(beta, 1.0));
      before = panel;
    });
    arrive();
    if (before)
      multiply(*before, beta);
    else
      multiply(x_.data(), 0, w_.data(), 0, beta);
  }

private:
  [[nodiscard]] static std::size_t size(std::int64_t extent) { return static_cast<std::size_t>(extent); }
  [[nodiscard]] static std::size_t width(const ProductPanel& panel) { return size(panel.range.size); }

  /// Where panels of this rank begin in its operands.
  [[nodiscard]] const Element* own_left(const ProductPanel& panel) const {
    return x_.data() + (panel.range.offset - first_left_);
  }
  [[nodiscard]] const Element* own_right(const ProductPanel& panel) const {
    return w_.data() + size(panel.range.offset - first_right_) * columns_;
  }
  /// Memory of the panel that moves, and of the one that is multiplied.
  [[nodiscard]] Element* memory(BufferHandle& buffer, std::size_t length, bool moving) {
    const auto capacity = static_cast<std::size_t>(Plan::panel_width) * length;
    if (!buffer)
      buffer = BufferHandle(x_.resources().take(2 * capacity * sizeof(Element), where_));
    return static_cast<Element*>(buffer.data()) + (moving == odd_ ? capacity : 0);
  }

  void start(const ProductPanel& panel) {
    if (left_.meets()) {
      Element* const to = memory(left_memory_, rows_, true);
      if (left_.holds(panel.column))
        copy_block<Where>(x_.execution(), own_left(panel),
                          {0, rows_, width(panel), size(x_.local_shape()[1])}, to);
      order_call_after<Where>(x_.execution());
      left_.start(to, rows_ * width(panel), panel.column, SubjectShape::of(x_.shape()), where_);
    }
    if (right_.meets()) {
      // Its holder only sends it.
      Element* const to = right_.holds(panel.row) ? const_cast<Element*>(own_right(panel))
                                                  : memory(right_memory_, columns_, true);
      order_call_after<Where>(x_.execution());
      right_.start(to, width(panel) * columns_, panel.row, SubjectShape::of(w_.shape()), where_);
    }
  }
  void arrive() {
    left_.wait();
    right_.wait();
    odd_ = !odd_;
  }

  void multiply(const ProductPanel& panel, double beta) {
    const bool left = left_.holds(panel.column), right = right_.holds(panel.row);
    multiply(left ? own_left(panel) : memory(left_memory_, rows_, false),
             left ? size(x_.local_shape()[1]) : width(panel),
             right ? own_right(panel) : memory(right_memory_, columns_, false), width(panel), beta);
  }
  /// The product of panels that are here, in pieces of rows between which messages move.
  void multiply(const Element* left, std::size_t stride, const Element* right, std::size_t width,
                double beta) {
    constexpr std::size_t zero = 0;
    const MatrixView<const Element, Where> wider(left, rows_, stride);
    const std::size_t piece = Where::host_accessible ? std::max<std::size_t>(rows_ / 2, 64) : rows_;
    for (std::size_t first = 0; first < rows_; first += piece) {
      const std::size_t count = std::min(piece, rows_ - first);
      kernels::matmul(
          x_.execution(), Kokkos::subview(wider, std::pair{first, first + count}, std::pair{zero, width}),
          kernels::Transpose::no, MatrixView<const Element, Where>(right, width, columns_),
          kernels::Transpose::no,
          MatrixView<typename Y::value_type, Where>(out_ + first * columns_, count, columns_), 1.0, beta);
      left_.poll();
      right_.poll();
    }
  }

  const X& x_;
  const W& w_;
  typename Y::value_type* out_;
  SourceLocation where_;
  AxisBinding binding_;
  BufferHandle left_memory_,
      right_memory_; ///< Outlives the broadcasts, which may be pending when one throws.
  PanelBroadcast<Element, Where> left_, right_;
  std::size_t rows_, columns_;
  std::int64_t first_left_, first_right_; ///< First index of the contracted dimension in the own blocks.
  bool odd_ = false;
};

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
