// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The layouts of a low-rank adapter, from those of the layer that it adapts.

#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/layout/ragged.hpp>
#include <shardwright/layout/zero.hpp>
#include <shardwright/mesh/reproducible.hpp>

#include <cstddef>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The layouts of A and B, given that of the weight, whose dimension `contracted` is the input: A is split as
/// the weight's input, B as its outputs. Dimensions before `contracted`, those of experts, are split alike.
template <class Weight, std::size_t contracted> struct LoraLayouts {
  struct Down {
    static constexpr LayoutValue value = [] {
      LayoutValue out = Weight::value;
      for (int d = int(contracted) + 1; d < out.tensor_rank; ++d)
        out.shard(d) = {};
      out.tensor_rank = int(contracted) + 2;
      return out;
    }();
  };
  struct Up {
    static constexpr LayoutValue value = [] {
      LayoutValue out = Weight::value;
      out.shard(int(contracted)) = {};
      return out;
    }();
  };
  using A = LayoutOf<typename Weight::axis_list, Down>;
  using B = LayoutOf<typename Weight::axis_list, Up>;
};

/// Whether ranks add their parts of a product in a tree. The sum of two such products is rounded alike on
/// every mesh only if each is completed before.
template <class Product, class Target>
inline constexpr bool adds_in_tree = Product::value.has_partial() && is_reproducible<Target>;

/// The layout in which a layer gives its product. If adapters may add theirs to one that is added in a tree,
/// that is `Result`, completed.
template <class Product, class Result, class Plan> struct AdaptedLayout { using type = Product; };
template <class Product, class Result, class Plan>
requires(!trains<typename Plan::zero> && adds_in_tree<Product, typename Plan::target>) //
    struct AdaptedLayout<Product, Result, Plan> {
  using type = Gradient<Result>;
};

/// The layout in which B of an adapter of a Kind reads x A, given that of the layer's result.
template <class Kind, class Inner, class Result, class B, class Target> struct AdapterInner {
  using type = Inner;
};
template <class Kind, class Inner, class Result, class B, class Target>
requires(adds_in_tree<Inner, Target>) struct AdapterInner<Kind, Inner, Result, B, Target> {
  using type = typename Kind::template Inner<Result, B>;
};

/// Whether elements of a layer's input can be dropped: not those of an incomplete sum, nor of rows whose
/// order depends on the mesh.
template <class In> inline constexpr bool can_drop = !In::value.has_partial() && !is_ragged<In>;

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
