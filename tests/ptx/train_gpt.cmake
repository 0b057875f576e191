# SPDX-License-Identifier: Apache-2.0
# The example train_gpt with interpreted kernels: with --target cuda, in float and bfloat16, its losses must be those of the
# host.
get_property(trainings GLOBAL PROPERTY shardwright_train_gpt_trainings)
if(NOT TARGET train_gpt_parts)
  return()
endif()
file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/train_gpt/*.cpp"
     "${PROJECT_SOURCE_DIR}/examples/trainer/*.cpp" "${PROJECT_SOURCE_DIR}/examples/pretrained/*.cpp")
list(FILTER sources EXCLUDE REGEX "/tokenizer.cpp$")
foreach(training IN LISTS trainings)
  string(REPLACE "|" ";" training "${training}")
  list(GET training 0 name)
  list(GET training 1 kind)
  list(GET training 2 function)
  if(name MATCHES "^(fp32|cuda_.*)$")
    set(source "${CMAKE_CURRENT_BINARY_DIR}/ptx/units/training_${name}.cpp")
    configure_file("${PROJECT_SOURCE_DIR}/examples/train_gpt/training.cpp.in" "${source}" @ONLY)
    list(APPEND sources "${source}")
  endif()
endforeach()
shardwright_ptx_program(train_gpt ${sources})
# What cannot be trained must be refused.
foreach(precision IN ITEMS fp32 bf16)
  foreach(place IN ITEMS "rank --mesh dp=1" "dp2 --mesh dp=2" "tp2 --mesh tp=2 --sequence-parallel" "zero3 --mesh dp=2 --zero 3")
    foreach(graph IN ITEMS "" --cuda-graph)
      separate_arguments(words UNIX_COMMAND "${place} ${graph}")
      list(POP_FRONT words where)
      string(REPLACE "--cuda-graph" ".graph" suffix "${graph}")
      set(case "ptx.train_gpt.${precision}.${where}${suffix}")
      add_test(NAME ${case} COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/ptx/train_gpt_losses.py"
                                    $<TARGET_FILE:ptx_train_gpt> --precision ${precision} ${words})
      set_tests_properties(${case} PROPERTIES TIMEOUT 1200 LABELS ptx_programs)
    endforeach()
  endforeach()
endforeach()
add_test(NAME ptx.train_gpt.traffic COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/ptx/step_traffic.py"
                                            $<TARGET_FILE:ptx_train_gpt>)
set_tests_properties(ptx.train_gpt.traffic PROPERTIES TIMEOUT 600 LABELS ptx_programs)
