#include "blas.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/format.h"
#include "blas_library.h"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

namespace {

// NVIDIA recommends 32 MiB for sm_90 and newer (cuBLAS documentation, "cublasSetWorkspace").
constexpr uint64_t kMaxWorkspace = uint64_t{32} << 20;
constexpr uint64_t kWorkspaceAlignment = 256;  // required by cublasLtMatmul

bool ok(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }

// Objects of the library, freed with their owner.
template <class T, auto kDestroy>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (value != nullptr) {
      (void)(BlasLibrary::get().*kDestroy)(value);
    }
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T value = nullptr;
};
using Description = Owned<cublasLtMatmulDesc_t, &BlasLibrary::desc_destroy>;
using Layout = Owned<cublasLtMatrixLayout_t, &BlasLibrary::layout_destroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &BlasLibrary::preference_destroy>;
using Handle = Owned<cublasLtHandle_t, &BlasLibrary::destroy>;

// The description of a product for the library. cuBLASLt is column-major, so it computes the
// transpose: y^T = b'^T a'^T.
struct Plan {
  Description description;
  Layout a, b, y;
  cublasLtMatmulAlgo_t algorithm{};
  uint64_t workspace = 0;
  bool found = false;
};

template <class T>
bool set(const Description& d, cublasLtMatmulDescAttributes_t attribute, T value) {
  return ok(BlasLibrary::get().desc_set(d.value, attribute, &value, sizeof(T)));
}
template <class T>
bool set(const Preference& p, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  return ok(BlasLibrary::get().preference_set(p.value, attribute, &value, sizeof(T)));
}

cudaDataType_t data_type(DType type) {
  return type == DType::f16 ? CUDA_R_16F : type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// A matrix of `lines` lines with `length` contiguous elements, and `between` elements from line to
// line.
bool make_layout(Layout& layout, DType type, int64_t lines, int64_t length, int64_t between,
                 int64_t batch, int64_t stride) {
  const BlasLibrary& library = BlasLibrary::get();
  const auto count = static_cast<int32_t>(batch);
  return ok(library.layout_create(&layout.value, data_type(type), static_cast<uint64_t>(length),
                                  static_cast<uint64_t>(lines), between)) &&
         ok(library.layout_set(layout.value, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                               sizeof(count))) &&
         ok(library.layout_set(layout.value, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                               sizeof(stride)));
}

uint32_t epilogue_of(BlasEpilogue epilogue) {
  switch (epilogue) {
    case BlasEpilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case BlasEpilogue::sums_a:
      return CUBLASLT_EPILOGUE_BGRADB;  // a is the second operand of the transposed product
    case BlasEpilogue::sums_b:
      return CUBLASLT_EPILOGUE_BGRADA;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

// Sets the address that is part of the description.
bool set_bias(const Plan& plan, const BlasProduct& p, const void* bias) {
  return p.epilogue == BlasEpilogue::none ||
         set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
}

// `alignment` is the common alignment of all operands.
bool describe(Plan& plan, const BlasProduct& p, uint32_t alignment) {
  const auto operation = [](bool transposed) -> int32_t {
    return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  const auto layout = [&](Layout& to, bool transposed, int64_t rows, int64_t columns,
                          int64_t between, int64_t stride) {
    return transposed ? make_layout(to, p.type, columns, rows, between, p.batch, stride)
                      : make_layout(to, p.type, rows, columns, between, p.batch, stride);
  };
  const cublasComputeType_t compute = p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  if (!ok(BlasLibrary::get().desc_create(&plan.description.value, compute, CUDA_R_32F)) ||
      !set(plan.description, CUBLASLT_MATMUL_DESC_TRANSA, operation(p.transpose_b)) ||
      !set(plan.description, CUBLASLT_MATMUL_DESC_TRANSB, operation(p.transpose_a)) ||
      !set(plan.description, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p.epilogue)) ||
      !layout(plan.a, p.transpose_a, p.m, p.k, p.between_a(), p.stride_a) ||
      !layout(plan.b, p.transpose_b, p.k, p.n, p.transpose_b ? p.k : p.n, p.stride_b) ||
      !make_layout(plan.y, p.y_type, p.m, p.n, p.between_y(), p.batch, p.m * p.between_y())) {
    return false;
  }
  // The heuristic may read the address, so it gets one with the same alignment.
  return set_bias(plan, p, reinterpret_cast<const void*>(uintptr_t{alignment}));
}

// Asks the heuristic for an algorithm. Split-k sums are allowed only if a separate pass adds them,
// because other split-k schemes add in undefined order.
bool choose(Plan& plan, cublasLtHandle_t handle, uint32_t alignment, uint64_t max_workspace) {
  const BlasLibrary& library = BlasLibrary::get();
  Preference preference;
  if (!ok(library.preference_create(&preference.value)) ||
      !set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, max_workspace) ||
      !set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE))) {
    return false;
  }
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    if (!set(preference, attribute, alignment)) {
      return false;
    }
  }
  cublasLtMatmulHeuristicResult_t result{};
  int results = 0;
  if (!ok(library.heuristic(handle, plan.description.value, plan.b.value, plan.a.value,
                            plan.y.value, plan.y.value, preference.value, 1, &result, &results)) ||
      results == 0 || !ok(result.state) || result.workspaceSize > max_workspace) {
    return false;
  }
  plan.algorithm = result.algo;
  plan.workspace = result.workspaceSize;
  return true;
}

