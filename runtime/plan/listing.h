// The canonical listing of a graph: numbered lines, stable, without sources, devices or addresses;
// and lines of a plan's description.
#pragma once

#include "plan/describe.h"

namespace bowline::detail::plan {

struct ListingColumns {
  bool names = false;  // the names of nodes
};

// Lines of nodes [begin, end). Results are numbered in the order of the nodes over the whole graph,
// and anew in a body. A Repeat prints its body once, indented; parameters print by name, inputs by
// position.
std::string list_nodes(const graph::BoundGraph& graph, size_t begin, size_t end,
                       ListingColumns columns = {});

// Lists what the device is given: one line per record with its level and where its operands lie.
// Offsets are bytes of the arena, of the io buffer or of a storage, by tie index.
std::string list_records(const SegmentInfo& segment);

// Lists the derived copies that a segment reads.
std::string list_copies(const SegmentInfo& segment);

// Lists the parameters of the bodies of Repeats: one line per list, the items by tie index.
std::string list_repeat_lists(const std::vector<RepeatListInfo>& lists);

}  // namespace bowline::detail::plan
