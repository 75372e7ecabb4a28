// What a plan keeps in its arena while it runs, record by record.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// Records in the order in which they run, a Repeat's once per iteration.
struct MemoryCurve {
  struct Part {
    std::string segment;  // "accumulate", "update"
    size_t begin = 0;
  };
  std::vector<Part> parts;
  std::vector<uint64_t> live;  // bytes of the arena that hold what this record or a later one reads
  std::vector<std::string> nodes;  // by number of a record of the plan
  std::vector<uint32_t> node;      // of each record, the number of its node
  size_t peak = 0;

  const std::string& node_at(size_t record) const { return nodes[node[record]]; }
};

// Of segments of a plan, one after the other. None: they have too many records to be followed.
std::optional<MemoryCurve> memory_curve(const PlanInfo& plan,
                                        const std::vector<std::string_view>& segments);

// The parts of the memory as a bar, and the curve with its peak. `id` is of letters. `storages` may
// have rows that the report does not count; `of` says what runs: "one step".
std::string memory_html(const std::string& id, const std::string& of, const MemoryReport& memory,
                        const ModelInfo& model, const std::optional<MemoryCurve>& curve);

}  // namespace bowline::command
