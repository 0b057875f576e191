// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A PyTorch process that runs one training step whenever it is asked to.

#include "pytorch.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace train_step {

struct PyTorchPeer::Process {
  pid_t id = -1;
  std::FILE* to = nullptr;
  std::FILE* from = nullptr;
  ~Process() {
    if (to != nullptr)
      std::fclose(to);
    if (from != nullptr)
      std::fclose(from);
    if (id > 0)
      ::waitpid(id, nullptr, 0);
  }
};

PyTorchPeer::PyTorchPeer(const std::string& python, const std::string& script,
                         const std::vector<std::string>& arguments)
    : process_(std::make_unique<Process>()) {
  std::signal(SIGPIPE, SIG_IGN); // if the peer has died, the next read fails
  int to[2];
  int from[2];
  if (::pipe(to) != 0 || ::pipe(from) != 0)
    throw std::runtime_error("PyTorch peer: no pipes");
  process_->id = ::fork();
  if (process_->id < 0)
    throw std::runtime_error("PyTorch peer: no process");
  if (process_->id == 0) {
    ::dup2(to[0], 0);
    ::dup2(from[1], 1);
    for (const int end : {to[0], to[1], from[0], from[1]})
      ::close(end);
    std::vector<std::string> words{python, script};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    std::printf("error: %s does not start\n", argv[0]);
    std::fflush(stdout);
    std::_Exit(127);
  }
  ::close(to[0]);
  ::close(from[1]);
  process_->to = ::fdopen(to[1], "w");
  process_->from = ::fdopen(from[0], "r");
  for (;;) {
    const std::string line = read_line();
    if (line.rfind("error:", 0) == 0)
      throw std::runtime_error("PyTorch peer: " + line);
    if (line.rfind("ready", 0) == 0) {
      description_ = line;
      return;
    }
  }
}

PyTorchPeer::~PyTorchPeer() = default;

void PyTorchPeer::ask(const std::string& command) {
  std::fputs((command + "\n").c_str(), process_->to);
  std::fflush(process_->to);
}

double PyTorchPeer::steps(int count) {
  ask("steps " + std::to_string(count));
  return std::strtod(read_line().c_str(), nullptr);
}

double PyTorchPeer::products() {
  ask("products");
  return std::strtod(read_line().c_str(), nullptr);
}

std::map<std::string, double> PyTorchPeer::profile(int count) {
  ask("profile " + std::to_string(count));
  std::map<std::string, double> seconds;
  for (std::string line = read_line(); line != "end"; line = read_line()) {
    const std::size_t space = line.find(' ');
    if (space != std::string::npos) // other lines are warnings of libraries
      seconds[line.substr(space + 1)] += std::strtod(line.c_str(), nullptr);
  }
  return seconds;
}

std::string PyTorchPeer::read_line() {
  std::string line;
  for (int c = std::fgetc(process_->from); c != '\n'; c = std::fgetc(process_->from)) {
    if (c == EOF)
      throw std::runtime_error("PyTorch peer: it ended; its last words: " + line);
    line.push_back(static_cast<char>(c));
  }
  return line;
}

} // namespace train_step
