// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Time of every local kernel of one training step on one core, against the step's linear-layer
/// products.
///
/// Every round runs the kernels and the products of one layer in the order of a step, so that caches hold
/// what they would hold there; the table shows medians over rounds, times the number of calls per step.

#include <shardwright/mesh/target.hpp>
#include <shardwright/tensor/kernels/adamw.hpp>
#include <shardwright/tensor/kernels/attention.hpp>
#include <shardwright/tensor/kernels/cross_entropy.hpp>
#include <shardwright/tensor/kernels/embedding.hpp>
#include <shardwright/tensor/kernels/matmul.hpp>
#include <shardwright/tensor/kernels/random.hpp>
#include <shardwright/tensor/kernels/reduce.hpp>
#include <shardwright/tensor/kernels/rms_norm.hpp>
#include <shardwright/tensor/kernels/rotary.hpp>
#include <shardwright/tensor/kernels/swiglu.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

namespace sw = shardwright;
namespace kernels = sw::kernels;
using Element = float;
using Execution = sw::DefaultTarget::execution_space;
using Matrix = Kokkos::View<Element**, Kokkos::LayoutRight, sw::DefaultTarget::memory_space>;
using Vector = Kokkos::View<Element*, Kokkos::LayoutRight, sw::DefaultTarget::memory_space>;
using Doubles = Kokkos::View<double*, Kokkos::LayoutRight, sw::DefaultTarget::memory_space>;
using Ids = Kokkos::View<std::int32_t*, Kokkos::LayoutRight, sw::DefaultTarget::memory_space>;

struct Sizes {
  std::size_t width = 512;
  std::size_t layers = 6;
  std::size_t heads = 8;
  std::size_t kv_heads = 8;
  std::size_t sequence = 256;
  std::size_t batch = 8;
  std::size_t hidden = 1536;
  std::size_t vocabulary = 256;
  std::size_t rounds = 15;
};

/// One entry of the table.
struct Kernel {
  std::string name;
  std::string group; // "linear" is what the others are compared with
  double calls;      // per step
  double flops;      // per call; 0 where bytes are the measure
  double bytes;      // per call
  std::function<void()> run;
  std::vector<double> seconds = {};

  double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

class Step {
public:
  explicit Step(const Sizes& s)
      : s_(s), shape_{s.batch, s.sequence, s.kv_heads, s.heads / s.kv_heads, s.width / s.heads},
        tokens_(shape_.tokens()), execution_(sw::DefaultTarget::make_execution_space()) {
    const double t = static_cast<double>(tokens_);
    const double d = static_cast<double>(s.width);
    const double f = sizeof(Element);
    const double layers = static_cast<double>(s.layers);
    const double norms = 2 * layers + 1;
    const double qkv = static_cast<double>(shape_.qkv_width());
    const double hidden = static_cast<double>(s.hidden);
    const double vocabulary = static_cast<double>(s.vocabulary);

    const Matrix x = random(tokens_, s.width), y = random(tokens_, s.width), sum = random(tokens_, s.width);
    const Matrix d_x = random(tokens_, s.width), d_y = random(tokens_, s.width);
    const Matrix fused = random(tokens_, shape_.qkv_width()), d_fused = random(tokens_, shape_.qkv_width());
    const Matrix gate_up = random(tokens_, 2 * s.hidden), d_gate_up = random(tokens_, 2 * s.hidden);
    const Matrix h = random(tokens_, s.hidden), d_h = random(tokens_, s.hidden);
    const Matrix logits = random(tokens_, s.vocabulary), table = random(s.vocabulary, s.width);
    const Matrix d_table = random(s.vocabulary, s.width);
    const Matrix cosines("cosines", s.sequence, shape_.head_dim / 2),
        sines("sines", s.sequence, shape_.head_dim / 2);
    kernels::fill_rotary_tables(execution_, cosines, sines);
    const Vector gain("gain", s.width), d_gain("d_gain", s.width), rms("rms", tokens_),
        lse("lse", tokens_ * s.heads);
    kernels::fill(execution_, gain, Element(1));
    const Vector row_max("row_max", tokens_), row_sum("row_sum", tokens_), target("target", tokens_);
    const Vector loss("loss", tokens_);
    const Vector norm_work("work", kernels::rms_norm_workspace(tokens_, s.width));
    const Vector attention_work("work", kernels::attention_backward_workspace<Element>(execution_, shape_));
    const Ids ids("ids", tokens_), targets("targets", tokens_);
    for (std::size_t i = 0; i < tokens_; ++i) {
      ids(i) = static_cast<std::int32_t>(sw::random_words({1, 2}, i).word[0] % s.vocabulary);
      targets(i) = static_cast<std::int32_t>(sw::random_words({1, 3}, i).word[0] % s.vocabulary);
    }
    const double scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_dim));
    const auto shape = shape_;
    const auto e = execution_;

