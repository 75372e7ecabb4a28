#include "emu/runtime.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace bowline::detail::cuda_emu {

using Work = std::function<cudaError_t()>;

struct Graph {
  std::vector<Work> nodes;
};
struct GraphExec {
  std::vector<Work> nodes;
};
struct Event {
  std::chrono::steady_clock::time_point time;
};
struct Stream {
  std::vector<Work> queue;
  bool capturing = false;
  bool invalid = false;           // a call that cannot be captured was made
  bool ends_with_kernel = false;  // the last work
  Graph captured;
};

namespace {

std::mutex mutex;  // of all members below, but not of what is atomic or of one thread
Machine the_machine;
std::atomic<cudaError_t> sticky = cudaSuccess;
thread_local cudaError_t last = cudaSuccess;
std::string what_failed;
std::map<void*, size_t> allocations;
std::map<const void*, int> shared_limits;  // by function, from cudaFuncSetAttribute
size_t used = 0;
int captures = 0;  // streams that are captured

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) {
    last = error;
  }
  return error;
}

// If the test sets none, the limit that holds on every GPU of an architecture: 64 KiB on sm_75, 99
// KiB on sm_86. Larger ones exist (CUDA C++ Programming Guide, "Compute Capabilities").
unsigned most_shared_bytes() {
  const unsigned least = the_machine.major < 8 ? 64 : 99;
  return (the_machine.shared_kib != 0 ? the_machine.shared_kib : least) * 1024;
}

// The error that every call to the device returns first.
cudaError_t state() {
  const cudaError_t stuck = sticky;
  return the_machine.driver != cudaSuccess ? the_machine.driver : stuck;
}

bool stick(cudaError_t error) {
  cudaError_t none = cudaSuccess;
  if (error != cudaSuccess) {
    sticky.compare_exchange_strong(none, error);
  }
  return error != cudaSuccess;
}

// Changes the counters of the machine. Streams of several threads run at the same time.
template <class Change>
void count(const Change& change) {
  const std::lock_guard lock(mutex);
  change(the_machine);
}

cudaError_t enqueue(Stream* stream, Work work, bool is_kernel = false) {
  const std::lock_guard lock(mutex);
  if (const cudaError_t error = state(); error != cudaSuccess) {
    return note(error);
  }
  stream->ends_with_kernel = is_kernel;
  if (stream->capturing) {
    stream->captured.nodes.push_back(std::move(work));
  } else {
    stream->queue.push_back(std::move(work));
  }
  return cudaSuccess;
}

}  // namespace

Machine& machine() { return the_machine; }

bool is_capturing() {
  const std::lock_guard lock(mutex);
  return captures > 0;
}

void fail_forever(const std::string& what) {
  const std::lock_guard lock(mutex);
  if (sticky == cudaSuccess) {
    what_failed = what;
    stick(cudaErrorLaunchFailure);
  }
}

void restart() {
  const std::lock_guard lock(mutex);
  sticky = cudaSuccess;
  last = cudaSuccess;
  the_machine = {};
}

cudaError_t cudaGetLastError() {
  const cudaError_t stuck = sticky;
  const cudaError_t error = stuck != cudaSuccess ? stuck : last;
  last = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "an error of the emulation";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? what_failed.c_str() : cudaGetErrorName(error);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = the_machine.driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = the_machine.runtime_version;
  return cudaSuccess;
}
namespace {

constexpr int kInvalidContext = 201;  // CUDA_ERROR_INVALID_CONTEXT
std::set<void*> contexts;
thread_local std::vector<Context*> context_stack;

}  // namespace

