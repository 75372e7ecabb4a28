// Writes hostile values into the attributes of every operator. The cases are generated from the
// fields of the schema, so that they cover future operators, too.
#include "core/attributes.h"

#include <cmath>
#include <limits>

#include "core/shape.h"
#include "generated/attribute_fields.h"
#include "gtest/gtest.h"
#include "model/sample_file.h"

namespace bowline {
namespace {

using test::Sample;

Status verify(Sample sample) {
  return model::VerifiedFile::verify(model::MappedFile::from_bytes(sample.bytes(), "f")).status();
}

// Returns a node whose attributes can be exchanged: the verifier of the tables accepts the node
// with the attributes of any operator.
file::NodeT& node_of(Sample& sample) { return *sample.model.graphs[0]->nodes[3]; }

// Writes one value that no operator may get into field `index`. Returns false if every value of the
// field is legal, or if the table has no field `index`.
class Damage {
 public:
  Damage(int index, int variant) : index_(index), variant_(variant) {}

  template <class V>
  Status operator()(const AttributeField& field, V& value) {
    if (index_-- == 0) {
      name_ = field.name;
      most_ = field.most;
      done_ = write(value);
    }
    return {};
  }
  bool done() const { return done_; }
  const std::string& name() const { return name_; }

 private:
  template <class V>
  bool write(V&) {
    return false;
  }
  template <class E>
    requires std::is_enum_v<E> bool
  write(E& field) {
    field = static_cast<E>(variant_ == 0 ? EnumNames<E>::values.size() : 255);
    return true;
  }
  bool write(int64_t& field) {
    field = variant_ == 0 ? kMaxDim + 1 : std::numeric_limits<int64_t>::min();
    return true;
  }
  bool write(float& field) {
    field = std::nanf("");
    return true;
  }
  bool write(std::string& field) {
    field = "\xff";
    return true;
  }
  template <class V>
    requires std::is_arithmetic_v<V> || std::is_same_v<V, std::string> bool
  write(std::vector<V>& field) {
    if (variant_ == 0 || !(std::is_same_v<V, int64_t> || std::is_same_v<V, std::string>)) {
      field.resize(most_ + 1);
      return true;
    }
    return write(field.emplace_back());
  }

  int index_;
  int variant_;
  size_t most_ = 0;
  bool done_ = false;
  std::string name_;
};

TEST(HostileAttributes, EveryFieldOfEveryOperatorIsHeldToItsKind) {
  int tried = 0;
  for (int i = 0; i < kFileOps; ++i) {
    const Op op = op_at(i);
    with_attribute_table(op, [&]<class Table>(AttributeTable<Table>) {
      for (int variant = 0; variant < 2; ++variant) {
        for (int field = 0; field < 32; ++field) {
          Sample sample = test::make_sample();
          file::NodeT& node = node_of(sample);
          typename Table::NativeTableType attributes;
          Damage damage(field, variant);
          EXPECT_TRUE(visit_fields(attributes, damage).ok());
          if (!damage.done()) {
            continue;
          }
          node.op.Reset();
          node.attribute_dims.clear();
          node.op.type = static_cast<file::Op>(op);
          node.op.value = new typename Table::NativeTableType(std::move(attributes));
          if (op == Op::Repeat) {
            continue;
          }
          const Status status = verify(std::move(sample));
          EXPECT_EQ(status.code(), Code::bad_file) << name_of(op) << " " << damage.name();
          EXPECT_NE(status.message().find(format("ttribute {} ", damage.name())), std::string::npos)
              << name_of(op) << ": " << status.message();
          ++tried;
        }
      }
      return Status();
    }).ok();
  }
  EXPECT_GE(tried, 30) << "fields of attribute tables, in two variants";
}

// Writes a value other than the default into the field that requires a feature.
class AskFor {
 public:
  explicit AskFor(std::string_view feature) : feature_(feature) {}

  template <class V>
  Status operator()(const AttributeField& field, V& value) {
    if constexpr (std::is_arithmetic_v<V>) {
      if (field.feature == feature_) {
        value = static_cast<V>(field.absent + 1);
        done_ = true;
        is_demanded_ = field.is_demanded;
      }
    }
    return {};
  }
  template <class V>
  Status operator()(const AttributeField& field, std::vector<V>& list) {
    if (field.feature == feature_) {
      list.emplace_back();
      done_ = true;
      is_demanded_ = field.is_demanded;
    }
    return {};
  }
  bool done() const { return done_; }
  bool is_demanded() const { return is_demanded_; }