    add("embedding", "embedding", 1, 0, 2 * t * d * f,
        [=] { kernels::embedding_forward(e, ids, table, 0, x); });
    add("add + rms_norm", "norm", norms, 0, 4 * t * d * f,
        [=] { kernels::add_rms_norm_forward(e, x, y, gain, 1e-5, sum, d_y, rms); });
    linear_forward("qkv", sum, fused);
    add("rotary", "rotary", layers, 0, 2 * t * qkv * f * 2 / 3, [=] {
      kernels::rotary_forward(e, fused, cosines, sines, shape, sw::TokenRuns::one(shape.sequence));
    });
    const double scores = static_cast<double>(s.batch * s.heads * s.sequence * s.sequence) *
                          static_cast<double>(shape_.head_dim);
    add("attention", "attention", layers, 2 * scores, t * (qkv + d) * f,
        [=] { kernels::attention_forward(e, fused, x, lse, shape, scale, attention_work); });
    linear_forward("out", x, y);
    linear_forward("gate_up", y, gate_up);
    add("swiglu", "swiglu", layers, 0, 3 * t * hidden * f, [=] { kernels::swiglu_forward(e, gate_up, h); });
    linear_forward("down", h, y);
    product("head", "head", y, false, table, true, logits);
    add("row max, sums, loss", "cross entropy", 1, 0, 2 * t * vocabulary * f, [=] {
      kernels::cross_entropy_row_max(e, logits, row_max);
      kernels::cross_entropy_row_sums(e, logits, row_max, targets, 0, row_sum, target);
      kernels::cross_entropy_loss(e, row_max, row_sum, target, targets, loss);
    });
    add("d_logits", "cross entropy", 1, 0, 2 * t * vocabulary * f,
        [=] { kernels::cross_entropy_backward(e, logits, row_max, row_sum, targets, 0, 1e-3); });
    product("d_head weight", "head", logits, true, y, false, d_table);
    product("d_head input", "head", logits, false, table, false, d_y);
    linear_backward("down", h, d_y, d_h);
    add("d_swiglu", "swiglu", layers, 0, 5 * t * hidden * f,
        [=] { kernels::swiglu_backward(e, gate_up, d_h, d_gate_up); });
    linear_backward("gate_up", y, d_gate_up, d_x);
    add("d_norm + residual", "norm", norms, 0, 4 * t * d * f,
        [=] { kernels::add_rms_norm_backward(e, sum, gain, rms, d_x, d_y, d_y, d_gain, norm_work); });
    linear_backward("out", x, d_y, d_x);
    add("d_attention", "attention", layers, 5 * scores, t * (2 * qkv + 2 * d) * f,
        [=] { kernels::attention_backward(e, fused, x, lse, d_x, d_fused, shape, scale, attention_work); });
    add("d_rotary", "rotary", layers, 0, 2 * t * qkv * f * 2 / 3, [=] {
      kernels::rotary_backward(e, d_fused, cosines, sines, shape, sw::TokenRuns::one(shape.sequence));
    });
    linear_backward("qkv", sum, d_fused, d_x);
    add("d_embedding", "embedding", 1, 0, 3 * t * d * f,
        [=] { kernels::embedding_backward(e, ids, d_x, 0, d_table); });

    std::size_t parameters = 2 * s.vocabulary * s.width + (2 * s.layers + 1) * s.width;
    for (const auto& [name, weight] : weights_)
      parameters += s.layers * weight.size();
    const double p = static_cast<double>(parameters);
    const Vector parameter("parameter", parameters), gradient("gradient", parameters);
    const Vector first("first", parameters), second("second", parameters);
    const Doubles norm("norm", 1), norm_partials("partials", kernels::reduce_workspace(parameters));
    kernels::fill(execution_, gradient, Element(0.01));
    add("gradient norm", "optimizer", 1, 0, p * f,
        [=] { kernels::sum_of_squares(e, gradient, norm, norm_partials); });
    add("clip + AdamW", "optimizer", 1, 0, 7 * p * f,
        [=] { kernels::adamw_update(e, parameter, gradient, first, second, kernels::AdamWStep{}); });
  }

  void measure() {
    for (std::size_t round = 0; round <= s_.rounds; ++round) {
      for (Kernel& kernel : kernels_) {
        const auto begin = std::chrono::steady_clock::now();
        kernel.run();
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (round > 0)
          kernel.seconds.push_back(seconds); // the first round warms up
      }
    }
  }

  void report(const char* json_path) const {
    double linear = 0;
    double linear_flops = 0;
    for (const Kernel& k : kernels_) {
      if (k.group != "linear")
        continue;
      linear += k.calls * k.median();
      linear_flops += k.calls * k.flops;
    }
    std::printf("%-22s %6s %10s %9s %9s %9s\n", "kernel", "calls", "ms / step", "% linear", "GB/s",
                "GFLOP/s");
    std::map<std::string, double> groups;
    double others = 0;
    std::string json;
    for (const Kernel& k : kernels_) {
      const double step = k.calls * k.median();
      groups[k.group] += step;
      if (k.group != "linear")
        others += step;
      std::printf("%-22s %6.0f %10.3f %9.3f %9.1f %9.1f\n", k.name.c_str(), k.calls, 1e3 * step,
                  100 * step / linear, 1e-9 * k.bytes / k.median(), 1e-9 * k.flops / k.median());
      char line[256];
      std::snprintf(
          line, sizeof(line),
          "%s    {\"name\": \"%s\", \"group\": \"%s\", \"calls\": %.0f, \"seconds_per_step\": %.9f}",
          json.empty() ? "" : ",\n", k.name.c_str(), k.group.c_str(), k.calls, step);
      json += line;
    }
    std::printf("\n");
    for (const auto& [name, seconds] : groups) {
      std::printf("%-22s %17.3f %9.3f\n", name.c_str(), 1e3 * seconds, 100 * seconds / linear);
    }
    std::printf("%-22s %17.3f %9.3f   (linear products: %.1f GFLOP/s)\n", "all but linear", 1e3 * others,
                100 * others / linear, 1e-9 * linear_flops / linear);
    if (json_path != nullptr) {
      std::ofstream file(json_path);
      file << "{\n  \"benchmark\": \"kernels\",\n  \"linear_seconds\": " << linear
           << ",\n  \"other_seconds\": " << others << ",\n  \"step_over_linear\": " << 1 + others / linear
           << ",\n  \"kernels\": [\n"
           << json << "\n  ]\n}\n";
    }
  }

