// Live bytes in the arena of a plan, after each record that runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// The records in execution order. A record inside a Repeat appears once per iteration.
struct MemoryCurve {
  struct Part {
    std::string segment;  // "accumulate", "update"
    size_t begin = 0;
  };
  std::vector<Part> parts;
  std::vector<uint64_t> live;      // per record: arena bytes that hold live values
  std::vector<std::string> nodes;  // names of nodes
  std::vector<uint32_t> node;      // per record: index into `nodes`
  size_t peak = 0;

  const std::string& node_at(size_t record) const { return nodes[node[record]]; }
};

// Computes the curve of consecutive segments. Empty: they have too many records.
std::optional<MemoryCurve> memory_curve(const PlanInfo& plan,
                                        const std::vector<std::string_view>& segments);

// Returns HTML with the parts of the memory as a bar, and the curve with its peak. `id` must
// consist of letters. `of` names the run in the title: "one step".
std::string memory_html(const std::string& id, const std::string& of, const MemoryReport& memory,
                        const ModelInfo& model, const std::optional<MemoryCurve>& curve);

}  // namespace bowline::command
