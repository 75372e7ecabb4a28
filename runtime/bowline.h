// Bowline: an embedded runtime that runs and fine-tunes neural networks on the CPU and on any GPU.
//
// This header includes the public interface, one header per topic. Each can be included alone; they
// are the manual. The operators and their attributes are listed in operators.md, installed in
// share/doc/bowline.
//
// The idea. A model keeps its weights in a table of *storages*. A *parameter* is a named slot that
// holds the number of a storage row, its *tie index*, and perhaps a view of it. Two parameters with
// the same tie index are *tied*: they are one weight, and stay one weight through every verb,
// because sharing is stored in the model file and never guessed from pointers, names or values.
//
// Errors.   No exceptions leave the library. A function that can fail returns Status or Result<T>;
//           both are [[nodiscard]]. The code says what the caller should do next. A verb that fails
//           changes nothing. If an allocation of host memory fails, the function returns
//           out_of_memory, or an empty string if it returns plain text. A Model, Session or Trainer
//           that was moved from returns bad_argument, or nothing.
// Threads.  One thread at a time may use a Model and all Sessions and Trainers made from it, unless
//           a function says otherwise. Different models are independent, also on one Device. There
//           they take turns, in the order in which they ask: each waits for at most one submission
//           of every other. On the CPU a submission that others wait for pauses after a
//           millisecond, at the end of the operator that runs.
// fork().   A Device belongs to the process that opened it. In the child of a fork(), calls that
//           use the Device return device_lost, and destroying it is safe. The child opens a device
//           of its own and loads its models again.
// Lifetime. A Device outlives what is placed on it; a Model outlives its Sessions and Trainers.
// Data.     describe() returns the contents of an object as plain structs: all parts of a Model
//           (parameters, storages, ties, entry points, ...), the plans of a Session or Trainer. The
//           listings show the same data as text.
// Globals.  The library never aborts, exits, prints or installs signal handlers. It does not touch
//           locale, working directory, environment or floating-point mode. One exception:
//           Result::value() of a failure prints the message and aborts.
#pragma once

#include "bowline/adapters.h"
#include "bowline/base.h"
#include "bowline/describe.h"
#include "bowline/device.h"
#include "bowline/files.h"
#include "bowline/formats.h"
#include "bowline/graph.h"
#include "bowline/model.h"
#include "bowline/optimizer.h"
#include "bowline/placement.h"
#include "bowline/quantize.h"
#include "bowline/session.h"
#include "bowline/status.h"
#include "bowline/tensor.h"
#include "bowline/trainer.h"
