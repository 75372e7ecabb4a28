// Files that a program writes with the functions of the library.
#include <gtest/gtest.h>

#include "base/atomic_file.h"
#include "model/tied_model.h"
#include "need.h"

namespace bowline::test {
namespace {

TEST(Files, AreWrittenWholeOrNotAtAll) {
  const Folder folder;
  const std::string path = folder / "text";
  const std::string a = "one ", b = "two";
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(a)),
                                               std::as_bytes(std::span(b))};
  ASSERT_TRUE(bowline::write_file(path, pieces).ok());
  EXPECT_EQ(read_file(path), "one two");
  ASSERT_TRUE(probe_file(path, 100).ok());
  EXPECT_EQ(read_file(path), "one two") << "a probe leaves it";
  EXPECT_EQ(folder.files(), 1u);
  EXPECT_EQ(bowline::write_file(folder / "none/text", pieces).code(), Code::io_error);
  EXPECT_EQ(probe_file(folder / "none/text", 1).code(), Code::io_error);
}

TEST(Files, ATemporaryNamesItsTarget) {
  EXPECT_EQ(target_of_temporary("a/b.bowline"), "");
  EXPECT_EQ(target_of_temporary("a/.b.bowline.bowline-write"), "a/b.bowline");
}

TEST(Files, VerifyFindsOneWrongByte) {
  const Folder folder;
  const std::string path = folder / "model";
  Model model = make_tied_model();
  ASSERT_TRUE(model.materialize(1).ok());
  ASSERT_TRUE(model.save(path).ok());
  EXPECT_TRUE(Model::verify(path).ok());
  std::string bytes = read_file(path);
  bytes[bytes.size() - 400] = static_cast<char>(bytes[bytes.size() - 400] ^ 1);
  test::write_file(path, bytes);
  EXPECT_TRUE(Model::open(path).ok()) << "the weights are not read yet";
  EXPECT_EQ(Model::verify(path).code(), Code::bad_file);
  EXPECT_EQ(Model::verify(folder / "none").code(), Code::io_error);
}

}  // namespace
}  // namespace bowline::test
