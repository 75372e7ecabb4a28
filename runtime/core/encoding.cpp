#include "core/encoding.h"

namespace bowline {
namespace {

constexpr Encoding kEncodings[] = {
    {"plain",
     [](DType dtype, const Shape& shape) {
       return static_cast<uint64_t>(shape.elements()) * size_of(dtype);
     }},
};

}  // namespace

const Encoding& plain_encoding() { return kEncodings[0]; }

const Encoding* find_encoding(std::string_view name) {
  for (const Encoding& e : kEncodings) {
    if (e.name == name) {
      return &e;
    }
  }
  return nullptr;
}

}  // namespace bowline
