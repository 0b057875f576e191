# SPDX-License-Identifier: Apache-2.0
# Images of the pages that a short training draws again.
shardwright_add_check(
  docs.timeline LABEL docs PROCESSORS 2
  COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/scripts/draw_timeline" $<TARGET_FILE:train_gpt> --check)
shardwright_add_check(
  docs.tensorboard LABEL docs PROCESSORS 2
  COMMAND "${SHARDWRIGHT_TENSORBOARD_PYTHON}" "${PROJECT_SOURCE_DIR}/scripts/draw_tensorboard" $<TARGET_FILE:train_gpt> --check)
