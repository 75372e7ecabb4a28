#include "graph/fuse.h"

namespace bowline::detail::graph {

Result<bool> fuse(BoundGraph& graph, const device::OpenDevice& device) {
  const bool dropped = drop_what_trains(graph);
  const bool joined = join_slices(graph), gated = join_gates(graph);
  BOWLINE_TRY_ASSIGN(bool any, fuse_convolutions(graph, device));
  any = any || dropped || joined || gated;
  for (BoundNode& node : graph.nodes) {
    if (node.repeat) {
      BOWLINE_TRY_ASSIGN(const bool inside, fuse(*node.repeat->body, device));
      any = any || inside;
    }
  }
  return any;
}

bool fusion_allows(const StepScalar& scalar) {
  return scalar.name != "training" ||
         std::visit([](auto number) { return number == 0; }, scalar.value);
}

}  // namespace bowline::detail::graph
