/// \file
/// Places the storages of a model on several devices or in host memory.
///
/// Model::to() moves a model to one device. The functions here are for models that are larger than
/// one device, or that run on several devices. `pattern` selects parameters by name, as in
/// Model::to(). Each function moves whole storages with their moments, so it never breaks a tie. If
/// it fails, it changes nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "bowline/device.h"
#include "bowline/model.h"
#include "bowline/status.h"

#pragma GCC visibility push(default)

namespace bowline {

/// The result of replicate() or shard().
struct PlacementReport {
  uint32_t storages = 0;  ///< Storages that were replicated or sharded.
  uint64_t bytes = 0;     ///< Bytes that were transferred.
};

/// Moves storages from their devices to host memory, with one transfer each.
///
/// Model::to() moves them back. Until then, a Session that reads them cannot run.
///
/// Errors: as Model::to().
Status offload(Model& model, std::string_view pattern = "*");

/// Copies storages to a second device, with one transfer each. Sessions on `device` read the
/// copies.
///
/// The original storages stay where they are, and all writes go to them. Before a run that reads an
/// outdated replica, the replica is transferred again (Counters::transfers). Its address stays the
/// same. Files, clones and trainers do not use replicas. Model::to() and offload() remove replicas.
///
/// Errors: as Model::to().
/// - bad_argument: no parameter matches, or a storage has no values yet.
Result<PlacementReport> replicate(Model& model, const Device& device,
                                  std::string_view pattern = "*");

/// Splits storages by rows across several devices. Each device holds one part.
///
/// If the rows do not divide evenly, the first devices get one row more. A storage with fewer rows
/// than devices uses one device per row. A quantized storage and a scalar stay whole, on the first
/// device. All functions of Model work on a sharded storage. Model::to() and offload() gather it.
///
/// A Session on one of the devices reads a gathered copy. The copy is transferred again after each
/// write. Before you create a Trainer, gather the storages that it reads.
///
/// Errors: as replicate().
/// - bad_argument: `devices` is empty or has the same device twice.
Result<PlacementReport> shard(Model& model, std::span<const Device> devices,
                              std::string_view pattern = "*");

}  // namespace bowline

#pragma GCC visibility pop
