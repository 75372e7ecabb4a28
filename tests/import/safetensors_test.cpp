// Untrusted safetensors files: errors have a message, and nothing is read outside of the file.
#include "fixtures.h"

namespace bowline::test {
namespace {

using huggingface::read_safetensors;

// A file with a header and `data` bytes.
class Made {
 public:
  Made() : path_(testing::TempDir() + "made_" + std::to_string(::getpid()) + ".safetensors") {}
  ~Made() { std::filesystem::remove(path_); }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::string& header, size_t data, std::optional<uint64_t> length = {}) const {
    const uint64_t n = length.value_or(header.size());
    std::string all(reinterpret_cast<const char*>(&n), sizeof n);
    all += header;
    for (size_t i = 0; i < data; ++i) {
      all += static_cast<char>(i);
    }
    std::ofstream(path_, std::ios::binary).write(all.data(), std::ssize(all));
  }

 private:
  std::string path_;
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST(Safetensors, TensorsAreReadWhereTheyLie) {
  const Made file;
  file.write("{\"__metadata__\":{\"format\":\"pt\"}," + entry("b", "F16", "[2,2]", "[4,12]") + "," +
                 entry("a", "I32", "[]", "[0,4]") + "," + entry("none", "F32", "[0,3]", "[12,12]") +
                 "}  ",
             12);
  const auto read = read_safetensors(file.path());
  ASSERT_TRUE(read.ok()) << read.status().message();
  const auto& tensors = read.value().tensors;
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].dtype, DType::f16);
  EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(tensors[1].stored, "F16");
  std::array<std::byte, 3> run;
  ASSERT_FINE(tensors[1].read(5, run));
  EXPECT_EQ(run, (std::array{std::byte{9}, std::byte{10}, std::byte{11}}));
  EXPECT_EQ(tensors[1].read(6, run).code(), Code::bad_argument);
  ASSERT_EQ(read.value().metadata.size(), 1u);
}

TEST(Safetensors, TensorsOfTheSameBytesHaveOnePlace) {
  const Made file;
  file.write(
      "{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[2,1]", "[0,8]") + "}", 8);
  const auto read = read_safetensors(file.path());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().tensors[0].place, read.value().tensors[1].place);
}

// A reader that revisits all earlier entries after each entry would exceed the time of the test.
TEST(Safetensors, HasAsManyTensorsAsItsHeaderHolds) {
  constexpr size_t kTensors = 300'000;
  std::string header = "{";
  for (size_t i = 0; i < kTensors; ++i) {
    header += (i == 0 ? "" : ",") + entry("t" + std::to_string(i), "F32", "[0]", "[0,0]");
  }
  const Made file;
  file.write(header + "}", 0);
  const auto read = read_safetensors(file.path());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().tensors.size(), kTensors);
}

struct Bad {
  const char* name;
  std::string header;
  size_t data;
  std::optional<uint64_t> length;
  const char* message;
};

std::string nested(int depth) {
  return "{\"a\":" + std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']') + "}";
}

