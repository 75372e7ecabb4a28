// main() of a program that writes a model for tests: PROGRAM FILE [name=value ...].
#pragma once

#include <cstdio>
#include <map>
#include <string>

#include "bowline.h"

// The complete arguments of the program, for example "FILE [layers=2] [dtype=bf16]".
extern const char* const kArguments;

using Options = std::map<std::string, std::string>;
// Saves the model of the program in this file.
bowline::Status write_model(const std::string& path, const Options& options);

inline bool is_option(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != std::string::npos &&
         std::string(kArguments).find(" [" + word.substr(0, equals + 1)) != std::string::npos;
}

int main(int argc, char** argv) {
  bool usable = argc >= 2 && argv[1][0] != '-';
  Options options;
  for (int i = 2; i < argc && usable; ++i) {
    const std::string word = argv[i];
    usable = is_option(word);
    options[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  if (!usable) {
    std::fprintf(stderr, "usage: %s %s\n", argv[0], kArguments);
    return 2;
  }
  const bowline::Status s = write_model(argv[1], options);
  if (!s.ok()) {
    std::fprintf(stderr, "%s\n", s.message().c_str());
  }
  return s.ok() ? 0 : 1;
}
