// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A distributed tensor: a layout type, a global shape, and this rank's block, allocated from the
/// mesh's pool.

#include <shardwright/core/element.hpp>
#include <shardwright/core/error.hpp>
#include <shardwright/core/exact_sum.hpp>
#include <shardwright/layout/block.hpp>
#include <shardwright/layout/describe.hpp>
#include <shardwright/layout/gradient.hpp>
#include <shardwright/layout/layout.hpp>
#include <shardwright/mesh/agreement.hpp>
#include <shardwright/mesh/device_mesh.hpp>
#include <shardwright/tensor/experts/route.hpp>
#include <shardwright/tensor/given_shape.hpp>
#include <shardwright/tensor/local_extents.hpp>
#include <shardwright/tensor/transition/block_copy.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardwright::inline SHARDWRIGHT_ABI {

template <class LayoutType, class Element = float, class Target = DefaultTarget> class ShardedTensor;

namespace detail {

// Errors are thrown in non-template functions, because throw expressions are slow to compile.
[[noreturn]] void reject_moved_tensor(const LayoutValue& layout, std::span<const std::string_view> axes,
                                      int rank, SourceLocation where);
[[noreturn]] void reject_shared_tensor();

/// Creates tensors that share memory with another one; only for transitions and handles.
struct TensorAccess {
  /// `To` with the memory of `from`, which keeps its reference.
  template <class To, class From> [[nodiscard]] static To adopt(const From& from) {
    return with<To>(from, from.buffer_);
  }
  /// `To` with the memory of `from`, which loses it.
  template <class To, class From> [[nodiscard]] static To take(From&& from) {
    return with<To>(from, std::move(from.buffer_));
  }
  /// `To` of a shape in memory that holds its block.
  template <class To>
  [[nodiscard]] static To in_memory(BufferHandle memory, const typename To::Shape& shape) {
    const typename To::LocalShape local = local_shape_of<typename To::layout>(memory.pool().core(), shape);
    return in_memory<To>(std::move(memory), shape, local);
  }
  /// The same, given this rank's extents.
  template <class To>
  [[nodiscard]] static To in_memory(BufferHandle memory, const typename To::Shape& shape,
                                    const typename To::LocalShape& local) {
    To to{typename To::Nothing{}};
    to.global_ = shape;
    to.local_ = local;
    to.rank_ = rank_in(memory.pool().core());
    to.buffer_ = std::move(memory);
    return to;
  }
  /// A tensor that is invalid, like a moved-from one, until it is assigned: instead of an optional, which
  /// would take time to compile for every type of tensor.
  template <class To> [[nodiscard]] static To nothing() noexcept { return To(typename To::Nothing{}); }
  /// A tensor without memory, which only knows its extents.
  template <class To> [[nodiscard]] static To outline(const MeshCore& core, const typename To::Shape& shape) {
    To to{typename To::Nothing{}};
    to.global_ = shape;
    to.local_ = local_shape_of<typename To::layout>(core, shape);
    to.rank_ = rank_in(core);
    return to;
  }
  /// Gives memory to an outline, or takes it away.
  template <class Tensor> static void put_memory(Tensor& tensor, BufferHandle memory) noexcept {
    tensor.buffer_ = std::move(memory);
  }
  /// Takes the memory of a tensor.
  template <class Tensor> [[nodiscard]] static BufferHandle take_memory(Tensor&& tensor) {
    tensor.require_memory();
    return std::move(tensor.buffer_);
  }
  /// Marks a tensor as a reduction of another one, whose shape its calls compare.
  template <class Tensor, class Input> static void note_reduction(Tensor& tensor, const Input& input) {
    const SubjectShape& before = input.buffer_.reduced_from();
    tensor.buffer_.reduced_from() = before.known() ? before : SubjectShape::of(input.global_);
  }
  /// Whether a result may reuse the memory of a moved-in tensor.
  template <class Tensor> [[nodiscard]] static bool reusable(const Tensor& tensor) {
    return tensor.buffer_.reusable();
  }
  template <class Tensor> [[nodiscard]] static const BufferHandle& buffer(const Tensor& tensor) {
    return tensor.buffer_;
  }

private:
  /// `To` with the shape of `from`.
  template <class To, class From, class Memory>
  [[nodiscard]] static To with(const From& from, Memory&& memory) {
    from.require_memory();
    To to{typename To::Nothing{}};
    to.buffer_ = std::forward<Memory>(memory);
    to.global_ = from.global_;
    to.local_ = from.local_;
    to.rank_ = from.rank_;
    return to;
  }
};

/// Names the layout of a tensor that is made without a mesh.
template <class L> struct OnMesh {
  static_assert(
      any_invalid<L>,
      "ShardedTensor: it must be made on a mesh, which says which block this rank holds (write ShardedTensor<Layout>(mesh, {extents}), or hold it in a std::optional)");
};

/// Shown by compilers when a tensor of one layout is used as one of another.
struct NoImplicitConversionCallRedistributeShareOrClone {};
/// The same for a copied owner.
struct NoImplicitCopyCallShareOrClone {};

/// The operations of a layout's Partials, a bit for each.
template <class L>
inline constexpr unsigned partial_operations = [] {
  unsigned operations = 0;
  for (int axis = 0; axis < static_cast<int>(L::axes.size()); ++axis)
    if (L::value.is_partial(axis))
      operations |= 1u << static_cast<unsigned>(L::value.op(axis));
  return operations;
}();
constexpr unsigned operation_bit(ReduceOp op) { return 1u << static_cast<unsigned>(op); }

/// Whether a layout's Partials are ordered exactly if the elements keep all bits of a sum.
template <class L, class Element>
inline constexpr bool order_fits = std::is_same_v<Element, ExactSum>
                                       ? L::tensor_rank == 0 && (partial_operations<L> &
                                                                 ~operation_bit(ReduceOp::ordered_sum)) == 0
                                       : (partial_operations<L>& operation_bit(ReduceOp::ordered_sum)) == 0;

template <class T> inline constexpr bool is_sharded_tensor = false;
template <class L, class E, class T> inline constexpr bool is_sharded_tensor<ShardedTensor<L, E, T>> = true;

} // namespace detail

