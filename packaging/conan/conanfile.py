# SPDX-License-Identifier: Apache-2.0
"""A recipe for Conan 2: `conan create packaging/conan`. The library is header-only, so the package holds what CMake installs.
Kokkos, and MPI and a BLAS if wanted, are those of the system; descriptions need none of them."""
import pathlib
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Shardwright(ConanFile):
    name = "shardwright"
    description = "Distributed tensors whose types choose the communication"
    license = "Apache-2.0"
    topics = ("distributed-tensors", "parallel-training", "hpc", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    def set_version(self):
        text = (ROOT / "include/shardwright/core/config.hpp").read_text()
        self.version = ".".join(re.findall(r"#define SHARDWRIGHT_VERSION_\w+ (\d+)", text))

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*"):
            copy(self, pattern, ROOT, self.export_sources_folder)

    def validate(self):
        if self.settings.compiler.get_safe("cppstd"):
            check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["SHARDWRIGHT_WITH_KOKKOS"] = False  # what is installed is the same
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # The configuration that CMake installed finds Kokkos, MPI and the BLAS where it is used.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["share/cmake/shardwright"]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
