"""Conan 2 recipe of the library: `conan create tools/packages/conan`."""

import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load

ROOT = os.path.join("..", "..", "..")


class Bowline(ConanFile):
    name = "bowline"
    description = "Runs and fine-tunes neural networks on the CPU and on GPUs"
    license = "Apache-2.0"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    # system_packages uses the headers and libraries of the distribution, see tools/setup.
    options = {"shared": [True, False], "text": [True, False], "vulkan": [True, False], "system_packages": [True, False]}
    default_options = {"shared": False, "text": True, "vulkan": True, "system_packages": False}

    def set_version(self):
        found = re.search(r"project\(bowline VERSION ([0-9.]+)", load(self, os.path.join(self.recipe_folder, ROOT, "CMakeLists.txt")))
        self.version = found[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "runtime/*", "backends/*", "shaders/*", "schemas/*", "tools/*", "tests/ops/*"):
            copy(self, pattern, os.path.join(self.recipe_folder, ROOT), self.export_sources_folder)

    def requirements(self):
        if self.options.system_packages:
            return
        self.requires("flatbuffers/[>=2.0.8]")
        self.requires("highway/[>=1.0.3]")
        self.requires("xxhash/[>=0.8.1]")
        if self.options.vulkan:
            self.requires("vulkan-headers/[>=1.3.239]")
        if self.options.text:
            for reference in ("simdjson/[>=3.0.1]", "pcre2/[>=10.42]", "utf8proc/[>=2.8.0]"):
                self.requires(reference)

    def build_requirements(self):
        if not self.options.system_packages:
            self.tool_requires("flatbuffers/<host_version>")
            if self.options.vulkan:
                self.tool_requires("glslang/[*]")
                self.tool_requires("spirv-tools/[*]")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update({
            "BOWLINE_TESTS": False, "BOWLINE_TOOLS": False, "BOWLINE_C": False, "BOWLINE_CUDA": False,
            "BOWLINE_TEXT": bool(self.options.text), "BOWLINE_VULKAN": bool(self.options.vulkan)})
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # The package has its own files for find_package(bowline CONFIG).
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs.append(os.path.join("lib", "cmake", "bowline"))
        self.cpp_info.libs = ["bowline_text", "bowline"] if self.options.text else ["bowline"]
