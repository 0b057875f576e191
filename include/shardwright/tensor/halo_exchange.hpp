// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Moves halos between ranks, and owned elements between a tensor with halos and one without.

#include <shardwright/comm/call.hpp>
#include <shardwright/tensor/block_copy.hpp>
#include <shardwright/tensor/halo_geometry.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

struct PackElement {
  template <class Element>
  SHARDWRIGHT_FUNCTION static void of(Element& block, Element& packed) {
    packed = block;
  }
};
struct UnpackElement {
  template <class Element>
  SHARDWRIGHT_FUNCTION static void of(Element& block, Element& packed) {
    block = packed;
  }
};
struct AddElement {
  template <class Element>
  SHARDWRIGHT_FUNCTION static void of(Element& block, Element& packed) {
    if constexpr (RealElement<Element>)
      block = static_cast<Element>(MainElement<Element>(block) + MainElement<Element>(packed));
    else
      block = static_cast<Element>(block + packed);
  }
};
struct ClearElement {
  template <class Element>
  SHARDWRIGHT_FUNCTION static void of(Element& block, Element&) {
    block = Element(0);
  }
};

/// One element per index.
template <class Element, class Function>
struct HaloBoxKernel {
  HaloBox box;
  Element* block;
  Element* packed;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const std::size_t in_slab = box.rows * box.columns;
    const std::size_t rest = i % in_slab;
    Element& at = block[box.slab(i / in_slab) + rest / box.columns * box.row_stride + rest % box.columns];
    Function::of(at, packed == nullptr ? at : packed[i]);
  }
};

/// Function::of(element of the box, packed element) for all; on a host, at once.
template <class Target, class Function, class Element>
void visit_box(const typename Target::execution_space& execution, const HaloBox& box, Element* block,
               Element* packed) {
  if constexpr (counts_only<Target>) {
    // Nothing lies in the memory.
  } else if constexpr (Target::host_accessible) {
    Element unused{};
    // A packed column is one loop: a loop of one turn for each element would take twice as long.
    const bool column = box.columns == 1;
    const std::size_t rows = column ? 1 : box.rows;
    const std::size_t columns = column ? box.rows : box.columns;
    const std::size_t step = column ? box.row_stride : 1;
    for (std::size_t slab = 0; slab < box.slabs(); ++slab) {
      Element* row = block + box.slab(slab);
      for (std::size_t r = 0; r < rows; ++r, row += box.row_stride) {
        for (std::size_t c = 0; c < columns; ++c)
          Function::of(row[c * step], packed == nullptr ? unused : packed[c]);
        packed = packed == nullptr ? nullptr : packed + columns;
      }
    }
  } else {
    kernels::detail::run("sw::halo_box", execution, box.count(),
                         HaloBoxKernel<Element, Function>{box, block, packed});
  }
}

/// The plan of a tensor with halos. @throws InvalidArgument where a block is too small for them.
template <class Tensor>
[[nodiscard]] const HaloPlan& halo_plan(const Tensor& tensor, SourceLocation where) {
  using L = typename Tensor::layout;
  MeshCore& core = tensor.core();
  std::array<std::int64_t, max_tensor_rank> shape{};
  std::copy(tensor.shape().begin(), tensor.shape().end(), shape.begin());
  return core.halo_plans().find(L::value, shape,
                                [&] { return HaloGeometry(core, L::value, L::axes, shape, where).plan(); });
}

/// Packs the boxes of one side of a block, moves them, and visits the boxes of the other side with what came.
template <class Function, class Target, class Element>
void exchange_boxes(TargetResources<Target>& resources, const HaloPlan& plan, const HaloSide& from,
                    const HaloSide& to, Element* block, const CallSubject& subject, SourceLocation where) {
  const auto& execution = resources.execution();
  const BufferHandle outgoing(resources.take(from.count * sizeof(Element)));
  BufferHandle incoming = outgoing;
  auto* const packed = static_cast<Element*>(outgoing.data());
  if constexpr (Target::host_accessible)
    wait_for_kernels(execution); // this thread copies now
  for (const HaloBox& box : from.boxes)
    visit_box<Target, PackElement>(execution, box, block, packed + box.packed);
  if (plan.meets) {
    incoming = BufferHandle(resources.take(to.count * sizeof(Element)));
    CollectiveCall call;
    call.operation = Operation::all_to_all;
    call.element = element_type_of<Element>();
    call.in = outgoing.data();
    call.out = incoming.data();
    call.in_blocks = from.blocks;
    call.out_blocks = to.blocks;
    call.subject = subject;
    call.where = where;
    resources.core().template communicator<Target>(plan.mask).run(call);
  }
  auto* const arrived = static_cast<Element*>(incoming.data());
  for (const HaloBox& box : to.boxes)
    visit_box<Target, Function>(execution, box, block, arrived + box.packed);
}

/// Fills the halos that are copies of owned elements.
template <class Tensor>
void exchange_halos(Tensor& tensor, const HaloPlan& plan, SourceLocation where) {
  exchange_boxes<UnpackElement>(tensor.resources(), plan, plan.lent, plan.borrowed, tensor.mutable_data(),
                                CallSubject{SubjectShape::of(tensor.shape()), tensor.core().made_tensors()},
                                where);
}

/// Fills a tensor with halos from one without: copies what the ranks own, 0 beyond the ends.
template <class Plain, class Tensor>
void fill_with_halos(const Plain& from, Tensor& to, SourceLocation where) {
  using Element = typename Tensor::value_type;
  using Target = typename Tensor::target;
  const HaloPlan& plan = halo_plan(to, where);
  Element* const block = to.mutable_data();
  if constexpr (Target::host_accessible)
    wait_for_kernels(from.execution());
  for (const HaloBox& box : plan.outside)
    visit_box<Target, ClearElement, Element>(to.execution(), box, block, nullptr);
  visit_box<Target, UnpackElement>(to.execution(), plan.owned, block, const_cast<Element*>(from.data()));
  exchange_halos(to, plan, where);
}

/// The box of the elements that a rank owns.
template <class Tensor>
[[nodiscard]] HaloBox owned_box(const Tensor& tensor) {
  using L = typename Tensor::layout;
  const auto& whole = tensor.local_shape();
  auto offset = whole;
  auto extents = whole;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    const DimensionHalo halo = L::value.halo(static_cast<int>(d));
    offset[d] = halo.before();
    extents[d] = whole[d] - halo.width();
  }
  return box_in(whole, offset, extents);
}

/// Copies the elements that a rank owns out of a tensor with halos.
template <class Tensor, class Plain>
void drop_halos(const Tensor& from, Plain& to) {
  using Element = typename Plain::value_type;
  using Target = typename Plain::target;
  if constexpr (Target::host_accessible)
    wait_for_kernels(from.execution());
  visit_box<Target, PackElement>(from.execution(), owned_box(from), const_cast<Element*>(from.data()),
                                 to.mutable_data());
}

/// The tensor itself; for one with halos, a copy without them.
template <class Tensor>
[[nodiscard]] decltype(auto) without_halos(const Tensor& tensor) {
  if constexpr (!has_halos<typename Tensor::layout>) {
    return (tensor);
  } else {
    ShardedTensor<WithoutHalos<typename Tensor::layout>, typename Tensor::value_type, typename Tensor::target>
        out(tensor.resources(), tensor.shape());
    drop_halos(tensor, out);
    return out;
  }
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
