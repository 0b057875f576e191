// SPDX-License-Identifier: Apache-2.0
// Two units include everything: a function that is neither a template nor inline would be defined twice.
#include <shardwright/launch.hpp>
#include <shardwright/shardwright.hpp>

#include <cstdio>

const void* address_in_second();
const void* address_in_first() { return static_cast<const void*>(&shardwright::axis::dp::name); }

int main() {
  // One entity in the program, not one per unit.
  const bool same = address_in_first() == address_in_second();
  std::printf("%s\n", same ? "one entity" : "two entities of the same name");
  return same ? 0 : 1;
}
