#include "finetune/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

namespace bowline::command {
namespace {

// Length of the whole lines of steps 1..step at the begin of the file.
size_t kept_length(const std::string& path, uint64_t step) {
  std::ifstream file(path, std::ios::binary);
  size_t length = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    uint64_t number = 0;
    std::from_chars(line.data(), line.data() + line.size(), number);
    if (number == 0 || number > step) {
      break;
    }
    length += line.size() + 1;
  }
  return length;
}

}  // namespace

Status LossLog::failed() const {
  return Status(Code::io_error,
                fmt::format("Log \"{}\" cannot be written: {}.", path_, std::strerror(errno)));
}

Result<LossLog> LossLog::open(const std::string& path, uint64_t step) {
  LossLog log;
  log.path_ = path;
  const size_t length = kept_length(path, step);
  log.file_.reset(std::fopen(path.c_str(), "ab"));
  if (!log.file_ || ftruncate(fileno(log.file_.get()), static_cast<off_t>(length)) != 0) {
    return log.failed();
  }
  return log;
}

Status LossLog::write(const StepReport& report) {
  if (!file_) {
    return {};
  }
  const std::string line =
      fmt::format("{}\t{:.9g}\t{:.9g}\t{:.9g}{}\n", report.step, report.loss, report.grad_norm,
                  report.learning_rate, report.skipped ? "\tskipped" : "");
  const bool ok = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
                  std::fflush(file_.get()) == 0;
  return ok ? Status() : failed();
}

Status LossLog::sync() {
  return !file_ || fsync(fileno(file_.get())) == 0 || errno == EINVAL ? Status() : failed();
}

}  // namespace bowline::command
