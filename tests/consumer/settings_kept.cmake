# SPDX-License-Identifier: Apache-2.0
# A library must leave the settings of the project that uses it as they are: remember them, then compare.
set(consumer_settings
    CMAKE_CXX_COMPILER CMAKE_CXX_FLAGS CMAKE_CXX_FLAGS_RELEASE CMAKE_CXX_FLAGS_DEBUG CMAKE_CXX_STANDARD CMAKE_CXX_EXTENSIONS
    CMAKE_BUILD_TYPE CMAKE_EXE_LINKER_FLAGS CMAKE_POSITION_INDEPENDENT_CODE CMAKE_INTERPROCEDURAL_OPTIMIZATION
    CMAKE_MODULE_PATH CMAKE_PREFIX_PATH BUILD_SHARED_LIBS BUILD_TESTING CMAKE_RUNTIME_OUTPUT_DIRECTORY
    CMAKE_CXX_COMPILER_LAUNCHER MPI_CXX_SKIP_MPICXX)

macro(remember_settings)
  foreach(name IN LISTS consumer_settings)
    set(remembered_${name} "${${name}}")
    set(remembered_cache_${name} "$CACHE{${name}}")
  endforeach()
  get_property(remembered_options DIRECTORY PROPERTY COMPILE_OPTIONS)
  get_property(remembered_definitions DIRECTORY PROPERTY COMPILE_DEFINITIONS)
  get_property(remembered_launcher GLOBAL PROPERTY RULE_LAUNCH_COMPILE)
endmacro()

macro(expect_settings_kept)
  foreach(name IN LISTS consumer_settings)
    if(NOT "${${name}}" STREQUAL "${remembered_${name}}")
      message(FATAL_ERROR "${name} was '${remembered_${name}}' and is now '${${name}}'")
    endif()
    if(NOT "$CACHE{${name}}" STREQUAL "${remembered_cache_${name}}")
      message(FATAL_ERROR "${name} in the cache was '${remembered_cache_${name}}' and is now '$CACHE{${name}}'")
    endif()
  endforeach()
  get_property(options DIRECTORY PROPERTY COMPILE_OPTIONS)
  get_property(definitions DIRECTORY PROPERTY COMPILE_DEFINITIONS)
  get_property(launcher GLOBAL PROPERTY RULE_LAUNCH_COMPILE)
  if(NOT "${options}|${definitions}|${launcher}" STREQUAL
     "${remembered_options}|${remembered_definitions}|${remembered_launcher}")
    message(FATAL_ERROR "directory settings changed: '${options}' '${definitions}' '${launcher}'")
  endif()
endmacro()
