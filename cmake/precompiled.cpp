// SPDX-License-Identifier: Apache-2.0
// Empty: with clang++, the functions that precompiled headers define.
