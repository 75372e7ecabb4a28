# BOWLINE_QUICK_BUILD: a first build for somebody who waits for it. What loops over elements
# (kernels, oracles) is compiled as in any build, the rest with less optimization: that takes about
# half the time, and runs once per model or step.
option(BOWLINE_QUICK_BUILD "Compile with less optimization what does not loop over elements" OFF)
if(BOWLINE_QUICK_BUILD)
  set(bowline_hot_flags "$<$<CONFIG:Release>:-O3>" "$<$<CONFIG:RelWithDebInfo>:-O1>")
  string(APPEND CMAKE_CXX_FLAGS_RELEASE " -O1")
  string(APPEND CMAKE_CXX_FLAGS_RELWITHDEBINFO " -O0")
endif()

# The target loops over elements.
function(bowline_hot target)
  if(BOWLINE_QUICK_BUILD)
    target_compile_options(${target} PRIVATE ${bowline_hot_flags})
  endif()
endfunction()
