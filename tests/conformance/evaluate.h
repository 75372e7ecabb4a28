// The expected results of an operator: inputs from a seed, shapes from the inference, and values
// from the oracle.
#pragma once

#include "conformance/case.h"

namespace bowline::conformance {

using Array = OracleContext::Array;
using Oracle = void (*)(const OracleContext& c);

// Shapes and dtypes of the outputs of a node.
struct Signature {
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
};

// Runs the inference.
// Errors  the errors of the inference; a wrong number or dtype of inputs.
Result<Signature> infer(Op op, const Attributes& attributes, std::span<const Shape> inputs,
                        std::span<const DType> dtypes);

// Returns the dtype of input i of a case: its own dtype, i32 for an index, or the dtype of the case
// if the operator allows a choice.
DType dtype_of_input(const Case& c, size_t i);

// Returns the encoding of input i of a case.
Encoding encoding_of_input(const Case& c, size_t i);

// Outputs in double precision, and the magnitudes to which rounding errors are relative.
struct Expected {
  std::vector<Array> outputs;
  std::vector<std::vector<double>> magnitude;
  OracleContext::Outcome outcome;
  Tolerance tolerance;
};

// `precision`: of the device, for the tolerance.
Result<Expected> run_oracle(Oracle oracle, Op op, const Attributes& attributes,
                            std::span<const Array> inputs, const Step& step,
                            MatmulPrecision precision = MatmulPrecision::f32);

// Returns the bits of the per-step scalars of an operator before it runs, in the order of
// step_words(op). Ignores scalars of other operators.
// Errors  bad_argument: a scalar that the operator reads has neither a default nor a value, or its
//         value does not fit its type.
Result<std::vector<uint64_t>> words_of(Op op, const Step& step);

// Returns the inputs of a case. Each value is exact in its dtype. Quantized inputs are dequantized,
// and quantizing them again gives the same values. The same seed and case text give the same
// values.
Result<std::vector<Array>> draw_inputs(const Case& c, uint64_t seed);

// Returns `length` values of a kind that are exact in the dtype. `stream` distinguishes the inputs
// of a case.
std::vector<double> draw(Values kind, size_t length, uint64_t key, uint32_t stream,
                         DType dtype = DType::f32);

// FNV-1a, which makes a key from a text.
uint64_t hash_of(std::string_view text);

}  // namespace bowline::conformance
