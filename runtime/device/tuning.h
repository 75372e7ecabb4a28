// Measured choices: for each node the fastest of its candidates (NodeAnswer::candidates), and the
// file that keeps them.
//
// A node is identified by its operator, attributes, dtypes, encodings and shapes. The file is text:
// a head that identifies the device, its driver and the version of Bowline, one line per node, and
// a checksum. A device reads it once, when it is opened. So a plan depends only on the device, the
// graph and the file.
#pragma once

#include <map>

#include "device/backend.h"

namespace bowline::detail::device {

struct Choice {
  uint32_t candidate = kNoCandidate;  // kNoCandidate: the choice of the backend is the fastest
  uint32_t candidates = 0;            // NodeAnswer::candidates when it was measured
  double ns = 0;                      // of the candidate
  double default_ns = 0;              // of the choice of the backend

  bool operator==(const Choice&) const = default;
};

// By node_key().
using Choices = std::map<std::string, Choice, std::less<>>;

// Identifies a node in one line of text.
std::string node_key(const NodeQuery& node);

// The path of the tuning file of a device in a cache folder. Devices of one model share a file.
std::string tuning_path(const std::string& folder, const TuningKey& key);

// Returns the choices in the file. Without a file, there are none.
// Errors  bad_file: the file is damaged, or is for another device, driver or version.
//         io_error: it cannot be read.
Result<Choices> read_tuning(const std::string& path, const TuningKey& key);
// Writes the file atomically. Makes the folder.
// Errors  io_error: the file cannot be written.
Status write_tuning(const std::string& path, const TuningKey& key, const Choices& choices);

}  // namespace bowline::detail::device
