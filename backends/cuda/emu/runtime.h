// The part of the CUDA runtime that the backend calls, on the host: one device with its memory,
// streams and graphs.
//
// Work on a stream runs only when a caller waits for it, so a read without a wait sees old bytes. A
// kernel error is sticky, as an illegal address is on a GPU: every later call returns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

#include "emu/device.h"

namespace bowline::detail::cuda_emu {

// The values are the same as in driver_types.h.
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInsufficientDriver = 35,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorNvlinkUncorrectable = 220,
  cudaErrorContained = 226,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorCooperativeLaunchTooLarge = 720,
  cudaErrorNotSupported = 801,
  cudaErrorSystemNotReady = 802,
  cudaErrorSystemDriverMismatch = 803,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorUnknown = 999,
};

struct Stream;
struct Graph;
struct GraphExec;
struct Event;
using cudaStream_t = Stream*;
using cudaGraph_t = Graph*;
using cudaGraphExec_t = GraphExec*;
using cudaEvent_t = Event*;

enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
constexpr unsigned cudaStreamNonBlocking = 1;
constexpr unsigned cudaHostAllocDefault = 0;

struct cudaDeviceProp {
  char name[256];
  int major;
  int minor;
  int multiProcessorCount;
  int cooperativeLaunch;
  size_t sharedMemPerBlockOptin;
};

enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3
};

struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

cudaError_t cudaGetLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
// The driver API, as far as context.h calls it. A test makes contexts.
struct Context {};
Context* make_context();
void destroy_context(Context* context);
int push_context(void* context);
int pop_context(void** context);
int get_context_device(int* device);
// The context of this thread. Null: the primary context.
Context* current_context();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaMemGetInfo(size_t* available, size_t* total);
cudaError_t cudaMalloc(void** out, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address);
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);  // runs the work, too
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t* out);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end);

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value);

// kernel<<<grid, block, shared_bytes, stream>>>(...), with the arguments bound. More than 48 KiB of
// shared memory need cudaFuncSetAttribute for the function before. A cooperative launch is refused
// if the GPU cannot hold all its blocks at once. An early one (Blocks::early) is refused if the
// machine does not have it, or if the work before it on the stream is no kernel.
cudaError_t launch_kernel(const char* name, dim3 grid, dim3 block, cudaStream_t stream,
                          std::function<void()> kernel, unsigned shared_bytes = 0,
                          const void* function = nullptr, bool cooperative = false,
                          bool early = false);

// A launch of a kernel.
struct Launched {
  std::string name;
  unsigned blocks = 0;
  unsigned threads = 0;  // of a block
  unsigned shared_bytes = 0;
  bool cooperative = false;
  bool early = false;
  bool operator==(const Launched&) const = default;
};

// The emulated machine. Tests set its faults.
struct Machine {
  int devices = 1;
  cudaError_t driver = cudaSuccess;  // returned by every call that asks for devices
  int driver_version = 13000;        // 0: no driver is installed
  int runtime_version = 13000;
  int major = 9;
  int minor = 0;
  int processors = 132;  // multiprocessors
  bool has_cooperative_launch = true;
  unsigned shared_kib = 0;  // shared memory of a block; 0: the least on GPUs of the architecture
  size_t memory_bytes = size_t{8} << 30;
  // Products use the stand-in for cuBLASLt (emu/cublaslt.h), not Bowline's own kernels.
  bool has_cublas = std::getenv("BOWLINE_CUBLASLT") != nullptr;
  uint64_t waits = 0;                   // number of host waits for a stream
  uint64_t graph_launches = 0;          // number of graph launches
  uint64_t early_launches = 0;          // number of kernels that could start early
  uint64_t blocks = 0;                  // number of blocks of all kernels
  Launched last;                        // the last kernel that ran
  uint64_t bytes_in = 0;                // copied from host memory to the device
  uint64_t bytes_out = 0;               // copied from the device to host memory
  cudaError_t next_wait = cudaSuccess;  // returned by the next wait
  bool next_wait_sticks = true;         // every later call returns it too, like a kernel error
};
Machine& machine();
// True while a stream is captured.
bool is_capturing();
// Makes every later call fail with this text, as after a wrong kernel.
void fail_forever(const std::string& what);
// Clears the sticky error, as a new process does.
void restart();

}  // namespace bowline::detail::cuda_emu
