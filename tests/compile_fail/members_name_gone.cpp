// SPDX-License-Identifier: Apache-2.0
// needs: kokkos
// expect: members: a name must live as long as its module, but this string is a temporary (write a literal, or keep the string in the module)

#include <shardwright/train/members.hpp>

#include <string>

using namespace shardwright;

using Vector = Parameter<Layout<1>, Layout<1>>;

auto list(Vector& up, const std::string& name) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return members(name + "_up", up);
#else
  return members(name, up);
#endif
}