 private:
  std::string_view feature_;
  bool done_ = false;
  bool is_demanded_ = false;
};

// Fields that are older than features do not name their feature in every file.
TEST(HostileAttributes, AFieldOfAFeatureStandsInFilesThatNameIt) {
  size_t tried = 0, lenient = 0;
  for (const std::string_view feature : kAttributeFeatures) {
    for (int i = 0; i < kFileOps; ++i) {
      const Op op = op_at(i);
      with_attribute_table(op, [&]<class Table>(AttributeTable<Table>) {
        typename Table::NativeTableType attributes;
        AskFor ask(feature);
        EXPECT_TRUE(visit_fields(attributes, ask).ok());
        for (const bool named : {false, true}) {
          Sample sample = test::make_sample();
          file::NodeT& node = node_of(sample);
          node.op.Reset();
          node.attribute_dims.clear();
          node.op.type = static_cast<file::Op>(op);
          node.op.value = new typename Table::NativeTableType(attributes);
          if (named) {
            sample.model.features = {std::string(feature)};
          }
          const Status status = ask.done() ? verify(std::move(sample)) : Status();
          EXPECT_EQ(status.ok(), named || !ask.is_demanded())
              << feature << ": " << status.message();
          EXPECT_EQ(status.message().find(feature) == std::string::npos, status.ok()) << feature;
        }
        tried += ask.done() ? 1 : 0;
        lenient += ask.done() && !ask.is_demanded() ? 1 : 0;
        return Status();
      }).ok();
    }
  }
  EXPECT_GE(tried, kAttributeFeatures.size());
  EXPECT_EQ(lenient, 2u) << "CrossEntropy with label_smoothing, Rope with factor";
}

// One value of each kind that a caller can give.
const Attribute::Value kKinds[] = {int64_t{1},
                                   0.5,
                                   std::string("x"),
                                   std::vector<GraphDim>{1},
                                   std::vector<double>{0.5},
                                   std::vector<std::string>{"x"}};

// The kinds of kKinds that a field accepts.
struct Takes {
  std::string_view name;
  std::vector<size_t> kinds;
};
struct Kinds {
  std::vector<Takes> fields;

  template <class V>
  Status operator()(const AttributeField& field, V&) {
    fields.push_back({field.name, kinds_of(static_cast<V*>(nullptr))});
    return {};
  }
  static std::vector<size_t> kinds_of(bool*) { return {0}; }
  static std::vector<size_t> kinds_of(float*) { return {0, 1}; }
  static std::vector<size_t> kinds_of(int64_t*) { return {0, 2}; }  // or the name of a dimension
  static std::vector<size_t> kinds_of(std::string*) { return {2}; }
  static std::vector<size_t> kinds_of(std::vector<float>*) { return {3, 4}; }
  static std::vector<size_t> kinds_of(std::vector<std::string>*) { return {5}; }
  template <class V>
    requires std::is_integral_v<V> || std::is_enum_v<V>
  static std::vector<size_t> kinds_of(V*) {
    return {0};
  }
  template <class V>
    requires std::is_integral_v<V>
  static std::vector<size_t> kinds_of(std::vector<V>*) {
    return {3};
  }
  static std::vector<size_t> kinds_of(std::vector<std::unique_ptr<file::ParameterListT>>*) {
    return {};
  }
};

TEST(BuilderAttributes, EveryFieldOfEveryOperatorTakesItsKindsAlone) {
  for (int i = 0; i < kOps; ++i) {
    const Op op = op_at(i);
    Kinds kinds;
    with_attribute_table(op, [&]<class Table>(AttributeTable<Table>) {
      typename Table::NativeTableType attributes;
      return visit_fields(attributes, kinds);
    }).ok();
    for (const Takes& field : kinds.fields) {
      for (size_t k = 0; k < std::size(kKinds); ++k) {
        Attribute a(field.name, 0);
        a.value = kKinds[k];
        const Status status = attributes_from(op, {&a, 1}).status();
        const bool taken = std::ranges::find(field.kinds, k) != field.kinds.end();
        EXPECT_EQ(status.ok(), taken) << name_of(op) << " " << field.name << " of kind " << k;
        EXPECT_TRUE(taken || status.message().find(field.name) != std::string::npos);
      }
    }
  }
}

TEST(BuilderAttributes, ValuesOutsideAreRefusedByName) {
  const auto refusal = [](Op op, const Attribute& a) {
    return attributes_from(op, {&a, 1}).status().message();
  };
  EXPECT_EQ(refusal(Op::Gelu, {"form", "sigmoid"}),
            "Attribute form has the unknown value \"sigmoid\".");
  EXPECT_EQ(refusal(Op::Gelu, {"form", 2}), "Attribute form has the unknown value 2.");
  EXPECT_EQ(refusal(Op::Gelu, {"from", 0}),
            "There is no attribute \"from\". Did you mean \"form\"?");
  EXPECT_EQ(refusal(Op::RmsNorm, {"gamma", 0}),
            "There is no attribute \"gamma\". There is \"eps\".");
  EXPECT_EQ(refusal(Op::RmsNorm, {"eps", std::nan("")}), "The attribute eps is not a number.");
  EXPECT_EQ(refusal(Op::Slice, {"length", int64_t{1} << 40}),
            "The attribute length is 1099511627776, outside -2147483647..2147483647.");
  EXPECT_EQ(refusal(Op::Slice, {"axis", int64_t{1} << 40}),
            "Attribute axis has a value of the wrong kind.");
  EXPECT_EQ(refusal(Op::Concat, {"axis", 0.5}), "Attribute axis has a value of the wrong kind.");
}

TEST(BuilderAttributes, SizesMayBeDimsAndEnumsMayBeNames) {
  const Attribute given[] = {{"start", "prefix"}, {"length", 3}};
  const Attributes slice = attributes_from(Op::Slice, given).value();
  EXPECT_EQ(attributes_text(Op::Slice, slice), "axis=0 start=prefix length=3");
  const BoundDim dims[] = {{"rows", 1}, {"prefix", 7}};
  const Attributes bound = attributes_bound(Op::Slice, slice, dims).value();
  EXPECT_EQ(attributes_text(Op::Slice, bound), "axis=0 start=7 length=3");
  EXPECT_EQ(attributes_bound(Op::Slice, slice, {dims, 1}).status().message(),
            "Dim \"prefix\" is not bound.");
  const Attribute form("form", "tanh");
  EXPECT_EQ(attributes_text(Op::Gelu, attributes_from(Op::Gelu, {&form, 1}).value()), "form=tanh");
}

}  // namespace
}  // namespace bowline
