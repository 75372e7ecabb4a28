// CUDA, or its emulation on the host. The same sources build both backends.
//
// With BOWLINE_CUDA_EMULATED, emu/ provides the CUDA runtime and the device language.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>

// BOWLINE_UNROLL stands before a loop whose arrays live in registers, which have no variable index.
// BOWLINE_ROLL stands before a loop that must stay one: its body is long, or is rarely executed.
// The compiler would unroll it, which fills registers and multiplies the size of the library.
#ifdef BOWLINE_CUDA_EMULATED
#define BOWLINE_UNROLL
#define BOWLINE_ROLL
#else
#define BOWLINE_UNROLL _Pragma("unroll")
#define BOWLINE_ROLL _Pragma("unroll 1")
#endif

#ifdef BOWLINE_CUDA_EMULATED
#define BOWLINE_CUDA_NAMESPACE cuda_emu
#include "emu/runtime.h"
#include "emu/tensor_core.h"
#else
#define BOWLINE_CUDA_NAMESPACE cuda
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

#ifndef BOWLINE_CUDA_EMULATED
// `__shared__ Shared<float[32][33]> tile;` declares an array that the emulation checks.
template <class T>
using Shared = T;
#endif

// A kernel may use this much shared memory only after a call for that kernel.
constexpr unsigned kSharedWithoutCall = 48 * 1024;

// How the blocks of a launch run.
enum class Blocks : uint8_t {
  independent,
  early,     // independent; they may start while the kernel launched before still runs
  together,  // a cooperative launch: all at once, so that a block may wait for others
};

// Enqueues kernel(args...) on the stream, with `shared_bytes` of dynamic shared memory per block.
// Blocks::early needs Traits::starts_early, and a launch of a kernel directly before on the stream.
template <class... P, class... A>
cudaError_t launch(const char* name, void (*kernel)(P...), Blocks blocks, dim3 grid, dim3 block,
                   unsigned shared_bytes, cudaStream_t stream, A... args) {
  static_assert(sizeof...(P) == sizeof...(A), "The kernel takes another number of arguments.");
  const auto* const function = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > kSharedWithoutCall) {
    const cudaError_t error = cudaFuncSetAttribute(
        function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) {
      return error;
    }
  }
#ifdef BOWLINE_CUDA_EMULATED
  return launch_kernel(
      name, grid, block, stream,
      [=] {
        require_wait();
        kernel(static_cast<P>(args)...);
      },
      shared_bytes, function, blocks == Blocks::together, blocks == Blocks::early);
#else
  (void)name;
  std::tuple<P...> values(static_cast<P>(args)...);
  return std::apply(
      [&](P&... value) {
        void* pointers[] = {&value...};
        cudaLaunchAttribute attribute = {};
        cudaLaunchConfig_t config = {};
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = shared_bytes;
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = blocks == Blocks::independent ? 0 : 1;
        if (blocks == Blocks::early) {
          attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
          attribute.val.programmaticStreamSerializationAllowed = 1;
        } else {
          attribute.id = cudaLaunchAttributeCooperative;
          attribute.val.cooperative = 1;
        }
        return cudaLaunchKernelExC(&config, function, pointers);
      },
      values);
#endif
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
