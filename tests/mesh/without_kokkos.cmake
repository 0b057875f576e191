# SPDX-License-Identifier: Apache-2.0
# The tests of a layer run inside Kokkos; this program runs without.
add_executable(mesh_without_kokkos_program "${CMAKE_CURRENT_LIST_DIR}/without_kokkos_program.cpp")
target_link_libraries(mesh_without_kokkos_program PRIVATE shardwright::shardwright)
shardwright_program_flags(mesh_without_kokkos_program)
add_test(NAME mesh.without_kokkos COMMAND mesh_without_kokkos_program)
set_tests_properties(mesh.without_kokkos PROPERTIES TIMEOUT 60)
