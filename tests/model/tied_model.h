// A small tied language model that is built as an app builds it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/format.h"
#include "bowline.h"

namespace bowline::test {

struct ModelSize {
  int vocabulary = 11;
  int width = 6;
  int layers = 2;
};

inline Model make_tied_model(const ModelSize& size = {}) {
  Model model;
  const int64_t v = size.vocabulary, c = size.width;
  const int64_t table[] = {v, c}, square[] = {c, c}, row[] = {c};
  const Parameter emb = model.parameter("emb.weight", table, Init::normal(0.5f)).value();
  const Parameter head = model.tied_parameter("head.weight", emb).value();
  const Parameter gamma = model.parameter("norm.weight", row, Init::ones()).value();
  const ParameterList w =
      model.parameters("layers.{}.weight", size.layers, square, Init::normal(0.4f)).value();
  GraphBuilder g(model, "forward");
  const Value tokens = g.input("tokens", DType::i32, {"batch", "seq"});
  Value x = g.op("Embedding", {g.parameter(emb), tokens});
  x = g.repeat(size.layers, {x}, [&](GraphBuilder& body, const std::vector<Value>& in) {
    const Value y = body.op("Gelu", {body.op("Linear", {in[0], body.parameter(w)})});
    return std::vector<Value>{body.op("Add", {in[0], y})};
  })[0];
  x = g.op("RmsNorm", {x, g.parameter(gamma)}, {{"eps", 1e-6}});
  g.output("logits", g.op("Linear", {x, g.parameter(head)}));
  const Status status = g.finish();
  EXPECT_TRUE(status.ok()) << status.message();
  return model;
}

// A temporary folder. The destructor deletes it.
class Folder {
 public:
  Folder() {
    std::random_device random;
    do {
      path_ = format("{}bowline-{}", testing::TempDir(), random());
    } while (!std::filesystem::create_directory(path_));
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view name) const { return format("{}/{}", path_, name); }
  size_t files() const {
    const std::filesystem::directory_iterator begin(path_), end;
    return static_cast<size_t>(std::distance(begin, end));
  }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace bowline::test
