// The limit in SECURITY.md: a file of at most 64 KiB is verified and loaded in at most 128 MiB,
// whatever its content.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "bowline.h"
#include "footprint/counted.h"
#include "fuzz/mutator.h"
#include "graph/load.h"

namespace bowline::test {
namespace {

constexpr uint64_t kSmall = 64 << 10;
constexpr int64_t kMost = int64_t{128} << 20;

enum class End { refused_by_verify, refused_by_load, loaded };

// Verifies and loads `file`, and expects that the limit holds.
End load_within_limit(Bytes file) {
  Counted& counted = counted_host();
  const int64_t before = counted.live;
  counted.reset();
  End end = End::refused_by_verify;
  {
    const auto verified = verify(std::move(file));
    if (verified.ok()) {
      end = graph::load_model(verified.value()).ok() ? End::loaded : End::refused_by_load;
    }
  }
  EXPECT_LE(counted.peak - before, kMost);
  return end;
}

TEST(SmallFiles, OfAnyContentKeepTheLimit) {
  std::map<End, int> ends;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(format("seed {}", seed));
    std::mt19937 random(seed);
    Frame frame;
    for (unsigned changes = 0; changes <= seed % 8; ++changes) {
      mutate(frame, random);
    }
    Bytes file = frame.file();
    if (file.size() <= kSmall) {
      ++ends[load_within_limit(std::move(file))];
    }
  }
  EXPECT_GT(ends[End::refused_by_verify], 100);
  EXPECT_GT(ends[End::loaded], 100);
}

// As many nodes as fit, in a Repeat with the maximum number of iterations.
TEST(SmallFiles, FullOfNodesKeepTheLimit) {
  for (const int nodes : {50, 400}) {
    Model model;
    GraphBuilder g(model, "g");
    const Value x = g.input("x", DType::f32, {1 << 20});
    const auto y = g.repeat(65536, {x}, [&](GraphBuilder& body, const std::vector<Value>& in) {
      Value v = in[0];
      for (int i = 0; i < nodes; ++i) {
        v = body.op("Relu", {v});
      }
      return std::vector<Value>{v};
    });
    g.output("y", y.at(0));
    ASSERT_TRUE(g.finish().ok());
    const std::string path = testing::TempDir() + "full_of_nodes.bowline";
    ASSERT_TRUE(model.save(path).ok());
    Bytes file(std::filesystem::file_size(path));
    std::ifstream(path, std::ios::binary)
        .read(reinterpret_cast<char*>(file.data()), static_cast<std::streamsize>(file.size()));
    std::filesystem::remove(path);
    EXPECT_GT(file.size(), kSmall / 16);
    EXPECT_LE(file.size(), kSmall);
    EXPECT_EQ(load_within_limit(std::move(file)), End::loaded);
  }
}

}  // namespace
}  // namespace bowline::test
