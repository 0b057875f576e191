// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Keeps what the process writes to its standard error stream, for a test to read.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace shardwright_test {

/// From its construction to its end, standard error goes to a file; another thread may read it meanwhile.
class StandardError {
public:
  StandardError() : file_(std::tmpfile()), before_(::dup(STDERR_FILENO)) {
    std::fflush(stderr);
    ::dup2(::fileno(file_), STDERR_FILENO);
  }
  ~StandardError() {
    std::fflush(stderr);
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    std::fclose(file_);
  }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;

  [[nodiscard]] std::string text() const {
    struct stat status {};
    ::fstat(::fileno(file_), &status);
    std::string out(static_cast<std::size_t>(status.st_size), '\0');
    const ssize_t bytes = ::pread(::fileno(file_), out.data(), out.size(), 0);
    out.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
    return out;
  }

private:
  std::FILE* file_;
  int before_;
};

} // namespace shardwright_test
