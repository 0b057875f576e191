// SPDX-License-Identifier: Apache-2.0
// needs: kokkos

#include <shardwright/train/members.hpp>

#include <string>

using namespace shardwright;

using Vector = Parameter<Layout<1>, Layout<1>>;

namespace members_name_gone {
// expect: members: a name must live as long as its module, but this string is a temporary (write a literal, or keep the string in the module)

auto list(Vector& up, const std::string& name) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return members(name + "_up", up);
#else
  return members(name, up);
#endif
}
} // namespace members_name_gone

namespace members_plain_number {
// expect: members: a member must be a Parameter, a module with members(), or a container of modules (leave plain numbers out)

struct Module {
  Parameter<Layout<1>, Layout<1>> gain;
  double epsilon = 1e-5;
#ifdef SHARDWRIGHT_EXPECT_FAIL
  auto members() { return shardwright::members("gain", gain, "epsilon", epsilon); }
#else
  auto members() { return shardwright::members("gain", gain); }
#endif
};

void start(Module& module) { initialize(module, 1); }
} // namespace members_plain_number

namespace members_without_name {
// expect: members: every member must come with its name

auto list(Vector& up, Vector& down) {
#ifdef SHARDWRIGHT_EXPECT_FAIL
  return members("up", up, down);
#else
  return members("up", up, "down", down);
#endif
}
} // namespace members_without_name