Context* make_context() {
  const std::lock_guard lock(mutex);
  auto* const context = new Context;
  contexts.insert(context);
  return context;
}
void destroy_context(Context* context) {
  const std::lock_guard lock(mutex);
  contexts.erase(context);
  delete context;
}
int push_context(void* context) {
  const std::lock_guard lock(mutex);
  if (!contexts.contains(context)) {
    return kInvalidContext;
  }
  context_stack.push_back(static_cast<Context*>(context));
  return 0;
}
int pop_context(void** context) {
  if (context_stack.empty()) {
    return kInvalidContext;
  }
  *context = context_stack.back();
  context_stack.pop_back();
  return 0;
}
int get_context_device(int* device) {
  *device = 0;
  return context_stack.empty() ? kInvalidContext : 0;
}
Context* current_context() { return context_stack.empty() ? nullptr : context_stack.back(); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = the_machine.devices;
  return note(the_machine.driver);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= the_machine.devices) {
    return note(cudaErrorInvalidDevice);
  }
  *properties = {};
  std::strncpy(properties->name, "host emulation of the CUDA launch model",
               sizeof(properties->name) - 1);
  properties->major = the_machine.major;
  properties->minor = the_machine.minor;
  properties->multiProcessorCount = the_machine.processors;
  properties->cooperativeLaunch = the_machine.has_cooperative_launch ? 1 : 0;
  properties->sharedMemPerBlockOptin = most_shared_bytes();
  return note(the_machine.driver);
}
cudaError_t cudaSetDevice(int device) {
  return note(device >= 0 && device < the_machine.devices ? state() : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return note(state());
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  const std::lock_guard lock(mutex);
  *total = the_machine.memory_bytes;
  *available = the_machine.memory_bytes > used ? the_machine.memory_bytes - used : 0;
  return note(state());
}

cudaError_t cudaMalloc(void** out, size_t bytes) {
  const std::lock_guard lock(mutex);
  if (const cudaError_t error = state(); error != cudaSuccess) {
    return note(error);
  }
  constexpr size_t kAlignment = 256;
  if (used + bytes > the_machine.memory_bytes) {
    return note(cudaErrorMemoryAllocation);
  }
  void* const memory =
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) {
    return note(cudaErrorMemoryAllocation);
  }
  std::memset(memory, 0xFF, bytes);  // NaN, so that reads of uninitialized memory are visible
  allocations[memory] = bytes;
  used += bytes;
  *out = memory;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  const std::lock_guard lock(mutex);
  const auto it = allocations.find(memory);
  if (it == allocations.end()) {
    return memory == nullptr ? cudaSuccess : note(cudaErrorInvalidValue);
  }
  used -= it->second;
  allocations.erase(it);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  const std::lock_guard lock(mutex);
  *attributes = {cudaMemoryTypeUnregistered, -1};
  for (const auto& [memory, bytes] : allocations) {
    const auto* const begin = static_cast<const std::byte*>(memory);
    if (std::less_equal()(begin, address) && std::less()(address, begin + bytes)) {
      *attributes = {cudaMemoryTypeDevice, 0};
    }
  }
  return note(state());
}

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) {
  *out = std::malloc(bytes == 0 ? 1 : bytes);
  return note(*out == nullptr ? cudaErrorMemoryAllocation : state());
}

cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return enqueue(stream, [=] {
    count([&](Machine& m) {
      m.bytes_in += kind == cudaMemcpyHostToDevice ? bytes : 0;
      m.bytes_out += kind == cudaMemcpyDeviceToHost ? bytes : 0;
    });
    std::memmove(to, from, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return enqueue(stream, [=] {
    std::memset(to, value, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  *out = new Stream;
  return note(state());
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  std::vector<Work> queue;
  {
    const std::lock_guard lock(mutex);
    if (stream->capturing) {
      stream->invalid = true;
      return note(cudaErrorStreamCaptureUnsupported);
    }
    queue.swap(stream->queue);
    ++the_machine.waits;
    const cudaError_t error = std::exchange(the_machine.next_wait, cudaSuccess);
    if (!the_machine.next_wait_sticks && error != cudaSuccess) {
      return note(error);
    }
    stick(error);
  }
  for (const Work& work : queue) {
    if (sticky != cudaSuccess || stick(work())) {
      break;
    }
  }
  return note(state());
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard lock(mutex);
  stream->capturing = true;
  ++captures;
  stream->invalid = false;
  stream->ends_with_kernel = false;
  stream->captured.nodes.clear();
  return note(state());
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  const std::lock_guard lock(mutex);
  *out = nullptr;
  stream->capturing = false;
  --captures;
  if (stream->invalid) {
    return note(cudaErrorStreamCaptureInvalidated);
  }
  stream->ends_with_kernel = false;
  *out = new Graph(std::move(stream->captured));
  stream->captured = {};
  return note(state());
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  *out = new GraphExec{graph->nodes};
  return note(state());
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  count([](Machine& m) { ++m.graph_launches; });
  return enqueue(stream, [graph] {
    for (const Work& work : graph->nodes) {
      if (const cudaError_t error = work(); error != cudaSuccess) {
        return error;
      }
    }
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* out) {
  *out = new Event;
  return note(state());
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return enqueue(stream, [event] {
    event->time = std::chrono::steady_clock::now();
    return cudaSuccess;
  });
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int value) {
  const std::lock_guard lock(mutex);
  if (value < 0 || static_cast<unsigned>(value) > most_shared_bytes()) {
    return note(cudaErrorInvalidValue);
  }
  shared_limits[function] = value;
  return note(state());
}

namespace {

// The blocks that every GPU of the architecture holds at once, as far as threads and shared memory
// limit them (CUDA C++ Programming Guide, "Compute Capabilities": sm_86 is the smallest from sm_80
// on). From sm_80 on, the system takes 1 KiB of shared memory per block. The emulation does not
// know the registers of a kernel.
uint64_t resident_blocks(unsigned threads, unsigned shared_bytes) {
  const bool is_old = the_machine.major < 8;
  const unsigned by_threads = (is_old ? 1024 : 1536) / threads;
  const unsigned bytes = shared_bytes + (is_old ? 0 : 1024);
  const unsigned by_memory = bytes == 0 ? by_threads : (is_old ? 64u : 100u) * 1024 / bytes;
  return uint64_t{std::min(by_threads, by_memory)} * static_cast<unsigned>(the_machine.processors);
}

}  // namespace

cudaError_t launch_kernel(const char* name, dim3 grid, dim3 block, cudaStream_t stream,
                          std::function<void()> kernel, unsigned shared_bytes, const void* function,
                          bool cooperative, bool early) {
  constexpr int kWithoutAttribute = 48 * 1024;
  constexpr int kTypedEdges = 12030;  // the first driver that has edges of graphs with a type
  {
    const std::lock_guard lock(mutex);
    const auto found = shared_limits.find(function);
    const int limit = found == shared_limits.end() ? kWithoutAttribute
                                                   : std::max(kWithoutAttribute, found->second);
    if (shared_bytes > static_cast<unsigned>(limit)) {
      return note(cudaErrorInvalidValue);
    }
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    if (cooperative && !the_machine.has_cooperative_launch) {
      return note(cudaErrorNotSupported);
    }
    if (cooperative && blocks > resident_blocks(block.x * block.y * block.z, shared_bytes)) {
      return note(cudaErrorCooperativeLaunchTooLarge);
    }
    if (early && (the_machine.major < 9 || the_machine.driver_version < kTypedEdges)) {
      return note(cudaErrorNotSupported);
    }
    if (early && (cooperative || !stream->ends_with_kernel)) {
      return note(cudaErrorInvalidValue);
    }
  }
  const auto run = [=, kernel = std::move(kernel)] {
    count([&](Machine& m) {
      m.last = {name, grid.x * grid.y * grid.z, block.x, shared_bytes, cooperative, early};
      m.early_launches += early ? 1 : 0;
      m.blocks += uint64_t{grid.x} * grid.y * grid.z;
    });
    const std::string error = run_grid(grid, block, kernel, shared_bytes, cooperative);
    if (error.empty()) {
      return cudaSuccess;
    }
    fail_forever(std::string(name) + ": " + error);
    return cudaErrorLaunchFailure;
  };
  return enqueue(stream, run, true);
}

}  // namespace bowline::detail::cuda_emu
