// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A PTX text as values: its kernels, decoded when they are asked for, and its variables.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "opcode.hpp"

namespace ptx {

/// @brief A parameter of a kernel, at its place in the packed parameters.
struct Parameter {
  std::string name;
  std::size_t offset = 0, bytes = 0, alignment = 1;
};

/// @brief A variable of a module, in .global or .const. Its bytes lie on the host, at their initial value.
struct Variable {
  std::string name;
  std::byte* address = nullptr;
  std::size_t bytes = 0, alignment = 1;
  bool constant = false;
};

/// @brief An instruction of a kernel, for people.
struct Site {
  Opcode opcode;
  std::string text;   ///< As in the PTX, white space shortened.
  unsigned line = 0;  ///< Of the PTX text, from 1.
  std::string source; ///< `file:line`, from `.file` and `.loc`; empty where the PTX has none.
};

struct Program; // what the executor runs; see program.hpp

/// @brief A kernel with the device functions that it calls, decoded.
class Kernel {
public:
  std::string name;
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0; ///< Of all parameters, packed.
  std::size_t shared_bytes = 0;    ///< Static shared memory of a block.
  std::size_t local_bytes = 0;     ///< Local memory of a thread, the frames of called functions included.
  unsigned maximum_threads = 1024; ///< Of a block, from .maxntid.

  /// @brief The instructions in the order of their program counters; called functions come first.
  std::size_t instructions() const;
  Site site(std::size_t instruction) const;

  /// @brief Of each instruction, those after which it may be the next: the one before it, unless that never
  /// goes on, and the branches and calls that lead to it.
  std::vector<std::vector<std::size_t>> predecessors() const;

  /// @brief How many warps executed an instruction, over all launches so far.
  std::uint64_t executed(std::size_t instruction) const;
  void clear_counts() const;

  std::shared_ptr<const Program> program;
};

/// @brief A parsed text. Movable; kernels, variables and texts live as long as it.
class Module {
public:
  Module(Module&&) noexcept;
  Module& operator=(Module&&) noexcept;
  ~Module();

  const std::string& name() const;

  /// @brief The kernel of this entry name, or null. The first call decodes it; several threads may call.
  /// @throws Fault (unsupported, syntax) if it has an instruction that the interpreter does not know.
  const Kernel* find(std::string_view entry) const;

  /// @brief The names of all entries, decoded or not.
  std::vector<std::string_view> entries() const;

  std::span<const Variable> variables() const;
  const Variable* variable(std::string_view name) const;

  struct State;

private:
  friend Module parse(std::string_view text, std::string name);
  explicit Module(std::unique_ptr<State>);

  std::unique_ptr<State> state_;
};

/// @brief Reads a PTX text, as nvcc -ptx writes it. Function bodies are only found, not decoded.
/// @throws Fault (syntax).
Module parse(std::string_view text, std::string name = "");

} // namespace ptx
