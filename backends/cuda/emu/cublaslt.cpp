#include "emu/cublaslt.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/format.h"
#include "emu/tensor_core.h"

namespace bowline::detail::cuda_emu {

struct BlasHandle {};

struct BlasDescription {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  bool transpose_a = false;
  bool transpose_b = false;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::byte* bias = nullptr;
};

struct BlasLayout {
  cudaDataType_t type;
  int64_t rows;
  int64_t columns;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;
};

struct BlasPreference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

namespace {

constexpr size_t kWorkspace = size_t{1} << 16;  // of the algorithm that is chosen if it may have it

template <class... A>
cublasStatus_t wrong(std::string_view pattern, A&&... values) {
  fail_forever("cuBLASLt: " + format(pattern, std::forward<A>(values)...));
  return CUBLAS_STATUS_INVALID_VALUE;
}

size_t size_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

template <class T>
float value_of(const T& x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half2float(x);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(x);
  } else {
    return x;
  }
}

float read(cudaDataType_t type, const std::byte* data, int64_t i) {
  switch (type) {
    case CUDA_R_16F:
      return value_of(reinterpret_cast<const __half*>(data)[i]);
    case CUDA_R_16BF:
      return value_of(reinterpret_cast<const __nv_bfloat16*>(data)[i]);
    default:
      return reinterpret_cast<const float*>(data)[i];
  }
}

void write(cudaDataType_t type, std::byte* data, int64_t i, double x) {
  const auto value = static_cast<float>(x);
  switch (type) {
    case CUDA_R_16F:
      reinterpret_cast<__half*>(data)[i] = __float2half_rn(value);
      break;
    case CUDA_R_16BF:
      reinterpret_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
      break;
    default:
      reinterpret_cast<float*>(data)[i] = value;
  }
}

double rounded(cudaDataType_t type, double x) {
  std::byte data[sizeof(float)];
  write(type, data, 0, x);
  return read(type, data, 0);
}

// One call: y[m, n] = op(a)[m, k] op(b)[k, n], all column-major.
struct Call {
  BlasDescription description;
  BlasLayout a, b, c, d;
  bool rounds_before_bias = false;  // as the library does with unaligned operands

  int64_t m() const { return d.rows; }
  int64_t n() const { return d.columns; }
  int64_t k() const { return description.transpose_a ? a.rows : a.columns; }

  bool has_bias() const { return description.epilogue != CUBLASLT_EPILOGUE_DEFAULT; }
  bool is_tf32() const { return description.compute == CUBLAS_COMPUTE_32F_FAST_TF32; }
  bool sums() const {
    return description.epilogue == CUBLASLT_EPILOGUE_BGRADA ||
           description.epilogue == CUBLASLT_EPILOGUE_BGRADB;
  }

  // Returns what is wrong with the dims, types and attributes; empty: nothing.
  std::string problem() const {
    const int64_t a_rows = description.transpose_a ? a.columns : a.rows;
    const int64_t b_rows = description.transpose_b ? b.columns : b.rows;
    const int64_t b_columns = description.transpose_b ? b.rows : b.columns;
    if (a_rows != m() || b_rows != k() || b_columns != n() || c.rows != m() || c.columns != n()) {
      return format("the product of [{}, {}] and [{}, {}] is not [{}, {}]", a_rows, k(), b_rows,
                    b_columns, m(), n());
    }
    for (const BlasLayout* l : {&a, &b, &c, &d}) {
      if (l->ld < l->rows || l->batch != d.batch || l->stride < 0 || l->batch < 1) {
        return format("a layout has ld {} for {} rows, or {} instead of {} matrices", l->ld,
                      l->rows, l->batch, d.batch);
      }
    }
    if (d.batch > 1 && d.stride < d.ld * d.columns) {
      return "the matrices of the result overlap";
    }
    if (a.type != b.type || c.type != d.type || (d.type != a.type && d.type != CUDA_R_32F)) {
      return "the types do not go together";
    }
    if (is_tf32() && (a.type != CUDA_R_32F || machine().major < 8)) {
      return format("TF32 needs f32 operands and sm_80, not sm_{}{}", machine().major,
                    machine().minor);
    }
    if (sums() && d.batch > 1) {
      return "a bias gradient has no batch";
    }
    return {};
  }
  // True if rows and addresses of all operands are multiples of 16 bytes.
  bool is_aligned(const cublasLtMatmulAlgo_t& algorithm) const {
    bool is = true;
    for (const BlasLayout* l : {&a, &b, &d}) {
      is = is && static_cast<size_t>(l->ld) * size_of(l->type) % 16 == 0;
    }
    for (size_t i = 0; i < 4; ++i) {
      is = is && algorithm.data[2 + i] % 16 == 0;
    }
    return is;
  }

  // A number that differs for different calls.
  uint64_t signature() const {
    uint64_t hash = 14695981039346656037u;
    const auto add = [&hash](int64_t x) {
      hash = (hash ^ static_cast<uint64_t>(x)) * 1099511628211u;
    };
    for (const BlasLayout* l : {&a, &b, &c, &d}) {
      for (const int64_t x :
           {int64_t{l->type}, l->rows, l->columns, l->ld, int64_t{l->batch}, l->stride}) {
        add(x);
      }
    }
    add(description.transpose_a);
    add(description.transpose_b);
    add(description.epilogue);
    add(description.compute);
    return hash;
  }

  float at_a(const std::byte* from, int64_t i, int64_t l) const {
    return read(a.type, from, description.transpose_a ? i * a.ld + l : l * a.ld + i);
  }
  float at_b(const std::byte* from, int64_t l, int64_t j) const {
    return read(b.type, from, description.transpose_b ? l * b.ld + j : j * b.ld + l);
  }

