// What a lowering sees of its node, and how it is registered.
//
// Each file of ops/ has the lowerings of one group of ONNX operators and defines
//   std::span<const Lowering> lowerings_of_<file>()
// The build finds it. What a lowering does not ask for (an attribute, an input, an output that it
// does not set) is refused, so that nothing is dropped silently.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "common/require.h"
#include "onnx/maker.h"

namespace bowline::onnx {

namespace file {
class AttributeProto;
class NodeProto;
}  // namespace file

inline constexpr std::string_view kTraining = "ai.onnx.preview.training";
// Operators that ONNX Runtime adds (its docs/ContribOperators.md).
inline constexpr std::string_view kMicrosoft = "com.microsoft";

// A graph of ONNX as far as it was lowered, for the operator that differentiates it.
struct Lowered {
  std::vector<const file::NodeProto*> nodes;
  std::map<std::string, Term> values;
};

// Who reads a value: inputs of nodes and outputs of the graph, and how many of them are outputs of
// the model.
struct Readers {
  int all = 0;
  int outputs = 0;
};

class Context {
 public:
  Context(Maker& maker, const file::NodeProto& node, int opset, std::string folder,
          const Lowered& before, Terms inputs, std::vector<bool> present,
          std::vector<Readers> readers);

  Maker& m;
  const int opset;  // of the domain of the node

  size_t inputs() const { return inputs_.size(); }
  bool has(size_t i) const { return i < present_.size() && present_[i]; }
  // Errors  bad_file: there is none; of numbers() unsupported: they are not known.
  Result<Term> in(size_t i);
  // A Term without a source where there is none.
  Result<Term> optional(size_t i);
  Result<Numbers> numbers(size_t i);
  Result<std::vector<int64_t>> integers(size_t i);

  bool has_attribute(std::string_view name) const;
  // Errors  bad_file: it is of another kind.
  Result<int64_t> integer(std::string_view name, int64_t otherwise);
  Result<double> real(std::string_view name, double otherwise);
  Result<std::string> text(std::string_view name, const std::string& otherwise);
  Result<std::vector<int64_t>> list(std::string_view name);  // empty: there is none
  Result<std::vector<double>> reals(std::string_view name);
  Result<std::vector<std::string>> texts(std::string_view name);
  Result<Numbers> tensor(std::string_view name);
  // Says nothing about the numbers.
  void ignore(std::string_view name) { asked_.insert(std::string(name)); }
  // Input i as numbers if there is one, else the list attribute: what moved from attributes to
  // inputs with an opset.
  Result<std::vector<int64_t>> list_or_input(std::string_view name, size_t i);

  size_t outputs() const;
  // How many inputs of nodes and outputs of the graph read it.
  int readers(size_t i) const { return i < readers_.size() ? readers_[i].all : 0; }
  // Whether it is an output of the model, and no node reads it.
  bool only_output(size_t i) const {
    return i < readers_.size() && readers_[i].outputs > 0 && readers_[i].outputs == readers_[i].all;
  }
  bool wants(size_t i) const { return readers(i) > 0; }
  void out(size_t i, const Term& value);

  const file::NodeProto& node() const { return node_; }
  const Lowered& before() const { return before_; }
  const Terms& results() const { return outputs_; }
  // What was not asked for, or not set.
  Status leftovers() const;

 private:
  const file::AttributeProto* find(std::string_view name);

  const file::NodeProto& node_;
  const std::string folder_;
  const Lowered& before_;
  Terms inputs_;
  std::vector<bool> present_;
  std::vector<Readers> readers_;
  std::vector<bool> read_;
  std::set<std::string> asked_;
  Terms outputs_;
  std::vector<bool> set_;
};

struct Lowering {
  std::string_view op;
  Status (*lower)(Context& c);
  std::string_view domain = {};
};

// Errors  unsupported.
Result<const Lowering*> find_lowering(std::string_view domain, std::string_view op);

// Errors  unsupported: the numbers of the term, which is `what` of a node, are not known.
Status require_known(const Term& term, std::string_view what);

// x in f32, if it is of floats. f16 and bf16 have too few digits, and f16 has too small numbers,
// for what lies between x and a function of it.
Term in_f32(Context& c, const Term& x);

// An integer that takes part in sums and products of dims. Errors  bad_file: beyond 2^31.
Status require_small(std::string_view what, const std::vector<int64_t>& values);

// Sums of so many products of whole numbers from -255 to 255 are exact in f32: 255 * 255 * 256 <
// 2^24.
inline constexpr int64_t kExactProducts = 256;

// Whole numbers less their zero point, in f32, which has all of them. A zero point without a source
// is 0.
Term centred(Context& c, const Term& x, const Term& zero_point);
// saturate(round(x) + zero point), in the dtype of the zero point.
Term saturated(Context& c, const Term& x, const Term& zero_point);
// x in 8 bits without a sign, in the range of its elements and 0: x = (whole - zero point) scale.
struct Quantized {
  Term whole, scale, zero_point;
};
Quantized quantized_by_range(Context& c, const Term& x);
// alpha a' b', as the attributes alpha, transA and transB say.
Result<Term> scaled_product(Context& c, const Term& a, const Term& b);

// Helpers of several groups.
std::vector<int64_t> all_axes(size_t rank);
// Indices as i32; negative ones count from the end, for operators of Bowline too. Those that are
// known are made positive.
Term i32_indices(Context& c, const Term& indices, int64_t size);
// Indices as i32 inside [0, size): a negative one counts from the end.
Term positive_indices(Context& c, const Term& indices, int64_t size);

}  // namespace bowline::onnx
