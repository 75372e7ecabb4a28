// Reads the tables of a verified file as plain structs, one entry at a time. An entry is converted
// when it is read.
#pragma once

#include "model/description.h"
#include "model/verify.h"

namespace bowline::file {
struct Graph;
}

namespace bowline::detail::model {

// A graph of a file: an entry point or the body of a Repeat.
class GraphTable {
 public:
  explicit GraphTable(const file::Graph& graph) : graph_(graph) {}

  std::string_view name() const;
  bool is_body() const;
  uint32_t inputs() const;
  InputEntry input(uint32_t i) const;
  std::span<const uint32_t> parameters() const;
  // Tie indices of the states that the nodes write, as stored in the file.
  std::span<const uint32_t> updates() const;
  uint32_t nodes() const;
  NodeEntry node(uint32_t i) const;
  uint32_t outputs() const;
  OutputEntry output(uint32_t i) const;

 private:
  const file::Graph& graph_;
};

// The tables of a file. The file must outlive this object. An index must be less than the number
// that the function without arguments returns.
class Tables {
 public:
  explicit Tables(const VerifiedFile& file) : file_(file) {}

  uint32_t storages() const;
  StorageEntry storage(uint32_t tie) const;
  // The values of a storage, or null.
  std::shared_ptr<const FileRange> range(uint32_t tie) const;
  uint32_t parameters() const;
  ParameterEntry parameter(uint32_t i) const;
  std::vector<DimInfo> dims() const;
  uint32_t graphs() const;
  GraphTable graph(uint32_t i) const;
  std::vector<Asset> assets() const;
  std::optional<BaseInfo> base() const;
  Settings metadata() const;
  std::vector<SelfTest> self_tests() const;
  std::optional<TrainingState> training() const;

 private:
  const VerifiedFile& file_;
};

}  // namespace bowline::detail::model
