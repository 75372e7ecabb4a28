#include "conformance/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "conformance/elements.h"
#include "exec/step_values.h"

namespace bowline::conformance {
namespace {

class CaseInfer : public InferContext {
 public:
  CaseInfer(const OpDef& def, const Attributes& attributes, std::span<const Shape> inputs,
            std::span<const DType> dtypes, Signature& out)
      : InferContext(attributes), def_(def), inputs_(inputs), dtypes_(dtypes), out_(out) {}

  int inputs() const override { return static_cast<int>(inputs_.size()); }
  const Shape& in(int i) const override { return inputs_[static_cast<size_t>(i)]; }
  DType dtype(int i) const override { return dtypes_[static_cast<size_t>(i)]; }
  Status out(int i, const Shape& shape, std::optional<DType> type) override {
    BOWLINE_TRY_ASSIGN(out_.shapes[static_cast<size_t>(i)], Shape::checked(shape.dims()));
    out_.dtypes[static_cast<size_t>(i)] =
        type ? *type : output_type(def_.types, i, dtypes_).value();
    return {};
  }

 private:
  const OpDef& def_;
  std::span<const Shape> inputs_;
  std::span<const DType> dtypes_;
  Signature& out_;
};

// Uniform numbers in [0, 1) and normal numbers, which depend only on the counter.
class Draws {
 public:
  Draws(uint64_t key, uint32_t stream)
      : key_{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}, stream_(stream) {}

  uint32_t bits() {
    if (left_ == 0) {
      block_ = philox({counter_++, stream_, 0xC0F0, 0}, key_);
      left_ = 4;
    }
    return block_[--left_];
  }
  double uniform() { return (bits() + 0.5) / 4294967296.0; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::acos(-1.0) * uniform());
  }

