//! ops(any) Cast
// Elementwise conversion between all dtypes. runtime/ops/cast.cpp defines the conversions.
#include "core/element_types.h"
#include "kernel.h"

namespace bowline::detail::cpu::cast_kernels {
namespace {

template <class To>
To cast_float(float x) {
  if constexpr (Float<To>) {
    return from_f32<To>(x);
  } else if constexpr (std::same_as<To, Truth>) {
    return {static_cast<uint8_t>(x != 0)};
  } else {
    return saturated<To>(x);
  }
}

template <class To, class From>
To cast(From x) {
  if constexpr (std::same_as<From, Truth>) {
    return cast<To>(static_cast<uint8_t>(x.byte != 0));
  } else if constexpr (std::same_as<To, Truth> && !Float<From>) {
    return {static_cast<uint8_t>(x != 0)};
  } else if constexpr (Float<From>) {
    return cast_float<To>(to_f32(x));
  } else if constexpr (Float<To>) {
    return from_f32<To>(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

template <class From, class To>
void cast_all(const Launch& l) {
  const From* const x = l.in[0].as<const From>();
  To* const y = l.out[0].as<To>();
  parallel_blocks(l.threads, l.out[0].elements(), 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      y[i] = cast<To>(x[i]);
    }
  });
}

// Whether the build has kernels for this type.
template <class T>
constexpr bool kIsBuilt = std::same_as<T, f16>    ? has_dtype(DType::f16)
                          : std::same_as<T, bf16> ? has_dtype(DType::bf16)
                                                  : true;

void run(const Launch& l) {
  with_type(l.record.inputs[0].dtype, [&]<class From>() {
    with_type(l.record.outputs[0].dtype, [&]<class To>() {
      if constexpr (kIsBuilt<From> && kIsBuilt<To>) {
        cast_all<From, To>(l);
      }
    });
  });
}

}  // namespace

BOWLINE_KERNEL(cast, .run = run);

}  // namespace bowline::detail::cpu::cast_kernels
