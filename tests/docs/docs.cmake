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
shardwright_add_check(docs.docstrings COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/check_docstrings")
shardwright_add_check(
  docs.check_docstrings COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/scripts/check_docstrings_test.py")
shardwright_add_check(
  docs.bare_line COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/docs/bare_line_test.py")

if(TARGET plan)
  shardwright_add_check(docs.plan LABEL docs COMMAND ${docs_check} --printed plan $<TARGET_FILE:plan>)
endif()
if(TARGET plan)
  shardwright_add_check(
    docs.plan_images LABEL docs
    COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/draw_plan" $<TARGET_FILE:plan> --check)
endif()
if(TARGET schedule_viewer)
  shardwright_add_check(
    docs.images LABEL docs COMMAND "${PROJECT_SOURCE_DIR}/scripts/draw_schedules" $<TARGET_FILE:schedule_viewer> --check)
endif()
# The programs of snippets.cmake use shardwright::compiled; here the compiler only reads them as shardwright::shardwright has it.
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
