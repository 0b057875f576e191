// SPDX-License-Identifier: Apache-2.0
#include <shardwright/launch.hpp>
#include <shardwright/shardwright.hpp>

const void* address_in_second() { return static_cast<const void*>(&shardwright::axis::dp::name); }
