#include "conformance/case.h"

#include <charconv>
#include <cstdlib>
#include <functional>

#include "conformance/expression.h"

namespace bowline::conformance {
namespace {

constexpr std::string_view kValues[] = {"normal", "integers", "positive", "offset", "tiny",
                                        "large",  "zeros",    "special",  "nan"};

// The values of the variables at one point of the expansion.
struct Scope {
  Numbers numbers;
  std::map<std::string, Shape, std::less<>> shapes;
};

// name=alternative,alternative,...
struct Choice {
  std::string name;
  std::vector<std::string> alternatives;
};

bool is_bracketed(std::string_view text, char open, char close) {
  return text.size() >= 2 && text.front() == open && text.back() == close;
}
std::string_view inside(std::string_view text) { return text.substr(1, text.size() - 2); }

Result<double> number(std::string_view text, const Scope& scope) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (!copy.empty() && end == copy.c_str() + copy.size()) {
    return value;
  }
  BOWLINE_TRY_ASSIGN(const int64_t whole, evaluate(text, scope.numbers));
  return static_cast<double>(whole);
}

// Reads "[2,s,n+1]" or the name of a shape.
Result<Shape> shape_of(std::string_view text, const Scope& scope) {
  if (const auto it = scope.shapes.find(text); it != scope.shapes.end()) {
    return it->second;
  }
  BOWLINE_REQUIRE(is_bracketed(text, '[', ']'), "\"{}\" is not a shape.", text);
  std::vector<int64_t> dims;
  for (const std::string_view part : split(inside(text), ',')) {
    if (const auto it = scope.shapes.find(part); it != scope.shapes.end()) {
      dims.insert(dims.end(), it->second.dims().begin(), it->second.dims().end());
    } else {
      BOWLINE_TRY_ASSIGN(const int64_t d, evaluate(part, scope.numbers));
      dims.push_back(d);
    }
  }
  return Shape::checked(dims);
}

Result<Values> values_named(std::string_view name) {
  const auto it = std::ranges::find(kValues, name);
  BOWLINE_REQUIRE(it != std::end(kValues), "There are no values \"{}\".", name);
  return static_cast<Values>(it - std::begin(kValues));
}

std::optional<DType> dtype_named(std::string_view name) {
  for (int t = 0; t < kDTypes; ++t) {
    if (name_of(static_cast<DType>(t)) == name) {
      return static_cast<DType>(t);
    }
  }
  return std::nullopt;
}

Result<Derived> derived_of(std::string_view text) {
  const size_t dot = text.find('.');
  const size_t open = text.find('(');
  BOWLINE_REQUIRE(dot != text.npos && open != text.npos && text.back() == ')',
                  "\"{}\" is not Op.k(inputs).", text);
  Derived out;
  out.op = op_named(text.substr(0, dot));
  BOWLINE_REQUIRE(out.op != Op::Invalid, "There is no operator \"{}\".", text.substr(0, dot));
  BOWLINE_TRY_ASSIGN(const int64_t k, evaluate(text.substr(dot + 1, open - dot - 1), {}));
  out.output = static_cast<int>(k);
  for (const std::string_view part : split(text.substr(open + 1, text.size() - open - 2), ',')) {
    BOWLINE_TRY_ASSIGN(const int64_t input, evaluate(part, {}));
    out.inputs.push_back(static_cast<int>(input));
  }
  return out;
}

Status read_index(std::string_view text, const Scope& scope, Input& out) {
  out.is_index = true;
  for (const std::string_view part : split(text, ',')) {
    const size_t dots = part.find("..");
    if (dots == part.npos) {
      BOWLINE_TRY_ASSIGN(const int64_t other, evaluate(part, scope.numbers));
      out.others.push_back(other);
      continue;
    }
    BOWLINE_TRY_ASSIGN(out.low, evaluate(part.substr(0, dots), scope.numbers));
    BOWLINE_TRY_ASSIGN(out.high, evaluate(part.substr(dots + 2), scope.numbers));
  }
  return {};
}

Status read_list(std::string_view text, const Scope& scope, Input& out) {
  out.is_list = true;
  int64_t total = 0;
  for (const std::string_view part : split(text, ',')) {
    BOWLINE_TRY_ASSIGN(const Shape entry, shape_of(part, scope));
    out.entries.push_back(entry.elements());
    total += entry.elements();
  }
  out.shape = Shape{total};
  return {};
}

Result<std::vector<double>> numbers_of(std::string_view text, const Scope& scope) {
  BOWLINE_REQUIRE(is_bracketed(text, '(', ')'), "\"{}\" is not a list of numbers.", text);
  std::vector<double> out;
  for (const std::string_view part : split(inside(text), ',')) {
    BOWLINE_TRY_ASSIGN(const double v, number(part, scope));
    out.push_back(v);
  }
  return out;
}

Result<Input> input_of(std::string_view text, const Scope& scope) {
  Input out;
  if (text.front() == '=') {
    BOWLINE_TRY_ASSIGN(out.derived, derived_of(text.substr(1)));
    return out;
  }
  if (const size_t equals = text.find("=("); equals != text.npos) {
    BOWLINE_TRY_ASSIGN(out.given, numbers_of(text.substr(equals + 1), scope));
    text = text.substr(0, equals);
  }
  for (size_t colon = text.rfind(':'); colon != text.npos; colon = text.rfind(':')) {
    const std::string_view word = text.substr(colon + 1);
    if (const auto dtype = dtype_named(word)) {
      out.dtype = dtype;
    } else if (word == "codes") {
      out.codes = true;
    } else {
      BOWLINE_TRY_ASSIGN(out.values, values_named(word));
    }
    text = text.substr(0, colon);
  }
  if (const size_t brace = text.find('{'); brace != text.npos) {
    BOWLINE_REQUIRE(text.back() == '}', "\"{}\" has no closing brace.", text);
    BOWLINE_TRY(read_index(text.substr(brace + 1, text.size() - brace - 2), scope, out));
    text = text.substr(0, brace);
  }
  if (const size_t at = text.find('@'); at != text.npos) {
    const std::vector<std::string_view> parts = split(text.substr(at + 1), '@');
    BOWLINE_REQUIRE(parts.size() == 2, "\"{}\" is not [dims]@axis@count.", text);
    BOWLINE_TRY_ASSIGN(const int64_t axis, evaluate(parts[0], scope.numbers));
    BOWLINE_TRY_ASSIGN(out.count, evaluate(parts[1], scope.numbers));
    out.counted_axis = static_cast<int>(axis);
    text = text.substr(0, at);
  }
  if (is_bracketed(text, '(', ')')) {
    BOWLINE_TRY(read_list(inside(text), scope, out));
  } else {
    BOWLINE_TRY_ASSIGN(out.shape, shape_of(text, scope));
  }
  return out;
}

Result<Attribute> attribute_of(const std::string& field, std::string_view text,
                               const Scope& scope) {
  if (is_bracketed(text, '[', ']')) {
    std::vector<GraphDim> list;
    for (const std::string_view part : split(inside(text), ',')) {
      if (is_bracketed(part, '\'', '\'')) {
        list.push_back(GraphDim(std::string(inside(part))));
      } else if (const auto it = scope.shapes.find(part); it != scope.shapes.end()) {
        for (const int64_t d : it->second.dims()) {
          list.push_back(GraphDim(d));
        }
      } else {
        BOWLINE_TRY_ASSIGN(const int64_t value, evaluate(part, scope.numbers));
        list.push_back(GraphDim(value));
      }
    }
    return Attribute(field, std::move(list));
  }
  if (const auto it = scope.shapes.find(text); it != scope.shapes.end()) {
    std::vector<GraphDim> list;
    for (const int64_t d : it->second.dims()) {
      list.push_back(GraphDim(d));
    }
    return Attribute(field, std::move(list));
  }
  if (is_bracketed(text, '(', ')')) {
    BOWLINE_TRY_ASSIGN(std::vector<double> list, numbers_of(text, scope));
    return Attribute(field, std::move(list));
  }
  if (text == "true" || text == "false") {
    return Attribute(field, text == "true");
  }
  if (is_bracketed(text, '\'', '\'')) {
    return Attribute(field, inside(text));
  }
  const Result<double> value = number(text, scope);
  // A text that is not a number is the name of an enum value.
  return value.ok() ? Attribute(field, value.value()) : Attribute(field, text);
}

Status set_option(Case& c, std::string_view name, std::string_view text, const Scope& scope) {
  if (name == "values") {
    BOWLINE_TRY_ASSIGN(c.values, values_named(text));
    return {};
  }
  if (name == "dtype") {
    const auto dtype = dtype_named(text);
    BOWLINE_REQUIRE(dtype.has_value(), "There is no dtype \"{}\".", text);
    c.dtype = *dtype;
    return {};
  }
  if (name == "encoding") {
    std::string words(text);
    std::ranges::replace(words, '+', ' ');
    BOWLINE_TRY_ASSIGN(c.encoding, parse_encoding(words));
    return {};
  }
  BOWLINE_TRY_ASSIGN(const double v, number(text, scope));
  if (name == "draw") {
    c.draw = static_cast<uint32_t>(v);
  } else if (name == "accumulate") {
    c.step.facts.accumulate = v != 0;
  } else if (name == "first") {
    c.step.facts.first_contribution = v != 0;
  } else if (name == "error") {
    c.step.facts.error = v != 0;
  } else {
    const std::span<const StepWordInfo> words = step_words(c.op);
    const auto word = std::ranges::find(words, name, &StepWordInfo::name);
    BOWLINE_REQUIRE(word != words.end(), "There is no option \"{}\".", name);
    c.step.words.push_back({word->name, v});
  }
  return {};
}

class LineReader {
 public:
  LineReader(Op op, std::string_view file, std::vector<Case>& out)
      : op_(op), file_(file), out_(out) {
    for (const BlockFormat& f : block_formats()) {
      sets_[format("formats_of_{}", f.block)].emplace_back(f.name);
    }
  }

