// Verifies a model file. The tables of a file can only be read from a VerifiedFile.
//
// open() checks the structure: header, FlatBuffer, and every index, enum, union tag, string, shape,
// view, graph and range. A checksum is checked when its bytes are first read. verify_all() checks
// all checksums. graph/load checks the rules of the operators.
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

struct NamedRange;

class VerifiedFile {
 public:
  // Errors  io_error: the file or a sibling cannot be read.
  //         bad_file: the file is damaged. The message says where.
  //         over_budget: the tables cost more than options.budget.
  static Result<std::shared_ptr<const VerifiedFile>> open(const std::string& path,
                                                          FileSystem& files = real_file_system(),
                                                          const OpenOptions& options = {});
  // The same for a file that is open already. If a callback reads it, its errors are returned, too.
  static Result<std::shared_ptr<const VerifiedFile>> verify(std::shared_ptr<MappedFile> file,
                                                            FileSystem& files = real_file_system(),
                                                            const OpenOptions& options = {});

  // Checks the hash of the file and the checksum of every range.
  // Errors  bad_file: a checksum does not match. The message says which.
  Status verify_all() const;

  // The name of the file in messages.
  const std::string& name() const { return file_->name(); }
  // The budget for making a model from the tables.
  const Budget& budget() const { return budget_; }
  // The tables. Only for model/ and for tests; other code uses model/read.h.
  const file::Model& tables() const;
  // The bytes of a Range table of tables(). Each call makes a new FileRange.
  std::shared_ptr<const FileRange> range(const file::Range& range) const;
  // The same for a Range that was unpacked from tables().
  std::shared_ptr<const FileRange> range(const file::RangeT& range) const;

 private:
  VerifiedFile() = default;
  Status read_tables(const OpenOptions& options);
  Status check_data(std::vector<NamedRange> ranges);
  std::shared_ptr<const FileRange> range(uint32_t file, uint64_t offset, uint64_t length,
                                         uint64_t xxh3) const;
  std::shared_ptr<MappedFile> file_;
  std::vector<std::shared_ptr<MappedFile>> siblings_;
  std::vector<uint8_t> flatbuffer_;  // a copy, aligned as operator new aligns
  uint64_t data_start_ = 0;
  Budget budget_;
};

}  // namespace bowline::detail::model
