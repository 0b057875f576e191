// SPDX-License-Identifier: Apache-2.0
// cuDNN's attention against the host's kernels in double and against the tiles, and their times at the size
// of the benchmark's model. Skipped if the program was built without cuDNN.
#include "cuda/compare.hpp"

#include <shardwright/tensor/kernels/attention.hpp>
#include <shardwright/tensor/kernels/attention/key_values.hpp>
#include <shardwright/tensor/kernels/elementwise.hpp>
#include <shardwright/tensor/kernels/random.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#if defined(SHARDWRIGHT_WITH_CUDNN)

namespace {

using cuda_test::Device;
using cuda_test::Host;
namespace sw = shardwright;
namespace kernels = sw::kernels;

template <class Where, class Element>
using Matrix = Kokkos::View<Element**, Kokkos::LayoutRight, typename Where::memory_space>;
template <class Where, class Element>
using Vector = Kokkos::View<Element*, Kokkos::LayoutRight, typename Where::memory_space>;

struct Mask {
  const char* name;
  sw::KeyWindow window;
};
constexpr Mask masks[] = {{"causal", sw::causal.window},
                          {"full", sw::full.window},
                          {"window of 100", sw::sliding_window<100>.window}};

/// Attention and its gradient on one target.
template <class Where, class Element> struct Attention {
  using Main = sw::AccumulationElement<Element>;
  explicit Attention(const kernels::AttentionShape& sizes)
      : shape(sizes), qkv("qkv", sizes.tokens(), sizes.qkv_width()),
        d_out("d_out", sizes.tokens(), sizes.output_width()),
        out("out", sizes.tokens(), sizes.output_width()), d_qkv("d_qkv", sizes.tokens(), sizes.qkv_width()),
        sums("sums", sizes.tokens() * sizes.heads()), execution(Where::make_execution_space()) {}

  void fill() {
    kernels::fill_normal(execution, qkv, {{0, 0}, {qkv.extent(0), qkv.extent(1)}}, {3, 1}, 0.0, 1.0);
    kernels::fill_normal(execution, d_out, {{0, 0}, {d_out.extent(0), d_out.extent(1)}}, {3, 2}, 0.0, 1.0);
  }
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(shape.head_dim)); }

  void prepare(const sw::KeyWindow& window) {
    mask = {window};
    using Work = Vector<Where, Main>;
    forward_work = Work("work", kernels::attention_forward_workspace<Element>(execution, shape, mask));
    backward_work = Work("work", kernels::attention_backward_workspace<Element>(execution, shape, mask));
  }
  void forward() {
    kernels::attention_forward(execution, qkv, out, sums, shape, block(), scale(), forward_work);
  }
  void backward() {
    kernels::attention_backward(execution, qkv, out, sums, d_out, d_qkv, shape, block(), scale(),
                                backward_work);
  }

  [[nodiscard]] kernels::AttentionBlock block() const {
    return kernels::AttentionBlock::whole(shape.sequence, mask);
  }

  kernels::AttentionShape shape;
  kernels::KeyMask mask{};
  Matrix<Where, Element> qkv, d_out, out, d_qkv;
  Vector<Where, Main> sums, forward_work, backward_work;
  typename Where::execution_space execution;
};

template <class Where, class Element>
std::vector<double> numbers(const typename Where::execution_space& execution,
                            const Matrix<Where, Element>& from) {
  const Matrix<Where, double> wide("wide", from.extent(0), from.extent(1));
  kernels::copy(execution, from, wide);
  execution.fence();
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), wide);
  return {host.data(), host.data() + host.size()};
}

std::vector<float> numbers(const Vector<Device, float>& from) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), from);
  return {host.data(), host.data() + host.size()};
}

/// The tiles' attention over keys and values in a separate buffer, without earlier results to continue.
template <class Element> struct Tiles {
  explicit Tiles(Attention<Device, Element>& of)
      : like(of), keys("keys", of.shape.tokens(), of.shape.kv_heads * of.shape.key_value_width()),
        d_keys("d_keys", keys.extent(0), keys.extent(1)), out("out", of.out.extent(0), of.out.extent(1)),
        d_qkv("d_qkv", of.d_qkv.extent(0), of.d_qkv.extent(1)), sums("sums", of.sums.extent(0)),
        work("work", of.shape.tokens() * of.shape.qkv_width()) {
    kernels::pack_key_values(of.execution, of.qkv, keys, of.shape);
  }
  void forward() {
    Kokkos::deep_copy(like.execution, out, 0.0F);
    Kokkos::deep_copy(like.execution, sums, -std::numeric_limits<float>::infinity());
    again();
  }
  void again() {
    kernels::attention_forward_block(like.execution, like.qkv, keys, out, sums, like.shape, like.block(),
                                     like.scale(), work);
  }
  void backward() {
    Kokkos::deep_copy(like.execution, d_qkv, 0.0F);
    backward_again();
    kernels::add_key_values(like.execution, d_keys, d_qkv, like.shape);
  }
  void backward_again() {
    kernels::attention_backward_block(like.execution, like.qkv, keys, like.out, like.sums, like.d_out, d_qkv,
                                      d_keys, like.shape, like.block(), like.scale(), work);
  }

  Attention<Device, Element>& like;
  Matrix<Device, Element> keys;
  Matrix<Device, float> d_keys, out, d_qkv;
  Vector<Device, float> sums, work;
};

