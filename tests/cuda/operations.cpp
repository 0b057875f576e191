// SPDX-License-Identifier: Apache-2.0
// Every operation on tensors, compiled for the device; on a machine with a GPU, run by one rank and compared
// with the host.
#include <shardwright/launch.hpp>
#include <shardwright/nn/decoder/mesh.hpp>
#include <shardwright/shardwright.hpp>

#include "cuda/compare.hpp"

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace cuda_test;
using namespace sw::axis;

using Mesh = sw::DecoderMesh;

template <class Tensor> void keep(Results& results, std::string name, const Tensor& tensor) {
  results.add(std::move(name), sw::gather(tensor, 0));
}

/// Every operation on tensors, on random numbers and on integers.
template <class Target, class Element> Results operations(const Mesh& mesh) {
  using Sharded = sw::Layout<2, sw::Shard<0, dp>, sw::Shard<1, tp>>;
  using Tensor = sw::ShardedTensor<Sharded, Element, Target>;
  Results results;
  Tensor x(mesh, {12, 8});
  sw::fill_normal(x, {5, 1});
  Tensor y = sw::sigmoid(x);
  keep(results, "add", sw::add(x, y));
  keep(results, "multiply", sw::multiply(x, y));
  sw::scale_in_place(y, 3.0);
  keep(results, "scale", sw::scale(y, -0.5));
  keep(results, "gelu_tanh", sw::gelu_tanh(x));
  keep(results, "gelu_erf", sw::gelu_erf(x));
  keep(results, "minus", x - y);
  keep(results, "divide", x / y);
  keep(results, "dot", sw::redistribute<sw::Layout<0>>(sw::dot(x, y)));
  keep(results, "norm", sw::norm(x));
  keep(results, "silu", sw::silu(x));
  keep(results, "relu", sw::relu(x));
  keep(results, "exp", sw::exp(x));
  keep(results, "log", sw::log(y));
  keep(results, "sqrt", sw::sqrt(y));
  keep(results, "square", sw::square(x));
  keep(results, "tanh", sw::tanh(x));
  keep(results, "convert", sw::convert<double>(x));
  keep(results, "clone", x.clone());

  sw::ShardedTensor<sw::Layout<1, sw::Shard<0, tp>>, Element, Target> bias(mesh, {8});
  sw::fill_uniform(bias, {5, 2});
  keep(results, "add of a vector", sw::add(x, bias));
  keep(results, "multiply of a vector", sw::multiply(x, bias));
  keep(results, "sum", sw::redistribute<sw::Layout<1, sw::Shard<0, dp>>>(sw::sum<1>(x)));
  keep(results, "reduce Max", sw::redistribute<sw::Layout<1>>(sw::reduce<sw::Max, 0>(x)));
  keep(results, "reduce Min", sw::redistribute<sw::Layout<1>>(sw::reduce<sw::Min, 0>(x)));
  keep(results, "reduce_all Sum", sw::redistribute<sw::Layout<0>>(sw::reduce_all<sw::Sum>(x)));
  keep(results, "reduce_all Product", sw::redistribute<sw::Layout<0>>(sw::reduce_all<sw::Product>(y)));

  sw::ShardedTensor<sw::Layout<2, sw::Shard<0, tp>>, Element, Target> w(mesh, {8, 4});
  sw::fill_normal(w, {5, 3});
  const auto product = sw::matmul(x, w);
  keep(results, "matmul", sw::redistribute<sw::Layout<2, sw::Shard<0, dp>>>(product));

  std::vector<std::int64_t> numbers(30);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::int64_t>(i * i) - 100;
  const auto integers = sw::scatter<sw::Layout<2, sw::Shard<0, dp>>, Target>(mesh, 0, numbers, {6, 5});
  keep(results, "add of integers", sw::add(integers, integers));
  keep(results, "reduce Max of integers", sw::redistribute<sw::Layout<1>>(sw::reduce<sw::Max, 0>(integers)));
  keep(results, "reduce_all Min of integers",
       sw::redistribute<sw::Layout<0>>(sw::reduce_all<sw::Min>(integers)));
  return results;
}

/// The parts of complex elements.
template <class Tensor> void keep_parts(Results& results, std::string name, const Tensor& tensor) {
  std::vector<double> parts;
  for (const auto& each : sw::gather(tensor, 0)) {
    parts.push_back(static_cast<double>(each.real()));
    parts.push_back(static_cast<double>(each.imag()));
  }
  results.add(std::move(name), parts);
}

/// Operations on complex numbers.
template <class Target, class Element> Results complex_operations(const Mesh& mesh) {
  using L = sw::Layout<2, sw::Shard<0, dp>>;
  std::vector<Element> numbers(150);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = Element(static_cast<typename Element::value_type>(i % 13) - 6,
                         static_cast<typename Element::value_type>(i % 7) + 1);
  const auto x = sw::scatter<L, Target>(mesh, 0, numbers, {10, 15});
  const auto y = x * std::complex<double>(0.5, -1) + 2;
  Results results;
  keep_parts(results, "complex product", x * y);
  keep_parts(results, "complex quotient", x / y);
  keep_parts(results, "conj", conj(x) - y);
  keep_parts(results, "complex dot", sw::redistribute<sw::Layout<0>>(sw::dot(x, y)));
  keep(results, "complex norm", sw::norm(x));
  keep_parts(results, "complex convert", sw::convert<std::complex<float>>(x));
  return results;
}

} // namespace

int main(int argc, char** argv) {
  return device_program(argc, argv, [] {
    bool sound = true;
    static_cast<void>(sw::launch({.ranks = 1}, [&](sw::HostCommunicator world) {
      const Mesh mesh = sw::decoder_mesh(world, {});
      sound &=
          agrees("operations in float", operations<Device, float>(mesh), operations<Host, float>(mesh), 1e-4);
      sound &= agrees("operations in double", operations<Device, double>(mesh),
                      operations<Host, double>(mesh), 1e-11);
      using Complex = std::complex<double>;
      sound &= agrees("operations in complex double", complex_operations<Device, Complex>(mesh),
                      complex_operations<Host, Complex>(mesh), 1e-11);
    }));
    return sound;
  });
}
