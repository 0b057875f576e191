# SPDX-License-Identifier: Apache-2.0
"""Builds and tests the project template against the package."""
from conan import ConanFile
from conan.tools.cmake import CMake, cmake_layout


class TemplateProject(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeToolchain"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        self.run("ctest --output-on-failure --no-tests=error", cwd=self.build_folder)
