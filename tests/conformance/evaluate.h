// What an operator must give: inputs drawn from a seed, shapes from its inference, numbers from its
// oracle.
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

// Runs the inference. Errors  its own, and a wrong number or dtype of inputs.
Result<Signature> infer(Op op, const Attributes& attributes, std::span<const Shape> inputs,
                        std::span<const DType> dtypes);

// The dtype of input i of a case: its own, i32 of an index, that of the case where the operator
// lets it choose.
DType dtype_of_input(const Case& c, size_t i);

// How input i of a case is stored.
Encoding encoding_of_input(const Case& c, size_t i);

// Outputs in double precision, with what rounding errors are measured against.
struct Expected {
  std::vector<Array> outputs;
  std::vector<std::vector<double>> magnitude;
  OracleContext::Outcome outcome;
  Tolerance tolerance;
};

Result<Expected> run_oracle(Oracle oracle, Op op, const Attributes& attributes,
                            std::span<const Array> inputs, const Step& step);

// The bits of the step words of an operator before it runs, in the order of step_words(op); it
// ignores words of others.
// Errors  bad_argument: one that it reads has neither a default nor a number; or none of its type.
Result<std::vector<uint64_t>> words_of(Op op, const Step& step);

// The inputs of a case, each exact in its dtype; what is stored as codes is what they stand for,
// and encoding it gives them again. The same seed and case text give the same numbers.
Result<std::vector<Array>> draw_inputs(const Case& c, uint64_t seed);

// `length` numbers of a kind, exact in the dtype; `stream` tells apart the inputs of a case.
std::vector<double> draw(Values kind, size_t length, uint64_t key, uint32_t stream,
                         DType dtype = DType::f32);

// FNV-1a, to make a key of a text.
uint64_t hash_of(std::string_view text);

}  // namespace bowline::conformance
