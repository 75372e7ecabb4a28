#include "cache_file.h"

#include <cstdio>
#include <cstring>

#include "base/atomic_file.h"
#include "base/read_file.h"
#include "vulkan_shaders.h"

namespace bowline::detail::vulkan {
namespace {

constexpr uint64_t kLargestCache = 256u << 20;

struct CacheHeader {
  char magic[8] = {'b', 'w', 'l', 'n', 'v', 'k', 'p', '1'};
  uint64_t bytes = 0;
  uint64_t hash = 0;
};

}  // namespace

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t hash) {
  for (const std::byte b : bytes) {
    hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
  }
  return hash;
}

uint64_t cache_key(const PhysicalDevice& physical) {
  uint64_t hash = hash_bytes(std::as_bytes(std::span(physical.pipeline_cache_uuid)));
  const uint32_t numbers[] = {physical.properties.driverVersion, physical.subgroup_size};
  hash = hash_bytes(std::as_bytes(std::span(numbers)), hash);
  return hash_bytes(std::as_bytes(std::span(kPackedWords, kPackedBytes)), hash);
}

std::string cache_path(const std::string& folder, uint64_t key, const char* suffix) {
  char name[32];
  std::snprintf(name, sizeof(name), "/vulkan-%016llx", static_cast<unsigned long long>(key));
  return folder + name + suffix;
}

std::vector<std::byte> read_cache(const std::string& path) {
  const auto file = read_file("Cache file", path, kLargestCache, real_file_system());
  CacheHeader header;
  if (!file.ok() || !file.value() || file.value()->size() < sizeof(header)) {
    return {};
  }
  std::memcpy(&header, file.value()->data(), sizeof(header));
  const CacheHeader expected;
  const auto contents = std::as_bytes(std::span(*file.value())).subspan(sizeof(header));
  const bool is_whole = std::memcmp(header.magic, expected.magic, sizeof(header.magic)) == 0 &&
                        header.bytes == contents.size() && header.hash == hash_bytes(contents);
  return is_whole ? std::vector<std::byte>(contents.begin(), contents.end())
                  : std::vector<std::byte>();
}

bool write_cache(const std::string& path, std::span<const std::byte> contents) {
  make_folders(folder_of(path), real_file_system());
  CacheHeader header;
  header.bytes = contents.size();
  header.hash = hash_bytes(contents);
  const auto file = AtomicFile::create(path, sizeof(header) + contents.size(), real_file_system());
  return file.ok() && file.value()->write(std::as_bytes(std::span(&header, 1))).ok() &&
         file.value()->write(contents).ok() && file.value()->commit().ok();
}

}  // namespace bowline::detail::vulkan
