// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Turns the text of a kernel, and of the functions that it calls, into a program.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../fault.hpp"
#include "../program.hpp"
#include "module_state.hpp"
#include "operand.hpp"
#include "scanner.hpp"
#include "type.hpp"

namespace ptx {

/// @brief State spaces of addresses.
enum class Space : std::uint8_t { generic, global, shared, local, parameter, constant };

/// @brief A register: its row and the type it is declared with.
struct Register {
  Slot slot = 0;
  Type type = Type::b32;
};

/// @brief A variable that an instruction may name: its space, and its address there.
struct Symbol {
  Space space = Space::generic;
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  bool dynamic = false; ///< In dynamic shared memory, whose beginning is known at the end.
};

/// @brief What callers need to know of a decoded function. Nothing calls itself, so that its frame,
/// parameters and registers have one place each.
struct Callee {
  std::uint32_t entry = 0;
  Slot return_to = 0; ///< A row of instructions.
  std::vector<Symbol> parameters, results;
};

class Decoder {
public:
  Decoder(const Module::State&, Program&);

  void decode_kernel(const Function&, Kernel&);

  // For Build, which decodes an instruction.

  /// @brief A new row for a value of a width.
  Slot new_row(unsigned width);
  Slot constant(std::uint64_t value, unsigned width);
  Slot address_of(const Symbol&, std::int64_t offset, unsigned width);
  std::optional<Register> find_register(std::string_view name);
  std::optional<Symbol> find_symbol(std::string_view name);
  std::uint32_t string(std::string text);
  const Callee* callee(std::string_view name) const;

  /// @brief The label is known only later: the program then gets its instruction in `target`, or in an entry
  /// of lists.
  void refer_to_label(std::string_view label, std::uint32_t instruction);
  void refer_to_label_in_list(std::string_view label, std::uint32_t entry);

  /// @brief The labels of a `.branchtargets` statement.
  const std::vector<std::string_view>& branch_targets(std::string_view name) const;

  void append(const Instruction&, bool is_site);

  [[noreturn]] void fail(FaultKind, const std::string& sentence) const;

  Program& program;
  bool in_kernel = false; ///< Whether `ret` ends the thread.
  Slot return_to = 0;

private:
  struct Family {
    std::string_view prefix;
    Type type;
    std::vector<Slot> slots; // 0: not used yet
  };
  struct Scope {
    std::map<std::string_view, Register> registers;
    std::vector<Family> families;
    std::map<std::string_view, Symbol> symbols;
    std::map<std::string_view, std::uint32_t> labels;
    std::vector<std::pair<std::string_view, std::uint32_t>> branches, entries; // label and where to put it
  };

  void decode_callees(const Function&);
  void decode_function(const Function&);
  void decode_body(const Function&);
  void statement(const Statement&);
  void directive(std::string_view text);
  void declare_registers(std::string_view text);
  void location(std::string_view text);
  void close_scope();
  Symbol place(const Declaration&, Space);
  std::optional<Register> special(std::string_view name);

  const Module::State& module_;
  std::vector<Scope> scopes_;
  std::map<std::string_view, Callee> callees_;
  std::vector<std::string_view> open_functions_; // being decoded, to find recursion
  std::map<std::string_view, std::vector<std::string_view>> branch_targets_;
  std::string_view label_; // before the statement
  std::map<std::pair<std::uint64_t, unsigned>, Slot> constants_;
  std::map<std::string_view, Register> specials_;
  std::map<std::string_view, Symbol> shared_; // placed so far
  std::size_t dynamic_alignment_ = 16;
  std::vector<std::size_t> dynamic_constants_; // whose values lack the beginning of dynamic shared memory
  Program::Origin origin_;
};

} // namespace ptx
