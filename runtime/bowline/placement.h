/// \file
/// Places the storages of a model on several devices or in host memory.
///
/// Model::to() moves a model to one device. The functions here are for models that are larger than
/// the memory of one device, or that run on several devices. `pattern` selects parameters by name,
/// as in Model::to(). No function changes ties. If a function fails, it changes nothing.
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

/// Moves storages and their moments to host memory, with one transfer each.
///
/// Model::to() moves them back. Until then, a Session that reads them returns bad_argument.
///
/// Errors: as Model::to().
Status offload(Model& model, std::string_view pattern = "*");

/// Copies storages to another device, with one transfer each. Sessions on `device` read the copies,
/// the *replicas*.
///
/// The original storages stay where they are. Writes change only the originals. Before a run reads
/// an outdated replica, the library transfers it again (Counters::transfers). Files, clones and
/// trainers do not use replicas. Model::to() and offload() remove replicas.
///
/// Errors: as Model::to().
/// - bad_argument: no parameter matches, or a storage has no values yet.
Result<PlacementReport> replicate(Model& model, const Device& device,
                                  std::string_view pattern = "*");

/// Splits storages by rows across several devices. Each device holds one part.
///
/// If the rows do not divide evenly, the first devices get one row more. A storage with fewer rows
/// than devices uses one device per row. Quantized storages and scalars are not split: they move to
/// the first device. All functions of Model work on a sharded storage. Model::to() and offload()
/// put its parts together again.
///
/// A Session on one of the devices reads a whole copy on its device. After a write, the next run
/// transfers the copy again. A Trainer cannot read sharded storages. Call Model::to() first.
///
/// Errors: as replicate().
/// - bad_argument: `devices` is empty or has the same device twice.
Result<PlacementReport> shard(Model& model, std::span<const Device> devices,
                              std::string_view pattern = "*");

}  // namespace bowline

#pragma GCC visibility pop
