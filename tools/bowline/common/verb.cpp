#include "verb.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "base/nearest.h"

namespace bowline::command {
namespace {

constexpr std::array<std::string_view, 2> kForms = {"text", "json"};

// Adds -o to a verb that writes a file. -o takes an output format or a path, and each may be set
// once.
void add_form_or_file(CLI::App* verb, CLI::Option* form, CLI::Option* out) {
  const auto give = [form, out](const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      CLI::Option* const of = std::ranges::count(kForms, value) != 0 ? form : out;
      if (of->count() != 0) {
        throw CLI::ValidationError(fmt::format("-o \"{}\" sets {}, which is set already.", value,
                                               of->get_name(false, true)));
      }
      of->add_result(value);
      of->run_callback();
    }
  };
  verb->add_option_function<std::vector<std::string>>(
      "-o", give,
      fmt::format("{}: as --format; any other value: as --out", fmt::join(kForms, "|")));
}

// Writes "example: " before each example.
std::string footer_of(const std::string& examples) {
  std::string out;
  std::istringstream lines(examples);
  for (std::string line; std::getline(lines, line);) {
    const bool begins = !line.starts_with('#') && !line.starts_with(' ');
    out += fmt::format("{}{}{}", out.empty() ? "" : "\n", begins ? "example: " : "", line);
  }
  return out;
}

}  // namespace

CLI::App* add_verb(CLI::App& app, const std::string& name, const std::string& description,
                   const std::string& examples) {
  CLI::App* verb = app.add_subcommand(name, description);
  verb->footer(footer_of(examples));
  return verb;
}

void add_format(CLI::App* verb, std::string& format, const std::string& help) {
  CLI::Option* const out = verb->get_option_no_throw("--out");
  CLI::Option* const form =
      verb->add_option(out == nullptr ? "-o,--format" : "--format", format, help)
          ->check(CLI::IsMember(std::vector<std::string>(kForms.begin(), kForms.end())))
          ->capture_default_str();
  if (out != nullptr) {
    add_form_or_file(verb, form, out);
  }
}

void add_matmul_precision(CLI::App* verb, std::string& precision) {
  verb->add_option("--matmul-precision", precision, "Products of f32 matrices (tf32: CUDA)")
      ->check(CLI::IsMember(std::vector<std::string>{"f32", "tf32"}))
      ->capture_default_str();
}

void on_run(CLI::App* verb, Context& context, std::function<Result<int>()> run) {
  verb->final_callback([&context, run = std::move(run)] { context.run = run; });
}

int fail(int code, const std::string& message) {
  print(stderr, "bowline: {}\n", Lines{message});
  return code;
}

int fail(const Status& status) { return fail(exit_code(status.code()), status.message()); }

int fail_flags(const Status& status) {
  return status.code() == Code::bad_argument ? fail(kUsage, status.message()) : fail(status);
}

int exit_code(Code code) {
  switch (code) {
    case Code::ok:
      return kOk;
    case Code::bad_file:
      return kBadFile;
    case Code::unsupported:
      return kBadDevice;
    case Code::device_lost:
    case Code::device_poisoned:
      return kRestart;
    case Code::cancelled:
      return kInterrupted;
    case Code::bad_argument:
    case Code::index_out_of_range:
    case Code::non_finite:
    case Code::out_of_memory:
    case Code::over_budget:
    case Code::io_error:
    case Code::internal:
      return kFailed;
  }
  return kFailed;
}

namespace {

constexpr std::string_view kProcessor = "cpu";

// Returns advice for a device that is missing or cannot be used.
std::string device_remedy(const std::string& name, Code code) {
  std::vector<std::string> names = {"best", "gpu"};
  bool has_cpu = false;
  for (const DeviceInfo& info : Device::list()) {
    names.push_back(info.name);
    has_cpu = has_cpu || (info.name == kProcessor && info.unusable.empty());
  }
  const std::string close = code == Code::bad_argument ? nearest(name, names) : "";
  return fmt::format(
      "{}{}'bowline devices' lists all devices, with the reason why one cannot be used.",
      close.empty() ? "" : fmt::format("Did you mean '{}'? ", close),
      has_cpu && close != kProcessor ? fmt::format("--device {} runs it on the CPU. ", kProcessor)
                                     : "");
}

// Returns an empty text if there is no folder.
std::string cache_folder() {
  const char* set = std::getenv("BOWLINE_CACHE");
  if (set != nullptr) {
    return set;
  }
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') {
    return std::string(cache) + "/bowline";
  }
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? std::string(home) + "/.cache/bowline" : "";
}

}  // namespace

Result<Device> open_device(const DeviceFlags& flags) {
  DeviceOptions options;
  options.threads = flags.threads;
  options.cache_folder = prepare_cache_folder();
  options.memory_budget = flags.memory_budget;
  options.matmul_precision =
      flags.matmul_precision == "tf32" ? MatmulPrecision::tf32 : MatmulPrecision::f32;
  Result<Device> device = Device::open(flags.name, options);
  if (device.ok() && !device.value().info().notice.empty()) {
    print(stderr, "bowline: {}\n", device.value().info().notice);
  }
  if (device.ok() || device.status().code() == Code::over_budget) {
    return device;
  }
  const std::string remedy = device_remedy(flags.name, device.status().code());
  return std::move(device).status().at(remedy).as(Code::unsupported);
}

std::string prepare_cache_folder() {
  const std::string folder = cache_folder();
  std::error_code error = std::make_error_code(std::errc::no_such_file_or_directory);
  if (!folder.empty()) {
    std::filesystem::create_directories(folder, error);
  }
  // Without these variables, Mesa asks the C library for the home folder of the user, which may
  // open a socket.
  if (error) {
    setenv("MESA_SHADER_CACHE_DISABLE", "true", 0);
  } else {
    setenv("MESA_SHADER_CACHE_DIR", folder.c_str(), 0);
  }
  return folder;
}

}  // namespace bowline::command
