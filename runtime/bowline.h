/// \file
/// Bowline runs and fine-tunes neural networks on CPU, CUDA and Vulkan devices.
///
/// This header includes the whole public API, except bowline/external.h. Each header of `bowline/`
/// can also be included alone.
///
/// - bowline/status.h: Status, Result and error codes.
/// - bowline/tensor.h: dtypes, shapes, tensors and dimensions.
/// - bowline/device.h: list and open devices.
/// - bowline/buffer.h: memory of a device, for inputs and outputs that stay there.
/// - bowline/model.h: models, with their parameters, ties, values and files.
/// - bowline/load.h and bowline/budget.h: options and limits for opening and loading files.
/// - bowline/graph.h: build the graph of a model.
/// - bowline/session.h: run a model.
/// - bowline/trainer.h and bowline/optimizer.h: train a model.
/// - bowline/adapters.h: LoRA adapters.
/// - bowline/tune.h: find the fastest kernels of a device.
/// - bowline/quantize.h: quantize weights.
/// - bowline/placement.h: place a model on several devices.
/// - bowline/formats.h: place several weights in one allocation.
/// - bowline/describe.h: the contents of models and plans as plain structs.
/// - bowline/files.h: write files atomically; the version of the library.
/// - bowline/external.h: use the Vulkan or CUDA device of the program, and share memory with it.
///
/// The operators and their attributes are listed in operators.md, in share/doc/bowline.
///
/// **Terms**
///
/// - A *storage* holds the values of one tensor of the model, such as a weight or a KV cache. A
///   Model keeps its storages in a table. The row number of a storage is its *tie index*.
/// - A *parameter* is a name for a storage or for a part of it (a *view*).
/// - Two parameters with the same tie index are *tied*: they share one storage. Model files contain
///   the ties.
/// - *Moments* are what an optimizer stores per weight, such as averages of its gradients.
/// - A *Repeat* is a loop in a graph. Each iteration can use its own parameters.
/// - An *entry point* is a graph of the model that a program can run, such as "forward" or "loss".
/// - A *plan* is an entry point compiled for one device. It has one size or one maximum size for
///   each named dimension, such as "batch".
///
/// **Example.** This function runs a model whose input "x" is f32[1,4] and output "y" f32[1,2]:
///
///     Status predict(float* x, float* y) {
///       BOWLINE_TRY_ASSIGN(const Device device, Device::open("best"));
///       BOWLINE_TRY_ASSIGN(Model model, Model::open("model.bowline"));
///       BOWLINE_TRY(model.to(device));
///       BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, "forward", {}));
///       const Tensor input = {"x", DType::f32, {1, 4}, x};
///       const Tensor output = {"y", DType::f32, {1, 2}, y};
///       return session.run({&input, 1}, {&output, 1});
///     }
///
/// **Errors.** No function throws. A function that can fail returns Status or Result<T>. If it
/// fails, it changes nothing, unless its documentation says otherwise. If host memory runs out, it
/// returns out_of_memory. If its object was moved from, it returns bad_argument. In these two
/// cases, functions that cannot return a Status return empty data.
///
/// **Threads.** One thread at a time may use a Model with its Sessions and Trainers. Functions that
/// any thread may call say so. Different models are independent. On a shared Device, their runs and
/// training steps take turns. Model::copy_values_from() connects a model that serves with one that
/// trains.
///
/// **Lifetime.** Destroy the Sessions and Trainers first, then their Model, then the last copy of
/// their Device.
///
/// **fork().** A Device belongs to the process that opened it. In a child process, functions that
/// use the Device return device_lost, and destroying it is safe. The child can open its own device
/// and load its models again.
///
/// **Globals.** The library does not exit or install signal handlers. It does not change the
/// locale, the working directory, the environment or the floating-point mode. It never prints or
/// aborts, except in Result::value() of a failed Result.
#pragma once

#include "bowline/adapters.h"
#include "bowline/buffer.h"
#include "bowline/describe.h"
#include "bowline/device.h"
#include "bowline/files.h"
#include "bowline/formats.h"
#include "bowline/graph.h"
#include "bowline/load.h"
#include "bowline/model.h"
#include "bowline/optimizer.h"
#include "bowline/placement.h"
#include "bowline/processes.h"
#include "bowline/quantize.h"
#include "bowline/session.h"
#include "bowline/status.h"
#include "bowline/tensor.h"
#include "bowline/trainer.h"
#include "bowline/tune.h"
