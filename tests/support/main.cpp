// SPDX-License-Identifier: Apache-2.0
#include "support/session.hpp"

int main(int argc, char** argv) { return shardwright_test::run_session(argc, argv); }
