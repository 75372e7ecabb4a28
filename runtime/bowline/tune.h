/// \file
/// tune(): measures which kernels are fastest on a device.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bowline/device.h"
#include "bowline/session.h"
#include "bowline/status.h"

#pragma GCC visibility push(default)

namespace bowline {

/// Runs the work to tune once and returns the time of each node: Session::profile() or
/// Trainer::profile().
using ProfiledRun = std::function<Result<std::vector<NodeTime>>()>;

/// Where tune() is.
struct TuneProgress {
  uint32_t done = 0;  ///< Finished measurements: the choices of the device, then each candidate.
  /// All measurements. The last one measures the fastest candidates again. 0: not known yet.
  uint32_t total = 0;
};

/// How tune() measures.
struct TuneOptions {
  int rounds = 5;  ///< Measured runs per candidate, after one run to warm up. The fastest counts.
  /// A candidate must be faster than the choice of the device by this fraction to replace it.
  double least_gain = 0.03;
  /// Called before each measurement. false: tune() stops, and keeps the results so far.
  std::function<bool(const TuneProgress&)> progress;
};

/// Nodes with the same operator, attributes, dtypes and shapes.
struct TunedNodes {
  std::string key;     ///< NodeTime::tuning_key.
  std::string op;      ///< The operator, for example "Linear".
  uint64_t count = 0;  ///< The number of these nodes in the work. 0: not known (stored_tuning).
  uint32_t candidates = 0;  ///< The number of ways to run them.
  int candidate = -1;       ///< The fastest way; -1: the choice of the device.
  double default_ns = 0;    ///< Nanoseconds of one node with the choice of the device.
  double ns = 0;            ///< Nanoseconds of one node with `candidate`.
};

/// What tune() measured, or what a tuning file holds.
struct TuneReport {
  std::string path;  ///< The tuning file.
  std::vector<TunedNodes> nodes;
  double default_ns = 0;      ///< All nodes of the work, with the choices of the device.
  double ns = 0;              ///< All nodes of the work, with the results.
  uint32_t not_measured = 0;  ///< Candidates that did not fit into memory.
  bool stopped = false;       ///< TuneOptions::progress stopped it.
};

/// Measures every way in which `device` can run the nodes of some work, and stores the fastest in a
/// tuning file in DeviceOptions::cache_folder.
///
/// Plans that are made later on the device use the results, also in later processes. They depend
/// only on the device, the graph and the file. Results can differ in rounding from those without
/// the file. The file holds for one model of device, its driver and the version of Bowline; another
/// one ignores it (DeviceInfo::notice). Results of earlier calls for other nodes stay in the file.
///
/// `make` creates the work, such as a Session. tune() calls it again for each candidate. It
/// destroys the old work first. Meanwhile no other thread may make plans on the device.
///
/// Example:
///
///     tune(device, [&]() -> Result<ProfiledRun> {
///       BOWLINE_TRY_ASSIGN(Session made, Session::create(model, device, "forward", dims));
///       auto session = std::make_shared<Session>(std::move(made));
///       return [session, inputs] { return session->profile(inputs); };
///     });
///
/// Errors: the file is as before.
/// - unsupported: the device has one way to run each node, or no clock.
/// - bad_argument: the device was opened without a cache folder.
/// - io_error: the file cannot be written. This is checked before the first measurement.
/// - cancelled: it was stopped before anything was measured.
/// - errors of `make` and of the work. cancelled of a later candidate stops it, as `progress` does.
Result<TuneReport> tune(const Device& device, const std::function<Result<ProfiledRun>()>& make,
                        const TuneOptions& options = {});

/// Returns the results in the tuning file of a device.
///
/// Errors:
/// - unsupported, bad_argument: as tune().
/// - bad_file: the file is damaged, or is for another device, driver or version of Bowline.
/// - io_error: it cannot be read.
Result<TuneReport> stored_tuning(const Device& device);

/// Removes the tuning file of a device. Returns its path, or an empty text if there is no file.
///
/// Plans that are made later use the choices of the device.
///
/// Errors:
/// - unsupported, bad_argument: as tune().
/// - io_error: it cannot be removed.
Result<std::string> reset_tuning(const Device& device);

}  // namespace bowline

#pragma GCC visibility pop
