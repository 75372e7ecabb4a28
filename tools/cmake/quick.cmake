# BOWLINE_QUICK_BUILD: a first build for somebody who waits for it. What loops over elements (kernels, oracles) is compiled
# as in any release, the rest with -O1: that takes about half the time, and runs once per model or step.
option(BOWLINE_QUICK_BUILD "Compile with -O1 what does not loop over elements" OFF)
if(BOWLINE_QUICK_BUILD)
  string(APPEND CMAKE_CXX_FLAGS_RELEASE " -O1")
endif()

# The target loops over elements.
function(bowline_hot target)
  if(BOWLINE_QUICK_BUILD)
    target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:-O3>")
  endif()
endfunction()
