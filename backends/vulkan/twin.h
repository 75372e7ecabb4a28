// Twins of io buffers, for discrete GPUs: the host writes and reads a buffer in its own memory, and
// kernels use a twin in device memory. Without a twin, every access of a kernel would cross the
// bus.
#pragma once

#include "kernel.h"

namespace bowline::detail::vulkan {

// Adds the commands that copy from `hosts` what the program reads, before its first command.
// hosts[s] is null if slot s is no twin.
void fill_twins(const device::Program& program, std::span<const Buffer* const> slots,
                std::span<const Buffer* const> hosts, CommandList* list);
// Adds the commands that copy to `hosts` what the program writes, after its last command.
void read_twins(const device::Program& program, std::span<const Buffer* const> slots,
                std::span<const Buffer* const> hosts, CommandList* list);

}  // namespace bowline::detail::vulkan