/// @brief Any sharded tensor, owner or read-only handle.
template <class T>
concept AnyShardedTensor = detail::is_sharded_tensor<std::remove_cvref_t<T>>;

/// @brief A tensor of a global shape, of which this rank holds the block that the layout gives it.
///
/// `ShardedTensor<L, E>` owns its memory: it moves, and copies only by `clone()`. `ShardedTensor<L, const E>`
/// is a read-only handle that shares memory; it copies. Owners and handles, layouts, elements and targets
/// never convert into one another implicitly. Memory comes from the mesh's pool and is uninitialised;
/// `tensor_over` uses the program's own memory. A tensor belongs to its rank's thread.
template <class LayoutType, class Element, class Target> class ShardedTensor {
public:
  using layout = LayoutType;
  using element = Element;
  using value_type = std::remove_const_t<Element>;
  using target = Target;
  static constexpr int tensor_rank = LayoutType::tensor_rank;
  static constexpr bool read_only = std::is_const_v<Element>;

  /// @brief The whole tensor's extents; the shape of rows grouped by expert also contains their route.
  using Shape = typename detail::ShapeOf<LayoutType>::type;
  using LocalShape = std::array<std::int64_t, static_cast<std::size_t>(tensor_rank)>;
  using ConstLocal = LocalView<const value_type, tensor_rank, Target>;
  using MutableLocal = LocalView<value_type, tensor_rank, Target>;

  static_assert(
      CollectiveElement<value_type> || std::is_same_v<value_type, ExactSum>,
      "ShardedTensor: the element must be float, double, bfloat16, float16, std::complex of float or double, a byte, or an integer of 4 or 8 bytes (convert it first)");

  static_assert(
      !ComplexElement<value_type> ||
          (detail::partial_operations<LayoutType> &
           ~(detail::operation_bit(ReduceOp::sum) | detail::operation_bit(ReduceOp::average))) == 0,
      "ShardedTensor: a Partial of complex elements must be a Sum or Avg, because complex numbers have no order, and products of them are not reduced (gather the factors, and multiply them)");
  static_assert(
      FieldElement<value_type> ||
          (detail::partial_operations<LayoutType> & detail::operation_bit(ReduceOp::average)) == 0,
      "ShardedTensor: a Partial<Avg> must have floating-point elements, because an average of integers need not be an integer (use Partial<Sum>)");

  static_assert(
      detail::order_fits<LayoutType, value_type>,
      "ShardedTensor: a Partial<OrderedSum> must be one number of ExactSum, which keeps every bit that ranks add, and an ExactSum must be complete or Partial<OrderedSum> (make it by dot<OrderedSum> or reduce_all<OrderedSum>)");

  /// @brief An uninitialised tensor of a shape, `{4, 8}`; not collective, except that ranks compare the shape
  /// in checked builds.
  /// @throws InvalidArgument for a negative extent or a size that overflows, Error when memory runs out.
  template <class... Axes>
  requires(!read_only)
      ShardedTensor(const DeviceMesh<Axes...>& mesh, const detail::GivenShape<LayoutType>& given,
                    SourceLocation where = SourceLocation::current())
      : ShardedTensor(mesh.core().template resources<Target>(), given.shape, where) {
    static_cast<void>(fits_mesh<LayoutType, typename DeviceMesh<Axes...>::axis_list>);
    detail::agreed_shape(mesh.core(), given.shape, where);
  }

  /// @brief Rejects a tensor without a mesh, with an error sentence.
  template <class Nowhere = LayoutType> ShardedTensor() { static_cast<void>(detail::OnMesh<Nowhere>{}); }
  template <class Nowhere = LayoutType> explicit ShardedTensor(const detail::GivenShape<Nowhere>&) {
    static_cast<void>(detail::OnMesh<Nowhere>{});
  }

  /// @brief The same on the mesh and pool of another tensor.
  ShardedTensor(detail::TargetResources<Target>& resources, const Shape& shape,
                SourceLocation where = SourceLocation::current()) requires(!read_only)
      : global_(shape), local_(checked_local_shape(resources.core(), shape, where)) {
    buffer_ = detail::new_block<Element>(resources, local_size(), where);
    rank_ = detail::rank_in(resources.core());
  }

  /// @brief Layouts, elements and targets never convert implicitly: the name of the deleted constructor,
  /// which compilers print, says what to call.
  template <class L, class E, class T>
  // clang-format off
  ShardedTensor(const ShardedTensor<L, E, T>&, detail::NoImplicitConversionCallRedistributeShareOrClone = {}) = delete;
  // clang-format on

  ShardedTensor(ShardedTensor&&) noexcept = default;
  ShardedTensor& operator=(ShardedTensor&&) noexcept = default;
  ShardedTensor(const ShardedTensor&) requires(read_only) = default;
  /// @brief An owner is never copied implicitly: the deleted constructor's name says what to call.
  ShardedTensor(const ShardedTensor&,
                detail::NoImplicitCopyCallShareOrClone = {}) requires(!read_only) = delete;
  ShardedTensor& operator=(const ShardedTensor&) requires(read_only) = default;
  ~ShardedTensor() = default;

  [[nodiscard]] const Shape& shape() const noexcept { return global_; }
  /// @brief Extents of this rank's block in memory, halos included.
  [[nodiscard]] const LocalShape& local_shape() const noexcept { return local_; }
  /// @brief Extents of the elements that this rank owns: its block without halos.
  [[nodiscard]] LocalShape owned_shape() const noexcept {
    LocalShape out = local_;
    for (std::size_t d = 0; d < out.size(); ++d)
      out[d] -= LayoutType::value.halo(static_cast<int>(d)).width();
    return out;
  }
  /// @brief Returns the global index of the first element that this rank owns; for an empty block, its end.
  [[nodiscard]] LocalShape local_offset(SourceLocation where = SourceLocation::current()) const {
    static_assert(
        !detail::is_ragged<LayoutType>,
        "Ragged: rows grouped by expert have no place in a whole tensor, which this operation needs (use it on tokens, before dispatch() or after combine())");
    if constexpr (detail::is_ragged<LayoutType>)
      return {};
    else
      return detail::local_offset_of<LayoutType>(core(where), global_);
  }
  /// @brief Elements of the whole tensor.
  [[nodiscard]] std::size_t size() const noexcept { return detail::product(global_); }
  /// @brief Elements of this rank's block, halos included.
  [[nodiscard]] std::size_t local_size() const noexcept { return detail::product(local_); }

  /// @brief This rank's block, read-only.
  [[nodiscard]] ConstLocal local(SourceLocation where = SourceLocation::current()) const {
    return detail::make_view<ConstLocal>(data(where), local_);
  }
  /// @brief The elements that this rank owns: local() without its halos; read-only.
  [[nodiscard]] StridedView<const value_type, tensor_rank, Target>
  owned(SourceLocation where = SourceLocation::current()) const {
    return detail::make_owned_view<StridedView<const value_type, tensor_rank, Target>, LayoutType>(
        data(where), local_);
  }
  /// @brief The same for writing. @throws LifecycleError while a read-only handle shares it.
  [[nodiscard]] StridedView<value_type, tensor_rank, Target>
  mutable_owned(SourceLocation where = SourceLocation::current()) {
    return detail::make_owned_view<StridedView<value_type, tensor_rank, Target>, LayoutType>(
        mutable_data(where), local_);
  }
  /// @brief This rank's block as [product of the leading extents, last extent], read-only.
  [[nodiscard]] MatrixView<const value_type, Target>
  local_matrix(SourceLocation where = SourceLocation::current()) const {
    return detail::make_matrix<MatrixView<const value_type, Target>>(data(where), local_);
  }
  /// @brief This rank's block for writing. @throws LifecycleError while a read-only handle shares it.
  [[nodiscard]] MutableLocal mutable_local(SourceLocation where = SourceLocation::current()) {
    return detail::make_view<MutableLocal>(mutable_data(where), local_);
  }
  /// @brief As local_matrix, for writing. @throws LifecycleError while a read-only handle shares it.
  [[nodiscard]] MatrixView<value_type, Target>
  mutable_local_matrix(SourceLocation where = SourceLocation::current()) {
    return detail::make_matrix<MatrixView<value_type, Target>>(mutable_data(where), local_);
  }

  /// @brief First element of this rank's block, row-major.
  /// @throws LifecycleError if the tensor was moved from, and so do mutable_data(), share(), clone() and what
  /// reads its mesh.
  [[nodiscard]] const value_type* data(SourceLocation where = SourceLocation::current()) const {
    require_memory(where);
    return static_cast<const value_type*>(buffer_.data());
  }
  /// @brief The same for writing. @throws LifecycleError while a read-only handle shares the memory.
  [[nodiscard]] value_type* mutable_data(SourceLocation where = SourceLocation::current()) {
    static_assert(
        !read_only,
        "ShardedTensor: a read-only handle must not be written (write into the tensor that owns the memory, or into a clone)");
    require_memory(where);
    if (buffer_.shared())
      detail::reject_shared_tensor();
    return static_cast<value_type*>(buffer_.data());
  }

  /// @brief A read-only handle to the same memory. @throws LifecycleError if the tensor was moved from.
  [[nodiscard]] ShardedTensor<LayoutType, const value_type, Target>
  share(SourceLocation where = SourceLocation::current()) const {
    require_memory(where);
    return detail::TensorAccess::adopt<ShardedTensor<LayoutType, const value_type, Target>>(*this);
  }
  /// @brief A copy in separate memory.
  [[nodiscard]] ShardedTensor<LayoutType, value_type, Target>
  clone(SourceLocation where = SourceLocation::current()) const {
    ShardedTensor<LayoutType, value_type, Target> copy(resources(where), global_, where);
    detail::copy_block<Target>(execution(), data(), contiguous_block(0, local_size()), copy.mutable_data());
    return copy;
  }

  /// @brief Returns whether the tensor has memory; a moved-from one has none.
  [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(buffer_); }
  /// @brief The execution instance on which its kernels run.
  [[nodiscard]] const typename Target::execution_space&
  execution(SourceLocation where = SourceLocation::current()) const {
    return resources(where).execution();
  }
  /// @brief Pool and execution instance. @throws LifecycleError if the tensor was moved from.
  [[nodiscard]] detail::TargetResources<Target>&
  resources(SourceLocation where = SourceLocation::current()) const {
    require_memory(where);
    return static_cast<detail::TargetResources<Target>&>(buffer_.pool());
  }
  /// @brief The run-time part of the mesh.
  [[nodiscard]] detail::MeshCore& core(SourceLocation where = SourceLocation::current()) const {
    return resources(where).core();
  }
  /// @brief Checks that it has memory. @throws LifecycleError if it was moved from, naming its rank, layout
  /// and the line.
  void require_memory(SourceLocation where = SourceLocation::current()) const {
    if (!buffer_)
      detail::reject_moved_tensor(LayoutType::value, LayoutType::axes, rank_, where);
  }

private:
  friend struct detail::TensorAccess;
  struct Nothing {};
  explicit ShardedTensor(Nothing) noexcept {}

  static LocalShape checked_local_shape(const detail::MeshCore& core, const Shape& shape,
                                        SourceLocation where) {
    detail::check_shape(shape, sizeof(Element), where);
    if constexpr (tensor_rank == 0)
      return detail::local_shape_of<LayoutType>(core,
                                                Shape{}); // g++ 12 reports an empty shape as uninitialised
    else
      return detail::local_shape_of<LayoutType>(core, shape);
  }

  detail::BufferHandle buffer_;
  Shape global_{};
  LocalShape local_{};
  int rank_ = -1; // of the mesh, for errors of a tensor that was moved from
};

#if !defined(SHARDWRIGHT_COMPILED)
[[gnu::noinline]] SHARDWRIGHT_INLINE void detail::reject_moved_tensor(const LayoutValue& layout,
                                                                      std::span<const std::string_view> axes,
                                                                      int rank, SourceLocation where) {
  throw LifecycleError(
      "ShardedTensor: it must have memory, but this one was moved from (use the tensor it moved to)",
      {.rank = rank, .layout = describe(layout, axes), .where = where});
}
SHARDWRIGHT_INLINE void detail::reject_shared_tensor() {
  throw LifecycleError(
      "ShardedTensor: it must not be written while a read-only handle shares its memory (release the handle first, or write into a clone)");
}
#endif

} // namespace shardwright::inline SHARDWRIGHT_ABI
