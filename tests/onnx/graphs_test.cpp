// Random ONNX graphs, many of them valid. Each is imported or rejected with a message.
#include <gtest/gtest.h>

#include <random>

#include "fuzz/onnx_graphs.h"
#include "onnx/import.h"

namespace bowline::onnx {
namespace {

TEST(OnnxGraphs, RandomGraphsAreReadOrRefused) {
  constexpr int kGraphs = 2000;
  std::mt19937 random(31);
  int read = 0;
  for (int i = 0; i < kGraphs; ++i) {
    std::vector<uint8_t> bytes(8 + random() % 120);
    for (uint8_t& b : bytes) {
      b = static_cast<uint8_t>(random());
    }
    SCOPED_TRACE(i);
    const auto model = parse_model(test::GraphMaker(bytes).make().SerializeAsString());
    ASSERT_TRUE(model.ok()) << model.status().message();
    const Result<Imported> imported = import_graph(*model.value(), "/nowhere", {});
    EXPECT_TRUE(imported.ok() || !imported.status().message().empty());
    EXPECT_NE(name_of(imported.status().code()), name_of(Code::internal))
        << imported.status().message();
    read += imported.ok() ? 1 : 0;
  }
  RecordProperty("imported", read);
  std::printf("%d of %d random graphs are imported\n", read, kGraphs);
  EXPECT_GE(read, kGraphs / 10);
}

}  // namespace
}  // namespace bowline::onnx
