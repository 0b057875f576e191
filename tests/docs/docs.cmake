# SPDX-License-Identifier: Apache-2.0
# The pages: their code is quoted from files that compile, what they print is what is printed, and Doxygen has nothing
# to complain about.
set(docs_check "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/check_docs")
shardwright_add_check(docs.quotes COMMAND ${docs_check})
shardwright_add_check(docs.errors COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/describe_errors")

# shardwright_snippet(<name> <target> [PRINTED]): docs/snippets/<name>.cpp is built and run; PRINTED: a page shows its output.
function(shardwright_snippet name library)
  add_executable(docs_${name} "${PROJECT_SOURCE_DIR}/docs/snippets/${name}.cpp")
  target_link_libraries(docs_${name} PRIVATE ${library})
  shardwright_program_flags(docs_${name})
  target_compile_options(docs_${name} PRIVATE -O0 -g0) # they run for milliseconds and compile for seconds
  if("PRINTED" IN_LIST ARGN)
    shardwright_add_check(docs.${name} LABEL docs COMMAND ${docs_check} --printed ${name} $<TARGET_FILE:docs_${name}>)
  else()
    shardwright_add_check(docs.${name} LABEL docs COMMAND docs_${name})
  endif()
endfunction()

shardwright_snippet(transition_table shardwright::descriptions PRINTED)
shardwright_snippet(descriptions shardwright::descriptions PRINTED)
shardwright_snippet(first_tensors shardwright::shardwright PRINTED)
shardwright_snippet(faults shardwright::shardwright PRINTED)
shardwright_snippet(own_kernel shardwright::shardwright)
shardwright_snippet(regression shardwright::shardwright)
foreach(ranks IN ITEMS 1 3 4)
  shardwright_add_check(docs.regression.${ranks} LABEL docs COMMAND docs_regression ${ranks})
endforeach()
if(TARGET shardwright::mpi)
  foreach(ranks IN ITEMS 3 4)
    shardwright_add_mpi_test(docs.regression.mpi.${ranks} ${ranks} docs_regression)
  endforeach()
endif()

find_package(Doxygen QUIET)
if(DOXYGEN_FOUND)
  set(docs_reference "${CMAKE_CURRENT_BINARY_DIR}/docs_reference")
  set(DOXYGEN_ROOT "${PROJECT_SOURCE_DIR}")
  set(DOXYGEN_OUTPUT "${docs_reference}")
  file(MAKE_DIRECTORY "${docs_reference}")
  configure_file("${PROJECT_SOURCE_DIR}/docs/Doxyfile.in" "${docs_reference}/Doxyfile" @ONLY)
  shardwright_add_check(docs.reference TIMEOUT 300 COMMAND Doxygen::doxygen "${docs_reference}/Doxyfile")
endif()
