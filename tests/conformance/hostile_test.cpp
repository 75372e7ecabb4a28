// Attributes with any values that the verifier of files accepts. Either inference refuses them with
// bad_argument, or the shapes are inside the limits and the kernels equal the oracle without access
// out of bounds.
#include <gtest/gtest.h>

#include <limits>

#include "conformance/suite.h"
#include "generated/attribute_fields.h"
#include "ties/test_devices.h"

namespace bowline::conformance {
namespace {

// Cases per operator. Vulkan compiles most cases anew, which takes 15 ms each.
constexpr size_t kCases = 12, kVulkanCases = 3;
constexpr int64_t kMostElements = 4096;
constexpr uint64_t kMostBytes = uint64_t{1} << 26;  // of workspace
constexpr int64_t kNumbers[] = {0, 1, 2, 3, -1, -2, 8, 65536, kMaxDim - 1, kMaxDim, -kMaxDim};
constexpr float kReals[] = {0, 1, -1, 2, 1e-30f, 1e30f, -1e30f};

// Writes value `variant` of a list of hostile values into field `field`, or into one entry of its
// list. Returns false after the last value.
class Write {
 public:
  Write(int field, size_t variant) : field_(field), variant_(variant) {}

  template <class V>
  Status operator()(const AttributeField& field, V& value) {
    if (field_-- == 0) {
      done_ = write(field, value);
    }
    return {};
  }
  bool found() const { return field_ < 0; }
  bool done() const { return done_; }
  // True if the written value is not an integer.
  bool real() const { return real_; }

 private:
  template <class V>
  bool write(const AttributeField&, V&) {
    return false;
  }
  bool write(const AttributeField&, bool& value) {
    value = !value;
    return variant_ == 0;
  }
  bool write(const AttributeField&, float& value) {
    real_ = true;
    return variant_ < std::size(kReals) && (value = kReals[variant_], true);
  }
  template <class E>
    requires std::is_enum_v<E> bool
  write(const AttributeField&, E& value) {
    value = static_cast<E>(variant_);
    return variant_ < EnumNames<E>::values.size();
  }
  template <class V>
    requires std::is_integral_v<V> bool
  write(const AttributeField&, V& value) {
    if (variant_ >= std::size(kNumbers)) {
      return false;
    }
    const int64_t number = kNumbers[variant_];
    value = static_cast<V>(std::is_unsigned_v<V> && number < 0 ? kMaxDim : number);
    return true;
  }
  // Every entry gets every value. Then the list has one entry more, one entry less, and the largest
  // possible number of entries.
  template <class V>
    requires std::is_arithmetic_v<V> bool
  write(const AttributeField& field, std::vector<V>& list) {
    constexpr size_t kValues =
        std::is_floating_point_v<V> ? std::size(kReals) : std::size(kNumbers);
    if (variant_ < list.size() * kValues) {
      V& entry = list[variant_ / kValues];
      variant_ %= kValues;
      return write(field, entry);
    }
    switch (variant_ - list.size() * kValues) {
      case 0:
        list.push_back(1);
        return list.size() <= field.most;
      case 1:
        list.resize(list.empty() ? 1 : list.size() - 1);
        return true;
      case 2:
        list.assign(std::min<size_t>(field.most, 8), 1);
        return true;
      default:
        return false;
    }
  }

  int field_;
  size_t variant_;
  bool done_ = false;
  bool real_ = false;
};

// Returns the problem of a case, or an empty text. With extreme real numbers (an eps of 1e30) an
// f32 kernel need not equal the oracle.
std::string check(Bench& bench, const Case& c, bool compared, size_t& ran) {
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    shapes.push_back(c.inputs[i].shape);
    dtypes.push_back(dtype_of_input(c, i));
  }
  const Result<Signature> made = infer(c.op, c.attributes, shapes, dtypes);
  if (!made.ok()) {
    // Valid attributes that are not implemented have their own message.
    const bool said = made.status().message().find("is not implemented") != std::string::npos;
    const Code right = said ? Code::unsupported : Code::bad_argument;
    return made.status().code() == right ? "" : made.status().message();
  }
  int64_t elements = 0;
  for (const Shape& s : made.value().shapes) {
    if (!Shape::checked(s.dims()).ok()) {
      return "an output is outside the limits";
    }
    elements += std::min(s.elements(), kMostElements);
  }
  if (elements >= kMostElements || op_def(c.op).is_view) {
    return "";
  }
  const Result<std::vector<Array>> inputs = draw_inputs(c, 0);
  if (!inputs.ok()) {
    return inputs.status().message();
  }
  const Result<Expected> expected =
      run_oracle(op_def(c.op).oracle, c.op, c.attributes, inputs.value(), c.step);
  if (!expected.ok()) {
    return expected.status().message();
  }
  const device::NodeAnswer answer = bench.query(c, inputs.value(), expected.value());
  if (!answer.reason.empty()) {
    return "";
  }
  if (answer.workspace_bytes > kMostBytes) {
    return format("the kernel asks for {} bytes", answer.workspace_bytes);
  }
  const Result<Observed> observed = bench.run(c, inputs.value(), expected.value(), {});
  ++ran;
  if (observed.ok() && !compared) {
    return "";
  }
  return observed.ok() ? compare(c, expected.value(), nullptr, observed.value()).problem
                       : observed.status().message();
}

class HostileAttributes : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Devices, HostileAttributes,
                         testing::ValuesIn(test::computing_device_names()),
                         [](const auto& p) { return test::test_name(p.param); });

TEST_P(HostileAttributes, AreRefusedOrComputed) {
  BOWLINE_NEED(test::why_test_device_missing(GetParam()));
  Bench bench(Internals::open(test::open_test_device(GetParam())));
  const size_t most = GetParam().starts_with("vulkan") ? kVulkanCases : kCases;
  size_t ran = 0, tried = 0;
  for (int i = 0; i < kOps; ++i) {
    const Op op = op_at(i);
    const std::vector<Case> cases = cases_of(op, {.quick = true}, most).value();
    for (Case c : cases) {
      const Attributes as_they_are = c.attributes;
      if (c.refused) {
        continue;
      }
      // Given values that belong together, such as a maximum and its index, fit only the attributes
      // of the file.
      const bool given =
          std::ranges::any_of(c.inputs, [](const Input& in) { return !in.given.empty(); });
      const Status all = with_attribute_table(op, [&]<class Table>(AttributeTable<Table>) {
        for (int field = 0;; ++field) {
          for (size_t variant = 0;; ++variant) {
            typename Table::NativeTableType table;
            as_they_are.as<Table>().UnPackTo(&table);
            Write write(field, variant);
            BOWLINE_TRY(visit_fields(table, write));
            if (!write.found()) {
              return Status();
            }
            if (!write.done()) {
              break;
            }
            c.attributes = Attributes::of(table);
            ++tried;
            const std::string problem = check(bench, c, !write.real() && !given, ran);
            EXPECT_EQ(problem, "")
                << name_of(op) << " " << attributes_text(op, c.attributes) << " for " << c.text;
          }
        }
      });
      EXPECT_TRUE(all.ok()) << all.message();
    }
  }
  EXPECT_GT(tried, 400 * most);
  EXPECT_GT(ran, 80 * most);
}

}  // namespace
}  // namespace bowline::conformance
