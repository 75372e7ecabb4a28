#include "blas.h"

#ifndef BOWLINE_CUDA_EMULATED
#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <tuple>
#include <type_traits>

#include "base/format.h"
#endif

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

#ifdef BOWLINE_CUDA_EMULATED

std::unique_ptr<Blas> Blas::open() { return nullptr; }
std::string Blas::description() { return "own products"; }

#else

namespace {

constexpr uint64_t kMaxWorkspace = uint64_t{8} << 20;
constexpr uint64_t kWorkspaceAlignment = 256;  // required by cublasLtMatmul

// The cuBLASLt library of this machine. It is opened once and never closed.
class Library {
 public:
  static const Library& get() {
    static const Library library;
    return library;
  }

  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  std::string version;
  std::string problem;  // why the library is not used; empty if it is used

 private:
  Library() {
    const std::string name = format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      problem = format("{} is not found", name);
      return;
    }
    const auto find = [&](auto& function, const char* symbol) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
      if (function == nullptr && problem.empty()) {
        problem = format("{} lacks {}", name, symbol);
      }
    };
    decltype(&cublasLtGetVersion) get_version = nullptr;
    find(get_version, "cublasLtGetVersion");
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(matmul, "cublasLtMatmul");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(desc_create, "cublasLtMatmulDescCreate");
    find(desc_destroy, "cublasLtMatmulDescDestroy");
    find(desc_set, "cublasLtMatmulDescSetAttribute");
    find(layout_create, "cublasLtMatrixLayoutCreate");
    find(layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(layout_set, "cublasLtMatrixLayoutSetAttribute");
    find(preference_create, "cublasLtMatmulPreferenceCreate");
    find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    if (!problem.empty()) {
      return;
    }
    const size_t number = get_version();  // in the format of CUBLAS_VERSION
    version = format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
    if (number / 10000 != CUBLAS_VER_MAJOR) {
      problem = format("{} is version {}, this build needs {}.x", name, version, CUBLAS_VER_MAJOR);
    }
  }
};

bool ok(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }

// Objects of the library, freed with their owner.
template <class T, auto kDestroy>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (value != nullptr) {
      (void)(Library::get().*kDestroy)(value);
    }
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T value = nullptr;
};
using Description = Owned<cublasLtMatmulDesc_t, &Library::desc_destroy>;
using Layout = Owned<cublasLtMatrixLayout_t, &Library::layout_destroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &Library::preference_destroy>;
using Handle = Owned<cublasLtHandle_t, &Library::destroy>;

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
  return ok(Library::get().desc_set(d.value, attribute, &value, sizeof(T)));
}
template <class T>
bool set(const Preference& p, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  return ok(Library::get().preference_set(p.value, attribute, &value, sizeof(T)));
}

// A matrix of `lines` lines with `length` contiguous elements.
bool make_layout(Layout& layout, int64_t lines, int64_t length, int64_t batch, int64_t stride) {
  const Library& library = Library::get();
  const auto count = static_cast<int32_t>(batch);
  return ok(library.layout_create(&layout.value, CUDA_R_32F, static_cast<uint64_t>(length),
                                  static_cast<uint64_t>(lines), length)) &&
         ok(library.layout_set(layout.value, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                               sizeof(count))) &&
         ok(library.layout_set(layout.value, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                               sizeof(stride)));
}

