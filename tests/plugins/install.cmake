# Installs BUILD's development component to STAGE, then moves the tree: nothing may depend on where it was put.
file(REMOVE_RECURSE "${STAGE}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${STAGE}/first" --config "${CONFIG}"
  --component orrery_development COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
file(RENAME "${STAGE}/first" "${STAGE}/prefix")
