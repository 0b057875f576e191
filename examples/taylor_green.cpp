// SPDX-License-Identifier: Apache-2.0
//
// Vortices in a periodic box by a pseudo-spectral method, on slabs and on pencils: the plane one, whose
// energy decays by a known law, and that of Taylor and Green, whose loss of energy must be what friction
// dissipates. Run it directly (four threads), with --ranks N, or under mpirun with the same.
#include <shardwright/run.hpp>
#include <shardwright/shardwright.hpp>
#include <shardwright/tensor/fft/transform.hpp>

#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <string_view>
#include <utility>

namespace sw = shardwright;
using Complex = std::complex<double>;

constexpr std::int64_t side = 24; // points in each direction of a box of 2 pi
constexpr double viscosity = 0.01;
constexpr double time_step = 0.05;
constexpr int steps = 20;

//! [axes]
struct planes : sw::axis_tag<planes> {
  static constexpr std::string_view name = "planes";
};
struct lines : sw::axis_tag<lines> {
  static constexpr std::string_view name = "lines";
};
//! [axes]

//! [slabs]
/// Each rank has planes of the field, [x, y, z], and other planes of its spectrum.
struct Slabs {
  using Field = sw::Layout<3, sw::Shard<0, planes>>;
  using Spectrum = sw::Layout<3, sw::Shard<1, planes>>;

  static auto spectrum_of(const sw::ShardedTensor<Field, double>& field) {
    return sw::fft<0>(sw::redistribute<Spectrum>(sw::fft<1>(sw::rfft<2>(field))));
  }
  static auto field_of(const sw::ShardedTensor<Spectrum, Complex>& spectrum) {
    return sw::irfft<2>(sw::ifft<1>(sw::redistribute<Field>(sw::ifft<0>(spectrum))), side);
  }
};
static_assert(sw::Transition<Slabs::Field, Slabs::Spectrum>::count<sw::AllToAll> == 1);
static_assert(sw::Transition<Slabs::Field, Slabs::Spectrum>::collectives == 1);
//! [slabs]

//! [pencils]
/// Each rank has lines along z, then along y, then along x.
struct Pencils {
  using Field = sw::Layout<3, sw::Shard<0, planes>, sw::Shard<1, lines>>;
  using Between = sw::Layout<3, sw::Shard<0, planes>, sw::Shard<2, lines>>;
  using Spectrum = sw::Layout<3, sw::Shard<1, planes>, sw::Shard<2, lines>>;

  static auto spectrum_of(const sw::ShardedTensor<Field, double>& field) {
    return sw::fft<0>(sw::redistribute<Spectrum>(sw::fft<1>(sw::redistribute<Between>(sw::rfft<2>(field)))));
  }
  static auto field_of(const sw::ShardedTensor<Spectrum, Complex>& spectrum) {
    return sw::irfft<2>(
        sw::redistribute<Field>(sw::ifft<1>(sw::redistribute<Between>(sw::ifft<0>(spectrum)))), side);
  }
};
static_assert(sw::Transition<Pencils::Field, Pencils::Between>::collectives == 1);
static_assert(sw::Transition<Pencils::Between, Pencils::Spectrum>::collectives == 1);
static_assert(sw::Transition<Pencils::Between, Pencils::Spectrum>::count<sw::AllToAll> == 1);
//! [pencils]

using Waves = std::array<double, 3>;

//! [waves]
/// Calls visit(index in the block, wave vector) for every element of a block of a spectrum.
template <class Spectrum, class Visit> void each_wave(const Spectrum& spectrum, Visit visit) {
  const auto first = spectrum.local_offset();
  const auto& local = spectrum.local_shape();
  const auto wave = [](std::int64_t i) { return static_cast<double>(i <= side / 2 ? i : i - side); };
  std::size_t at = 0;
  for (std::int64_t i = first[0]; i < first[0] + local[0]; ++i)
    for (std::int64_t j = first[1]; j < first[1] + local[1]; ++j)
      for (std::int64_t k = first[2]; k < first[2] + local[2]; ++k)
        visit(at++, Waves{wave(i), wave(j), wave(k)});
}
//! [waves]

