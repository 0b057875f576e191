# SPDX-License-Identifier: Apache-2.0
# The pages: their code is quoted from files that compile, the output that they show is the output of the programs, and
# Doxygen reports no problem.
set(docs_check "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/check_docs")
shardwright_add_check(docs.quotes COMMAND ${docs_check})
shardwright_add_check(docs.errors COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/describe_errors")
set(docs_reference "${CMAKE_CURRENT_BINARY_DIR}/docs_reference")
shardwright_add_check(
  docs.surface COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/describe_surface" --page
                       "${docs_reference}/pages/surface.md")
set_tests_properties(docs.surface PROPERTIES FIXTURES_SETUP docs_surface)
shardwright_add_check(
  docs.bare_line COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/docs/bare_line_test.py")

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
shardwright_snippet(cheat_sheet shardwright::descriptions)
shardwright_snippet(schedule_table shardwright::descriptions PRINTED)
shardwright_snippet(schedules shardwright::descriptions PRINTED)
shardwright_snippet(own_schedule shardwright::descriptions PRINTED)
shardwright_snippet(planner shardwright::descriptions PRINTED)
if(TARGET plan)
  shardwright_add_check(docs.plan LABEL docs COMMAND ${docs_check} --printed plan $<TARGET_FILE:plan>)
endif()
if(TARGET plan)
  shardwright_add_check(
    docs.plan_images LABEL docs
    COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/draw_plan" $<TARGET_FILE:plan> --check)
endif()
if(TARGET train_gpt)
  shardwright_add_check(
    docs.timeline LABEL docs PROCESSORS 2
    COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/draw_timeline" $<TARGET_FILE:train_gpt> --check)
  shardwright_add_check(
    docs.tensorboard LABEL docs PROCESSORS 2
    COMMAND "${SHARDWRIGHT_TENSORBOARD_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/draw_tensorboard" $<TARGET_FILE:train_gpt> --check)
endif()
if(TARGET schedule_viewer)
  shardwright_add_check(
    docs.images LABEL docs COMMAND "${PROJECT_SOURCE_DIR}/scripts/draw_schedules" $<TARGET_FILE:schedule_viewer> --check)
endif()
# Transports compiled once for all programs; a build with CUDA has units of two compilers.
set(shardwright_library shardwright::compiled)
if(SHARDWRIGHT_WITH_CUDA)
  set(shardwright_library shardwright::shardwright)
endif()
shardwright_snippet(first_tensors ${shardwright_library} PRINTED)
shardwright_snippet(faults ${shardwright_library} PRINTED)
shardwright_snippet(own_kernel ${shardwright_library})
shardwright_snippet(own_memory ${shardwright_library})
shardwright_snippet(narrow_tensors ${shardwright_library})
shardwright_snippet(halos ${shardwright_library})
shardwright_snippet(regression ${shardwright_library})
shardwright_snippet(pipeline ${shardwright_library})
shardwright_snippet(sharding ${shardwright_library})
shardwright_snippet(watch ${shardwright_library})
shardwright_snippet(context ${shardwright_library})
shardwright_snippet(experts ${shardwright_library})
shardwright_snippet(own_mlp ${shardwright_library})
shardwright_snippet(own_transformer ${shardwright_library} PRINTED)
shardwright_snippet(own_operation ${shardwright_library})
shardwright_snippet(own_training ${shardwright_library})
foreach(ranks IN ITEMS 1 3 4)
  shardwright_add_check(docs.regression.${ranks} LABEL docs COMMAND docs_regression ${ranks})
endforeach()
if(TARGET shardwright::mpi)
  foreach(ranks IN ITEMS 3 4)
    shardwright_add_mpi_test(docs.regression.mpi.${ranks} ${ranks} docs_regression)
  endforeach()
endif()

# A program that owns MPI, so that it runs under mpiexec only.
if(TARGET shardwright::mpi)
  add_executable(docs_coupled "${PROJECT_SOURCE_DIR}/docs/snippets/coupled.cpp")
  target_link_libraries(docs_coupled PRIVATE ${shardwright_library})
  shardwright_program_flags(docs_coupled)
  target_compile_options(docs_coupled PRIVATE -O0 -g0)
  foreach(ranks IN ITEMS 1 3 4)
    shardwright_add_mpi_test(docs.coupled.mpi.${ranks} ${ranks} docs_coupled)
  endforeach()
endif()

# The programs above use shardwright::compiled; here the compiler only reads them as shardwright::shardwright has it.
if(NOT SHARDWRIGHT_WITH_CUDA)
  shardwright_add_check(
    docs.snippets_without_launch LABEL docs
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/docs/read_snippets.py" --compiler "${CMAKE_CXX_COMPILER}"
            --flags "${CMAKE_CURRENT_BINARY_DIR}/flags/runners.txt" --work "${CMAKE_CURRENT_BINARY_DIR}")
endif()

find_package(Doxygen QUIET)
if(DOXYGEN_FOUND)
  include("${PROJECT_SOURCE_DIR}/docs/site.cmake")
  shardwright_configure_site("${docs_reference}")
  shardwright_add_check(docs.reference TIMEOUT 300 COMMAND Doxygen::doxygen "${docs_reference}/Doxyfile")
  set_tests_properties(docs.reference PROPERTIES FIXTURES_REQUIRED docs_surface FIXTURES_SETUP docs_reference)
  # The search finds a sentence of a page by its section, and a declaration.
  shardwright_add_check(
    docs.search COMMAND "${CMAKE_COMMAND}" "-DCOMMAND=${Python3_EXECUTABLE}|${PROJECT_SOURCE_DIR}/docs/index_text|${docs_reference}/html"
                        -DEXIT=0 "-DSAYS=sections can be searched" "-DFILE=${docs_reference}/html/search_text.js"
                        "-DHOLDS=page_first_program.html#[a-z0-9_]+.,.A program of your own.,.6. Partial sums.,.Each rank can only sum|.redistribute[(][)]"
                        -P "${PROJECT_SOURCE_DIR}/tests/examples/run_check.cmake")
  set_tests_properties(docs.search PROPERTIES FIXTURES_REQUIRED docs_reference)
else()
  message(STATUS "shardwright: Doxygen not found, so the test docs.reference is left out (install the package doxygen)")
endif()