// `alignment` is the common alignment of all operands. Each call sets the address of the bias.
bool describe(Plan& plan, const BlasProduct& p, uint32_t alignment) {
  const auto operation = [](bool transposed) -> int32_t {
    return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  const auto layout = [&](Layout& to, bool transposed, int64_t rows, int64_t columns,
                          int64_t stride) {
    return transposed ? make_layout(to, columns, rows, p.batch, stride)
                      : make_layout(to, rows, columns, p.batch, stride);
  };
  if (!ok(Library::get().desc_create(&plan.description.value, CUBLAS_COMPUTE_32F, CUDA_R_32F)) ||
      !set(plan.description, CUBLASLT_MATMUL_DESC_TRANSA, operation(p.transpose_b)) ||
      !set(plan.description, CUBLASLT_MATMUL_DESC_TRANSB, operation(p.transpose_a)) ||
      !layout(plan.a, p.transpose_a, p.m, p.k, p.stride_a) ||
      !layout(plan.b, p.transpose_b, p.k, p.n, p.stride_b) ||
      !make_layout(plan.y, p.m, p.n, p.batch, p.m * p.n)) {
    return false;
  }
  if (p.adds && !set(plan.description, CUBLASLT_MATMUL_DESC_POINTER_MODE,
                     static_cast<int32_t>(CUBLASLT_POINTER_MODE_DEVICE))) {
    return false;
  }
  // The heuristic may read the address of the bias, so it gets an address with the same alignment.
  return !p.bias ||
         (set(plan.description, CUBLASLT_MATMUL_DESC_EPILOGUE,
              static_cast<uint32_t>(CUBLASLT_EPILOGUE_BIAS)) &&
          set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, uintptr_t{alignment}));
}

// Asks the heuristic for an algorithm. Split-k sums are allowed only if a separate pass adds them,
// because other split-k schemes add in undefined order.
bool choose(Plan& plan, cublasLtHandle_t handle, uint32_t alignment, uint64_t max_workspace) {
  const Library& library = Library::get();
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

template <class... P>
uint32_t alignment_of(const P*... addresses) {
  return ((reinterpret_cast<uintptr_t>(addresses) | ...) % 16 == 0) ? 16 : 4;
}

class CublasLt final : public Blas {
 public:
  static std::unique_ptr<Blas> open() {
    std::unique_ptr<CublasLt> self(new CublasLt);
    if (cudaGetDevice(&self->device_) != cudaSuccess) {
      return nullptr;
    }
    return ok(Library::get().create(&self->handle_.value)) ? std::move(self) : nullptr;
  }

  uint64_t workspace(const BlasProduct& p) const override {
    return plan_of(p, 16, kMaxWorkspace).workspace;
  }

  bool multiply(const BlasProduct& p, const float* a, const float* b, const float* bias, float* y,
                const float* factor, const float* keep, void* workspace, uint64_t workspace_bytes,
                cudaStream_t stream) const override {
    const uint32_t alignment = alignment_of(a, b, bias, y);
    if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
      workspace_bytes = 0;
    }
    const Plan* plan = &plan_of(p, alignment, kMaxWorkspace);
    if (plan->workspace > workspace_bytes) {
      plan = &plan_of(p, alignment, workspace_bytes);
    }
    if (!plan->found ||
        (p.bias && !set(plan->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias))) {
      return false;
    }
    const float one = 1;
    const float zero = 0;
    return ok(Library::get().matmul(
        handle_.value, plan->description.value, p.adds ? factor : &one, b, plan->b.value, a,
        plan->a.value, p.adds ? keep : &zero, y, plan->y.value, y, plan->y.value, &plan->algorithm,
        plan->workspace == 0 ? nullptr : workspace, plan->workspace, stream));
  }

 private:
  CublasLt() = default;

  const Plan& plan_of(const BlasProduct& p, uint32_t alignment, uint64_t max_workspace) const {
    const auto [at, is_new] = plans_.try_emplace({p, alignment, max_workspace});
    Plan& plan = at->second;
    if (is_new) {
      plan.found = cudaSetDevice(device_) == cudaSuccess && describe(plan, p, alignment) &&
                   choose(plan, handle_.value, alignment, max_workspace);
    }
    return plan;
  }

  int device_ = 0;  // whose heuristic is asked
  Handle handle_;
  // Serializes calls for a device.
  mutable std::map<std::tuple<BlasProduct, uint32_t, uint64_t>, Plan> plans_;
};

}  // namespace

std::unique_ptr<Blas> Blas::open() {
  return Library::get().problem.empty() ? CublasLt::open() : nullptr;
}

std::string Blas::description() {
  const Library& library = Library::get();
  return library.problem.empty() ? format("cuBLASLt {}", library.version)
                                 : format("own products: {}", library.problem);
}

#endif

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
