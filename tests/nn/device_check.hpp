// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Checks of the training of device_training.hpp on the device that runs on the host.

#include "nn/device_training.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nn_test {

/// @brief Losses, norms, tokens and parameters of every rank; no wait and no new memory from the third step
/// on.
inline void check_equal(const std::vector<DeviceOutcome>& device, const std::vector<Outcome>& host) {
  REQUIRE(device.size() == host.size());
  for (std::size_t rank = 0; rank < host.size(); ++rank) {
    INFO("rank " << rank);
    CHECK(device[rank].pipeline.training == host[rank]);
    CHECK(std::all_of(device[rank].waits.begin() + 2, device[rank].waits.end(),
                      [](std::int64_t waits) { return waits == 0; }));
    CHECK(device[rank].pool[1] > 0);
    CHECK(device[rank].pool.back() == device[rank].pool[1]);
  }
}

/// @brief A float decoder whose model state is sharded, on the device that runs on the host. Collective.
/// Compiled in zero3_test.cpp.
[[nodiscard]] DeviceOutcome train_device_zero3(const sw::HostCommunicator& world, const Problem& problem,
                                               const PipelineWay& way, const sw::Schedule& schedule,
                                               const AtStep& at_step = {});

} // namespace nn_test
