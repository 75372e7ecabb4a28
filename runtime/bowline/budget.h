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
  /// Memory in bytes. For a file: on the host, without weights. For a plan: on the device, for
  /// activations, inputs and outputs.
  uint64_t bytes = 0;
  /// Number of nodes. For a file: nodes in all graphs. For a plan: nodes that one run executes.
  uint64_t nodes = 0;
  /// Time for opening the file or making the plan.
  double seconds = 0;

  /// Returns the default budget of Model::open().
  ///
  /// `table_bytes` is the size of the file without weights, in bytes. The limits are 96 MiB + 256 *
  /// `table_bytes` bytes of memory and 64 + `table_bytes` / 16 nodes. There is no time limit.
  static Budget of_file(uint64_t table_bytes);

  /// Returns the default budget of a plan: 1,048,576 nodes and 60 seconds, no memory limit.
  static Budget of_plan();
};

}  // namespace bowline

#pragma GCC visibility pop
