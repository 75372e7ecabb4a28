// Constant folding: computes operators on values that are known while a file is read.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "onnx/maker.h"

namespace bowline::onnx::fold {

// Position in an operand of shape `own` that broadcasts, of the element at a position of the
// result.
size_t place_in(const Dims& own, std::span<const int64_t> position);

// Calls `visit` with the position of each element of `dims`, in row-major order.
template <class Visit>
void walk(const Dims& dims, const Visit& visit) {
  Dims at(dims.size(), 0);
  for (int64_t left = dims.product(); left > 0; --left) {
    visit(at);
    for (size_t a = dims.size(); a-- > 0 && ++at[a] == dims[a];) {
      at[a] = 0;
    }
  }
}

// All functions return nothing if an operand is not known, has a dtype that is not computed here,
// or is too large.
using Known = std::optional<ConstantTensor>;

Known unary(std::string_view op, const Term& x);
Known binary(std::string_view op, const Term& a, const Term& b, const Dims& dims);
Known compare(std::string_view op, const Term& a, const Term& b, const Dims& dims);
Known where(const Term& condition, const Term& a, const Term& b, const Dims& dims);
Known cast(const Term& x, DType dtype);
Known reshape(const Term& x, const Dims& dims);
Known transpose(const Term& x, const std::vector<int64_t>& permutation, const Dims& dims);
Known slice(const Term& x, int64_t axis, int64_t start, const Dims& dims);
Known concat(const Terms& parts, int64_t axis, const Dims& dims);
Known expand(const Term& x, const Dims& dims);
Known gather(const Term& x, const Term& indices, int64_t axis, const Dims& dims);
Known reduce(std::string_view op, const Term& x, const std::vector<int64_t>& axes,
             const Dims& dims);

}  // namespace bowline::onnx::fold
