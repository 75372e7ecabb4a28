/// \file
/// Limits for the cost of a file or a plan.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)

namespace bowline {

/// Limits for opening a file or making a plan. 0: no limit.
///
/// A damaged or malicious file can ask for much memory and time. A call that would exceed a limit
/// returns over_budget.
struct Budget {
  /// Host memory for opening a file, without weights. Device memory for a plan: activations, inputs
  /// and outputs. In bytes.
  uint64_t bytes = 0;
  /// Nodes of the graphs in a file. Nodes that one run of a plan executes: the nodes in the body of
  /// a Repeat count once per iteration.
  uint64_t nodes = 0;
  /// Time for opening the file or making the plan.
  double seconds = 0;

  /// Returns the default budget of Model::open().
  ///
  /// The memory limit is 96 MiB plus 256 bytes per byte of `table_bytes`. The node limit is what
  /// `table_bytes` can hold. There is no time limit. `table_bytes` is the size of the file without
  /// weights.
  static Budget of_file(uint64_t table_bytes);

  /// Returns the default budget of a plan: 1,048,576 nodes and 60 seconds, no memory limit.
  static Budget of_plan();
};

}  // namespace bowline

#pragma GCC visibility pop
