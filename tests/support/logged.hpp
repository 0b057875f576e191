// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Logs the calls that real ranks make, to compare them with those of a dry run.

#include <shardwright/comm/decorated_transport.hpp>
#include <shardwright/comm/host_communicator.hpp>
#include <shardwright/train/dry_run/call_log.hpp>

#include <memory>
#include <string>
#include <utility>

namespace shardwright_test {

namespace sw = shardwright;

/// @brief Records the calls made through it.
class LoggedTransport final : public sw::detail::DecoratedTransport<sw::HostCommunicator> {
public:
  LoggedTransport(sw::HostCommunicator below, std::shared_ptr<sw::CallLog> log)
      : DecoratedTransport(std::move(below)), log_(std::move(log)), name_(DecoratedTransport::name()),
        id_(log_->add_group(name_, size(), [this](int rank) { return world_rank(rank); })) {}

  void run(const sw::CollectiveCall& call) override {
    note(call, false);
    below().run(call);
  }
  [[nodiscard]] sw::Pending start(const sw::CollectiveCall& call) override {
    note(call, true);
    return below().start(call);
  }

protected:
  [[nodiscard]] std::shared_ptr<sw::Transport> around(sw::HostCommunicator part) const override {
    return std::make_shared<LoggedTransport>(std::move(part), log_);
  }

private:
  void note(const sw::CollectiveCall& call, bool started) {
    log_->add(
        call, name_, id_, size(), [this](int rank) { return world_rank(rank); }, started);
  }

  std::shared_ptr<sw::CallLog> log_;
  std::string name_;
  std::uint64_t id_;
};

/// @brief Decorates a communicator: its calls, and those of groups split off from it, are recorded in `log`.
[[nodiscard]] inline sw::HostCommunicator logged(sw::HostCommunicator ranks,
                                                 std::shared_ptr<sw::CallLog> log) {
  return sw::HostCommunicator(std::make_shared<LoggedTransport>(std::move(ranks), std::move(log)));
}

} // namespace shardwright_test
