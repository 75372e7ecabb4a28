//! ops(any) Cast
// From every dtype to every dtype, element by element; what the conversions mean stands in runtime/ops/cast.cpp.
#include <cmath>
#include <limits>

#include "core/float16.h"
#include "kernel.h"

namespace bowline::cpu {
namespace {

// A truth value from outside is any byte.
struct Truth {
  uint8_t byte = 0;
};

template <class T>
concept Float = std::same_as<T, float> || std::same_as<T, f16> || std::same_as<T, bf16>;

template <class To>
To cast_float(float x) {
  if constexpr (Float<To>) {
    return from_f32<To>(x);
  } else if constexpr (std::same_as<To, Truth>) {
    return {static_cast<uint8_t>(x != 0)};
  } else {
    // The bounds are powers of two, or one less, which the comparison rounds up to one.
    if (std::isnan(x)) {
      return 0;
    }
    if (x >= static_cast<float>(std::numeric_limits<To>::max())) {
      return std::numeric_limits<To>::max();
    }
    return x <= static_cast<float>(std::numeric_limits<To>::min()) ? std::numeric_limits<To>::min()
                                                                   : static_cast<To>(x);
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

// f.operator()<T>() with the type whose elements are of the dtype.
template <class F>
void with_type(DType type, F&& f) {
  switch (type) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::f16:
      return f.template operator()<f16>();
    case DType::bf16:
      return f.template operator()<bf16>();
    case DType::i8:
      return f.template operator()<int8_t>();
    case DType::u8:
      return f.template operator()<uint8_t>();
    case DType::i32:
      return f.template operator()<int32_t>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::boolean:
      return f.template operator()<Truth>();
  }
}

void run(const Launch& l) {
  with_type(l.record.inputs[0].dtype, [&]<class From>() {
    with_type(l.record.outputs[0].dtype, [&]<class To>() { cast_all<From, To>(l); });
  });
}

}  // namespace

extern const Kernel kernel_cast;
const Kernel kernel_cast{.run = run};

}  // namespace bowline::cpu
