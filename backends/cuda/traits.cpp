#include "traits.h"

#include <algorithm>
#include <charconv>

#include "cuda_status.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

#ifdef BOWLINE_CUDA_EMULATED
const std::string_view kArchitectures = "75-virtual 80-virtual 90-virtual";
#else
const std::string_view kArchitectures = BOWLINE_CUDA_ARCHITECTURES;
#endif

// Code for sm_XY runs on X.Z with Z >= Y. PTX for compute_XY runs on every newer architecture (CUDA
// C++ Programming Guide, "Binary and PTX Compatibility"). The driver prefers code to PTX.
int code_for(std::string_view architectures, int major, int minor) {
  int code = 0;
  int ptx = 0;
  while (!architectures.empty()) {
    const size_t end = std::min(architectures.find(' '), architectures.size());
    const std::string_view item = architectures.substr(0, end);
    architectures.remove_prefix(std::min(end + 1, architectures.size()));
    int number = 0;
    (void)std::from_chars(item.data(), item.data() + item.size(), number);
    if (!item.ends_with("-virtual") && major == number / 10 && minor >= number % 10) {
      code = std::max(code, number);
    }
    if (!item.ends_with("-real") && major * 10 + minor >= number) {
      ptx = std::max(ptx, number);
    }
  }
  return code != 0 ? code : ptx;
}

Result<Traits> Traits::of(int device) {
  cudaDeviceProp p;
  BOWLINE_CUDA(cudaGetDeviceProperties(&p, device), "ask for the properties of the GPU");
  int driver = 0;
  BOWLINE_CUDA(cudaDriverGetVersion(&driver), "ask for the version of the driver");
  // Edges of graphs have a type since CUDA 12.3 (cudaGraphEdgeData).
  constexpr int kTypedEdges = 12030;
  return Traits{code_for(kArchitectures, p.major, p.minor), p.multiProcessorCount,
                static_cast<unsigned>(p.sharedMemPerBlockOptin), p.cooperativeLaunch != 0,
                driver >= kTypedEdges};
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
