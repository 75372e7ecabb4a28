// The tables of a verified file as plain structs, entry by entry: what is read costs what it takes,
// when it is read.
#pragma once

#include "model/description.h"
#include "model/verify.h"

namespace bowline::file {
struct Graph;
}

namespace bowline::detail::model {

// One graph of a file, an entry point or the body of a Repeat.
class GraphTable {
 public:
  explicit GraphTable(const file::Graph& graph) : graph_(graph) {}

  std::string_view name() const;
  bool is_body() const;
  uint32_t inputs() const;
  InputEntry input(uint32_t i) const;
  std::span<const uint32_t> parameters() const;
  // Tie indices of the states that its nodes write, as the file says.
  std::span<const uint32_t> updates() const;
  uint32_t nodes() const;
  NodeEntry node(uint32_t i) const;
  uint32_t outputs() const;
  OutputEntry output(uint32_t i) const;

 private:
  const file::Graph& graph_;
};

// The file outlives it. Numbers are below what the functions without arguments return.
class Tables {
 public:
  explicit Tables(const VerifiedFile& file) : file_(file) {}

  uint32_t storages() const;
  StorageEntry storage(uint32_t tie) const;
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
