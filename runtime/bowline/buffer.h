/// \file
/// DeviceBuffer: memory of a device, for inputs and outputs that stay on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "bowline/device.h"
#include "bowline/status.h"

namespace bowline::detail::device {
class Block;
}

#pragma GCC visibility push(default)

namespace bowline {

/// A buffer in the memory of a device. Copies refer to the same memory; the last copy frees it.
///
/// To use it, set Tensor::buffer of an input or output instead of Tensor::data. The run then reads
/// the input from the buffer, or writes the output to the buffer. The device copies the values
/// between the buffer and the memory of the plan. So the output of one Session can be the input of
/// another Session on the same Device. The values are row-major, as in host memory.
///
/// Threads: any thread may call the functions. read() and write() wait while another call uses the
/// device. They do not wait for runs of Session::submit(): call PendingRun::wait() first.
class DeviceBuffer {
 public:
  /// Allocates a buffer of `bytes` bytes on a device. All bytes are 0.
  ///
  /// Errors:
  /// - out_of_memory: the device has too little memory left.
  /// - over_budget: the bytes exceed the memory budget of the device.
  /// - bad_argument: the Device was moved from.
  static Result<DeviceBuffer> create(const Device& device, uint64_t bytes);

  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&);
  DeviceBuffer& operator=(const DeviceBuffer&);
  DeviceBuffer(DeviceBuffer&&) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) noexcept;

  /// Returns the size in bytes. 0 if the buffer was moved from.
  uint64_t bytes() const;

  /// Copies bytes from host memory to the buffer, from byte `offset` of the buffer on.
  ///
  /// Errors:
  /// - bad_argument: the bytes do not fit into the buffer.
  /// - device_lost: the device was lost.
  Status write(uint64_t offset, std::span<const std::byte> from) const;
  /// Copies bytes from byte `offset` of the buffer on to host memory. Errors: as write().
  Status read(uint64_t offset, std::span<std::byte> to) const;

 private:
  friend struct Internals;
  friend class detail::device::Block;
  explicit DeviceBuffer(std::shared_ptr<detail::device::Block> block);
  std::shared_ptr<detail::device::Block> block_;
};

}  // namespace bowline

#pragma GCC visibility pop
