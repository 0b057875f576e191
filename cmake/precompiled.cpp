// SPDX-License-Identifier: Apache-2.0
// Empty: clang++ adds the functions that precompiled headers define.
