// Checks of files that may be damaged: tokenizers and chat templates.
#pragma once

#include "base/status.h"

// A false condition returns bad_file with the sentence.
#define BOWLINE_REQUIRE_FILE(condition, ...) \
  BOWLINE_REQUIRE_CODE(condition, ::bowline::Code::bad_file, __VA_ARGS__)
