// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Information from the system: which machine this is, and whether one of its processes is alive or
/// stopped.

#include <shardwright/core/config.hpp>
#include <shardwright/core/hash.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace shardwright::inline SHARDWRIGHT_ABI::detail {

/// The state of a process as seen by another one.
enum class ProcessState { gone, stopped, alive };

/// The state letter of a line of /proc/PID/stat; the command name in the line may contain anything, even
/// parentheses.
[[nodiscard]] constexpr char state_letter(std::string_view stat) noexcept {
  const std::size_t end = stat.rfind(')');
  return end == std::string_view::npos || end + 2 >= stat.size() ? '?' : stat[end + 2];
}
/// Stopped by a signal, or held by a debugger.
[[nodiscard]] constexpr bool is_stopped(char letter) noexcept { return letter == 'T' || letter == 't'; }

/// Whether a process with this number exists in the PID namespace: one system call.
[[nodiscard]] inline bool process_exists(int pid) noexcept { return ::kill(pid, 0) == 0 || errno != ESRCH; }

/// The state of a process in this PID namespace; if the system does not report it, the process counts as
/// alive.
[[nodiscard]] inline ProcessState state_of_process(int pid) noexcept {
  if (!process_exists(pid))
    return ProcessState::gone;
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return ProcessState::alive;
  std::array<char, 512> text{};
  const ssize_t bytes = ::read(file, text.data(), text.size());
  ::close(file);
  const std::string_view stat(text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return is_stopped(state_letter(stat)) ? ProcessState::stopped : ProcessState::alive;
}

/// Identifies this process' PID namespace: process numbers from another namespace mean nothing here. 0 if the
/// system has no such namespaces.
[[nodiscard]] inline std::uint64_t pid_namespace() noexcept {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0;
}

/// Identifies the running machine: a hash of its name and boot time.
[[nodiscard]] inline std::uint64_t host_id() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  char boot[64] = {};
  if (std::FILE* const file = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
    if (std::fscanf(file, "%63s", boot) != 1)
      boot[0] = '\0';
    std::fclose(file);
  }
  std::uint64_t hash = 7;
  for (const char letter : std::string(host) + boot)
    hash = mixed(hash, static_cast<unsigned char>(letter));
  return hash;
}

} // namespace shardwright::inline SHARDWRIGHT_ABI::detail
