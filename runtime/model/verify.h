// Bytes -> VerifiedFile: the only way to the tables of a model file. It cannot be switched off.
//
// Opening checks the structure: header, FlatBuffer, every index, enum, union tag, string, shape,
// view, graph and range. A checksum is checked when its bytes are first read, all of them by
// verify_all(). The rules of single operators are checked by graph/load, which runs their
// inference.
#pragma once

#include <memory>

#include "core/view.h"
#include "model/map.h"

namespace bowline::file {
struct Model;
struct Range;
struct RangeT;
}  // namespace bowline::file

namespace bowline::detail::model {

class VerifiedFile {
 public:
  // Errors  io_error: the file or a sibling cannot be read. bad_file: what and where.
  // over_budget: the tables alone cost more than options.budget.
  static Result<std::shared_ptr<const VerifiedFile>> open(const std::string& path,
                                                          FileSystem& files = real_file_system(),
                                                          const OpenOptions& options = {});
  // As open(), of a file that is mapped already.
  static Result<std::shared_ptr<const VerifiedFile>> verify(std::shared_ptr<MappedFile> file,
                                                            FileSystem& files = real_file_system(),
                                                            const OpenOptions& options = {});

  // The whole-file hash and every range. Errors  bad_file: what does not match.
  Status verify_all() const;

  const std::string& path() const { return file_->path(); }
  // What reading its tables into a model may cost.
  const Budget& budget() const { return budget_; }
  // For model/, whose read.h gives them as plain structs, and for tests that craft files.
  const file::Model& tables() const;
  // The bytes that a Range table of tables() names. Each call makes a range of its own.
  std::shared_ptr<const FileRange> range(const file::Range& range) const;
  // As above, of a Range that was unpacked from tables().
  std::shared_ptr<const FileRange> range(const file::RangeT& range) const;

 private:
  VerifiedFile() = default;
  std::shared_ptr<const FileRange> range(uint32_t file, uint64_t offset, uint64_t length,
                                         uint64_t xxh3) const;
  std::shared_ptr<MappedFile> file_;
  std::vector<std::shared_ptr<MappedFile>> siblings_;
  std::vector<uint8_t> flatbuffer_;  // a copy, aligned as operator new aligns
  uint64_t data_start_ = 0;
  Budget budget_;
};

}  // namespace bowline::detail::model