template <class Element> bool takes(Attention<Device, Element>& attention, bool backward) {
  const auto calls = kernels::detail::library_calls<Element>(
      attention.shape, attention.block(),
      kernels::detail::AttentionRows::contiguous(attention.shape, backward), backward);
  return calls && kernels::detail::LibraryAttention<Kokkos::Cuda>::plans(attention.execution)
                      .workspace(calls->problem)
                      .has_value();
}

bool agrees(const kernels::AttentionShape& shape, const Mask& mask) {
  using Element = sw::bfloat16;
  constexpr double roundoff = 0x1p-8;
  const std::string name = std::to_string(shape.batch) + " x " + std::to_string(shape.sequence) + ", " +
                           std::to_string(shape.q_per_kv) + " queries for each of " +
                           std::to_string(shape.kv_heads) + " keys of " + std::to_string(shape.head_dim) +
                           ", " + mask.name;
  Attention<Device, Element> device(shape);
  device.fill();
  device.prepare(mask.window);
  if (!takes(device, false) || !takes(device, true)) {
    std::printf("%s: cuDNN has no kernel for it\n", name.c_str());
    return false;
  }
  device.forward();
  device.backward();
  const auto out = numbers<Device>(device.execution, device.out);
  const auto d_qkv = numbers<Device>(device.execution, device.d_qkv);

  // The gradient is that of the rounded output, as on the device.
  Attention<Host, double> host(shape);
  const auto load = [&](const auto& to, const auto& from) {
    const auto wide = numbers<Device>(device.execution, from);
    std::memcpy(to.data(), wide.data(), wide.size() * sizeof(double));
  };
  load(host.qkv, device.qkv);
  load(host.d_out, device.d_out);
  host.prepare(mask.window);
  host.forward();
  bool sound =
      cuda_test::agrees(name + ", output", out, numbers<Host>(host.execution, host.out), 2 * roundoff);
  load(host.out, device.out);
  host.backward();
  sound &=
      cuda_test::agrees(name + ", gradient", d_qkv, numbers<Host>(host.execution, host.d_qkv), 8 * roundoff);

  const auto again = [&] {
    device.forward();
    device.backward();
    return numbers<Device>(device.execution, device.d_qkv) == d_qkv &&
           numbers<Device>(device.execution, device.out) == out;
  };
  const bool same = again() && again();
  std::printf("%s: %s\n", name.c_str(), same ? "the same bits three times" : "runs differ");
  sound &= same;

  if (device.mask.has_causal_form()) {
    Tiles<Element> tiles(device);
    tiles.forward();
    tiles.backward();
    sound &= cuda_test::agrees(name + ", output of tiles", out, numbers<Device>(device.execution, tiles.out),
                               2 * roundoff);
    const std::vector<float> sums = numbers(device.sums), of_tiles = numbers(tiles.sums);
    sound &= cuda_test::agrees(name + ", log of sums", {sums.begin(), sums.end()},
                               {of_tiles.begin(), of_tiles.end()}, 1e-4);
    sound &= cuda_test::agrees(name + ", gradient of tiles", d_qkv,
                               numbers<Device>(device.execution, tiles.d_qkv), 8 * roundoff);
  }
  return sound;
}

/// Milliseconds of one call, the mean of many.
template <class Run> double milliseconds(const Kokkos::Cuda& execution, Run run) {
  run();
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  constexpr int times = 20;
  cudaEventRecord(begin, execution.cuda_stream());
  for (int i = 0; i < times; ++i)
    run();
  cudaEventRecord(end, execution.cuda_stream());
  cudaEventSynchronize(end);
  float all = 0;
  cudaEventElapsedTime(&all, begin, end);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(all) / times;
}

void print_times() {
  Attention<Device, sw::bfloat16> device({32, 1024, 12, 1, 64});
  device.fill();
  device.prepare(sw::causal.window);
  Tiles<sw::bfloat16> tiles(device);
  std::printf(
      "32 x 1024 tokens, 12 heads of 64, causal, ms: cuDNN forward %.3f, backward %.3f with %.0f MiB of workspace;",
      milliseconds(device.execution, [&] { device.forward(); }),
      milliseconds(device.execution, [&] { device.backward(); }),
      static_cast<double>(device.backward_work.extent(0)) * sizeof(float) / (1 << 20));
  tiles.forward();
  std::printf(" tiles forward %.3f, backward %.3f, both into sums in float\n",
              milliseconds(device.execution, [&] { tiles.again(); }),
              milliseconds(device.execution, [&] { tiles.backward_again(); }));
}

} // namespace

int main(int argc, char** argv) {
  return cuda_test::device_program(argc, argv, [] {
    bool sound = true;
    for (const Mask& mask : masks) {
      for (const kernels::AttentionShape& shape :
           {kernels::AttentionShape{3, 256, 4, 1, 64}, kernels::AttentionShape{2, 320, 3, 2, 64},
            kernels::AttentionShape{4, 200, 2, 4, 128}, kernels::AttentionShape{1, 1024, 2, 1, 64}})
        sound &= agrees(shape, mask);
    }
    print_times();
    return sound;
  });
}

#else

int main() {
  std::puts("skipped: built without cuDNN (pip's nvidia-cudnn-cu13 and nvidia-cudnn-frontend are found too)");
  return 77;
}

#endif
