// The field numbers are from tensorflow/core/util/event.proto and framework/summary.proto. The
// frame is TFRecord: length, masked CRC-32C of the length, bytes, masked CRC-32C of the bytes.
#include "finetune/events.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/status.h"

namespace bowline::command {
namespace {

// CRC-32C: the Castagnoli polynomial, with reversed bits. Events are short, so no table is needed.
uint32_t masked_crc(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    }
  }
  return std::rotr(~crc, 15) + 0xA282EAD8U;
}

template <class T>
std::string little_endian(T value) {
  std::string out;
  for (size_t i = 0; i < sizeof(T); ++i) {
    out += static_cast<char>(value >> (8 * i) & 0xFF);
  }
  return out;
}

// The wire format of protocol buffers.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) {
    out += static_cast<char>(value | 0x80);
  }
  return out + static_cast<char>(value);
}

std::string key(uint32_t field, Wire wire) { return varint(field << 3 | wire); }

std::string bytes_field(uint32_t field, std::string_view bytes) {
  return key(field, kBytes) + varint(bytes.size()) + std::string(bytes);
}

// The fields that every Event has: wall_time = 1 and step = 2.
std::string event_at(uint64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return key(1, kFixed64) + little_endian(std::bit_cast<uint64_t>(now.count())) + key(2, kVarint) +
         varint(step);
}

std::string file_name() {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("events.out.tfevents.{:010}.{}.{}",
                     std::chrono::duration_cast<std::chrono::seconds>(now).count(), host, getpid());
}

}  // namespace

Result<EventFile> EventFile::create(const std::string& folder, uint64_t step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  BOWLINE_REQUIRE_CODE(!error, Code::io_error, "Folder \"{}\" cannot be created: {}.", folder,
                       error.message());
  EventFile events;
  events.path_ = folder + "/" + file_name();
  Result<Descriptor> file =
      open_regular("Event file", events.path_, O_WRONLY | O_CREAT | O_EXCL, 0666);
  BOWLINE_TRY(Status(file.status()).as(Code::io_error));
  events.file_ = std::move(file).value();
  BOWLINE_TRY(events.record(event_at(0) + bytes_field(3, "brain.Event:2")));  // file_version
  BOWLINE_TRY(events.go_back(step));
  return events;
}

Status EventFile::go_back(uint64_t step) {
  if (file_.get() < 0) {
    return {};
  }
  const std::string start = key(1, kVarint) + varint(1);  // SessionLog.status = START
  return record(event_at(step + 1) + bytes_field(7, start));
}

Status EventFile::scalar(std::string_view tag, uint64_t step, double value) {
  if (file_.get() < 0) {
    return {};
  }
  const auto number = std::bit_cast<uint32_t>(static_cast<float>(value));
  const std::string point =
      bytes_field(1, tag) + key(2, kFixed32) + little_endian(number);  // Summary.Value
  return record(event_at(step) + bytes_field(5, bytes_field(1, point)));
}

Status EventFile::record(std::string_view event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  const std::string frame = length + little_endian(masked_crc(length)) + std::string(event) +
                            little_endian(masked_crc(event));
  BOWLINE_REQUIRE_CODE(write_all(file_.get(), std::as_bytes(std::span(frame))), Code::io_error,
                       "Event file \"{}\" cannot be written: {}.", path_, std::strerror(errno));
  return {};
}

}  // namespace bowline::command
