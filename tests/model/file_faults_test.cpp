// Lets the n-th file operation fail, n = 1, 2, ..., until a save, an open or a load succeeds.

#include "api/internals.h"
#include "faults/faulty_files.h"
#include "graph/load.h"
#include "graph/save.h"
#include "model/tied_model.h"
#include "params/file.h"
#include "params/verbs.h"

namespace bowline {
namespace {

using test::FaultyFiles;
using test::Folder;
using test::make_tied_model;
using test::read_file;

std::string listings(const Model& m) { return m.parameters() + m.storages() + m.ties(); }

// Returns the number of operations of a save without faults.
int fail_each_operation_of_a_save(int error, bool short_write, bool must_succeed) {
  const Folder folder;
  const std::string path = folder / "model";
  Model old = make_tied_model();
  EXPECT_TRUE(old.materialize(1).ok());
  EXPECT_TRUE(old.save(path).ok());
  const std::string before = read_file(path);
  Model model = make_tied_model();
  EXPECT_TRUE(model.materialize(2).ok());
  EXPECT_TRUE(model.save(folder / "wanted").ok());
  const std::string wanted = read_file(folder / "wanted");
  const std::string state = listings(model);
  for (int n = 1;; ++n) {
    test::write_file(path, before);
    FaultyFiles files;
    files.arm(n, error, short_write);
    const Status status = graph::save_model(*Internals::state(model), path, nullptr, files);
    const std::string now = read_file(path);
    EXPECT_EQ(listings(model), state);
    EXPECT_EQ(files.open_descriptors(), 0) << "operation " << n;
    EXPECT_TRUE(now == before || now == wanted) << "operation " << n;
    EXPECT_TRUE(Model::open(path).ok());
    if (status.ok()) {
      EXPECT_EQ(now, wanted) << "operation " << n;
      EXPECT_EQ(folder.files(), 2u) << "operation " << n;
    } else {
      EXPECT_EQ(status.code(), Code::io_error) << status.message();
      EXPECT_FALSE(must_succeed && short_write) << status.message();
    }
    if (!files.fired()) {
      EXPECT_TRUE(status.ok()) << status.message();
      return files.calls();
    }
  }
}

TEST(FileFaults, SaveSurvivesAFullDiskAndInputOutputErrors) {
  EXPECT_GT(fail_each_operation_of_a_save(ENOSPC, false, false), 10);
  EXPECT_GT(fail_each_operation_of_a_save(EIO, false, false), 10);
}

TEST(FileFaults, ShortWritesAndInterruptsGoOn) {
  // save() continues after a short or interrupted write. For all other operations the same faults
  // are errors.
  FaultyFiles files;
  const Folder folder;
  Model model = make_tied_model();
  ASSERT_TRUE(model.materialize(2).ok());
  ASSERT_TRUE(model.save(folder / "wanted").ok());
  ASSERT_TRUE(graph::save_model(*Internals::state(model), folder / "m", nullptr, files).ok());
  int continued = 0;
  for (const bool short_write : {true, false}) {
    for (int n = 1; n <= 40; ++n) {
      files.arm(n, EINTR, short_write);
      if (graph::save_model(*Internals::state(model), folder / "m", nullptr, files).ok() &&
          files.fired()) {
        ++continued;
        EXPECT_EQ(read_file(folder / "m"), read_file(folder / "wanted"));
      }
    }
  }
  EXPECT_GE(continued, 12);
}

// The order of the operations decides which bytes survive a power failure. Bytes that are not on
// the disk when the name changes can be lost.
TEST(FileFaults, TheBytesAreOnTheDiskBeforeTheName) {
  class Ordered : public FileSystem {
   public:
    int64_t write(int fd, const void* data, size_t size) override {
      note('w');
      return FileSystem::write(fd, data, size);
    }
    int sync(int fd) override {
      note('s');
      return FileSystem::sync(fd);
    }
    int rename(const char* from, const char* to) override {
      note('r');
      return FileSystem::rename(from, to);
    }
    std::string order;  // writes, syncs and renames; a run of equal operations is one letter

   private:
    void note(char what) {
      if (order.empty() || order.back() != what) {
        order += what;
      }
    }
  } files;
  const Folder folder;
  Model model = make_tied_model();
  ASSERT_TRUE(model.materialize(1).ok());
  ASSERT_TRUE(graph::save_model(*Internals::state(model), folder / "m", nullptr, files).ok());
  EXPECT_EQ(files.order, "wsrs") << "the file, its name, the folder";
}

TEST(FileFaults, TooLittleSpaceIsSaidBeforeAnythingIsWritten) {
  class SmallDisk : public FileSystem {
   public:
    int free_bytes(int, uint64_t& out) override {
      out = 1000;
      return 0;
    }
  } files;
  const Folder folder;
  const Status status =
      graph::save_model(*Internals::state(make_tied_model()), folder / "m", nullptr, files);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_NE(status.message().find("1000 are free"), std::string::npos) << status.message();
  EXPECT_EQ(folder.files(), 0u);
}

TEST(FileFaults, OpenAndLoadFailWithoutATrace) {
  const Folder folder;
  Model saved = make_tied_model();
  ASSERT_TRUE(saved.materialize(1).ok());
  ASSERT_TRUE(saved.save(folder / "m").ok());
  Model model = make_tied_model();
  ASSERT_TRUE(model.materialize(2).ok());
  const std::string before = listings(model);
  for (int n = 1;; ++n) {
    FaultyFiles files;
    files.arm(n, EIO);
    auto state = graph::load_model(folder / "m", {}, files);
    EXPECT_EQ(files.open_descriptors(), 0);
    EXPECT_EQ(listings(model), before);
    if (!files.fired()) {
      ASSERT_TRUE(state.ok()) << state.status().message();
      EXPECT_GE(n, 4);
      break;
    }
    if (!state.ok()) {
      EXPECT_EQ(state.status().code(), Code::io_error);
    }
  }
}

TEST(FileFaults, OpenOfADescriptorFailsWithoutATrace) {
  const Folder folder;
  Model saved = make_tied_model();
  ASSERT_TRUE(saved.materialize(1).ok());
  ASSERT_TRUE(saved.save(folder / "m").ok());
  FaultyFiles files;
  const int fd = files.open((folder / "m").c_str(), FileSystem::OpenFor::reading);
  for (const auto access : {model::MappedFile::Access::map, model::MappedFile::Access::read}) {
    for (int n = 1;; ++n) {
      files.arm(n, EIO);
      const auto file = model::MappedFile::of_descriptor(fd, 0, 0, files, access);
      EXPECT_EQ(files.open_descriptors(), 1);
      if (!files.fired()) {
        EXPECT_TRUE(file.ok()) << file.status().message();
        EXPECT_EQ(n, 3) << "its size, and its bytes";
        break;
      }
      EXPECT_EQ(file.status().code(), Code::io_error);
    }
    files.arm(2, EINTR);  // an interrupted read goes on, but nothing else is interrupted
    EXPECT_EQ(model::MappedFile::of_descriptor(fd, 0, 0, files, access).ok(),
              access == model::MappedFile::Access::read);
  }
  files.close(fd);
}

// The reader finds damaged weight bytes when it reads them, and copies none of them into the model.
TEST(FileFaults, ALoadOfDamagedBytesChangesNothing) {
  const Folder folder;
  Model saved = make_tied_model();
  ASSERT_TRUE(saved.materialize(1).ok());
  ASSERT_TRUE(saved.save(folder / "m").ok());
  std::string bytes = read_file(folder / "m");
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 4);
  test::write_file(folder / "m", bytes);
  Model model = make_tied_model();
  ASSERT_TRUE(model.materialize(2).ok());
  ASSERT_TRUE(model.save(folder / "before").ok());
  const std::string before = listings(model);
  EXPECT_EQ(model.load(folder / "m").status().code(), Code::bad_file);
  EXPECT_EQ(listings(model), before);
  ASSERT_TRUE(model.save(folder / "after").ok());
  EXPECT_EQ(read_file(folder / "before"), read_file(folder / "after"));
  EXPECT_TRUE(Model::open(folder / "m").ok()) << "bytes are checked when they are read";
}

}  // namespace
}  // namespace bowline
