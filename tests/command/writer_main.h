// The main of a program that writes a model for the tests of the command.
#pragma once

#include <cstdio>

#include "bowline.h"

// Saves the program's model in this file.
bowline::Status write_model(const char* path);

int main(int argc, char** argv) {
  using bowline::Code;
  using bowline::Status;
  const Status s =
      argc == 2 ? write_model(argv[1]) : Status(Code::bad_argument, "One path, please.");
  if (!s.ok()) {
    std::fprintf(stderr, "%s\n", s.message().c_str());
  }
  return s.ok() ? 0 : 1;
}