uint32_t alignment_of(const BlasOperands& o) {
  uintptr_t all = kBestAlignment;
  for (const void* const address :
       {o.a, o.b, static_cast<const void*>(o.y), o.c, static_cast<const void*>(o.bias)}) {
    all |= reinterpret_cast<uintptr_t>(address);
  }
  return static_cast<uint32_t>(all & (~all + 1));  // the lowest bit
}

class CublasLt final : public Blas {
 public:
  static std::unique_ptr<Blas> open() {
    std::unique_ptr<CublasLt> self(new CublasLt);
    return ok(BlasLibrary::get().create(&self->handle_.value)) ? std::move(self) : nullptr;
  }

  uint64_t workspace(const BlasProduct& p, uint32_t alignment) const override {
    return make_plan(p, alignment, kMaxWorkspace).workspace;
  }

  bool supports(const BlasProduct& p, uint32_t alignment) const override {
    return make_plan(p, alignment, kMaxWorkspace).found;
  }

  bool prepare(const BlasProduct& p, const BlasOperands& o) const override {
    const Plan& best = make_plan(p, alignment_of(o), kMaxWorkspace);
    return (best.workspace <= usable(o) ? best : make_plan(p, alignment_of(o), usable(o))).found;
  }

  bool multiply(const BlasProduct& p, const BlasOperands& o, cudaStream_t stream) const override {
    const Plan* plan = find_plan(p, alignment_of(o), kMaxWorkspace);
    if (plan != nullptr && plan->workspace > usable(o)) {
      plan = find_plan(p, alignment_of(o), usable(o));
    }
    if (plan == nullptr || !plan->found || !set_bias(*plan, p, o.bias)) {
      return false;
    }
    // Factors in host memory: the library reads c only if its factor is not 0.
    const float one = 1;
    const float keep = p.adds ? 1 : 0;
    return ok(BlasLibrary::get().matmul(
        handle_.value, plan->description.value, &one, o.b, plan->b.value, o.a, plan->a.value, &keep,
        p.adds ? o.c : o.y, plan->y.value, o.y, plan->y.value, &plan->algorithm,
        plan->workspace == 0 ? nullptr : o.workspace, plan->workspace, stream));
  }

 private:
  CublasLt() = default;

  static uint64_t usable(const BlasOperands& o) {
    const bool aligned = reinterpret_cast<uintptr_t>(o.workspace) % kWorkspaceAlignment == 0;
    return aligned ? std::min(o.workspace_bytes, kMaxWorkspace) : 0;
  }

  const Plan& make_plan(const BlasProduct& p, uint32_t alignment, uint64_t max_workspace) const {
    const auto [at, is_new] = plans_.try_emplace({p, alignment, max_workspace});
    Plan& plan = at->second;
    if (is_new) {
      plan.found = p.rounds_once(alignment) && describe(plan, p, alignment) &&
                   choose(plan, handle_.value, alignment, max_workspace);
    }
    return plan;
  }
  const Plan* find_plan(const BlasProduct& p, uint32_t alignment, uint64_t max_workspace) const {
    const auto at = plans_.find({p, alignment, max_workspace});
    return at == plans_.end() ? nullptr : &at->second;
  }

  Handle handle_;
  // The caller serializes calls for a device.
  mutable std::map<std::tuple<BlasProduct, uint32_t, uint64_t>, Plan> plans_;
};

}  // namespace

std::unique_ptr<Blas> Blas::open() {
  return BlasLibrary::get().problem.empty() ? CublasLt::open() : nullptr;
}

std::string Blas::description() {
  const BlasLibrary& library = BlasLibrary::get();
  return library.problem.empty() ? format("cuBLASLt {}", library.version)
                                 : format("own products: {}", library.problem);
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
