#include "common/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/status.h"
#include "common/arguments.h"

namespace bowline::command {

int run_program(int argc, char** argv, int (*program)(std::vector<std::string> words)) {
  // A closed pipe (| head) must not kill the process in the middle of a checkpoint.
  std::signal(SIGPIPE, SIG_IGN);
  // At the file size limit, the write then fails and is reported.
  std::signal(SIGXFSZ, SIG_IGN);
  int code = kFailed;
  try {
    code = program({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fail(kFailed, fmt::format("Unexpected failure: {}.", error.what()));
  }
  // A verb fails if its output could not be written, unless the reader closed the pipe.
  std::string why;
  if (printed(why) || code != kOk) {
    return code;
  }
  return fail(kFailed, fmt::format("Standard output cannot be written: {}.", why));
}

namespace {

// Makes a repeatable flag take one value each time, so that `--adapter FILE PROMPT` leaves the
// prompt to the positional argument behind it.
void take_one_value_per_flag(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (!option->get_positional() && option->get_items_expected_max() > 1) {
      option->allow_extra_args(false);
    }
  }
  for (CLI::App* verb : app.get_subcommands({})) {
    take_one_value_per_flag(*verb);
  }
}

}  // namespace

int run_arguments(CLI::App& app, Context& context, std::vector<std::string> words) {
  take_one_value_per_flag(app);
  if (const std::string problem = find_unknown(app, words); !problem.empty()) {
    return fail(kUsage, problem);
  }
  try {
    std::ranges::reverse(words);  // as CLI11 wants them
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      std::ostringstream text;
      app.exit(error, text, text);
      print("{}", Lines{text.str()});
      return kOk;
    }
    return fail(kUsage, usage_message(app, error.what()));
  }
  const Result<int> code = context.run();
  return code.ok() ? code.value() : fail(code.status());
}

Status start_beside(const std::string& name, std::vector<std::string> words) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = self.parent_path() / name;
  words.insert(words.begin(), name);
  std::vector<char*> arguments;
  std::ranges::transform(words, std::back_inserter(arguments),
                         [](std::string& w) { return w.data(); });
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  BOWLINE_REQUIRE_CODE(errno == ENOENT, Code::io_error, "Program \"{}\" cannot be started: {}.",
                       program, std::strerror(errno));
  return Status(
      Code::io_error,
      fmt::format("There is no program \"{}\". Build it with 'cmake --build BUILD --target "
                  "bowline_conform', or install it with 'cmake --install BUILD --component "
                  "bowline_conform'.",
                  program));
}

}  // namespace bowline::command