  Status read(std::string_view line, int number);

 private:
  Status define(std::string_view line);
  Result<Choice> choice(std::string_view text, bool ranges);
  // Expands all combinations of choices[at] and the choices after it.
  Status expand(std::span<const Choice> choices, size_t at, std::vector<std::string>& taken,
                const std::function<Status(std::span<const std::string>)>& leaf);
  Status expand_variables(size_t at, Scope scope, std::string label);
  Status expand_rest(const Scope& scope, const std::string& label);
  Status add(const Scope& scope, const std::string& label, std::span<const std::string> attributes,
             std::span<const std::string> options);

  Op op_;
  std::string_view file_;
  std::vector<Case>& out_;
  std::map<std::string, std::vector<std::string>, std::less<>> sets_;
  std::string where_;
  bool refused_ = false;
  std::string refusal_;
  std::vector<Choice> variables_, attributes_, options_;
  std::vector<std::string> inputs_, expected_;
};

Status LineReader::define(std::string_view line) {
  const size_t equals = line.find('=');
  BOWLINE_REQUIRE(equals != line.npos, "A set has no \"=\".");
  BOWLINE_TRY_ASSIGN(Choice c, choice(std::string(trim(line.substr(0, equals))) + "=" +
                                          std::string(trim(line.substr(equals + 1))),
                                      true));
  sets_[c.name] = std::move(c.alternatives);
  return {};
}

Result<Choice> LineReader::choice(std::string_view text, bool ranges) {
  const size_t equals = text.find('=');
  BOWLINE_REQUIRE(equals != text.npos && equals > 0, "\"{}\" is not name=alternatives.", text);
  Choice out{std::string(text.substr(0, equals)), {}};
  for (const std::string_view part : split(text.substr(equals + 1), ',')) {
    const size_t dots = ranges ? part.find("..") : part.npos;
    if (const auto it = sets_.find(part); it != sets_.end()) {
      out.alternatives.insert(out.alternatives.end(), it->second.begin(), it->second.end());
    } else if (dots != part.npos) {
      BOWLINE_TRY_ASSIGN(const int64_t from, evaluate(part.substr(0, dots), {}));
      BOWLINE_TRY_ASSIGN(const int64_t to, evaluate(part.substr(dots + 2), {}));
      for (int64_t v = from; v <= to; ++v) {
        out.alternatives.push_back(format("{}", v));
      }
    } else {
      out.alternatives.emplace_back(part);
    }
  }
  BOWLINE_REQUIRE(!out.alternatives.empty(), "\"{}\" has no alternative.", text);
  return out;
}

Status LineReader::expand(std::span<const Choice> choices, size_t at,
                          std::vector<std::string>& taken,
                          const std::function<Status(std::span<const std::string>)>& leaf) {
  if (at == choices.size()) {
    return leaf(taken);
  }
  for (const std::string& a : choices[at].alternatives) {
    taken.push_back(a);
    BOWLINE_TRY(expand(choices, at + 1, taken, leaf));
    taken.pop_back();
  }
  return {};
}

Status LineReader::expand_variables(size_t at, Scope scope, std::string label) {
  if (at == variables_.size()) {
    return expand_rest(scope, label);
  }
  const Choice& c = variables_[at];
  for (const std::string& a : c.alternatives) {
    Scope inner = scope;
    if (a.front() == '[' || scope.shapes.contains(a)) {
      BOWLINE_TRY_ASSIGN(inner.shapes[c.name], shape_of(a, scope));
      BOWLINE_TRY(
          expand_variables(at + 1, inner, label + format(" {}={}", c.name, inner.shapes[c.name])));
    } else {
      BOWLINE_TRY_ASSIGN(inner.numbers[c.name], evaluate(a, scope.numbers));
      BOWLINE_TRY(
          expand_variables(at + 1, inner, label + format(" {}={}", c.name, inner.numbers[c.name])));
    }
  }
  return {};
}

Status LineReader::expand_rest(const Scope& scope, const std::string& label) {
  std::vector<std::string> attributes;
  return expand(attributes_, 0, attributes, [&](std::span<const std::string> a) {
    std::vector<std::string> options;
    return expand(options_, 0, options,
                  [&](std::span<const std::string> o) { return add(scope, label, a, o); });
  });
}

Status LineReader::add(const Scope& scope, const std::string& label,
                       std::span<const std::string> attributes,
                       std::span<const std::string> options) {
  Case c;
  c.op = op_;
  c.refused = refused_;
  c.refusal = refusal_;
  c.where = where_;
  c.text = where_ + label;
  for (const std::string& text : inputs_) {
    BOWLINE_TRY_ASSIGN(Input input, input_of(text, scope));
    c.inputs.push_back(std::move(input));
  }
  std::vector<Attribute> given;
  for (size_t i = 0; i < attributes.size(); ++i) {
    BOWLINE_TRY_ASSIGN(Attribute a, attribute_of(attributes_[i].name, attributes[i], scope));
    given.push_back(std::move(a));
    c.text += format(" {}={}", attributes_[i].name, attributes[i]);
  }
  std::vector<BoundDim> dims;
  for (const auto& [name, value] : scope.numbers) {
    dims.push_back({name, value});
  }
  const auto make = [&]() -> Result<Attributes> {
    BOWLINE_TRY_ASSIGN(const Attributes named, attributes_from(op_, given));
    return attributes_bound(op_, named, dims);
  };
  Result<Attributes> made = make();
  if (made.ok()) {
    c.attributes = std::move(made).value();
  } else if (refused_) {
    c.attributes_refused = made.status();
  } else {
    return made.status();
  }
  for (size_t i = 0; i < options.size(); ++i) {
    BOWLINE_TRY(set_option(c, options_[i].name, options[i], scope));
    c.text += format(" {}={}", options_[i].name, options[i]);
  }
  for (const std::string& text : expected_) {
    if (text == "_") {
      c.expected.push_back({});
      continue;
    }
    BOWLINE_TRY_ASSIGN(c.expected.emplace_back(), numbers_of(text, scope));
  }
  out_.push_back(std::move(c));
  return {};
}

Status LineReader::read(std::string_view line, int number) {
  line = trim(line.substr(0, line.find('#')));
  if (line.empty()) {
    return {};
  }
  where_ = format("{}:{}", file_, number);
  if (line.starts_with("let ")) {
    return define(line.substr(4));
  }
  refused_ = line.front() == '!';
  if (refused_) {
    line.remove_prefix(1);
  }
  expected_.clear();
  refusal_.clear();
  if (const size_t arrow = line.find("->"); arrow != line.npos) {
    const std::string_view after = trim(line.substr(arrow + 2));
    if (refused_) {
      refusal_ = after;
    } else {
      for (const std::string_view part : split(after, ' ')) {
        expected_.emplace_back(part);
      }
    }
    line = line.substr(0, arrow);
  }
  BOWLINE_REQUIRE(!refused_ || !refusal_.empty(), "The line does not say how it is refused.");
  std::vector<std::string_view> sections;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t bar = std::min(line.find('|', begin), line.size());
    sections.push_back(line.substr(begin, bar - begin));
    begin = bar + 1;
  }
  BOWLINE_REQUIRE(sections.size() >= 2 && sections.size() <= 4,
                  "A line has {} sections, not 2 to 4.", sections.size());
  sections.resize(4);
  const auto choices = [&](std::string_view section, std::vector<Choice>& to,
                           bool ranges) -> Status {
    to.clear();
    for (const std::string_view part : split(section, ' ')) {
      BOWLINE_TRY_ASSIGN(Choice c, choice(part, ranges));
      to.push_back(std::move(c));
    }
    return {};
  };
  BOWLINE_TRY(choices(sections[0], variables_, true));
  BOWLINE_TRY(choices(sections[2], attributes_, false));
  BOWLINE_TRY(choices(sections[3], options_, false));
  for (Choice& o : options_) {
    if (o.name == "seeds") {
      BOWLINE_TRY_ASSIGN(const int64_t seeds, evaluate(o.alternatives[0], {}));
      o = {"draw", {}};
      for (int64_t s = 0; s < seeds; ++s) {
        o.alternatives.push_back(format("{}", s));
      }
    }
  }
  inputs_.clear();
  for (const std::string_view part : split(sections[1], ' ')) {
    inputs_.emplace_back(part);
  }
  return expand_variables(0, {}, "");
}

}  // namespace

Result<std::vector<Case>> parse_cases(Op op, std::string_view file, std::string_view text) {
  std::vector<Case> out;
  LineReader reader(op, file, out);
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    ++number;
    BOWLINE_TRY(
        reader.read(text.substr(0, end), number).at(format("In {}, line {}.", file, number)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace bowline::conformance
