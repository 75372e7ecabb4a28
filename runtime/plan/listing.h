// Lists graphs and plans as text. The listing of a graph has numbered lines. It does not depend on
// devices, addresses or file names.
#pragma once

#include "plan/describe.h"

namespace bowline::detail::plan {

struct ListingColumns {
  bool names = false;  // adds the names of nodes
};

// Lists nodes [begin, end). Results are numbered in the order of all nodes of the graph. Numbers
// start again in the body of a Repeat, which is listed once and indented. Parameters have their
// names, inputs their positions.
std::string list_nodes(const graph::BoundGraph& graph, size_t begin, size_t end,
                       ListingColumns columns = {});

// Lists the records, one line each, with the level and the place of each operand: an offset in
// bytes in the arena, in the io buffer or in a storage (by tie index).
std::string list_records(const SegmentInfo& segment);

// Lists the derived copies that a segment reads.
std::string list_copies(const SegmentInfo& segment);

// Lists the parameter lists of Repeats, one line each. Items are tie indices.
std::string list_repeat_lists(const std::vector<RepeatListInfo>& lists);

}  // namespace bowline::detail::plan
