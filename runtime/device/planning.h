// A planning device: it makes the same plans as another device, but has no memory.
//
// Sessions and Trainers on it (Device::open("planning:cpu")) report the memory that they would
// need: memory(), describe(), listing(), and counters() as if blocks were allocated. Model::to()
// accepts storages without values. Writing values has no effect. Reading values and running return
// unsupported.
#pragma once

#include "device/backend.h"

namespace bowline::detail::device {

// The prefix of the name of a planning device.
constexpr std::string_view kPlanning = "planning:";

// Makes a planning device from `inner`. If `inner` uses host memory (Capabilities::host_memory),
// blocks are pages that are never touched, so that `inner` can record programs. Other devices are
// not asked to allocate or record. They tell what they know of a recording (Device::plan), so its
// size is unknown.
//
// "planning:cuda@90x132" plans for a GPU that this machine need not have (Backend::open_to_plan):
// here of architecture sm_90, with 132 multiprocessors. "planning:cuda@90x132+cublaslt" also has
// the library. "planning:vulkan@rx7800xt" plans with the limits of that card.
std::unique_ptr<Device> planning_device(std::unique_ptr<Device> inner);

}  // namespace bowline::detail::device