 private:
  std::array<uint32_t, 2> key_;
  uint32_t stream_;
  uint32_t counter_ = 0;
  RandomBlock block_{};
  size_t left_ = 0;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::array kOdd = {kNan, 0.0, -0.0, 1e-40, -1e-42, 3e4, -3e4, kInfinity, -kInfinity};

double draw_one(Values kind, Draws& d) {
  const double x = d.normal();
  switch (kind) {
    case Values::normal:
      return x;
    case Values::integers:
      return std::floor(d.uniform() * 17) - 8;
    case Values::positive:
      return std::abs(x) + 1e-3;
    case Values::offset:
      return 100 + x;
    case Values::tiny:
      return x * 1e-12;
    case Values::large:
      return x * 30;
    case Values::zeros:
      return 0;
    case Values::special:
    case Values::nan: {
      const size_t kinds = kOdd.size() - (kind == Values::nan ? 2 : 0);
      const auto which = static_cast<size_t>(d.uniform() * static_cast<double>(kinds));
      return d.uniform() < 0.2 ? kOdd[which] : x;
    }
  }
  return 0;
}

std::vector<double> draw_indices(const Input& in, uint64_t key, uint32_t stream) {
  Draws d(key, stream);
  std::vector<double> out;
  for (int64_t i = 0; i < in.shape.elements(); ++i) {
    const double u = d.uniform();
    const double other = d.uniform();
    if (!in.others.empty() && other < 0.3) {
      out.push_back(static_cast<double>(
          in.others[static_cast<size_t>(u * static_cast<double>(in.others.size()))]));
    } else {
      out.push_back(static_cast<double>(in.low) +
                    std::floor(u * static_cast<double>(in.high - in.low + 1)));
    }
  }
  return out;
}

// Computes derived input `at`. Its inputs are drawn, or are derived inputs with a smaller index.
Result<Array> derive(const Case& c, size_t at, const std::vector<Array>& inputs) {
  const Derived& from = *c.inputs[at].derived;
  std::vector<Array> taken;
  for (const int i : from.inputs) {
    const auto input = static_cast<size_t>(i);
    BOWLINE_REQUIRE(input < inputs.size() && (input < at || !c.inputs[input].derived),
                    "Input {} comes later.", i);
    taken.push_back(inputs[static_cast<size_t>(i)]);
  }
  BOWLINE_TRY_ASSIGN(Expected e,
                     run_oracle(op_def(from.op).oracle, from.op, c.attributes, taken, c.step));
  Array out = std::move(e.outputs[static_cast<size_t>(from.output)]);
  for (double& v : out.values) {
    v = round_to(out.dtype, v);
  }
  return out;
}

// Converts a random number to the dtype: integers are between -128 and 127, and unsigned integers
// are not negative.
double fit(DType dtype, double x) {
  if (is_float(dtype)) {
    return round_to(dtype, x);
  }
  const double whole = std::isnan(x) ? 0 : std::round(std::clamp(16 * x, -128.0, 127.0));
  return dtype == DType::boolean ? (whole > 0 ? 1 : 0)
         : dtype == DType::u8    ? std::abs(whole)
                                 : whole;
}

// Replaces the values by their dequantized values. Quantizing these again gives the same values, if
// necessary after a few rounds. Some numbers alternate without end, and are replaced by smaller
// ones.
Status encode(const Encoding& encoding, Array& a) {
  constexpr int kRounds = 16;
  constexpr int kTimes = 8 * kRounds;
  BOWLINE_TRY(encoding.check(a.dtype, a.shape));
  std::vector<float> numbers(a.values.begin(), a.values.end());
  for (int i = 0; i < kTimes; ++i) {
    if (i % kRounds == kRounds - 1) {
      std::ranges::for_each(numbers, [](float& x) { x *= 0.75f; });
    }
    const std::vector<float> before = numbers;
    std::vector<std::byte> codes(encoding.bytes(a.dtype, a.shape));
    encoding.encode(before, a.dtype, a.shape, codes);
    encoding.decode(codes, a.dtype, a.shape, {0, a.shape.elements()}, numbers);
    if (before == numbers) {
      a.values.assign(numbers.begin(), numbers.end());
      return {};
    }
  }
  return Status(Code::bad_argument, format("The numbers of {} do not settle.", encoding));
}

// The elements behind a count must not affect the result.
void hide_tail(Array& a) {
  if (a.counted_axis < 0 || !is_float(a.dtype)) {
    return;
  }
  const int64_t inner = a.shape.elements(a.counted_axis + 1, a.shape.rank());
  for (size_t i = 0; i < a.values.size(); ++i) {
    if (static_cast<int64_t>(i) / inner % a.shape[a.counted_axis] >= a.count) {
      a.values[i] = kNan;
    }
  }
}

}  // namespace

uint64_t hash_of(std::string_view text) {
  uint64_t h = 14695981039346656037ull;
  for (const char ch : text) {
    h = (h ^ static_cast<uint8_t>(ch)) * 1099511628211ull;
  }
  return h;
}

DType dtype_of_input(const Case& c, size_t i) {
  const Input& in = c.inputs[i];
  if (in.dtype) {
    return *in.dtype;
  }
  if (in.is_index) {
    return DType::i32;
  }
  const std::span<const DType> types = types_of_input(op_def(c.op).types, i);
  return std::ranges::find(types, c.dtype) == types.end() ? DType::f32 : c.dtype;
}

Encoding encoding_of_input(const Case& c, size_t i) {
  return c.inputs[i].codes ? c.encoding.for_shape(c.inputs[i].shape) : Encoding();
}

std::vector<double> draw(Values kind, size_t length, uint64_t key, uint32_t stream, DType dtype) {
  Draws d(key, stream);
  std::vector<double> out(length);
  for (double& v : out) {
    v = fit(dtype, draw_one(kind, d));
  }
  return out;
}

Result<Signature> infer(Op op, const Attributes& attributes, std::span<const Shape> inputs,
                        std::span<const DType> dtypes) {
  const OpDef& def = op_def(op);
  BOWLINE_TRY(check_inputs(def, inputs.size()));
  BOWLINE_TRY(check_operand_types(def.types, def.name, dtypes));
  Signature out;
  const auto outputs = static_cast<size_t>(outputs_of(def, attributes, inputs.size()));
  out.shapes.resize(outputs);
  out.dtypes.assign(outputs, DType::f32);
  CaseInfer context(def, attributes, inputs, dtypes, out);
  BOWLINE_TRY(def.infer(context));
  for (const InPlace& u : def.updates) {
    if (u.output >= 0 && static_cast<size_t>(u.output) < outputs) {
      out.shapes[static_cast<size_t>(u.output)] = inputs[static_cast<size_t>(u.input)];
    }
  }
  return out;
}

Result<std::vector<uint64_t>> words_of(Op op, const Step& step) {
  std::vector<uint64_t> out;
  for (const StepWordInfo& word : step_words(op)) {
    const auto given = std::ranges::find(step.words, word.name, &StepScalar::name);
    if (given != step.words.end()) {
      BOWLINE_TRY_ASSIGN(const uint64_t bits, exec::bits_of(word, *given));
      out.push_back(bits);
    } else {
      BOWLINE_REQUIRE(word.default_bits || word.written, "{} reads {}, which is not given.", op,
                      word.name);
      out.push_back(word.default_bits.value_or(0));
    }
  }
  return out;
}

Result<Expected> run_oracle(Oracle oracle, Op op, const Attributes& attributes,
                            std::span<const Array> inputs, const Step& step,
                            MatmulPrecision precision) {
  BOWLINE_REQUIRE_CODE(oracle != nullptr, Code::internal, "{} has no oracle in this build.", op);
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
  for (const Array& in : inputs) {
    shapes.push_back(in.shape);
    dtypes.push_back(in.dtype);
  }
  BOWLINE_TRY_ASSIGN(const Signature signature, infer(op, attributes, shapes, dtypes));
  Expected out;
  for (size_t i = 0; i < signature.shapes.size(); ++i) {
    const Shape& s = signature.shapes[i];
    out.outputs.push_back(
        {s, std::vector<double>(static_cast<size_t>(s.elements())), signature.dtypes[i]});
  }
  out.magnitude.resize(out.outputs.size());
  BOWLINE_TRY_ASSIGN(const std::vector<uint64_t> words, words_of(op, step));
  out.outcome.words.resize(words.size());
  oracle(OracleContext(attributes, inputs, out.outputs, out.magnitude, step.facts, words,
                       out.outcome));
  ToleranceContext tolerance(attributes, inputs, precision);
  out.tolerance = op_def(op).tolerance(tolerance);
  return out;
}

Result<std::vector<Array>> draw_inputs(const Case& c, uint64_t seed) {
  const uint64_t key = hash_of(c.text) ^ seed * 0x9E3779B97F4A7C15ull;
  std::vector<Array> out(c.inputs.size());
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Input& in = c.inputs[i];
    if (in.derived) {
      continue;
    }
    const auto length = static_cast<size_t>(in.shape.elements());
    Array a{in.shape, in.given, dtype_of_input(c, i), in.counted_axis, in.count, in.entries};
    for (double& v : a.values) {
      v = round_to(a.dtype, v);
    }
    if (a.values.empty() && length > 0) {
      a.values = in.is_index ? draw_indices(in, key, static_cast<uint32_t>(i))
                             : draw(in.values.value_or(c.values), length, key,
                                    static_cast<uint32_t>(i), a.dtype);
    }
    hide_tail(a);
    if (in.codes) {
      BOWLINE_TRY(encode(encoding_of_input(c, i), a));
    }
    BOWLINE_REQUIRE(a.values.size() == length, "Input {} has {} values for shape {}.", i,
                    a.values.size(), in.shape);
    out[i] = std::move(a);
  }
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i].derived) {
      BOWLINE_TRY_ASSIGN(out[i], derive(c, i, out));
    }
  }
  return out;
}

}  // namespace bowline::conformance
