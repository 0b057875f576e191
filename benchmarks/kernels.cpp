// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Time of every local kernel of one training step on one core, against the step's linear-layer
/// products.
///
/// Every round runs the kernels and the products of one layer in the order of a step, so that the caches hold
/// the same data as in a step; the table shows medians over rounds, times the number of calls per step.

#include "step_kernels.hpp"
#include "timing.hpp"

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
using benchmark::Clock;
using benchmark::median;
using benchmark::seconds_since;
using step_kernels::StepKernel;
using step_kernels::StepKernels;

struct Sizes : step_kernels::Sizes {
  std::size_t rounds = 15;
};

/// The kernels and their measurements.
class Step {
public:
  explicit Step(const Sizes& sizes) : rounds_(sizes.rounds), step_(sizes), seconds_(step_.list().size()) {}

  void measure() {
    for (std::size_t round = 0; round <= rounds_; ++round) {
      for (std::size_t i = 0; i < seconds_.size(); ++i) {
        const Clock::time_point begin = Clock::now();
        step_.list()[i].run();
        if (round > 0)
          seconds_[i].push_back(seconds_since(begin)); // the first round warms up
      }
    }
  }

  void report(const char* json_path) const {
    double linear = 0;
    double linear_flops = 0;
    for (std::size_t i = 0; i < seconds_.size(); ++i) {
      const StepKernel& k = step_.list()[i];
      if (k.group != "linear")
        continue;
      linear += k.calls * median(seconds_[i]);
      linear_flops += k.calls * k.flops;
    }
    std::printf("%-22s %6s %10s %9s %9s %9s\n", "kernel", "calls", "ms / step", "% linear", "GB/s",
                "GFLOP/s");
    std::map<std::string, double> groups;
    double others = 0;
    std::string json;
    for (std::size_t i = 0; i < seconds_.size(); ++i) {
      const StepKernel& k = step_.list()[i];
      const double seconds = median(seconds_[i]);
      const double step = k.calls * seconds;
      groups[k.group] += step;
      if (k.group != "linear")
        others += step;
      std::printf("%-22s %6.0f %10.3f %9.3f %9.1f %9.1f\n", k.name.c_str(), k.calls, 1e3 * step,
                  100 * step / linear, 1e-9 * k.bytes / seconds, 1e-9 * k.flops / seconds);
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
  std::size_t rounds_;
  StepKernels<sw::DefaultTarget, float> step_;
  std::vector<std::vector<double>> seconds_;
};

int usage(const char* problem) {
  std::fprintf(
      stderr,
      "%s\nusage: kernels [--width N] [--layers N] [--heads N] [--kv-heads N] [--sequence N] [--batch N] [--hidden N] [--vocabulary N] [--rounds N] [--json FILE]\n",
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
  sw::kernels::use_single_threaded_blas();
  Step step(sizes);
  step.measure();
  step.report(json_path);
  return 0;
}
