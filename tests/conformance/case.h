// A case: one operator with its attributes, inputs and step words; and the text form of many
// cases.
//
// tests/ops/<op>.cases holds lines of this form; one line stands for every combination of its
// alternatives:
//
//   n=1,5..8 s=[],[2,3] | [s,n] [n]{0..n-1,-100} | eps=1e-5,1e-3 axes=[0],[0,1] | values=normal,nan
//   seeds=2 -> (1,2) variables           | inputs                 | attributes                   |
//   options             expected numbers
//
//   Variables    numbers, ranges a..b, shapes, the sets declared by `let name = ...`; later ones
//   may use earlier ones.
//                Where a number stands, so may an expression of variables with + - * / and
//                parentheses.
//   Inputs       [dims]          f32 of this shape; a shape variable stands for its dims
//                [dims]@a@n      counted: axis a has n elements, and a float is NaN behind them
//                ...{a..b,c}     i32 between a and b; with more items, each is drawn now and then
//                ...:kind        f32 of another kind than the option `values`
//                ...:dtype       of this dtype
//                ...:codes       stored in the option `encoding`; the numbers are those that the
//                    codes stand for
//                ...=(1,nan,-2)  these values, last
//                ([a],[b])       a list of storages of a and b elements
//                =Op.k(0,1)      output k of the oracle of Op, with these attributes, on inputs 0
//                and 1
//   Attributes   by name; enum values by name; ['n',-1] in a target shape is the named dim n, bound
//   to variable n. Options      dtype   of all inputs that the operator gives the choice
//                values  normal, integers, positive, offset, tiny, large, zeros,
//   special (NaN, infinities, signed zeros,
//                        denormals), nan (the same without infinities)
//                encoding  of the inputs with :codes, as parse_encoding() reads it with + for a
//                    space
//                seeds   so many draws of the values
//                accumulate first error   what the step buffer and the table entries say
//                    (OracleContext::Facts)
//                learning_rate ...        any step word that the operator declares
//   Expected     (numbers) per output or _; they come from elsewhere and check the oracle too.
//   A line that starts with ! states that inference refuses it, and after -> with which sentence,
//       without its
//   full stop. # starts a comment.
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
  int counted_axis = -1;  // of which `count` elements are there
  int64_t count = 0;
};

// What a step says to an operator: facts of its record, and step words by their names. The others
// have their defaults.
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
  Encoding encoding;  // of inputs that are codes
  uint32_t draw = 0;  // which of the seeds
  Step step;
  bool refused = false;
  std::string refusal;        // the message, without its full stop
  Status attributes_refused;  // where the attributes alone are refused
  std::vector<std::optional<std::vector<double>>> expected;
  std::string where;  // "add.cases:12"
  std::string text;   // "add.cases:12 n=7 [7] [7] eps=1e-05 values=normal"
};

// Errors  bad_argument: a line that does not have this form, with its number.
Result<std::vector<Case>> parse_cases(Op op, std::string_view file, std::string_view text);

}  // namespace bowline::conformance
