// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief One instruction while it is decoded.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../program.hpp"
#include "../read/decoder.hpp"
#include "../read/operand.hpp"

namespace ptx {

/// @brief The words, operands and rows of an instruction. A form takes the words that it knows, asks for the
/// rows of its operands, and emits the function that does the work.
class Build {
public:
  Build(Decoder&, std::string_view words, std::string_view operands, std::string_view guard);

  /// @brief Decodes the instruction and appends it to the program.
  void decode();

  std::size_t count() const { return operands.size(); }
  const Operand& operand(std::size_t i) const;

  /// @brief The row of a source operand, which must be as wide as the type.
  Slot from(std::size_t i, Type type) { return from(operand(i), type); }
  Slot from(const Operand&, Type);

  /// @brief The same where the register may be wider, as those of cvt and st.
  Slot from_wide(const Operand&, Type);

  /// @brief The row of a destination operand; that of `_` is a row that nothing reads.
  Slot to(std::size_t i, Type type) { return to(operand(i), type); }
  Slot to(const Operand&, Type);

  /// @brief The same where the register may be wider, as those of cvt and ld: the value is extended as its
  /// type says.
  Slot to_wide(const Operand&, Type);

  /// @brief Sets from[0] and immediate to the address in an operand. Returns its space, if it names a
  /// variable.
  Space address(std::size_t i, Space);

  /// @brief A new type; ends if the instruction has none left.
  Type type();

  /// @brief Appends the instruction, with whatever its operands need before and after it.
  void emit(Execute, Flow = Flow::next);

  /// @brief Puts rows into the lists of the program, as out.list.
  void list(const std::vector<Slot>&);

  /// @brief Ends with the sentence that the interpreter does not know this form.
  [[noreturn]] void unsupported(const std::string& why) const;

  Decoder& decoder;
  Opcode opcode = Opcode::mov;
  Words words;
  std::vector<Operand> operands;
  Instruction out;

private:
  void before(Execute, Slot to, Slot from);
  void finish() const;

  std::vector<Instruction> after_;
  bool emitted_ = false;
};

// Each decodes a family of opcodes; the sources of the folder are named after them.
void build_integer(Build&);
void build_bits(Build&);
void build_float(Build&);
void build_half(Build&);
void build_compare(Build&);
void build_move(Build&);
void build_convert(Build&);
void build_load_store(Build&);
void build_atomic(Build&);
void build_copy(Build&);
void build_warp(Build&);
void build_warp_barrier(Build&);
void build_matrix(Build&);
void build_control(Build&);
void build_call(Build&);

} // namespace ptx
