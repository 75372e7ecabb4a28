// Storages that read their values from a source, and bytes that are saved with a model.
#include <cstring>

#include "model/tied_model.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

constexpr uint64_t kMostRun = uint64_t{8} << 20;

// A source of values that follow from their index. It records the requests.
struct Asked {
  uint64_t calls = 0;
  uint64_t largest = 0;
  uint64_t failing_call = 0;  // counts from 1; 0 means no failure

  ValueSource source() {
    return [this](uint64_t first, std::span<std::byte> out) -> Status {
      largest = std::max<uint64_t>(largest, out.size());
      if (++calls == failing_call) {
        return Status(Code::io_error, "The source is gone.");
      }
      for (uint64_t at = 0; at < out.size(); at += sizeof(float)) {
        const float number = number_at((first + at) / sizeof(float));
        std::memcpy(out.data() + at, &number, sizeof number);
      }
      return {};
    };
  }
  static float number_at(uint64_t element) { return static_cast<float>(element % 1021) - 7; }
};

Floats numbers(int64_t count) {
  Floats out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(Asked::number_at(static_cast<uint64_t>(i)));
  }
  return out;
}

std::string where_of(const Model& m, size_t tie) { return must(m.describe()).storages[tie].where; }

using Sources = OnDevice;
BOWLINE_ON_ALL_DEVICES(Sources);

// Every parameter of the tie shows the values of the source. A verb that moves the storage keeps
// them.
TEST_P(Sources, AreReadByAllOfATie) {
  Asked asked;
  Model m = lookup_and_head({3, 2});
  ASSERT_OK(m.set_source("embed", asked.source()));
  EXPECT_EQ(where_of(m, 0), "source");
  EXPECT_EQ(asked.calls, 0u);
  EXPECT_EQ(values(m, "head"), numbers(6));
  ASSERT_OK(m.to(device_));
  const uint64_t calls = asked.calls;
  const RowAndLogits out = run_lookup_and_head(m, device_, 2, {1, 0});
  EXPECT_EQ(out.row, (Floats{-3, -2}));
  EXPECT_EQ(out.logits, (Floats{-7, -5, -3}));
  EXPECT_EQ(values(m, "embed"), numbers(6));
  EXPECT_EQ(asked.calls, calls) << "the values lie on the device";
}

TEST(SavedSources, AreStreamed) {
  const int64_t rows = 3 * static_cast<int64_t>(kMostRun) / 400 +
                       5;  // three blocks, the last block with an odd length
  Asked asked;
  Folder folder;
  Model m;
  (void)must(m.parameter("w", {rows, 100}, Init::zeros()));
  ASSERT_OK(m.set_source("w", asked.source()));
  ASSERT_OK(m.save(folder / "m.bowline"));
  EXPECT_EQ(asked.largest, kMostRun);
  EXPECT_EQ(where_of(m, 0), "source");
  ASSERT_OK(Model::verify(folder / "m.bowline"));
  const Model read = must(Model::open(folder / "m.bowline"));
  EXPECT_EQ(values(read, "w"), numbers(rows * 100));
}

