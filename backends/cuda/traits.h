// The properties of a device on which the choice of a kernel may depend. The same shapes and dtypes
// on a device with the same traits always run the same kernels.
#pragma once

#include <algorithm>
#include <string_view>

#include "base/status.h"
#include "bowline.h"
#include "platform.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// The architectures for which this build has code, such as "75-virtual 80-real".
extern const std::string_view kArchitectures;

// The architecture of the code that a device of compute capability `major`.`minor` runs: 75, 80 and
// so on. 0: no code runs there. A GPU that is newer than all real code runs PTX of an older
// architecture and has only the instructions of that.
int code_for(std::string_view architectures, int major, int minor);

// In how many parts sums are divided, among blocks that compute parts of them.
enum class Parts : uint8_t { by_shape, one, many };

enum class AttentionKernel : uint8_t {
  by_shape,
  few_rows,  // device/attention_few.cuh
  mma,       // device/attention_mma.cuh, where tensor cores can compute it
  tiles,     // device/attention_tiles.cuh
};

struct Traits {
  int code = 0;         // from code_for
  int processors = 0;   // multiprocessors
  unsigned shared = 0;  // bytes of shared memory that a block may have; 0: unknown
  bool has_cooperative_launch = true;
  // The driver keeps programmatic dependencies of launches in graphs.
  bool has_early_launch = true;
  bool tf32 = false;  // DeviceOptions::matmul_precision, from sm_80 on

  // For tests (variant.h).
  std::string_view variants = {};  // that were applied
  int wanted_code = 0;             // 0: any
  bool has_library = true;
  bool has_async_copies = true;
  bool has_few_rows = true;
  bool stages_products = false;  // also small ones (device/staged_product.cuh)
  int tile_columns = 0;          // of the tiles of products; 0: by shape
  Parts parts = Parts::by_shape;
  AttentionKernel attention = AttentionKernel::by_shape;

  static Result<Traits> of(int device);

  // Blocks of a launch can start while the launch before still runs. The code that the GPU runs
  // must have the instructions of device/begin.cuh.
  bool starts_early() const { return code >= 90 && has_early_launch; }
  // Asynchronous copies to shared memory exist.
  bool copies_async() const { return code >= 80 && has_async_copies; }
  // Tensor cores multiply this dtype, f16 or bf16 (device/tensor_core.cuh).
  bool multiplies(DType type) const {
    return (type == DType::f16 && code >= 75) || (type == DType::bf16 && code >= 80);
  }
  // The most shared memory of a block on every GPU that runs the code.
  unsigned shared_bytes() const { return (code < 80 ? 64 : 99) * 1024; }
  // The most on this GPU. Results must not depend on it.
  unsigned most_shared_bytes() const { return std::max(shared, shared_bytes()); }
};

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
