// What every verb of the command shares: how it is registered and how it ends.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "bowline.h"
#include "common/print.h"

namespace bowline::command {

// The exit codes, documented in --help and in README.md.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;         // the work failed
inline constexpr int kUsage = 2;          // an unknown verb, flag or value
inline constexpr int kBadFile = 3;        // a file that cannot be read or is damaged
inline constexpr int kBadDevice = 4;      // a device that is unknown or unusable
inline constexpr int kRestart = 75;       // the device is lost: start the command again
inline constexpr int kInterrupted = 130;  // Ctrl-C

// Filled while the arguments are parsed; main() calls `run` afterwards.
struct Context {
  std::function<Result<int>()> run;
};

// Defined by the build: one call per verb file.
void add_verbs(CLI::App& app, Context& context);

// Adds a verb. --help ends with `examples`. A line that begins with '#' is a comment, and a line
// that begins with a space continues the example.
CLI::App* add_verb(CLI::App& app, const std::string& name, const std::string& description,
                   const std::string& examples);
// -o, --format: "text" or "json". Every verb has it, behind its --out, if it has one: -o with
// anything else is that file then.
void add_format(CLI::App* verb, std::string& format, const std::string& help = "Output format");
// What the verb does once the arguments are parsed; the value is the exit code.
void on_run(CLI::App* verb, Context& context, std::function<Result<int>()> run);

// Prints "bowline: <message>" to stderr and returns the code.
int fail(int code, const std::string& message);
// The same for a failure of the library, with the exit code that belongs to it.
int fail(const Status& status);
// The same, where a bad argument is a wrong flag.
int fail_flags(const Status& status);
// Returns fail_flags() from the calling function if the status is a failure.
#define BOWLINE_TRY_FLAGS(call)                                                  \
  do {                                                                           \
    if (const ::bowline::Status bowline_status = (call); !bowline_status.ok()) { \
      return ::bowline::command::fail_flags(bowline_status);                     \
    }                                                                            \
  } while (false)
int exit_code(Code code);

// --device, --threads and --memory-budget.
struct DeviceFlags {
  std::string name = "best";
  int threads = 0;             // of the CPU; 0: one per core
  uint64_t memory_budget = 0;  // bytes; 0: no limit
};
// Opens a device; an unknown name gets the nearest known one as a suggestion.
Result<Device> open_device(const DeviceFlags& flags);
inline Result<Device> open_device(const std::string& name) {
  return open_device(DeviceFlags{.name = name});
}
// Where compiled pipelines are kept: $BOWLINE_CACHE, else in the user's cache folder. Empty:
// nowhere.
std::string pipeline_cache_folder();

}  // namespace bowline::command
