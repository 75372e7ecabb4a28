// Memory of mapped files.
#ifdef __linux__
#include "model/map.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "model/checksum.h"
#include "model/tied_model.h"

namespace bowline {
namespace {

// The pages in memory of a mapping.
size_t pages_in_memory(std::span<const std::byte> mapping) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  EXPECT_GE(map, 0);
  size_t pages = 0;
  for (uint64_t at = 0; at < mapping.size(); at += page) {
    uint64_t entry = 0;
    const uint64_t number = reinterpret_cast<uintptr_t>(mapping.data() + at) / page;
    EXPECT_EQ(pread(map, &entry, sizeof entry, static_cast<off_t>(number * sizeof entry)),
              static_cast<ssize_t>(sizeof entry));
    pages += entry >> 63;
  }
  close(map);
  return pages;
}

TEST(FileRange, EachPieceLeavesNoPagesInMemory) {
  const test::Folder folder;
  test::write_file(folder / "file", std::string(1 << 20, 'x'));
  auto file = detail::model::MappedFile::open(folder / "file");
  ASSERT_TRUE(file.ok()) << file.status().message();
  detail::model::FileRange range;
  range.file = file.value();
  range.offset = 300'000;  // in the middle of 64 KiB, as the end
  range.length = 300'000;
  range.xxh3 = detail::model::checksum(range.file->bytes().subspan(range.offset, range.length));
  uint64_t read = 0;
  const auto add = [&](uint64_t, std::span<const std::byte> piece) {
    read += static_cast<uint64_t>(std::ranges::count(piece, std::byte{'x'}));
    return Status{};
  };
  ASSERT_TRUE(range.each_piece(add).ok());
  EXPECT_EQ(read, range.length);
  EXPECT_EQ(pages_in_memory(range.file->bytes()), 0u);
}

// A mapping begins at a page, and so before the file. Its first page is released, too.
TEST(FileRange, EachPieceOfAPartLeavesNoPagesInMemory) {
  const test::Folder folder;
  test::write_file(folder / "file", std::string(1 << 20, 'x'));
  const int fd = open((folder / "file").c_str(), O_RDONLY | O_CLOEXEC);
  auto file = detail::model::MappedFile::of_descriptor(fd, 4096 + 100, 300'000);
  close(fd);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file.value()->bytes().size(), 300'000u);
  uint64_t read = 0;
  const auto add = [&](uint64_t, std::span<const std::byte> piece) {
    read += static_cast<uint64_t>(std::ranges::count(piece, std::byte{'x'}));
    return Status{};
  };
  ASSERT_TRUE(file.value()->each_piece(64, 1000, add).ok());
  EXPECT_EQ(read, 1000u);
  EXPECT_EQ(pages_in_memory(file.value()->bytes()), 0u);
}

}  // namespace
}  // namespace bowline
#endif
