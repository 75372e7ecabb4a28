// Parses a ModelProto and checks the model as a whole.
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "base/escape.h"
#include "base/status.h"
#include "onnx.pb.h"
#include "onnx/import.h"

namespace bowline::onnx {
namespace {

constexpr int64_t kOldestIr = 3;
constexpr int64_t kNewestIr = 14;
// Nesting depth of protobuf messages. A graph in an attribute of a node counts as four.
constexpr int kMostDepth = 64;

// Reads a whole file. Errors  bad_file.
Result<std::string> bytes_of(const std::string& path, const import::Progress& progress = {}) {
  constexpr std::streamoff kPiece = std::streamoff{16} << 20;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : -1;
  BOWLINE_REQUIRE_CODE(size >= 0, Code::bad_file, "\"{}\" cannot be read.", escaped(path));
  BOWLINE_REQUIRE_CODE(size <= INT32_MAX, Code::bad_file,
                       "\"{}\" has {} bytes. An ONNX file can have at most {}.", escaped(path),
                       size, INT32_MAX);
  std::string bytes(static_cast<size_t>(size), '\0');
  in.seekg(0);
  for (std::streamoff at = 0; at < size; at += kPiece) {
    BOWLINE_TRY(progress.at(ImportProgress::Part::bytes, static_cast<uint64_t>(at), bytes.size()));
    in.read(bytes.data() + at, std::min(kPiece, size - at));
  }
  BOWLINE_REQUIRE_CODE(in.good() || size == 0, Code::bad_file, "\"{}\" cannot be read.",
                       escaped(path));
  return bytes;
}

template <class Message>
Status parse(const std::string& bytes, Message& out) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  in.SetRecursionLimit(kMostDepth);
  const bool parsed = out.MergeFromCodedStream(&in) && in.ConsumedEntireMessage();
  BOWLINE_REQUIRE_CODE(parsed, Code::bad_file,
                       "The file is damaged or not an ONNX file: parsing ends at byte {} of {}.",
                       in.CurrentPosition(), bytes.size());
  return {};
}

Status check_model(const file::ModelProto& model) {
  BOWLINE_REQUIRE_CODE(model.has_ir_version() && model.has_graph(), Code::bad_file,
                       "The file has no version or no graph: it is damaged or not an ONNX model.");
  const int64_t ir = model.ir_version();
  BOWLINE_REQUIRE_CODE(ir >= kOldestIr && ir <= kNewestIr, Code::unsupported,
                       "The file has IR version {}. Versions {} to {} are supported.", ir,
                       kOldestIr, kNewestIr);
  return {};
}

std::string while_reading(const std::string& path) {
  return fmt::format("While reading \"{}\".", escaped(path));
}

}  // namespace

Result<std::shared_ptr<file::ModelProto>> parse_model(const std::string& bytes) {
  auto model = std::make_shared<file::ModelProto>();
  BOWLINE_TRY(parse(bytes, *model));
  BOWLINE_TRY(check_model(*model));
  return model;
}

Result<std::shared_ptr<file::ModelProto>> read_model(const std::string& path,
                                                     const import::Progress& progress) {
  BOWLINE_TRY_ASSIGN(const std::string bytes, bytes_of(path, progress));
  auto model = parse_model(bytes);
  BOWLINE_TRY(Status(model.status()).at(while_reading(path)));
  return model;
}

Result<std::pair<std::string, ConstantTensor>> read_tensor(const std::string& path) {
  BOWLINE_TRY_ASSIGN(const std::string bytes, bytes_of(path));
  file::TensorProto tensor;
  BOWLINE_TRY(parse(bytes, tensor).at(while_reading(path)));
  Result<ConstantTensor> numbers = numbers_of(tensor, "");
  BOWLINE_TRY(Status(numbers.status()).at(while_reading(path)));
  return std::pair(tensor.name(), std::move(numbers).value());
}

}  // namespace bowline::onnx
