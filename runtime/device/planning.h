// A device for plans: it answers as another one does, and has no memory.
//
// What is made on it (Device::open("planning:cpu")) says what it would take: memory(), describe(),
// listing(), and counters() that count bytes as if they were there. Model::to() places storages
// without values too. What writes values is let through; what reads them, or runs, is refused with
// unsupported.
#pragma once

#include "device/backend.h"

namespace bowline::detail::device {

// In front of the name of a device.
constexpr std::string_view kPlanning = "planning:";

// Of `inner`. Where that has memory of the host (Capabilities::host_memory) blocks are pages that
// nobody touches, so that it can record; of others nothing is asked, and what their recordings hold
// is not known.
std::unique_ptr<Device> planning_device(std::unique_ptr<Device> inner);

}  // namespace bowline::detail::device