TEST(SavedSources, ThatFailLeaveTheFile) {
  Folder folder;
  const std::string path = folder / "m.bowline";
  Model m = lookup_and_head({3, 2}, {1, 2, 3, 4, 5, 6});
  ASSERT_OK(m.save(path));
  for (const uint64_t call : {1, 2}) {  // call 1 reads for the checksum, call 2 for the write
    Asked asked;
    asked.failing_call = call;
    ASSERT_OK(m.set_source("embed", asked.source()));
    const Status failed = m.save(path);
    EXPECT_EQ(failed.code(), Code::io_error);
    EXPECT_EQ(failed.message().substr(0, failed.message().find('\n')), "The source is gone.");
    EXPECT_EQ(values(must(Model::open(path)), "head"), (Floats{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(folder.files(), 1u);
  }
}

// The storage keeps the quantized weights of a file of another format unchanged.
TEST_P(Sources, GiveCodes) {
  Model quantized = lookup_and_head({67, 96});
  ASSERT_EQ(must(quantize(quantized, "q8_0")).storages, 1u);
  const std::vector<std::byte> codes = must(quantized.storage_bytes(0));
  Model m = lookup_and_head({67, 96});
  const auto source = [&codes](uint64_t first, std::span<std::byte> out) {
    std::ranges::copy(std::span(codes).subspan(first, out.size()), out.begin());
    return Status();
  };
  ASSERT_OK(m.set_source("head", source, "q8_0"));
  EXPECT_FALSE(must(m.describe()).parameters[0].trainable);
  EXPECT_EQ(values(m, "embed"), values(quantized, "embed"));
  ASSERT_OK(m.to(device_));
  ASSERT_OK(quantized.to(device_));
  Floats x(96);
  x[5] = 1;
  const RowAndLogits got = run_lookup_and_head(m, device_, 66, x);
  const RowAndLogits wanted = run_lookup_and_head(quantized, device_, 66, x);
  EXPECT_EQ(got.row, wanted.row);
  EXPECT_EQ(got.logits, wanted.logits);
  EXPECT_EQ(must(m.storage_bytes(0)), codes);
}

TEST(SourcesThatDoNotFit, ChangeNothing) {
  Asked asked;
  Model m;
  const Parameter w = must(m.parameter("w", {4, 32}, Init::ones()));
  (void)must(m.tied_parameter("part", w, View{.row_start = 1, .rows = 2, .shape = {}}));
  (void)must(m.tied_parameter("turned", w, View{.shape = {}, .transpose = true}));
  (void)must(m.parameter("b", {32}, Init::ones()));
  GraphBuilder g(m, "g");
  g.output("y", g.op("Add", {g.input("x", DType::f32, {4, 32}), g.parameter(w)}));
  ASSERT_OK(g.finish());
  ASSERT_OK(m.materialize(1));
  const std::string before = m.storages();
  const auto refused = [&](const char* name, ValueSource source, const char* encoding) {
    const Status status = m.set_source(name, std::move(source), encoding);
    EXPECT_EQ(status.code(), Code::bad_argument);
    return status.message().substr(0, status.message().find('\n'));
  };
  EXPECT_EQ(refused("nobody", asked.source(), "plain"),
            "There is no parameter \"nobody\" among the 4 of the model.");
  EXPECT_EQ(refused("w", nullptr, "plain"), "The source of \"w\" is empty.");
  EXPECT_EQ(refused("part", asked.source(), "plain"),
            "\"part\" is a partial or transposed view of its storage. set_source() needs a view of "
            "the whole storage.");
  EXPECT_EQ(refused("turned", asked.source(), "plain"),
            "\"turned\" is a partial or transposed view of its storage. set_source() needs a view "
            "of the whole storage.");
  EXPECT_EQ(refused("w", asked.source(), "q8_0"),
            "\"w\" cannot be stored as q8_0: it is read by node 0 (Add) of \"g\", which cannot "
            "read quantized values.");
  EXPECT_NE(refused("b", asked.source(), "q9"), "");
  EXPECT_EQ(m.storages(), before);
  EXPECT_EQ(asked.calls, 0u);
}

std::span<const std::byte> text_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Assets, TravelWithTheModel) {
  Folder folder;
  Model m = lookup_and_head({3, 2}, {1, 2, 3, 4, 5, 6});
  ASSERT_OK(m.set_asset("labels", "text/plain", text_bytes("a\nb\n")));
  ASSERT_OK(m.set_asset("tokenizer", "application/json", text_bytes("{}")));
  ASSERT_OK(m.set_asset("labels", "text/csv", text_bytes("a,b")));
  ASSERT_OK(m.save(folder / "m.bowline"));
  const auto check = [&](const Model& model) {
    const std::vector<AssetInfo> assets = must(model.describe()).assets;
    ASSERT_EQ(assets.size(), 2u);
    EXPECT_EQ(assets[1].name, "labels");
    EXPECT_EQ(assets[1].media_type, "text/csv");
    EXPECT_EQ(assets[1].bytes, 3u);
    const std::vector<std::byte> bytes = must(model.asset("labels"));
    EXPECT_TRUE(std::ranges::equal(bytes, text_bytes("a,b")));
  };
  check(m);
  check(must(m.clone()));
  Model read = must(Model::open(folder / "m.bowline"));
  check(read);
  ASSERT_OK(read.set_asset("labels", "text/csv", {}));
  EXPECT_EQ(read.asset("labels").status().message(), "The model has no asset \"labels\".");
  ASSERT_OK(read.save(folder / "m.bowline"));  // over the file of the other model
  EXPECT_EQ(must(must(Model::open(folder / "m.bowline")).describe()).assets.size(), 1u);
  EXPECT_EQ(m.set_asset("", "text/plain", text_bytes("x")).code(), Code::bad_argument);
  EXPECT_EQ(m.set_asset("x", "\xff", text_bytes("x")).code(), Code::bad_argument);
  check(m);
}

}  // namespace
}  // namespace bowline::test
