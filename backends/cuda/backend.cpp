// The backends cuda and cuda-emu: lists the devices, and the reason if a device cannot be used.
#include "device/backend.h"

#include <charconv>

#include "blas.h"
#include "open_device.h"
#include "variant.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {
namespace {

#ifdef BOWLINE_CUDA_EMULATED
constexpr std::string_view kName = "cuda-emu";
#else
constexpr std::string_view kName = "cuda";
#endif

std::string version_text(int version) {
  return format("{}.{}", version / 1000, version % 1000 / 10);
}

// Explains why the driver lists no device.
std::string no_device(cudaError_t error) {
  int driver = 0;
  int runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  (void)cudaGetLastError();
  if (driver == 0) {
    return "There is no NVIDIA driver (libcuda.so.1).";
  }
  if (error == cudaErrorInsufficientDriver) {
    return format("The NVIDIA driver supports CUDA {}; this build needs {} or newer.",
                  version_text(driver), version_text(runtime));
  }
  if (error == cudaErrorNoDevice || error == cudaSuccess) {
    return "The NVIDIA driver finds no GPU.";
  }
  return status_of(error, "list the GPUs").message();
}

class CudaBackend : public device::Backend {
 public:
  std::string_view name() const override { return kName; }
  int rank() const override { return 100; }

  std::vector<DeviceInfo> enumerate() const override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    std::vector<DeviceInfo> out;
    if (error != cudaSuccess || count == 0) {
      out.push_back(info("NVIDIA GPUs", no_device(error)));
      return out;
    }
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp p;
      if (const cudaError_t e = cudaGetDeviceProperties(&p, i); e != cudaSuccess) {
        out.push_back(
            info("NVIDIA GPU", status_of(e, "ask for the properties of the GPU").message()));
        continue;
      }
      const int code = code_for(kArchitectures, p.major, p.minor);
      std::string reason;
      if (code == 0) {
        reason = format("The GPU is of architecture sm_{}{}; this build has code for {}.", p.major,
                        p.minor, kArchitectures);
      } else {
        Traits traits = {code, p.multiProcessorCount};
        reason = apply_variants(&traits);
      }
      // Code of an older generation lacks the instructions of the GPU, and the driver compiles it.
      const std::string older =
          code != 0 && code / 10 != p.major ? format(" with PTX of sm_{}", code) : "";
      out.push_back(info(format("{}, sm_{}{}{}, {}", std::string_view(p.name), p.major, p.minor,
                                older, Blas::description()),
                         std::move(reason)));
    }
    return out;
  }

  Result<std::unique_ptr<device::Device>> open(int index,
                                               const DeviceOptions& options) const override {
    return CudaDevice::open(index, options.matmul_precision);
  }
  using Backend::adopt;
  Result<std::unique_ptr<device::Device>> adopt(const ExternalCuda& external,
                                                const DeviceOptions& options,
                                                DeviceInfo* out) const override {
    *out = info({}, {});
    return CudaDevice::adopt(external, options.matmul_precision, out);
  }
  // `model`: the architecture and the number of multiprocessors, "90x132". "90x132+cublaslt" also
  // has the library.
  std::unique_ptr<device::Device> open_to_plan(std::string_view model,
                                               const DeviceOptions& options) const override {
    constexpr std::string_view kLibrary = "+cublaslt";
    Traits traits;
    traits.has_library = model.ends_with(kLibrary);
    model.remove_suffix(traits.has_library ? kLibrary.size() : 0);
    const char* const end = model.data() + model.size();
    const auto code = std::from_chars(model.data(), end, traits.code);
    if (code.ec != std::errc() || code.ptr == end || *code.ptr != 'x') {
      return nullptr;
    }
    const auto processors = std::from_chars(code.ptr + 1, end, traits.processors);
    const bool is_model = processors.ec == std::errc() && processors.ptr == end &&
                          traits.code >= 75 && traits.processors >= 1;
    return is_model ? CudaDevice::open_to_plan(traits, options.matmul_precision) : nullptr;
  }

 private:
  static DeviceInfo info(std::string description, std::string unusable) {
    DeviceInfo out;
    out.description = std::move(description);
    out.unusable = std::move(unusable);
#ifdef BOWLINE_CUDA_EMULATED
    out.software = true;
    out.for_tests = true;
#endif
    return out;
  }
};

}  // namespace
}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE

namespace bowline::detail::device {
#ifdef BOWLINE_CUDA_EMULATED
const Backend& backend_cuda_emu() {
  static const cuda_emu::CudaBackend backend;
  return backend;
}
#else
const Backend& backend_cuda() {
  static const cuda::CudaBackend backend;
  return backend;
}
#endif
}  // namespace bowline::detail::device
