// Helpers for the models of fixtures/ and the results of transformers.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "architectures/architecture.h"
#include "huggingface/read.h"
#include "huggingface/safetensors.h"
#include "need.h"

namespace bowline::test {

#define ASSERT_FINE(status)                                 \
  do {                                                      \
    const ::bowline::Status fine_status = (status);         \
    ASSERT_TRUE(fine_status.ok()) << fine_status.message(); \
  } while (false)

inline std::string fixture(const std::string& name) {
  return std::string(BOWLINE_IMPORT_FIXTURES "/") + name;
}

// A tensor that owns its bytes.
struct Numbers {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  Tensor tensor(std::string_view name) const {
    return {name, dtype, shape, const_cast<std::byte*>(bytes.data())};
  }
  std::span<const float> floats() const {
    return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
  }
  std::span<const int32_t> ids() const {
    return {reinterpret_cast<const int32_t*>(bytes.data()), bytes.size() / sizeof(int32_t)};
  }
};

inline Numbers numbers_of(std::vector<int64_t> shape, std::span<const int32_t> ids) {
  const auto bytes = std::as_bytes(ids);
  return {DType::i32, std::move(shape), {bytes.begin(), bytes.end()}};
}

inline std::map<std::string, Numbers> read_numbers(const std::string& path) {
  std::map<std::string, Numbers> out;
  const auto file = huggingface::read_safetensors(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  for (const import::SourceTensor& t :
       file.ok() ? file.value().tensors : std::vector<import::SourceTensor>()) {
    Numbers& n = out[t.name];
    n = {t.dtype, t.shape, std::vector<std::byte>(t.bytes)};
    const Status read = t.read(0, n.bytes);
    EXPECT_TRUE(read.ok()) << read.message();
  }
  return out;
}

inline void write_numbers(const std::string& path, const std::map<std::string, Numbers>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, n] : tensors) {
    const std::string dtype = n.dtype == DType::i32 ? "I32" : "F32";
    header[name] = {{"dtype", dtype},
                    {"shape", n.shape},
                    {"data_offsets", {data.size(), data.size() + n.bytes.size()}}};
    data.append(reinterpret_cast<const char*>(n.bytes.data()), n.bytes.size());
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << text << data;
}

inline Result<import::Built> import_folder(const std::string& folder,
                                           const TextImportOptions& options = {}) {
  BOWLINE_TRY_ASSIGN(const import::Source source, huggingface::read(folder));
  return build_model(source, options);
}

// Returns the largest absolute difference of two tensors.
inline double difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    most = d > most || std::isnan(d) ? d : most;
  }
  return most;
}

// A copy of a fixture that a test may damage.
class FolderCopy {
 public:
  explicit FolderCopy(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("bowline_import_" + std::to_string(::getpid()) + "_" + name)) {
    std::filesystem::remove_all(path_);
    std::filesystem::copy(fixture(name), path_, std::filesystem::copy_options::recursive);
  }
  ~FolderCopy() { std::filesystem::remove_all(path_); }
  FolderCopy(const FolderCopy&) = delete;
  FolderCopy& operator=(const FolderCopy&) = delete;

  std::string path(const std::string& file = "") const { return (path_ / file).string(); }
  std::string text(const std::string& file) const {
    std::ifstream in(path_ / file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& file, std::string_view text) const {
    std::ofstream(path_ / file, std::ios::binary).write(text.data(), std::ssize(text));
  }
  // Replaces a part of a text file. The part must exist.
  void replace(const std::string& file, const std::string& part, const std::string& by) const {
    std::string all = text(file);
    const size_t at = all.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    write(file, all.replace(at, part.size(), by));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace bowline::test