/// The velocity of a fluid without compression, as the spectra of its components.
template <class Cut> class Flow {
public:
  using Field = sw::ShardedTensor<typename Cut::Field, double>;
  using Spectrum = sw::ShardedTensor<typename Cut::Spectrum, Complex>;

  /// `depth` is 1 for the vortex of Taylor and Green, and 0 for the plane one, which does not depend on z.
  Flow(const sw::DeviceMesh<planes, lines>& mesh, int depth)
      : u_{component(mesh, 0, depth), component(mesh, 1, depth), component(mesh, 2, depth)} {}

  /// A step of the fourth order (Runge and Kutta).
  void advance() {
    constexpr std::array<double, 4> weights{1.0 / 6, 1.0 / 3, 1.0 / 3, 1.0 / 6}, ahead{0.5, 0.5, 1, 0};
    Spectra next = copy(u_), stage = copy(u_);
    for (std::size_t s = 0; s < 4; ++s) {
      const Spectra slope = slope_of(stage);
      for (std::size_t d = 0; d < 3; ++d) {
        sw::axpy(time_step * weights[s], slope[d], next[d]);
        stage[d] = u_[d].clone();
        sw::axpy(time_step * ahead[s], slope[d], stage[d]);
      }
    }
    u_ = std::move(next);
  }
  /// Half of the mean square of the velocity, and of the vorticity.
  [[nodiscard]] double energy() const { return half_mean_square(u_); }
  [[nodiscard]] double enstrophy() const { return half_mean_square(vorticity(u_)); }

private:
  using Spectra = std::array<Spectrum, 3>;

  static Spectrum component(const sw::DeviceMesh<planes, lines>& mesh, int direction, int depth) {
    Field field(mesh, {side, side, side});
    const auto first = field.local_offset();
    const auto block = field.mutable_local();
    const auto at = [](std::int64_t begin, std::size_t i) {
      return 2 * std::numbers::pi * static_cast<double>(begin + static_cast<std::int64_t>(i)) / side;
    };
    for (std::size_t i = 0; i < block.extent(0); ++i)
      for (std::size_t j = 0; j < block.extent(1); ++j)
        for (std::size_t k = 0; k < block.extent(2); ++k) {
          const double x = at(first[0], i), y = at(first[1], j), z = depth * at(first[2], k);
          block(i, j, k) = direction == 0   ? std::sin(x) * std::cos(y) * std::cos(z)
                           : direction == 1 ? -std::cos(x) * std::sin(y) * std::cos(z)
                                            : 0.0;
        }
    return Cut::spectrum_of(field);
  }
  static Spectra copy(const Spectra& u) { return {u[0].clone(), u[1].clone(), u[2].clone()}; }
  /// i k x u.
  static Spectra vorticity(const Spectra& u) {
    Spectra out = copy(u);
    const Complex i(0, 1);
    each_wave(u[0], [&](std::size_t at, const Waves& k) {
      for (std::size_t d = 0; d < 3; ++d) {
        const std::size_t a = (d + 1) % 3, b = (d + 2) % 3;
        out[d].mutable_data()[at] = i * (k[a] * u[b].data()[at] - k[b] * u[a].data()[at]);
      }
    });
    return out;
  }
  /// The part of u x vorticity without divergence, for waves below a third of the points, minus friction.
  static Spectra slope_of(const Spectra& u) {
    const Spectra w = vorticity(u);
    const std::array fields{Cut::field_of(u[0]), Cut::field_of(u[1]), Cut::field_of(u[2])};
    const std::array curls{Cut::field_of(w[0]), Cut::field_of(w[1]), Cut::field_of(w[2])};
    const auto product = [&](std::size_t a, std::size_t b) {
      return Cut::spectrum_of(fields[a] * curls[b] - fields[b] * curls[a]);
    };
    Spectra out{product(1, 2), product(2, 0), product(0, 1)};
    each_wave(u[0], [&](std::size_t at, const Waves& k) {
      const double square = k[0] * k[0] + k[1] * k[1] + k[2] * k[2];
      bool kept = square > 0;
      Complex along = 0;
      for (std::size_t d = 0; d < 3; ++d) {
        kept = kept && 3 * std::abs(k[d]) < side;
        along += k[d] * out[d].data()[at];
      }
      for (std::size_t d = 0; d < 3; ++d) {
        Complex& slope = out[d].mutable_data()[at];
        slope = kept ? slope - k[d] * along / square - viscosity * square * u[d].data()[at] : 0;
      }
    });
    return out;
  }
  static double half_mean_square(const Spectra& spectra) {
    double out = 0;
    for (const Spectrum& each : spectra)
      out += sw::item(sw::redistribute<sw::Layout<0>>(sw::squared_norm(Cut::field_of(each))));
    return out / (2 * side * side * side);
  }

  Spectra u_;
};

/// Runs both vortices; @return whether both obey their law.
template <class Cut> bool obeys(const char* name, const sw::DeviceMesh<planes, lines>& mesh) {
  // The plane vortex decays with exp(-2 viscosity t) (G. I. Taylor, Phil. Mag. 46, 1923).
  Flow<Cut> plane(mesh, 0);
  const double before = plane.energy();
  for (int step = 0; step < steps; ++step)
    plane.advance();
  const double law = before * std::exp(-4 * viscosity * time_step * steps);
  const double left = plane.energy();
  const double from_law = std::abs(left / law - 1);

  // The deep one loses 2 viscosity enstrophy, here integrated by Simpson's rule.
  Flow<Cut> deep(mesh, 1);
  const double energy = deep.energy(), vorticity = deep.enstrophy();
  double dissipated = 0;
  for (int step = 0; step <= steps; ++step) {
    const double weight = step == 0 || step == steps ? 1 : step % 2 == 1 ? 4 : 2;
    dissipated += weight * time_step / 3 * 2 * viscosity * deep.enstrophy();
    if (step < steps)
      deep.advance();
  }
  const double lost = energy - deep.energy();
  const double from_balance = std::abs(lost / dissipated - 1);
  const double growth = deep.enstrophy() / vorticity - 1;
  if (mesh.rank() == 0)
    std::printf(
        "%s: the plane vortex keeps %.6f of its energy, %.0e from its law; the deep one loses %.6f, %.0e "
        "from what is dissipated, and its enstrophy grows by %.1f%%\n",
        name, left / before, from_law, lost / energy, from_balance, 100 * growth);
  return from_law < 1e-10 && from_balance < 1e-6;
}

int program(sw::HostCommunicator world) {
  const int across = world.size() % 2 == 0 ? 2 : 1;
  const bool slabs =
      obeys<Slabs>("slabs", sw::DeviceMesh{world, sw::extent<planes>(world.size()), sw::extent<lines>(1)});
  const bool pencils = obeys<Pencils>(
      "pencils", sw::DeviceMesh{world, sw::extent<planes>(world.size() / across), sw::extent<lines>(across)});
  return slabs && pencils ? 0 : 1;
}

int main(int argc, char** argv) { return sw::run(argc, argv, program, {.ranks = 4}); }
