// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Serialises values in Python's pickle protocol 2: strings, integers, lists, pairs and dictionaries.

#include <cstdint>
#include <string>
#include <string_view>

namespace flight_recorder {

/// One value, built from its parts in order. Opcodes as in Lib/pickletools.py of CPython.
class PickleText {
public:
  PickleText& text(std::string_view text) {
    out_ += 'X'; // BINUNICODE
    bytes(text.size(), 4);
    out_ += text;
    return *this;
  }
  PickleText& number(std::int64_t number) {
    out_ += "\x8a\x08"; // LONG1 of eight bytes
    bytes(static_cast<std::uint64_t>(number), 8);
    return *this;
  }
  PickleText& truth(bool truth) { return put(truth ? '\x88' : '\x89'); }
  PickleText& none() { return put('N'); }
  PickleText& begin_list() { return put(']').put('('); }
  PickleText& end_list() { return put('e'); }
  /// Keys and values follow alternately.
  PickleText& begin_dictionary() { return put('}').put('('); }
  PickleText& end_dictionary() { return put('u'); }
  /// Of the two preceding values.
  PickleText& pair() { return put('\x86'); }

  /// The bytes of a file.
  [[nodiscard]] std::string file() const { return "\x80\x02" + out_ + '.'; }

private:
  PickleText& put(char opcode) {
    out_ += opcode;
    return *this;
  }
  void bytes(std::uint64_t number, int count) {
    for (int i = 0; i < count; ++i)
      out_ += static_cast<char>(number >> 8 * i & 0xffU);
  }

  std::string out_;
};

} // namespace flight_recorder
