# bowline_recipes: small programs whose result is wrong if a tie is lost. They run on any device,
# for the conformance runner and the tests.
set(ties_folder "${CMAKE_CURRENT_LIST_DIR}")
file(GLOB recipe_sources CONFIGURE_DEPENDS "${ties_folder}/recipe.cpp" "${ties_folder}/recipes/*.cpp")
add_library(bowline_recipes STATIC EXCLUDE_FROM_ALL ${recipe_sources})
target_compile_options(bowline_recipes PRIVATE ${BOWLINE_WARNINGS} -fno-rtti)
target_include_directories(bowline_recipes PUBLIC "${PROJECT_SOURCE_DIR}/tests")
target_precompile_headers(bowline_recipes PRIVATE "${ties_folder}/recipe.h")
target_link_libraries(bowline_recipes PUBLIC bowline_checked)
