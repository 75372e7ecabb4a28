// A stand-in for NCCL: sends bytes of host memory between threads or processes of one machine. The
// memory of cuda-emu is host memory.
//
// It checks every use: calls in groups, ranks, sizes. A message is a file in the folder that the
// unique id names. Test programs load the functions at the end.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace {

enum Result : int {
  kSuccess = 0,
  kSystemError = 2,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
};

struct UniqueId {
  char internal[128];
};

struct Communicator {
  std::string folder;
  int rank = 0;
  int size = 0;
  std::map<int, uint64_t> sent, received;  // messages, by peer
  bool aborted = false;
};

struct Call {
  Communicator* communicator;
  int peer;
  std::byte* bytes;
  size_t count;
  bool receives;
};

std::atomic<uint64_t> bytes_sent{0};
std::atomic<int64_t> calls_left{INT64_MAX};  // then every group fails
std::atomic<double> patience{60};
std::atomic<bool> refuses{false};

thread_local bool in_group = false;
thread_local std::vector<Call> group;

// Waits until the file exists.
Result wait_for(const std::string& path) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience);
  while (access(path.c_str(), R_OK) != 0) {
    if (std::chrono::steady_clock::now() > end) {
      return kRemoteError;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return kSuccess;
}

std::string message(const Communicator& c, int from, int to, uint64_t number) {
  return c.folder + "/" + std::to_string(from) + "-" + std::to_string(to) + "-" +
         std::to_string(number);
}

Result send(const Call& call) {
  Communicator& c = *call.communicator;
  const std::string path = message(c, c.rank, call.peer, c.sent[call.peer]++);
  {
    std::ofstream file(path + ".part", std::ios::binary);
    file.write(reinterpret_cast<const char*>(call.bytes), static_cast<std::streamsize>(call.count));
    if (!file.flush()) {
      return kSystemError;
    }
  }
  bytes_sent += call.count;
  return rename((path + ".part").c_str(), path.c_str()) == 0 ? kSuccess : kSystemError;
}

Result receive(const Call& call) {
  Communicator& c = *call.communicator;
  const std::string path = message(c, call.peer, c.rank, c.received[call.peer]++);
  if (const Result arrived = wait_for(path); arrived != kSuccess) {
    return arrived;
  }
  if (std::filesystem::file_size(path) != call.count) {
    return kInvalidArgument;
  }
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(call.bytes), static_cast<std::streamsize>(call.count));
  return file && unlink(path.c_str()) == 0 ? kSuccess : kSystemError;
}

Result add(Communicator* c, int peer, const void* bytes, size_t count, int type, bool receives) {
  constexpr int kUint8 = 1;
  if (c == nullptr || c->aborted || peer < 0 || peer >= c->size || peer == c->rank ||
      type != kUint8 || bytes == nullptr) {
    return kInvalidArgument;
  }
  if (!in_group) {
    return kInvalidUsage;
  }
  group.push_back({c, peer, static_cast<std::byte*>(const_cast<void*>(bytes)), count, receives});
  return kSuccess;
}

}  // namespace

extern "C" {

Result ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> number{0};
  const std::string folder =
      (std::filesystem::temp_directory_path() /
       ("nccl-stub-" + std::to_string(getpid()) + "-" + std::to_string(number++)))
          .string();
  if (folder.size() >= sizeof(id->internal)) {
    return kSystemError;
  }
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id->internal, folder.data(), folder.size());
  return kSuccess;
}

Result ncclCommInitRank(Communicator** out, int size, UniqueId id, int rank) {
  if (rank < 0 || rank >= size) {
    return kInvalidArgument;
  }
  if (refuses) {
    return kSystemError;
  }
  const std::string folder = id.internal;
  (void)mkdir(folder.c_str(), 0700);
  const auto joined = [&](int r) { return folder + "/joined-" + std::to_string(r); };
  const int file = open(joined(rank).c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (file < 0) {
    return kInvalidUsage;
  }
  close(file);
  for (int r = 0; r < size; ++r) {
    if (const Result there = wait_for(joined(r)); there != kSuccess) {
      return there;
    }
  }
  *out = new Communicator{folder, rank, size, {}, {}};
  return kSuccess;
}

// Frees the communicator. The last process removes the folder.
Result ncclCommAbort(Communicator* c) {
  std::error_code ignored;
  std::ofstream(c->folder + "/left-" + std::to_string(c->rank)).flush();
  int left = 0;
  for (int r = 0; r < c->size; ++r) {
    left += access((c->folder + "/left-" + std::to_string(r)).c_str(), F_OK) == 0 ? 1 : 0;
  }
  if (left == c->size) {
    std::filesystem::remove_all(c->folder, ignored);
  }
  delete c;
  return kSuccess;
}

Result ncclCommGetAsyncError(Communicator* /*communicator*/, Result* error) {
  *error = kSuccess;
  return kSuccess;
}

Result ncclGroupStart() {
  in_group = true;
  return kSuccess;
}

// The work of a stream is done at once.
Result ncclGroupEnd() {
  if (!std::exchange(in_group, false)) {
    return kInvalidUsage;
  }
  const std::vector<Call> calls = std::exchange(group, {});
  if (calls_left-- <= 0) {
    return kSystemError;
  }
  for (const bool receives : {false, true}) {
    for (const Call& call : calls) {
      if (call.receives == receives) {
        if (const Result done = receives ? receive(call) : send(call); done != kSuccess) {
          return done;
        }
      }
    }
  }
  return kSuccess;
}

Result ncclSend(const void* from, size_t count, int type, int peer, Communicator* c,
                void* /*stream*/) {
  return add(c, peer, from, count, type, false);
}

Result ncclRecv(void* to, size_t count, int type, int peer, Communicator* c, void* /*stream*/) {
  return add(c, peer, to, count, type, true);
}

const char* ncclGetErrorString(Result error) {
  switch (error) {
    case kSuccess:
      return "no error";
    case kSystemError:
      return "unhandled system error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
  }
  return "unknown error";
}

uint64_t stub_bytes_sent() { return bytes_sent; }
// Whether processes can connect.
void stub_refuse(bool refuse) { refuses = refuse; }
// The groups that succeed before every later one fails, and the seconds to wait for a message.
void stub_fail_after(int64_t groups, double seconds) {
  calls_left = groups;
  patience = seconds;
}
}
