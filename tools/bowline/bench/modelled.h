// A roofline model: the time of a plan on a class of devices, computed without the device.
//
// A record takes as long as its arithmetic or its memory traffic, whichever is longer. Launches add
// a gap each. The inputs are the records of the real plan (RecordInfo) and bench/device_classes.h.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "bench/device_classes.h"
#include "bowline.h"

namespace bowline::command {

enum class Part : unsigned char { products, attention, memory, optimizer, launches };
inline constexpr Part kParts[] = {Part::products, Part::attention, Part::memory, Part::optimizer,
                                  Part::launches};
std::string_view name_of(Part part);

struct PartTime {
  double seconds = 0;
  double flops = 0;      // multiply-adds count as two
  double bytes = 0;      // read and written
  uint64_t records = 0;  // launches: the number of launches
  uint64_t early = 0;    // of these, launches that start early
};

struct ModelledRecord {
  std::string op;
  std::string kernels;  // joined with ", "; empty: not known
  Part part = Part::memory;
  double runs = 1;  // in a Repeat: the iterations
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
};

struct ModelledTime {
  PartTime parts[std::size(kParts)];
  std::vector<ModelledRecord> records;
  std::set<std::string> unknown;  // kernels that multiply and have no rate
  double seconds() const;
  PartTime& operator[](Part part) { return parts[static_cast<size_t>(part)]; }
};

// Multiply-adds of a record, times two. 0: the record only moves memory.
double flops_of(const RecordInfo& record);

// Adds the time of a segment.
void add_segment(const SegmentInfo& segment, const DeviceClass& device, ModelledTime& time);

}  // namespace bowline::command
