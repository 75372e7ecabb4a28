// The kernel table of a backend: one row per operator, one column per storage dtype. The build
// generates it from the files in the folder of the backend (backends/README.md).
#pragma once

#include "device/backend.h"

namespace bowline::detail::device {

template <class Kernel>
using KernelTable = const Kernel* const[kOps][kDTypes];

// Returns null if there is no kernel.
template <class Kernel>
const Kernel* find_kernel(const KernelTable<Kernel>& table, Op op, DType type) {
  return table[index_of(op)][static_cast<size_t>(type)];
}

// Returns a sentence that says why `backend` has no kernel for a node.
template <class Kernel>
std::string no_kernel(const KernelTable<Kernel>& table, std::string_view backend, Op op,
                      DType type) {
  std::string others;
  for (int t = 0; t < kDTypes; ++t) {
    if (find_kernel(table, op, static_cast<DType>(t)) != nullptr) {
      others += (others.empty() ? "" : ", ") + std::string(name_of(static_cast<DType>(t)));
    }
  }
  return others.empty()
             ? format("{} has no kernel of {}.", backend, op)
             : format("{} has no kernel of {} for {}, only for {}.", backend, op, type, others);
}

// Returns the kernel of a node. Only inputs whose bit is set in Kernel::encoded may be quantized.
// Errors  unsupported: there is no kernel.
template <class Kernel>
Result<const Kernel*> kernel_of(const KernelTable<Kernel>& table, std::string_view backend,
                                const NodeQuery& node) {
  const Kernel* kernel = find_kernel(table, node.op, node.type);
  BOWLINE_REQUIRE_CODE(kernel != nullptr, Code::unsupported, "{}",
                       no_kernel(table, backend, node.op, node.type));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Operand& in = node.inputs[i];
    BOWLINE_REQUIRE_CODE(has_dtype(in.dtype), Code::unsupported,
                         "Input {} of {} is {}, for which this build has no kernels (BOWLINE_OPS).",
                         i, node.op, in.dtype);
    const bool reads = kHasQuantized && (kernel->encoded >> i & 1) != 0 &&
                       in.encoding.layout(in.shape).has_value();
    BOWLINE_REQUIRE_CODE(in.encoding.is_plain() || reads, Code::unsupported,
                         "Input {} is stored as {}, which no kernel of {} reads.", i, in.encoding,
                         node.op);
  }
  return kernel;
}

// Errors  unsupported: there is no kernel for a record.
template <class Kernel>
Status require_kernel(const KernelTable<Kernel>& table, std::string_view backend,
                      const Record& record) {
  BOWLINE_REQUIRE_CODE(find_kernel(table, record.op, record.type) != nullptr, Code::unsupported,
                       "{}", no_kernel(table, backend, record.op, record.type));
  return {};
}

}  // namespace bowline::detail::device

// Defines a kernel of the table: BOWLINE_KERNEL(pad, .run = pad);
#define BOWLINE_KERNEL(stem, ...)    \
  extern const Kernel kernel_##stem; \
  const Kernel kernel_##stem { __VA_ARGS__ }

// The same for f32, f16 and bf16. T is the type of an element, of which the backend defines
// KernelF16 and KernelBf16: BOWLINE_KERNELS_OF_FLOATS(pad_grad, .run = pad_grad<T>);
#define BOWLINE_KERNELS_OF_FLOATS(stem, ...)            \
  template <class T>                                    \
  constexpr Kernel floats_##stem{__VA_ARGS__};          \
  BOWLINE_KERNEL(stem, floats_##stem<float>);           \
  BOWLINE_KERNEL(stem##_f16, floats_##stem<KernelF16>); \
  BOWLINE_KERNEL(stem##_bf16, floats_##stem<KernelBf16>)
#define BOWLINE_KERNELS_OF_INTEGERS(stem, ...)          \
  template <class T>                                    \
  constexpr Kernel integers_##stem{__VA_ARGS__};        \
  BOWLINE_KERNEL(stem##_i8, integers_##stem<int8_t>);   \
  BOWLINE_KERNEL(stem##_u8, integers_##stem<uint8_t>);  \
  BOWLINE_KERNEL(stem##_i32, integers_##stem<int32_t>); \
  BOWLINE_KERNEL(stem##_i64, integers_##stem<int64_t>)
#define BOWLINE_KERNELS_OF_NUMBERS(stem, ...)   \
  BOWLINE_KERNELS_OF_FLOATS(stem, __VA_ARGS__); \
  BOWLINE_KERNELS_OF_INTEGERS(stem, __VA_ARGS__)
