// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief A PyTorch process that runs one training step whenever it is asked to.

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace train_step {

/// @brief Drives benchmarks/pytorch_peer.py over two pipes.
class PyTorchPeer {
public:
  /// @brief Starts `python script arguments...` and waits until it is ready.
  /// @throws std::runtime_error with the peer's error sentence if it cannot start.
  PyTorchPeer(const std::string& python, const std::string& script,
              const std::vector<std::string>& arguments);
  ~PyTorchPeer();
  PyTorchPeer(const PyTorchPeer&) = delete;
  PyTorchPeer& operator=(const PyTorchPeer&) = delete;

  /// @brief Runs one step and returns its seconds.
  [[nodiscard]] double step() { return steps(1); }
  /// @brief Runs steps one after the other and returns the seconds of all.
  [[nodiscard]] double steps(int count);
  /// @brief Seconds of only the matrix products of its linear layers.
  [[nodiscard]] double products();
  /// @brief Traces steps: the seconds per step of every kernel, by name.
  [[nodiscard]] std::map<std::string, double> profile(int count);
  /// @brief The peer's description of itself, such as its version.
  [[nodiscard]] const std::string& description() const noexcept { return description_; }

private:
  struct Process;
  std::string read_line();
  void ask(const std::string& command);
  std::unique_ptr<Process> process_;
  std::string description_;
};

} // namespace train_step
