// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The common part of the readers' harnesses: libFuzzer, or replay.cpp, calls each with bytes.

#include <shardwright/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <stdlib.h>
#include <unistd.h>

namespace fuzz {

/// Ends the program if a property does not hold, which both callers report with the input.
inline void require(bool holds, const char* property) {
  if (holds)
    return;
  std::fprintf(stderr, "fuzz: this must hold: %s\n", property);
  std::abort();
}

/// Calls a reader; returns false if it rejects its input with an error of the library. Any other exception
/// ends the program.
template <class Read> bool accepted(const Read& read) {
  try {
    read();
    return true;
  } catch (const shardwright::Error& error) {
    const std::string_view sentence = error.what();
    require(sentence.size() > 10 && sentence.size() < 2000, "an error is a sentence, whatever the input");
    require(
        std::none_of(sentence.begin(), sentence.end(),
                     [](char letter) { return static_cast<unsigned char>(letter) < 32 || letter == 127; }),
        "a sentence holds nothing that a terminal takes for a command");
    return false;
  }
}

/// Takes numbers off the front of the input.
class Input {
public:
  Input(const std::uint8_t* data, std::size_t size) : bytes_(reinterpret_cast<const char*>(data), size) {}

  [[nodiscard]] unsigned number(unsigned below) {
    if (bytes_.empty())
      return 0;
    const auto byte = static_cast<unsigned char>(bytes_.front());
    bytes_.remove_prefix(1);
    return byte % below;
  }
  [[nodiscard]] std::string rest() const { return std::string(bytes_); }

private:
  std::string_view bytes_;
};

/// A file of the process, removed when it ends.
class Place {
public:
  Place() : path_((std::filesystem::temp_directory_path() / "shardwright_fuzz_XXXXXX").string()) {
    const int file = ::mkstemp(path_.data());
    require(file >= 0, "there is a scratch file");
    ::close(file);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }
  void write(std::string_view bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

private:
  std::string path_;
};

} // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
