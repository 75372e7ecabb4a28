// A storage that is stored as int8: save() and Model::open() keep the encoding, reads return
// dequantized values, and a caller that needs a plain storage gets an error that names the
// parameter.
#include "core/encoding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/encoding.h"
#include "model/sample_file.h"
#include "model/tied_model.h"
#include "ties/seed_models.h"

namespace bowline::test {
namespace {

const Encoding kInt8{find_encoding_form("int8"), 2, -1, DType::f16, true};
const std::vector<float> kNumbers[] = {{1, 2, -3, 4}, {50, -6, 0.7f, 8}};

// Rows 1 and 2 are the parameter list of the Repeat. Both are quantized.
Sample encoded_sample() {
  Sample s = make_sample();
  for (const size_t row : {size_t{1}, size_t{2}}) {
    Bytes codes(kInt8.bytes(DType::f32, {2, 2}));
    kInt8.encode(kNumbers[row - 1], DType::f32, {2, 2}, codes);
    s.model.storages[row]->encoding = model::table_of(kInt8);
    s.model.storages[row]->trainable = false;
    const file::RangeT& numbers = *s.model.storages[row]->range;
    std::fill_n(s.data.begin() + static_cast<std::ptrdiff_t>(numbers.offset), numbers.length,
                std::byte{0});  // no range covers these bytes now
    s.model.storages[row]->range = s.add_range(codes);
  }
  s.model.training.reset();
  // Removes the moment, because a model without training data has no moments.
  const file::RangeT& moment = *s.model.storages[3]->range;
  std::fill_n(s.data.begin() + static_cast<std::ptrdiff_t>(moment.offset), moment.length,
              std::byte{0});
  s.model.storages[3] = std::make_unique<file::StorageT>();
  s.model.storages[3]->empty = true;
  return s;
}

class Encoded : public testing::Test {
 protected:
  void SetUp() override {
    const Bytes bytes = encoded_sample().bytes();
    write_file(path_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    model_.emplace(must(Model::open(path_)));
  }

  const Folder folder_;
  const std::string path_ = folder_ / "encoded.bowline";
  std::optional<Model> model_;
};

void expect_numbers(const Model& m) {
  for (const size_t i : {size_t{0}, size_t{1}}) {
    std::vector<float> got(4);
    ASSERT_OK(m.get_value(i == 0 ? "l0" : "l1", {{}, DType::f32, {2, 2}, got.data()}));
    for (size_t k = 0; k < 4; ++k) {
      EXPECT_NEAR(got[k], kNumbers[i][k], 0.3f);
    }
  }
}

TEST_F(Encoded, IsDescribedByItsEncoding) {
  const ModelInfo info = must(model_->describe());
  EXPECT_EQ(info.storages[1].encoding, "int8 block 2 axis -1 scale f16");
  EXPECT_EQ(info.storages[1].bytes, 8u);  // four quantized values, two scales
  EXPECT_EQ(must(model_->storage_bytes(1)).size(), 8u);
  EXPECT_EQ(info.storages[0].encoding, "plain");
  EXPECT_NE(model_->storages().find("int8 block 2 axis -1 scale f16 frozen"), std::string::npos);
}

// Rows of 2 are no whole blocks. All checksums of the file are right.
TEST_F(Encoded, RowsThatAreNotWholeBlocksAreRefused) {
  for (const BlockFormat& format : block_formats()) {
    Sample s = encoded_sample();
    s.model.storages[1]->encoding = model::table_of(parse_encoding(format.name).value());
    const Bytes bytes = s.bytes();
    const std::string path = folder_ / "short_rows.bowline";
    write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const Status refused = Model::open(path).status();
    EXPECT_EQ(refused.code(), Code::bad_file);
    EXPECT_NE(refused.message().find(bowline::format(
                  "Rows of 2 elements are not a multiple of {}, the block size of {}.",
                  format.block, format.name)),
              std::string::npos)
        << refused.message();
  }
}

TEST_F(Encoded, IsReadAsNumbersAndListed) {
  expect_numbers(*model_);
  EXPECT_NE(model_->storages().find("int8 block 2 axis -1 scale f16"), std::string::npos)
      << model_->storages();
}

TEST_F(Encoded, IsKeptByMovesSavesAndClones) {
  const std::string listing = model_->storages();
  ASSERT_OK(model_->to(must(Device::open("cpu"))));
  expect_numbers(*model_);
  const Model copy = must(model_->clone());
  expect_numbers(copy);
  const std::string again = folder_ / "again.bowline";
  ASSERT_OK(model_->save(again));
  const Model read = must(Model::open(again));
  expect_numbers(read);
  EXPECT_EQ(read.storages(), listing);
}

// Loads quantized values into a model with the same encodings, and into a model with plain
// storages. The plain storages adopt the encodings.
TEST_F(Encoded, IsLoaded) {
  // The same file with other values: rows 1 and 2 both hold the values of row 1.
  Sample s = encoded_sample();
  const file::RangeT first = *s.model.storages[1]->range;
  const file::RangeT second = *s.model.storages[2]->range;
  std::copy_n(s.data.begin() + static_cast<std::ptrdiff_t>(first.offset), first.length,
              s.data.begin() + static_cast<std::ptrdiff_t>(second.offset));
  s.model.storages[2]->range->xxh3 = first.xxh3;
  const Bytes bytes = s.bytes();
  const std::string path = folder_ / "other.bowline";
  write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  Model other = must(Model::open(path));
  std::vector<float> got(4);
  ASSERT_OK(other.get_value("l1", {{}, DType::f32, {2, 2}, got.data()}));
  EXPECT_NEAR(got[0], 1, 0.1f);
  ASSERT_OK(other.load(path_, {.mode = LoadMode::copy, .partial = true}).status());
  expect_numbers(other);

  const Bytes plain = make_sample().bytes();
  const std::string plain_path = folder_ / "plain.bowline";
  write_file(plain_path, {reinterpret_cast<const char*>(plain.data()), plain.size()});
  Model model = must(Model::open(plain_path));
  const std::string before = model.storages();
  const auto load = [&](LoadMode mode) {
    return model.load(path_, {.mode = mode, .partial = true})
        .status()
        .message();  // a storage without bytes in the file needs `partial`
  };
  EXPECT_NE(load(LoadMode::copy)
                .find("Parameter \"l0\" is stored as plain here and as int8 block 2 "
                      "axis -1 scale f16 in the file."),
            std::string::npos)
      << load(LoadMode::copy);
  EXPECT_NE(load(LoadMode::assign).find("which cannot be trained. Call freeze() first."),
            std::string::npos)
      << load(LoadMode::assign);
  EXPECT_EQ(model.storages(), before);
  ASSERT_OK(model.freeze("l0"));
  ASSERT_OK(model.freeze("l1"));
  EXPECT_EQ(load(LoadMode::assign), "");
  expect_numbers(model);
}

// MatMul reads a quantized right operand, here a parameter of each iteration. Other operators do
// not.
TEST_F(Encoded, RunsWhereItsReadersTakeCodes) {
  const Device cpu = must(Device::open("cpu"));
  ASSERT_OK(model_->materialize(1));
  ASSERT_OK(model_->to(cpu));
  const BoundDim dims[] = {{"batch", 2}};
  EXPECT_OK(Session::create(*model_, cpu, "forward", dims));
}

TEST_F(Encoded, IsRefusedByNameWhereNothingReadsIt) {
  const float zeros[4] = {};
  EXPECT_EQ(
      model_->set_value("l0", {{}, DType::f32, {2, 2}, const_cast<float*>(zeros)}).message(),
      "\"l0\" is stored as int8 block 2 axis -1 scale f16: quantized values cannot be written "
      "or viewed in parts; call dequantize() first.");
  EXPECT_EQ(model_->freeze("l0", false).message(),
            "\"l0\" cannot be thawed: it is stored as int8 block 2 axis -1 scale f16, and "
            "quantized values have no gradient.");
  View transposed;
  transposed.transpose = true;
  EXPECT_EQ(
      model_->tied_parameter("turned", must(model_->find("l0")), transposed).status().message(),
      "A view cannot transpose blocks along axis -1.\n- While tying \"turned\" to \"l0\".");
  expect_numbers(*model_);
}

}  // namespace
}  // namespace bowline::test
