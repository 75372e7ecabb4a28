#include "finetune/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/status.h"

namespace bowline::command {
namespace {

constexpr std::string_view kMark = "# bowline finetune log 1, run ";

std::string header_of(const LossLog::Place& place) {
  return fmt::format("{}{}: step, loss in {}, gradient norm, learning rate\n", kMark, place.run,
                     place.unit);
}

// Reads at most `most` bytes from the start of the file.
Result<std::string> read_begin(int fd, size_t most) {
  std::string text;
  char piece[1 << 16];
  while (text.size() < most) {
    const size_t wanted = std::min(sizeof(piece), most - text.size());
    const ssize_t n = pread(fd, piece, wanted, static_cast<off_t>(text.size()));
    BOWLINE_REQUIRE_CODE(n >= 0, Code::io_error, "The log cannot be read: {}.",
                         std::strerror(errno));
    if (n == 0) {
      break;
    }
    text.append(piece, static_cast<size_t>(n));
  }
  return text;
}

// Returns the length of the header and of the complete lines of steps 1..step after it.
size_t kept_length(std::string_view text, uint64_t step) {
  size_t length = text.find('\n') + 1;
  for (;;) {
    const std::string_view line = text.substr(length, text.find('\n', length) - length);
    uint64_t number = 0;
    std::from_chars(line.data(), line.data() + line.size(), number);
    if (length + line.size() == text.size() || number == 0 || number > step) {
      return length;
    }
    length += line.size() + 1;
  }
}

}  // namespace

Status LossLog::failed() const {
  return Status(Code::io_error,
                fmt::format("Log \"{}\" cannot be written: {}.", path_, std::strerror(errno)));
}

Result<LossLog> LossLog::open(const Place& place) {
  LossLog log;
  log.path_ = place.path;
  BOWLINE_TRY_ASSIGN(log.file_, open_regular("Log", place.path, O_RDWR | O_CREAT, 0666));
  BOWLINE_REQUIRE_CODE(flock(log.file_.get(), LOCK_EX | LOCK_NB) == 0, Code::io_error,
                       "Another run is writing the log \"{}\".", place.path);
  BOWLINE_TRY(log.begin(place));
  return log;
}

Status LossLog::begin(const Place& place) {
  const std::string header = header_of(place);
  BOWLINE_TRY_ASSIGN(const std::string first, read_begin(file_.get(), header.size()));
  const bool cut = first.empty() || (first.size() < header.size() && first.starts_with(kMark) &&
                                     header.starts_with(first));
  BOWLINE_REQUIRE(
      cut || first.starts_with(kMark),
      "--log \"{}\" exists, and finetune did not write it. It is not changed. Choose another name.",
      path_);
  if (first == header && place.resumed) {
    return go_back(place.step);
  }
  BOWLINE_REQUIRE(cut || place.force,
                  "--log \"{}\" holds the steps of {} run. Choose another name{}, or replace it "
                  "with --force.",
                  path_, first == header ? "an earlier" : "another",
                  first == header ? ", continue that run (--resume)" : "");
  BOWLINE_TRY(cut_to(0));
  return append(header);
}

Status LossLog::cut_to(size_t length) {
  const auto end = static_cast<off_t>(length);
  const bool ok = ftruncate(file_.get(), end) == 0 && lseek(file_.get(), end, SEEK_SET) == end;
  return ok ? Status() : failed();
}

Status LossLog::append(std::string_view text) {
  return write_all(file_.get(), std::as_bytes(std::span(text))) ? Status() : failed();
}

Status LossLog::write(const StepReport& report, double loss) {
  if (file_.get() < 0) {
    return {};
  }
  return append(fmt::format("{}\t{:.9g}\t{:.9g}\t{:.9g}{}\n", report.step, loss, report.grad_norm,
                            report.learning_rate, report.skipped ? "\tskipped" : ""));
}

Status LossLog::go_back(uint64_t step) {
  if (file_.get() < 0) {
    return {};
  }
  BOWLINE_TRY_ASSIGN(const std::string text, read_begin(file_.get(), SIZE_MAX));
  return cut_to(kept_length(text, step));
}

Status LossLog::sync() {
  return file_.get() < 0 || fsync(file_.get()) == 0 || errno == EINVAL ? Status() : failed();
}

}  // namespace bowline::command
