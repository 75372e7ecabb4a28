// Files in the cache folder. Their names contain everything on which their contents depend. Each
// file carries its own length and hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "physical_device.h"

namespace bowline::detail::vulkan {

// FNV-1a over `bytes`, continued from `hash`.
constexpr uint64_t kHashStart = 0xcbf29ce484222325u;
uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t hash = kHashStart);

// A hash of the driver of a device, and of the shaders of the build.
uint64_t cache_key(const PhysicalDevice& physical);

// "<folder>/vulkan-<key><suffix>"
std::string cache_path(const std::string& folder, uint64_t key, const char* suffix);
// Returns the contents. Empty: there is no such file, or it is damaged.
std::vector<std::byte> read_cache(const std::string& path);
// Writes a temporary file and renames it. Makes the folder if there is none. Returns false if it
// cannot be written.
bool write_cache(const std::string& path, std::span<const std::byte> contents);

}  // namespace bowline::detail::vulkan
