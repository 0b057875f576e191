// SPDX-License-Identifier: Apache-2.0
#include "support/catch.hpp"

#if defined(SHARDWRIGHT_WITH_FFTW)
#include "support/matchers.hpp"
#include "tensor/fourier_cases.hpp"
#include "tensor/gradient_along.hpp"

#include <shardwright/tensor/elementwise.hpp>
#include <shardwright/tensor/operators.hpp>
#include <shardwright/tensor/tensor_over.hpp>
#include <shardwright/train/tape.hpp>
#include <shardwright/train/tape/constant_operand.hpp>
#include <shardwright/train/tape/operation_node.hpp>

#include <complex>
#include <cstdint>
#include <vector>

namespace {

using namespace fourier_test;
using shardwright_test::ContainsSubstring;
using shardwright_test::on_ranks;
using Complex = std::complex<double>;
using Slab = Layout<3, Shard<0, dp>>;
using Other = Layout<3, Shard<1, dp>>;

/// A value in another layout, of a tensor and on a tape.
template <class L, class X> auto in(const X& x) {
  if constexpr (AnyShardedTensor<X>)
    return redistribute<L>(x);
  else
    return x.template as<L>();
}

} // namespace

TEST_CASE("Fourier transforms on slabs and pencils equal the plain formula") {
  for (const int ranks : {1, 2, 3, 4, 6, 8})
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            check_world(world, findings);
          }) == "");
}

TEST_CASE("gradients of Fourier transforms agree with differences") {
  for (const int ranks : {1, 3})
    CHECK(on_ranks(ranks, [](const HostCommunicator& world, Findings& findings) {
            const DeviceMesh<dp> mesh(world, extent<dp>(world.size()));
            const Shape shape{3, 4, 5};
            const auto tensor = [&]<class Element>(std::type_identity<Element>, const Shape& of,
                                                   std::uint64_t seed) {
              ShardedTensor<Slab, Element> out(mesh, of);
              double* const parts = detail::as_parts(out.mutable_data());
              each_element(out, of, [&](std::size_t at, std::size_t i) {
                for (std::size_t part = 0; part < detail::parts_in<Element>; ++part)
                  parts[at * detail::parts_in<Element> + part] = random_at(2 * i + part, seed);
              });
              return out;
            };
            const auto complex = [&](const Shape& of, std::uint64_t seed) {
              return tensor(std::type_identity<Complex>{}, of, seed);
            };
            const auto agrees = [&](const char* what, const auto& x, const auto& way, const auto& function) {
              const double error = tensor_test::gradient_error(x, way, function);
              findings.expect(error < 1e-8, what, ": ", error);
            };
            const auto x = complex(shape, 3), way = complex(shape, 4), w = complex(shape, 5);
            agrees("fft, a transition and ifft", x, way,
                   [&](const auto& z) { return in<Slab>(ifft<0>(in<Other>(fftn<1, 2>(z)))) * w + z; });
            agrees("fft and ifftn", x, way, [&](const auto& z) { return ifftn<1, 2>(fft<1>(z) * w) * z; });
            for (const std::int64_t extent : {6, 7}) { // with and without an element in the middle
              const Shape of{3, 4, extent}, half{3, 4, extent / 2 + 1};
              const auto weights = complex(half, 6);
              const auto real = [&](std::uint64_t seed) {
                return tensor(std::type_identity<double>{}, of, seed);
              };
              agrees("rfft", real(7), real(8),
                     [&](const auto& z) { return rfft<2>(z) * weights + rfftn<1, 2>(z); });
              const auto field = real(9);
              agrees("irfft", complex(half, 10), complex(half, 11), [&](const auto& z) {
                return irfft<2>(z * weights, extent) + irfftn<1, 2>(z, extent) * field;
              });
              const Shape strided{3, extent, 4}, strided_half{3, extent / 2 + 1, 4}; // lines with a stride
              const auto strided_real = [&](std::uint64_t seed) {
                return tensor(std::type_identity<double>{}, strided, seed);
              };
              const auto strided_weights = complex(strided_half, 12);
              agrees("strided rfft", strided_real(13), strided_real(14),
                     [&](const auto& z) { return rfft<1>(z) * strided_weights + rfft<1>(z); });
              const auto strided_field = strided_real(15);
              agrees("strided irfft", complex(strided_half, 16), complex(strided_half, 17),
                     [&](const auto& z) { return irfft<1>(z * strided_weights, extent) + strided_field; });
            }
          }) == "");
}

TEST_CASE("a transform passes through sums, keeps its input, and takes memory of any alignment") {
  CHECK(on_ranks(2, [](const HostCommunicator& world, Findings& findings) {
          const DeviceMesh<dp> mesh(world, extent<dp>(2));
          const Shape shape{5, 6, 7};
          const Numbers x = whole<Complex>(shape);
          const Numbers wanted = plain_transform(x, shape, 1);
          const auto part = block_of<Layout<3>, Complex>(mesh, shape, x);
          const auto averaged =
              detail::TensorAccess::adopt<ShardedTensor<Layout<3, Partial<Avg, dp>>, const Complex>>(part);
          expect_close(redistribute<Layout<3>>(fft<1>(averaged)), wanted, shape, 6, findings, "a Partial");
          expect_close(part, x, shape, 2, findings, "the input");
          std::vector<double> memory(2 * 210 + 1);
          auto* const odd = reinterpret_cast<Complex*>(memory.data() + 1);
          std::copy_n(part.data(), 210, odd);
          const Kokkos::View<Complex***, Kokkos::LayoutRight, Kokkos::HostSpace,
                             Kokkos::MemoryTraits<Kokkos::Unmanaged>>
              view(odd, 5, 6, 7);
          const auto own = tensor_over<Layout<3>>(mesh, view, shape);
          expect_close(fft<1>(own), wanted, shape, 6, findings, "own memory");
        }) == "");
}

TEST_CASE("a Fourier transform refuses what has no elements, and a spectrum of another extent") {
  CHECK(on_ranks(1, [](const HostCommunicator& world, Findings& findings) {
          const DeviceMesh<dp> mesh(world, extent<dp>(1));
          const auto sentence = [](const auto& call) -> std::string {
            try {
              call();
            } catch (const InvalidArgument& error) {
              return error.what();
            }
            return "no error";
          };
          const ShardedTensor<Slab, Complex> none(mesh, {2, 0, 3});
          const ShardedTensor<Slab, double> real(mesh, {2, 0, 3});
          findings.expect(fft<2>(none).shape() == none.shape(), "an empty tensor");
          for (const std::string& error : {sentence([&] { static_cast<void>(fft<1>(none)); }),
                                           sentence([&] { static_cast<void>(rfft<1>(real)); })})
            findings.expect(error.find("dimension 1 must have at least one element to be transformed") !=
                                std::string::npos,
                            error);
          const std::string error = sentence([&] { static_cast<void>(irfft<2>(none, 7)); });
          findings.expect(
              error.find("irfft: the spectrum of 7 real numbers must have n / 2 + 1 = 4 elements, but "
                         "dimension 2 has 3 (give the extent that the real tensor had)") != std::string::npos,
              error);
          const std::string extent_error = sentence([&] { static_cast<void>(irfft<2>(none, 0)); });
          findings.expect(
              extent_error.find("irfft: the extent must be at least 1, but it is 0 (give the extent "
                                "that the real tensor had)") != std::string::npos,
              extent_error);
        }) == "");
}
#else
TEST_CASE("Fourier transforms equal the plain formula") {
  WARN("skipped: FFTW was not found (install libfftw3-dev)");
}
#endif
