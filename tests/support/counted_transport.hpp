// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief CountedTransport: a communicator that counts the calls and messages of its rank.

#include <shardwright/comm/decorated_transport.hpp>
#include <shardwright/comm/host_communicator.hpp>

#include <map>
#include <memory>
#include <utility>

namespace shardwright_test {

using namespace shardwright;

/// @brief What a rank communicates.
struct Counts {
  std::map<Operation, int> calls;
  int messages = 0; ///< To other ranks, alone and in all_to_alls.
};

/// @brief A communicator that counts what its rank calls.
class CountedTransport final : public detail::DecoratedTransport<HostCommunicator> {
public:
  CountedTransport(HostCommunicator below, Counts& counts)
      : DecoratedTransport(std::move(below)), counts_(counts) {}
  void run(const CollectiveCall& call) override {
    count(call);
    below().run(call);
  }
  [[nodiscard]] Pending start(const CollectiveCall& call) override {
    count(call);
    return below().start(call);
  }

protected:
  [[nodiscard]] std::shared_ptr<Transport> around(HostCommunicator part) const override {
    return std::make_shared<CountedTransport>(std::move(part), counts_);
  }

private:
  void count(const CollectiveCall& call) {
    ++counts_.calls[call.operation];
    counts_.messages += call.operation == Operation::send;
    if (call.operation == Operation::all_to_all)
      for (int to = 0; to < size(); ++to)
        counts_.messages += to != rank() && call.in_block(to).count() > 0;
  }
  Counts& counts_;
};

} // namespace shardwright_test
