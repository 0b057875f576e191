# SPDX-License-Identifier: Apache-2.0
"""A package for Spack. The sources are a checkout: spack dev-build --source-path /path/to/shardwright shardwright@0.1.0"""
from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import conflicts, depends_on, license, variant, version


class Shardwright(CMakePackage):
    """Distributed tensors whose types choose the communication: a header-only C++20 library."""

    license("Apache-2.0", checked_by="the authors")

    version("0.1.0")

    variant("mpi", default=True, description="Ranks that are MPI processes")
    variant("fftw", default=True, description="Fourier transforms in host memory by FFTW")
    variant("blas", default=True, description="Matrix products by a BLAS with cblas.h")
    variant("cuda", default=False, description="Device memory, with a Kokkos that has the Cuda backend")
    variant("nccl", default=False, description="Collectives by NCCL, one rank for each GPU", when="+cuda")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("kokkos@3.4:5")
    depends_on("kokkos@4.7: +cuda+wrapper", when="+cuda")
    depends_on("mpi", when="+mpi")
    depends_on("fftw@3 ~mpi precision=float,double", when="+fftw")
    depends_on("openblas", when="+blas")
    depends_on("nccl@2.18.1:", when="+nccl")

    conflicts("%gcc@:11")
    conflicts("%clang@:13")

    def cmake_args(self):
        return [
            self.define_from_variant("SHARDWRIGHT_WITH_MPI", "mpi"),
            self.define_from_variant("SHARDWRIGHT_WITH_BLAS", "blas"),
            self.define_from_variant("SHARDWRIGHT_WITH_FFTW", "fftw"),
            self.define_from_variant("SHARDWRIGHT_WITH_CUDA", "cuda"),
            self.define("SHARDWRIGHT_WITH_NCCL", self.spec.satisfies("+nccl")),
            self.define("SHARDWRIGHT_BUILD_TESTS", False),
            self.define("SHARDWRIGHT_BUILD_EXAMPLES", False),
            self.define("SHARDWRIGHT_BUILD_BENCHMARKS", False),
        ]
