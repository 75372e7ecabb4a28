# Writes HEADER with the commit of the tree in SOURCE. It is empty if SOURCE is not a Git checkout.
execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "#define BOWLINE_COMMIT \"${commit}\"\n" @ONLY)