  // An operand, as it is multiplied.
  float factor(float x) const {
    return is_tf32() ? std::bit_cast<float>(to_tf32(std::bit_cast<uint32_t>(x))) : x;
  }

  // One result before it is rounded. `old`: beta c.
  double finish(double x, double old, int64_t i) const {
    x += old;
    return has_bias() && !sums()
               ? (rounds_before_bias ? rounded(d.type, x) : x) + read(d.type, description.bias, i)
               : x;
  }

  void write_sums(const std::byte* a_data, const std::byte* b_data) const {
    const bool of_a = description.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    for (int64_t i = 0; i < (of_a ? m() : n()); ++i) {
      double sum = 0;
      for (int64_t l = 0; l < k(); ++l) {
        sum += of_a ? at_a(a_data, i, l) : at_b(b_data, l, i);
      }
      write(d.type, description.bias, i, sum);
    }
  }

  void run(float alpha, const std::byte* a_data, const std::byte* b_data, float beta,
           const std::byte* c_data, std::byte* d_data) const {
    for (int64_t batch = 0; batch < d.batch; ++batch) {
      const std::byte* const from_a =
          a_data + static_cast<size_t>(batch * a.stride) * size_of(a.type);
      const std::byte* const from_b =
          b_data + static_cast<size_t>(batch * b.stride) * size_of(b.type);
      for (int64_t j = 0; j < n(); ++j) {
        for (int64_t i = 0; i < m(); ++i) {
          double sum = 0;
          for (int64_t l = 0; l < k(); ++l) {
            sum += double{factor(at_a(from_a, i, l))} * factor(at_b(from_b, l, j));
          }
          const double old =
              beta == 0 ? 0 : beta * read(c.type, c_data, batch * c.stride + j * c.ld + i);
          write(d.type, d_data, batch * d.stride + j * d.ld + i, finish(alpha * sum, old, i));
        }
      }
    }
    if (sums()) {
      write_sums(a_data, b_data);
    }
  }
};

bool is_aligned(const void* address, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

template <class T>
cublasStatus_t take(T& to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) {
    return wrong("an attribute of {} bytes is set with {}", sizeof(T), bytes);
  }
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t take_operation(bool& to, const void* value, size_t bytes) {
  int32_t operation = 0;
  const cublasStatus_t status = take(operation, value, bytes);
  to = operation == CUBLAS_OP_T;
  return status;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* out) {
  *out = new BlasHandle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *out = new BlasDescription{.compute = compute};
  const bool is_known = compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  return is_known && scale == CUDA_R_32F
             ? CUBLAS_STATUS_SUCCESS
             : wrong("sums are not f32: compute type {}, scale type {}", int{compute}, int{scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take_operation(d->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take_operation(d->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(d->bias, value, bytes);
  }
  return wrong("attribute {} of a product is unknown", int{attribute});
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  *out = new BlasLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? take(layout->batch, value, bytes)
                                                         : take(layout->stride, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = new BlasPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(preference->reductions, value, bytes);
    default:
      return take(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                  value, bytes);
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* returned) {
  *returned = 0;
  const Call call{*description, *a, *b, *c, *d};
  if (handle == nullptr || requested != 1) {
    return wrong("the heuristic is asked for {} algorithms", requested);
  }
  if (is_capturing()) {
    return wrong("the heuristic is asked during a capture");
  }
  if (preference->reductions != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) {
    return wrong("reductions {} may add in undefined order", preference->reductions);
  }
  if (const std::string problem = call.problem(); !problem.empty()) {
    return wrong("{}", problem);
  }
  cublasLtMatmulHeuristicResult_t result{};
  result.workspaceSize = preference->workspace >= kWorkspace ? kWorkspace : 0;
  result.algo.data[0] = call.signature();
  result.algo.data[1] = result.workspaceSize;
  for (size_t i = 0; i < 4; ++i) {
    result.algo.data[2 + i] = preference->alignment[i];
  }
  results[0] = result;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  Call call{*description, *a_layout, *b_layout, *c_layout, *d_layout};
  if (handle == nullptr || algorithm == nullptr || algorithm->data[0] != call.signature()) {
    return wrong("the algorithm was chosen for another product");
  }
  if (workspace_bytes < algorithm->data[1] ||
      (workspace_bytes > 0 && (workspace == nullptr || !is_aligned(workspace, 256)))) {
    return wrong("the workspace has {} of {} bytes, or is not aligned", workspace_bytes,
                 algorithm->data[1]);
  }
  const void* const operands[] = {a, b, c, d};
  for (size_t i = 0; i < 4; ++i) {
    if (operands[i] == nullptr || !is_aligned(operands[i], algorithm->data[2 + i])) {
      return wrong("operand {} is not aligned to {} bytes", i, algorithm->data[2 + i]);
    }
  }
  if (call.has_bias() && description->bias == nullptr) {
    return wrong("the bias has no address");
  }
  call.rounds_before_bias = !call.is_aligned(*algorithm);
  const auto bytes = [](const void* at) { return static_cast<const std::byte*>(at); };
  const float factor = *static_cast<const float*>(alpha);
  const float keep = *static_cast<const float*>(beta);
  return launch_kernel("cublasLtMatmul", dim3(1), dim3(1), stream,
                       [=] {
                         std::memset(workspace, 0xFF, workspace_bytes);
                         call.run(factor, bytes(a), bytes(b), keep, bytes(c),
                                  static_cast<std::byte*>(d));
                       }) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace bowline::detail::cuda_emu
