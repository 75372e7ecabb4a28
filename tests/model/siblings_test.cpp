// Weight bytes in a file beside the model. The reader accepts a path inside the folder of the model
// and follows no links.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/sample_file.h"
#include "model/tied_model.h"

namespace bowline {
namespace {

using test::Folder;
using test::Sample;

// Writes the sample with the bytes of row 1 in the sibling file `path`.
void write_with_sibling(const Folder& folder, const std::string& path, uint64_t length) {
  Sample s = test::make_sample();
  s.model.siblings.push_back(std::make_unique<file::SiblingT>());
  s.model.siblings[0]->path = path;
  s.model.siblings[0]->length = length;
  file::RangeT& range = *s.model.storages[1]->range;
  std::fill_n(s.data.begin() + static_cast<long>(range.offset), range.length, std::byte{0});
  range.file = 1;
  range.offset = 0;
  const test::Bytes bytes = s.bytes();
  test::write_file(folder / "model", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

const std::string kWeights("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40", 16);  // 1, 2, 3, 4

TEST(Siblings, AreReadFromTheFolderOfTheModel) {
  const Folder folder;
  std::filesystem::create_directory(folder / "weights");
  test::write_file(folder / "weights/part", kWeights);
  write_with_sibling(folder, "weights/part", 16);
  auto model = Model::open(folder / "model");
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::vector<float> values(4);
  const int64_t shape[] = {2, 2};
  ASSERT_TRUE(model.value().get_value("l0", {"", DType::f32, shape, values.data()}).ok());
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4}));
  // save() writes the model as one file.
  ASSERT_TRUE(model.value().save(folder / "whole").ok());
  std::filesystem::remove_all(folder / "weights");
  EXPECT_TRUE(Model::open(folder / "whole").ok());
  EXPECT_EQ(Model::open(folder / "model").status().code(), Code::io_error);
}

// Without a path there is no folder. The folder in which the program runs is no substitute.
TEST(Siblings, AreOnlyFoundBesideAPath) {
  const Folder folder;
  write_with_sibling(folder, "weights/part", 16);
  std::filesystem::create_directory("weights");
  test::write_file("weights/part", kWeights);
  const std::string bytes = test::read_file(folder / "model");
  const auto all = std::as_bytes(std::span(bytes));
  const int fd = open((folder / "model").c_str(), O_RDONLY | O_CLOEXEC);
  const auto copy = [&](uint64_t first, std::span<std::byte> out) {
    std::ranges::copy(all.subspan(first, out.size()), out.begin());
    return Status();
  };
  for (const bool mapped : {true, false}) {
    const OpenOptions options{.memory_map = mapped, .budget = {}};
    for (const Status& status : {Model::open_memory(all, options).status(),
                                 Model::open_descriptor(fd, 0, 0, options).status(),
                                 Model::open_reader({all.size(), copy}, options).status()}) {
      EXPECT_EQ(status.code(), Code::unsupported);
      EXPECT_EQ(status.message(),
                "The file has values in a second file \"weights/part\", which can only be found "
                "beside a path. Open the model by its path, or save it as one file.");
    }
  }
  close(fd);
  std::filesystem::remove_all("weights");
}

TEST(Siblings, DamagedOnesAreRefused) {
  const Folder folder;
  test::write_file(folder / "part", kWeights);
  write_with_sibling(folder, "part", 20);
  EXPECT_EQ(Model::open(folder / "model").status().code(), Code::bad_file) << "another length";
  write_with_sibling(folder, "part", 16);
  std::string damaged = kWeights;
  damaged[3] = 0;
  test::write_file(folder / "part", damaged);
  auto file = model::VerifiedFile::open(folder / "model");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file.value()->verify_all().code(), Code::bad_file) << "its checksum is in the model";
}

// Reports for ONNX: CVE-2022-25882, CVE-2024-27318, CVE-2025-51480 and CVE-2026-27489. External
// data lay outside of the folder by ".." and by links.
TEST(Siblings, LinksAreNotFollowed) {
  const Folder folder, outside;
  test::write_file(outside / "secret", kWeights);
  std::filesystem::create_symlink(outside / "secret", folder / "part");
  write_with_sibling(folder, "part", 16);
  EXPECT_EQ(Model::open(folder / "model").status().code(), Code::io_error);
  std::filesystem::create_directory_symlink(outside / ".", folder / "weights");
  write_with_sibling(folder, "weights/secret", 16);
  EXPECT_EQ(Model::open(folder / "model").status().code(), Code::io_error);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  write_with_sibling(folder, "pipe", 16);
  EXPECT_EQ(Model::open(folder / "model").status().code(), Code::io_error)
      << "and it does not wait";
}

TEST(Siblings, TheWayForOldKernelsFollowsNoLinksEither) {
  const Folder folder, outside;
  test::write_file(outside / "secret", kWeights);
  std::filesystem::create_directories(folder / "a/b");
  test::write_file(folder / "a/b/part", kWeights);
  std::filesystem::create_symlink(outside / "secret", folder / "link");
  std::filesystem::create_directory_symlink(outside / ".", folder / "a/out");
  const int fd = open((folder / ".").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_GE(fd, 0);
  const int part = FileSystem::open_in_steps(fd, "a/b/part");
  EXPECT_GE(part, 0);
  close(part);
  EXPECT_LT(FileSystem::open_in_steps(fd, "link"), 0);
  EXPECT_LT(FileSystem::open_in_steps(fd, "a/out/secret"), 0);
  EXPECT_LT(FileSystem::open_in_steps(fd, "a/nothing/part"), 0);
  close(fd);
}

}  // namespace
}  // namespace bowline
