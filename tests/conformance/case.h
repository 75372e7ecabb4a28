// A case: one operator with its attributes, inputs and per-step scalars. This file also defines the
// text form of cases.
//
// A file tests/ops/<op>.cases contains lines of four columns. A line stands for every combination
// of its alternatives:
//
//   variables | inputs | attributes | options -> expected values
//
//   n=1,5..8 s=[],[2,3] | [s,n] [n]{0..n-1,-100} | eps=1e-5,1e-3 axes=[0],[0,1] |
//       values=normal,nan seeds=2 -> (1,2)
//
//   (The example is one line in a file.)
//
//   Variables: numbers, ranges a..b, shapes, and sets from `let name = ...`. A variable may use
//     earlier variables. The sets formats_of_32 and formats_of_256 are the block formats with
//     blocks of this size. An expression with + - * / and parentheses may replace a number.
//
//   Inputs:
//     [dims]          f32 of this shape; a shape variable stands for its dimensions
//     [dims]@a@n      dynamic: axis a has n elements, and floats behind them are NaN
//     ...{a..b,c}     i32 between a and b; further items occur now and then
//     ...:kind        f32 of another kind than the option `values`
//     ...:dtype       a value of this dtype
//     ...:codes       quantized with the option `encoding`; the values are the dequantized values
//     ...=(1,nan,-2)  exactly these values; must be last
//     ([a],[b])       a list of storages with a and b elements
//     =Op.k(0,1)      output k of the oracle of Op with these attributes on inputs 0 and 1
//
//   Attributes: by name. Enum values are names. ['n',-1] in a target shape is the named dimension
//     n, which is bound to variable n.
//
//   Options:
//     dtype           of all inputs for which the operator allows a choice
//     values          normal, integers, positive, offset, tiny, large, zeros, special (NaN,
//                     infinities, signed zeros, denormals), nan (special without infinities)
//     encoding        of the inputs with :codes, as parse_encoding() reads it, with + for a space
//     seeds           the number of draws of the values
//     accumulate first error
//                     the flags of OracleContext::Facts
//     learning_rate ...
//                     any per-step scalar that the operator declares
//
//   Expected values: (values) or _ for each output. They have another source than the oracle, and
//     they also check the oracle.
//
//   A line that starts with ! states that inference refuses the case. After -> it may give the
//   sentence of the error without its full stop. # starts a comment.
#pragma once

#include <optional>

#include "core/encoding.h"
#include "graph/op_table.h"

namespace bowline::conformance {

enum class Values : uint8_t {
  normal,
  integers,
  positive,
  offset,
  tiny,
  large,
  zeros,
  special,
  nan
};

// An input whose values are the output of another oracle.
struct Derived {
  Op op = Op::Invalid;
  int output = 0;
  std::vector<int> inputs;
};

struct Input {
  Shape shape;                   // of a list: [sum of the entries]
  std::vector<int64_t> entries;  // of a list
  bool is_list = false;
  std::optional<Values> values;
  std::optional<DType> dtype;
  bool codes = false;
  bool is_index = false;  // integers in [low, high], or one of `others`
  int64_t low = 0;
  int64_t high = 0;
  std::vector<int64_t> others;
  std::vector<double> given;
  std::optional<Derived> derived;
  int counted_axis = -1;  // the axis of which only `count` elements are valid
  int64_t count = 0;
};

// The facts of a record, and per-step scalars by name. The other per-step scalars have their
// defaults.
struct Step {
  OracleContext::Facts facts;
  std::vector<StepScalar> words;
};

struct Case {
  Op op = Op::Invalid;
  Attributes attributes;
  std::vector<Input> inputs;
  Values values = Values::normal;
  DType dtype = DType::f32;
  Encoding encoding;  // of quantized inputs
  uint32_t draw = 0;  // index of the seed
  Step step;
  bool refused = false;
  std::string refusal;        // the message without its full stop
  Status attributes_refused;  // the error if the attributes alone are invalid
  std::vector<std::optional<std::vector<double>>> expected;
  std::string where;  // "add.cases:12"
  std::string text;   // "add.cases:12 n=7 [7] [7] eps=1e-05 values=normal"
};

// Errors  bad_argument: a malformed line; the message contains its number.
Result<std::vector<Case>> parse_cases(Op op, std::string_view file, std::string_view text);

}  // namespace bowline::conformance
