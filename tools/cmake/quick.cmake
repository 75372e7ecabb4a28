# BOWLINE_QUICK_BUILD: a faster first build. Code that loops over elements (kernels, oracles) is
# compiled as usual. All other code runs only once per model or step, so it is compiled with less
# optimization. This halves the build time. With sanitizers, -O1 takes twice as long to compile
# kernels as -Og, and they are no faster.
option(BOWLINE_QUICK_BUILD "Compile code without loops over elements with less optimization" OFF)
if(BOWLINE_QUICK_BUILD)
  set(bowline_hot_flags "$<$<CONFIG:Release>:-O3>" "$<$<CONFIG:RelWithDebInfo>:-Og>")
  string(APPEND CMAKE_CXX_FLAGS_RELEASE " -O1")
  string(APPEND CMAKE_CXX_FLAGS_RELWITHDEBINFO " -O0")
endif()

# Marks a target whose code loops over elements.
function(bowline_hot target)
  if(BOWLINE_QUICK_BUILD)
    target_compile_options(${target} PRIVATE ${bowline_hot_flags})
  endif()
endfunction()