private:
  void add(std::string name, std::string group, double calls, double flops, double bytes,
           std::function<void()> run) {
    kernels_.push_back({std::move(name), std::move(group), calls, flops, bytes, std::move(run)});
  }

  Matrix random(std::size_t rows, std::size_t columns) {
    Matrix matrix(Kokkos::view_alloc(std::string("matrix"), Kokkos::WithoutInitializing), rows, columns);
    kernels::fill_normal(execution_, matrix, {{0, 0}, {rows, columns}}, {7, ++tensors_}, 0.0, 0.05);
    return matrix;
  }

  void product(const std::string& name, const char* group, const Matrix& a, bool transpose_a, const Matrix& b,
               bool transpose_b, const Matrix& c) {
    const double k = static_cast<double>(transpose_a ? a.extent(0) : a.extent(1));
    const double calls = std::string(group) == "linear" ? static_cast<double>(s_.layers) : 1.0;
    add(name, group, calls, 2.0 * k * static_cast<double>(c.size()),
        sizeof(Element) * static_cast<double>(a.size() + b.size() + c.size()),
        [e = execution_, a, b, c, transpose_a, transpose_b] {
          kernels::matmul(e, a, kernels::Transpose(transpose_a), b, kernels::Transpose(transpose_b), c);
        });
  }

  void linear_forward(const std::string& name, const Matrix& x, const Matrix& y) {
    const Matrix weight = random(x.extent(1), y.extent(1));
    weights_.emplace(name, weight);
    product(name, "linear", x, false, weight, false, y);
  }

  void linear_backward(const std::string& name, const Matrix& x, const Matrix& d_y, const Matrix& d_x) {
    const Matrix& weight = weights_.at(name);
    product("d_" + name + " input", "linear", d_y, false, weight, true, d_x);
    product("d_" + name + " weight", "linear", x, true, d_y, false,
            random(weight.extent(0), weight.extent(1)));
  }

  Sizes s_;
  kernels::AttentionShape shape_;
  std::size_t tokens_;
  Execution execution_;
  std::uint64_t tensors_ = 0;
  std::map<std::string, Matrix> weights_;
  std::vector<Kernel> kernels_;
};

int usage(const char* problem) {
  std::fprintf(
      stderr,
      "%s\nusage: kernels [--width N] [--layers N] [--heads N] [--kv-heads N] [--sequence N] [--batch N] "
      "[--hidden N] [--vocabulary N] [--rounds N] [--json FILE]\n",
      problem);
  return 2;
}

} // namespace

int main(int argc, char** argv) {
  Sizes sizes;
  const char* json_path = nullptr;
  const std::map<std::string, std::size_t*> options{
      {"--width", &sizes.width},       {"--layers", &sizes.layers},         {"--heads", &sizes.heads},
      {"--kv-heads", &sizes.kv_heads}, {"--sequence", &sizes.sequence},     {"--batch", &sizes.batch},
      {"--hidden", &sizes.hidden},     {"--vocabulary", &sizes.vocabulary}, {"--rounds", &sizes.rounds}};
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (i + 1 >= argc)
      return usage(("option " + option + ": a value must follow.").c_str());
    if (option == "--json") {
      json_path = argv[++i];
      continue;
    }
    const auto found = options.find(option);
    if (found == options.end())
      return usage(("option " + option + ": not known.").c_str());
    *found->second = static_cast<std::size_t>(std::strtoull(argv[++i], nullptr, 10));
    if (*found->second == 0)
      return usage(("option " + option + ": the value must be a number above 0.").c_str());
  }
  if (sizes.heads % sizes.kv_heads != 0 || sizes.width % sizes.heads != 0) {
    return usage("sizes: kv-heads must divide heads, and heads must divide width.");
  }
  Kokkos::ScopeGuard kokkos(argc, argv);
  kernels::use_single_threaded_blas();
  Step step(sizes);
  step.measure();
  step.report(json_path);
  return 0;
}
