#include "common/processes.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/status.h"
#include "common/device_of_process.h"

namespace bowline::command {
namespace {

constexpr const char* kLibrary = "libbowline_mpi.so";

// The number of processes that mpirun of OpenMPI, MPICH or Slurm started. 0: none of them.
int started_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* text = std::getenv(name); text != nullptr) {
      return std::atoi(text);
    }
  }
  return 0;
}

void* open_file(const char* path, std::string& why) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    why = reason == nullptr ? "" : reason;
  }
  return library;
}

// The library is beside the command in a build, and in the library folder of an installation.
void* open_library(std::string& why) {
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::filesystem::path& path : {folder / kLibrary, folder / "../lib" / kLibrary}) {
    if (std::filesystem::exists(path, error)) {
      return open_file(path.c_str(), why);
    }
  }
  return open_file(kLibrary, why);
}

template <class Function>
Function* function_of(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

Result<Processes> Processes::join(double timeout_seconds) {
  Processes out;
  const int processes = started_processes();
  if (processes == 0) {
    return out;
  }
  std::string why;
  void* const library = open_library(why);
  BOWLINE_REQUIRE_CODE(
      library != nullptr, Code::unsupported,
      "mpirun started {} processes, but {} cannot be opened: {}. Build Bowline where "
      "MPI is installed (Debian: libopenmpi-dev), or start the command without "
      "mpirun.",
      processes, kLibrary, why);
  auto* const open = function_of<const char*(double, ProcessGroup**)>(library, "bowline_mpi_open");
  auto* const local = function_of<int()>(library, "bowline_mpi_local_size");
  auto* const local_rank = function_of<int()>(library, "bowline_mpi_local_rank");
  out.close_ = function_of<void(int)>(library, "bowline_mpi_close");
  BOWLINE_REQUIRE_CODE(
      open != nullptr && local != nullptr && local_rank != nullptr && out.close_ != nullptr,
      Code::unsupported, "{} is of another version of Bowline.", kLibrary);
  ProcessGroup* group = nullptr;
  const char* const failure = open(timeout_seconds, &group);
  BOWLINE_REQUIRE_CODE(failure == nullptr, Code::io_error, "MPI cannot be initialized: {}.",
                       failure);
  out.group_.reset(group);
  out.local_size_ = local();
  out.local_rank_ = local_rank();
  return out;
}

// mpirun may bind each process to some cores. Otherwise the processes of this machine divide them.
int Processes::threads() const {
  if (local_size_ == 1) {
    return 0;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int usable =
      sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<int>(CPU_COUNT(&set)) : cores;
  const int all = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, std::min(usable, all / local_size_));
}

std::string Processes::device(const std::string& name) const {
  return local_size_ == 1 ? name : device_of_process(name, Device::list(), local_rank_);
}

Status Processes::agree(const Status& mine) const {
  if (size() == 1) {
    return mine;
  }
  struct Note {
    uint32_t code = 0;
    uint32_t length = 0;
    std::array<char, 1016> text = {};
  };
  std::vector<Note> notes(size());
  Note& own = notes[rank()];
  own.code = static_cast<uint32_t>(mine.code());
  own.length = static_cast<uint32_t>(std::min(mine.message().size(), own.text.size()));
  std::memcpy(own.text.data(), mine.message().data(), own.length);
  std::vector<std::span<const std::byte>> to(size(), std::as_bytes(std::span(&own, 1)));
  std::vector<std::span<std::byte>> from;
  for (Note& note : notes) {
    from.push_back(std::as_writable_bytes(std::span(&note, 1)));
  }
  BOWLINE_TRY(group_->exchange(to, from));
  for (uint32_t r = 0; r < size(); ++r) {
    if (notes[r].code != 0) {
      return r == rank()
                 ? mine
                 : Status(static_cast<Code>(notes[r].code),
                          fmt::format("Process {} of {} failed: {}", r, size(),
                                      std::string_view(notes[r].text.data(), notes[r].length)));
    }
  }
  return {};
}

Result<std::vector<uint64_t>> Processes::all(uint64_t mine) const {
  std::vector<uint64_t> values(size(), mine);
  if (size() > 1) {
    std::vector<std::span<const std::byte>> to(size(), std::as_bytes(std::span(&mine, 1)));
    std::vector<std::span<std::byte>> from;
    for (uint64_t& value : values) {
      from.push_back(std::as_writable_bytes(std::span(&value, 1)));
    }
    BOWLINE_TRY(group_->exchange(to, from));
  }
  return values;
}

Status Processes::share_first(std::span<std::byte> bytes) const {
  if (size() == 1) {
    return {};
  }
  std::vector<std::span<const std::byte>> to(size());
  std::vector<std::span<std::byte>> from(size());
  if (is_first()) {
    std::ranges::fill(to, bytes);
  } else {
    from[0] = bytes;
  }
  return group_->exchange(to, from);
}

void Processes::leave(int exit_code, bool together) {
  if (group_ == nullptr) {
    return;
  }
  if (together) {
    together = all(0).ok();  // process 0 has written everything then
  }
  std::fflush(nullptr);
  group_.reset();
  close_(together ? 0 : exit_code);
}

}  // namespace bowline::command