const std::vector<Bad>& bad_files() {
  static const std::vector<Bad> all = {
      {"HeaderTooLong", "{}", 0, uint64_t{1} << 40,
       "header has 1099511627776 bytes, more than the limit of 100000000"},
      {"HeaderBeyondTheEnd", "{}", 0, 3, "header has 3 bytes, but only 2 follow"},
      {"LengthThatOverflows", "{}", 0, UINT64_MAX, "header has 18446744073709551615 bytes"},
      {"NoJson", "{\"a\" 1}", 0, {}, "is not valid JSON: parsing ends at line 1, column 6"},
      {"NoObject", "[1]", 0, {}, "The header is not an object"},
      {"DeepJson", nested(10000), 0, {}, "nested deeper than 64"},
      {"NotUtf8", "{\"a\xff\":1}", 0, {}, "is not valid JSON"},
      {"TensorTwice",
       "{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("a", "F32", "[1]", "[4,8]") + "}",
       8,
       {},
       "has the key a twice"},
      {"KeyTwice",
       "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
       4,
       {},
       "has the key dtype twice"},
      {"Overlap",
       "{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[2]", "[4,12]") + "}",
       12,
       {},
       "bytes [4, 12) of tensor b overlap those of a, which end at 8"},
      {"Inside",
       "{" + entry("a", "F32", "[3]", "[0,12]") + "," + entry("b", "F32", "[1]", "[4,8]") + "}",
       12,
       {},
       "overlap those of a"},
      {"Hole",
       "{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[8,12]") + "}",
       12,
       {},
       "bytes [4, 8) before tensor b belong to no tensor"},
      {"BytesLeft",
       "{" + entry("a", "F32", "[1]", "[0,4]") + "}",
       6,
       {},
       "end at byte 4, but 6 bytes follow"},
      {"BeyondTheFile",
       "{" + entry("a", "F32", "[2]", "[0,8]") + "}",
       4,
       {},
       "bytes [0, 8) are outside of the 4"},
      {"Backwards",
       "{" + entry("a", "F32", "[1]", "[4,0]") + "}",
       4,
       {},
       "bytes [4, 0) are outside"},
      {"WrongSize",
       "{" + entry("a", "F32", "[3]", "[0,8]") + "}",
       8,
       {},
       "has 8 bytes, which do not match F32[3]"},
      {"SizeThatOverflows",
       "{" + entry("a", "F32", "[4294967296,4294967296,4]", "[0,4]") + "}",
       4,
       {},
       "number of elements overflows"},
      {"BytesThatOverflow",
       "{" + entry("a", "F32", "[4611686018427387905]", "[0,4]") + "}",
       4,
       {},
       "which do not match"},
      {"NegativeDim",
       "{" + entry("a", "F32", "[-1]", "[0,4]") + "}",
       4,
       {},
       "The dim -1 is not an integer"},
      {"FractionalDim",
       "{" + entry("a", "F32", "[1.5]", "[0,4]") + "}",
       4,
       {},
       "The dim 1.5 is not an integer"},
      {"HugeOffset",
       "{" + entry("a", "F32", "[1]", "[0,18446744073709551615]") + "}",
       4,
       {},
       "The end 18446744073709551615 is not an integer"},
      {"UnknownDtype",
       "{" + entry("a", "F33", "[1]", "[0,4]") + "}",
       4,
       {},
       "dtype \"F33\" is not a dtype"},
      {"DtypeThatIsNoText",
       "{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,4]}}",
       4,
       {},
       "\"dtype\" is 3, not a string"},
      {"NoShape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, {}, "has no shape"},
      {"OneOffset",
       "{" + entry("a", "F32", "[1]", "[0]") + "}",
       4,
       {},
       "not have two data_offsets"},
      {"EntryThatIsNoObject", "{\"a\":7}", 0, {}, "is 7, not an object"},
      {"MetadataOfNumbers",
       "{\"__metadata__\":{\"a\":1}}",
       0,
       {},
       "__metadata__: a is not a string"},
      {"NameThatActsOnATerminal", "{\"a\\u001b[31m\":7}", 0, {}, "\"a\\x1b[31m\""},
  };
  return all;
}

class BadSafetensors : public testing::TestWithParam<size_t> {};

TEST_P(BadSafetensors, IsRefusedWithASentence) {
  const Bad& bad = bad_files()[GetParam()];
  const Made file;
  file.write(bad.header, bad.data, bad.length);
  const auto read = read_safetensors(file.path());
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), Code::bad_file) << read.status().message();
  EXPECT_NE(read.status().message().find(bad.message), std::string::npos)
      << read.status().message();
  EXPECT_NE(read.status().message().find(file.path()), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, BadSafetensors, testing::Range<size_t>(0, bad_files().size()),
                         [](const auto& of) { return std::string(bad_files()[of.param].name); });

TEST(Safetensors, FilesThatAreNoneAreRefused) {
  const Made file;
  std::ofstream(file.path()) << "1234567";
  EXPECT_EQ(read_safetensors(file.path()).status().code(), Code::bad_file);
  EXPECT_EQ(read_safetensors("/nowhere/at/all").status().code(), Code::bad_file);
  EXPECT_EQ(read_safetensors("/tmp").status().code(), Code::bad_file);
  EXPECT_EQ(read_safetensors("/dev/zero").status().code(), Code::bad_file);
}

TEST(Safetensors, NumbersThatBowlineHasNotAreNamed) {
  const Made file;
  file.write("{" + entry("a", "F8_E4M3", "[4]", "[0,4]") + "}", 4);
  const auto read = read_safetensors(file.path());
  EXPECT_EQ(read.status().code(), Code::unsupported);
  EXPECT_NE(read.status().message().find("F8_E4M3"), std::string::npos);
}

TEST(Safetensors, AFileThatIsCutWhileItIsReadIsAnError) {
  const Made file;
  file.write("{" + entry("a", "F32", "[2]", "[0,8]") + "}", 8);
  const auto read = read_safetensors(file.path());
  ASSERT_TRUE(read.ok());
  std::filesystem::resize_file(file.path(), 12);
  std::array<std::byte, 8> out;
  EXPECT_EQ(read.value().tensors[0].read(0, out).code(), Code::io_error);
}

}  // namespace
}  // namespace bowline::test
