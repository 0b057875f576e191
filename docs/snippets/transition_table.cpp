// SPDX-License-Identifier: Apache-2.0
//
// Prints the table of all transitions over one axis, shown on the page about describe-then-run.
#include <shardwright/layout/describe.hpp>

#include <cstdio>

int main() { std::fputs(shardwright::transition_table().c_str(), stdout); }
