// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Moves halos between ranks, and owned elements between a tensor with halos and one without.

#include <shardwright/comm/call.hpp>
#include <shardwright/tensor/halo/geometry.hpp>
#include <shardwright/tensor/kernels/launch.hpp>
#include <shardwright/tensor/sharded_tensor.hpp>
#include <shardwright/tensor/transition/block_copy.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

struct PackElement {
  template <class Element> SHARDWRIGHT_FUNCTION static void of(Element& block, Element& packed) {
    packed = block;
  }
};
struct UnpackElement {
  template <class Element> SHARDWRIGHT_FUNCTION static void of(Element& block, Element& packed) {
    block = packed;
  }
};
struct AddElement {
  template <class Element> SHARDWRIGHT_FUNCTION static void of(Element& block, Element& packed) {
    if constexpr (ComplexElement<Element>) {
      as_parts(&block)[0] += as_parts(&packed)[0];
      as_parts(&block)[1] += as_parts(&packed)[1];
    } else if constexpr (RealElement<Element>)
      block =
          static_cast<Element>(AccumulationElement<Element>(block) + AccumulationElement<Element>(packed));
    else
      block = static_cast<Element>(block + packed);
  }
};
struct ClearElement {
  template <class Element> SHARDWRIGHT_FUNCTION static void of(Element& block, Element&) {
    if constexpr (ComplexElement<Element>)
      as_parts(&block)[0] = as_parts(&block)[1] = 0;
    else
      block = Element(0);
  }
};

/// One element per index.
template <class Element, class Function> struct VisitBox {
  ElementBox box;
  Element* block;
  Element* packed;

  SHARDWRIGHT_FUNCTION void operator()(std::size_t i) const {
    const std::size_t in_slab = box.rows * box.columns;
    const std::size_t rest = i % in_slab;
    Element& at = block[box.slab(i / in_slab) + rest / box.columns * box.row_stride + rest % box.columns];
    Function::of(at, packed == nullptr ? at : packed[i]);
  }
};

/// Function::of(block[i * step], packed[i]) for all; `packed` may be null if the function does not use it.
template <class Function, class Element>
void visit_run(Element* block, std::size_t step, Element* packed, std::size_t count) {
  Element unused{};
  std::size_t i = 0;
  if (packed == nullptr) {
    for (; i < count; ++i)
      Function::of(block[i * step], unused);
  } else if (step == 1) {
    for (; i < count; ++i)
      Function::of(block[i], packed[i]);
  } else {
    // Four at a time: one at a time takes twice as many instructions.
    for (; i + 4 <= count; i += 4, block += 4 * step, packed += 4) {
      Function::of(block[0], packed[0]);
      Function::of(block[step], packed[1]);
      Function::of(block[2 * step], packed[2]);
      Function::of(block[3 * step], packed[3]);
    }
    for (; i < count; ++i, block += step, ++packed)
      Function::of(*block, *packed);
  }
}

/// Function::of(element of the box, packed element) for all; on a host, at once.
template <class Target, class Function, class Element>
void visit_box(const typename Target::execution_space& execution, const ElementBox& box, Element* block,
               Element* packed) {
  if constexpr (counts_only<Target>) {
    // There is nothing to copy in a dry run.
  } else if constexpr (Target::host_accessible) {
    // A packed column is contiguous: one-element runs for each row would take twice as long.
    const bool column = box.columns == 1;
    const std::size_t rows = column ? 1 : box.rows;
    const std::size_t columns = column ? box.rows : box.columns;
    const std::size_t step = column ? box.row_stride : 1;
    for (std::size_t slab = 0; slab < box.slabs(); ++slab) {
      Element* row = block + box.slab(slab);
      for (std::size_t r = 0; r < rows; ++r, row += box.row_stride) {
        visit_run<Function>(row, step, packed, columns);
        packed = packed == nullptr ? nullptr : packed + columns;
      }
    }
  } else {
    kernels::run("sw::halo_box", execution, box.count(), VisitBox<Element, Function>{box, block, packed});
  }
}

/// The plan of a tensor with halos. @throws InvalidArgument if a block is too small for them.
template <class Tensor>
[[nodiscard]] const HaloPlan& halo_plan(const Tensor& tensor, const SourceLocation& where) {
  using L = typename Tensor::layout;
  return halo_plan(tensor.core(), L::value, L::axes, tensor.shape(), where);
}

/// Packs the boxes of one side of a block, exchanges them, and visits the boxes of the other side with the
/// received elements.
template <class Function, class Target, class Element>
void exchange_boxes(TargetResources<Target>& resources, const HaloPlan& plan, const HaloSide& from,
                    const HaloSide& to, Element* block, const SubjectShape& subject,
                    const SourceLocation& where) {
  const auto& execution = resources.execution();
  const BufferHandle buffer(resources.take((from.count + (plan.meets ? to.count : 0)) * sizeof(Element)));
  auto* const packed = static_cast<Element*>(buffer.data());
  // A single rank unpacks its own packed elements.
  auto* const arrived = plan.meets ? packed + from.count : packed;
  if constexpr (Target::host_accessible)
    wait_for_kernels(execution); // this thread copies now
  for (const ElementBox& box : from.boxes)
    visit_box<Target, PackElement>(execution, box, block, packed + box.packed);
  if (plan.meets) {
    CollectiveCall call;
    call.operation = Operation::all_to_all;
    call.element = element_type_of<Element>();
    call.in = packed;
    call.out = arrived;
    call.in_blocks = from.blocks;
    call.out_blocks = to.blocks;
    call.subject = subject;
    call.where = where;
    resources.core().template communicator<Target>(plan.mask).run(call);
  }
  for (const ElementBox& box : to.boxes)
    visit_box<Target, Function>(execution, box, block, arrived + box.packed);
}

/// Fills the halos that are copies of owned elements.
template <class Tensor>
void exchange_halos(Tensor& tensor, const HaloPlan& plan, const SourceLocation& where) {
  exchange_boxes<UnpackElement>(tensor.resources(), plan, plan.lent, plan.borrowed, tensor.mutable_data(),
                                SubjectShape::of(tensor.shape()), where);
}

/// Fills a tensor with halos from one without: copies the owned elements, and writes 0 beyond the ends.
template <class Plain, class Tensor>
void fill_with_halos(const Plain& from, Tensor& to, SourceLocation where) {
  using Element = typename Tensor::value_type;
  using Target = typename Tensor::target;
  const HaloPlan& plan = halo_plan(to, where);
  Element* const block = to.mutable_data();
  if constexpr (Target::host_accessible)
    wait_for_kernels(from.execution());
  for (const ElementBox& box : plan.outside)
    visit_box<Target, ClearElement, Element>(to.execution(), box, block, nullptr);
  visit_box<Target, UnpackElement>(to.execution(), plan.owned, block, const_cast<Element*>(from.data()));
  exchange_halos(to, plan, where);
}

/// The box of the elements that a rank owns.
template <class Tensor> [[nodiscard]] ElementBox owned_box(const Tensor& tensor) {
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
template <class Tensor, class Plain> void drop_halos(const Tensor& from, Plain& to) {
  using Element = typename Plain::value_type;
  using Target = typename Plain::target;
  if constexpr (Target::host_accessible)
    wait_for_kernels(from.execution());
  visit_box<Target, PackElement>(from.execution(), owned_box(from), const_cast<Element*>(from.data()),
                                 to.mutable_data());
}

/// The tensor itself; for one with halos, a copy without them.
template <class Tensor> [[nodiscard]] decltype(auto) without_halos(const Tensor& tensor) {
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
