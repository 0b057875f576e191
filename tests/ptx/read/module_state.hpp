// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief What a module holds: the places of its functions in the text, and its variables.

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "../module.hpp"
#include "declaration.hpp"

namespace ptx {

/// @brief A function or kernel, not decoded yet.
struct Function {
  std::string_view name;
  bool entry = false;
  std::vector<Declaration> results, parameters;
  std::string_view body; ///< Between its braces.
  unsigned line = 0;     ///< Where the body begins.
  bool defined = false;
  unsigned maximum_threads = 1024;
};

struct Module::State {
  std::string name;
  std::string text;
  std::map<std::string_view, Function> functions;
  std::vector<Variable> variables;
  std::map<std::string_view, std::size_t> variable_of;
  std::map<std::string_view, Declaration>
      shared;                     ///< Declared outside functions; no elements: the dynamic one.
  std::vector<std::string> files; ///< By the numbers of .file.
  std::vector<std::unique_ptr<std::byte[]>> storage;

  std::mutex decoding;
  std::map<std::string_view, std::unique_ptr<Kernel>> kernels;
};

/// @brief Decodes a kernel with the functions that it calls.
/// @throws Fault (unsupported, syntax).
std::unique_ptr<Kernel> decode(const Module::State&, const Function& kernel);

} // namespace ptx
