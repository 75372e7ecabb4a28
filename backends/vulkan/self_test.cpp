#include "self_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cache_file.h"
#include "core/dtype.h"
#include "open_device.h"

namespace bowline::detail::vulkan {
namespace {

// ---- variants

struct TestedVariant {
  std::string_view name;
  bool (*is_used)(const PhysicalDevice&);
  void (*switch_off)(PhysicalDevice&);
};

template <DType kType>
bool has_workgroup_matrices(const PhysicalDevice& d) {
  return std::ranges::any_of(d.workgroup_units, [&](const WorkgroupUnit& unit) {
    return unit.type == kType && d.matrix_unit(kType) != nullptr;
  });
}

bool uses_workgroup_matrices(const PhysicalDevice& d) {
  return has_workgroup_matrices<DType::f16>(d) || has_workgroup_matrices<DType::bf16>(d);
}

// The most complex first, because it is the most likely one to fail.
constexpr TestedVariant kTestedVariants[] = {
    {"matrices of workgroups", uses_workgroup_matrices,
     [](PhysicalDevice& d) { d.workgroup_units.clear(); }},
    {"matrix units for f16",
     [](const PhysicalDevice& d) { return d.matrix_unit(DType::f16) != nullptr; },
     [](PhysicalDevice& d) { d.f16_unit = {}; }},
    {"matrix units for bf16",
     [](const PhysicalDevice& d) { return d.matrix_unit(DType::bf16) != nullptr; },
     [](PhysicalDevice& d) { d.bf16_unit = {}; }},
    {"large tiles", [](const PhysicalDevice& d) { return !d.prefers_lanes() && d.has_large_tiles; },
     [](PhysicalDevice& d) { d.has_large_tiles = false; }},
    {"large workgroups",
     [](const PhysicalDevice& d) {
       const PhysicalDevice least;
       return !d.uses_cpu_kernels() && (d.max_invocations > least.max_invocations ||
                                        d.max_shared_bytes > least.max_shared_bytes);
     },
     [](PhysicalDevice& d) {
       const PhysicalDevice least;
       d.max_invocations = least.max_invocations;
       d.max_shared_bytes = least.max_shared_bytes;
     }},
    {"kernels for CPUs", [](const PhysicalDevice& d) { return d.uses_cpu_kernels(); },
     [](PhysicalDevice& d) {
       d.runs_gpu_kernels = true;
       d.f16_unit = d.bf16_unit = {};
     }},
    {"NaN and infinity of f32", [](const PhysicalDevice& d) { return d.keeps_special_values; },
     [](PhysicalDevice& d) { d.keeps_special_values = false; }},
    {"64-bit integers", [](const PhysicalDevice& d) { return d.has_int64; },
     [](PhysicalDevice& d) {
       d.has_int64 = false;
       d.is_int64_switched_off = true;
     }},
    {"accesses of 8 bits", [](const PhysicalDevice& d) { return d.has_8bit_storage; },
     [](PhysicalDevice& d) { d.has_8bit_storage = false; }},
    {"accesses of 16 bits", [](const PhysicalDevice& d) { return d.has_16bit_storage; },
     [](PhysicalDevice& d) {
       d.has_16bit_storage = false;
       d.f16_unit = d.bf16_unit = {};
     }},
    {"buffer addresses", [](const PhysicalDevice& d) { return d.has_buffer_addresses; },
     [](PhysicalDevice& d) { d.use_descriptors(); }},
    {"required subgroup sizes",
     [](const PhysicalDevice& d) {
       return d.max_subgroup != 0 && d.works_with(d.default_subgroup);
     },
     [](PhysicalDevice& d) {
       d.min_subgroup = d.max_subgroup = 0;
       d.subgroup_size = d.default_subgroup;
       d.f16_unit = d.bf16_unit = {};
     }},
};

// ---- problems

// The elements of an operand, row-major.
struct Value {
  DType type = DType::f32;
  Shape shape;
  std::vector<double> elements;
};

double element_at(DType type, const std::byte* at) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof(T));
    return value;
  };
  switch (type) {
    case DType::f16:
      return to_f32(as(f16{}));
    case DType::bf16:
      return to_f32(as(bf16{}));
    case DType::i64:
      return static_cast<double>(as(int64_t{}));
    case DType::u8:
    case DType::boolean:
      return as(uint8_t{});
    default:
      return as(float{});
  }
}

// Rounds to the dtype, as the device does. Integers are small.
void append_element(DType type, double value, std::vector<std::byte>* out) {
  const auto whole = static_cast<int64_t>(std::isfinite(value) ? value : 0);
  const uint64_t bits = type == DType::i64 ? static_cast<uint64_t>(whole)
                                           : stored_bits(type, static_cast<float>(value));
  const size_t at = out->size();
  out->resize(at + size_of(type));
  std::memcpy(out->data() + at, &bits, size_of(type));
}

// Multiples of 1/16 from -2 to 2, without a pattern. f16 and bf16 have them exactly, and f32 every
// sum of a few hundred of their products.
Value value_of(DType type, const Shape& shape) {
  Value v{type, shape, {}};
  for (uint32_t i = 0; i < shape.elements(); ++i) {
    const uint32_t mixed = (i + 1) * 2654435761u >> 20;
    v.elements.push_back((static_cast<int>(mixed % 65) - 32) / 16.0);
  }
  return v;
}

// An operator with its operands and its result.
struct Problem {
  Op op = Op::Invalid;
  Attributes attributes;
  std::vector<Value> inputs;
  Value expected;
  double tolerance = 0;
  std::vector<Value> others = {};  // further outputs, which are not compared
  bool uses_last_candidate = false;
};

constexpr uint64_t kBetween = 64;  // operands are at its multiples

// The buffers of a problem in device memory, by slot.
class Buffers {
 public:
  explicit Buffers(OpenVulkan& device) : device_(device) {}
  ~Buffers() {
    for (const device::Buffer buffer : all_) {
      device_.free(buffer);
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  Status add(std::span<const std::byte> bytes) {
    BOWLINE_TRY_ASSIGN(const device::Buffer buffer,
                       device_.allocate(bytes.size(), device::MemoryKind::device));
    all_.push_back(buffer);
    return device_.copy_in(buffer, 0, bytes);
  }
  std::span<const device::Buffer> all() const { return all_; }

 private:
  OpenVulkan& device_;
  std::vector<device::Buffer> all_;
};

// Runs the operator. Returns the bytes of the result.
Result<std::vector<std::byte>> run(OpenVulkan& device, const PhysicalDevice& kernels,
                                   const Problem& p) {
  device::Program program;
  program.slots = device::kFirstStorageSlot;
  device::Record& record = program.records.emplace_back();
  record.op = p.op;
  record.attributes = p.attributes;
  record.type = p.inputs[0].type;
  std::vector<std::byte> arena;
  const auto pad = [&](std::byte with) {
    arena.resize((arena.size() + kBetween - 1) / kBetween * kBetween, with);
  };
  const auto place = [&](const Value& v) {
    device::Operand o;
    o.dtype = v.type;
    o.shape = v.shape;
    o.offset = arena.size();
    return o;
  };
  for (const Value& v : p.inputs) {
    record.inputs.push_back(place(v));
    for (const double e : v.elements) {
      append_element(v.type, e, &arena);
    }
    pad(std::byte{0});
  }
  constexpr std::byte kUnwritten{0x7b};
  const auto place_output = [&](const Value& v) {
    record.outputs.push_back(place(v));
    arena.resize(arena.size() + record.outputs.back().bytes(), kUnwritten);
    pad(kUnwritten);
  };
  place_output(p.expected);
  std::ranges::for_each(p.others, place_output);
  const auto query = [&] {
    return device.query({record.op, record.type, record.attributes, record.inputs, record.outputs,
                         record.candidate});
  };
  device::NodeAnswer answer = query();
  BOWLINE_REQUIRE_CODE(answer.reason.empty(), Code::unsupported, "{}", answer.reason);
  if (p.uses_last_candidate && answer.candidates != 0) {
    record.candidate = answer.candidates - 1;
    answer = query();
  }
  record.workspace.dtype = DType::u8;
  record.workspace.offset = arena.size();
  record.workspace.shape = Shape{static_cast<int64_t>(answer.workspace_bytes)};
  arena.resize(arena.size() + answer.workspace_bytes + kBetween, kUnwritten);

  Buffers buffers(device);
  const std::byte empty[kBetween] = {};
  BOWLINE_TRY(buffers.add(arena));
  BOWLINE_TRY(buffers.add(empty));  // inputs and outputs of the host
  BOWLINE_TRY(buffers.add(empty));  // the step buffer
  BOWLINE_TRY_ASSIGN(const std::unique_ptr<device::Recording> recording,
                     device.record_for(kernels, program, buffers.all()));
  device::Recording* const one[] = {recording.get()};
  BOWLINE_TRY(device.submit(one));
  BOWLINE_TRY(device.wait());
  std::vector<std::byte> out(record.outputs[0].bytes());
  BOWLINE_TRY(device.copy_out(out, buffers.all()[device::kArenaSlot], record.outputs[0].offset));
  return out;
}

// False if the build lacks the operator, or kernels for a dtype (BOWLINE_OPS).
bool is_in_build(const Problem& p) {
  return has_op(p.op) && has_dtype(p.expected.type) &&
         std::ranges::all_of(p.inputs, has_dtype, &Value::type);
}

// A sentence why the result is wrong, or an empty text.
std::string failure_of(OpenVulkan& device, const PhysicalDevice& kernels, const Problem& p) {
  if (!is_in_build(p)) {
    return {};
  }
  const Result<std::vector<std::byte>> result = run(device, kernels, p);
  if (!result.ok()) {
    return format("{} of {} fails. {}", p.op, p.inputs[0].type, result.status().message());
  }
  const Value& y = p.expected;
  for (size_t i = 0; i < y.elements.size(); ++i) {
    std::vector<std::byte> rounded;
    append_element(y.type, y.elements[i], &rounded);
    const double expected = element_at(y.type, rounded.data());
    const double found = element_at(y.type, result.value().data() + i * size_of(y.type));
    const bool is_right =
        std::isnan(expected) || std::isinf(expected)
            ? std::isnan(expected) == std::isnan(found) && (std::isnan(found) || found == expected)
            : std::abs(found - expected) <= p.tolerance;
    if (!is_right) {
      return format("Element {} of {} of {} is {} instead of {}.", i, p.op, p.inputs[0].type, found,
                    expected);
    }
  }
  return {};
}

// The product of [m, k] and [k, n], or of [m, k] and [n, k].
Problem product_of(Op op, DType type, int64_t m, int64_t n, int64_t k) {
  const bool is_linear = op == Op::Linear;
  const Value a = value_of(type, {m, k});
  const Value b = value_of(type, is_linear ? Shape{n, k} : Shape{k, n});
  Value y{type, {m, n}, {}};
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += a.elements[static_cast<size_t>(i * k + l)] *
               b.elements[static_cast<size_t>(is_linear ? j * k + l : l * n + j)];
      }
      y.elements.push_back(sum);
    }
  }
  return {op, is_linear ? Attributes() : Attributes::of(file::MatMulAttributesT{}), {a, b}, y};
}

Problem small_product(DType type) { return product_of(Op::MatMul, type, 33, 50, 40); }
// In the smallest tile. For CPUs it has the fewest rows per lane: drivers compile it in a fourth of
// the time of the default.
Problem smallest_tile() {
  Problem p = small_product(DType::f32);
  p.uses_last_candidate = true;
  return p;
}
// More than one tile of 128 x 128, with rows that vectors of 16 bytes fill.
Problem large_product(DType type) { return product_of(Op::MatMul, type, 130, 136, 40); }
// Four tiles of 128 x 256 that overlap, and several steps of their depth. Rows are vectors of 16
// bytes, and the depth divides k.
Problem product_of_workgroups(DType type) { return product_of(Op::MatMul, type, 130, 264, 128); }
// The same with tiles of 64 x 64, whose workgroups are smaller, and B along k.
Problem product_of_small_workgroups(DType type) {
  return product_of(Op::Linear, type, 70, 72, 128);
}

Problem elementwise(bool special) {
  Problem p{Op::Mul, {}, {value_of(DType::f32, {71}), value_of(DType::f32, {71})}, {}};
  std::ranges::reverse(p.inputs[1].elements);
  if (special) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    p.inputs[0].elements[5] = kInfinity;
    p.inputs[1].elements[5] = -1;
    p.inputs[0].elements[68] = std::numeric_limits<double>::quiet_NaN();
    p.inputs[0].elements[70] = kInfinity;
    p.inputs[1].elements[70] = 0;
  }
  p.expected = {DType::f32, {71}, {}};
  for (size_t i = 0; i < 71; ++i) {
    p.expected.elements.push_back(p.inputs[0].elements[i] * p.inputs[1].elements[i]);
  }
  return p;
}

// The values lie between those of f16.
Problem cast(DType from, DType to) {
  Value x = value_of(from, {71});
  for (double& e : x.elements) {
    std::vector<std::byte> bytes;
    append_element(from, from == DType::boolean ? std::abs(e) : e * 1.00073, &bytes);
    e = element_at(from, bytes.data());
  }
  file::CastAttributesT attributes;
  attributes.to = static_cast<file::DType>(to);
  return {Op::Cast, Attributes::of(attributes), {x}, {to, {71}, x.elements}};
}

Problem comparison() {
  Problem p{Op::Greater, {}, {value_of(DType::f32, {71}), value_of(DType::f32, {71})}, {}};
  std::ranges::reverse(p.inputs[1].elements);
  p.expected = {DType::boolean, {71}, {}};
  for (size_t i = 0; i < 71; ++i) {
    p.expected.elements.push_back(p.inputs[0].elements[i] > p.inputs[1].elements[i] ? 1 : 0);
  }
  return p;
}

// Sums that need the upper 32 bits.
Problem large_integers() {
  constexpr double kTwoTo32 = 4294967296;
  Problem p{Op::Add, {}, {value_of(DType::i64, {9}), value_of(DType::i64, {9})}, {}};
  p.expected = {DType::i64, {9}, {}};
  for (size_t i = 0; i < 9; ++i) {
    double& a = p.inputs[0].elements[i];
    double& b = p.inputs[1].elements[i];
    a = a * 16 * kTwoTo32 + (kTwoTo32 - 2);
    b = static_cast<double>(i) + 1;
    p.expected.elements.push_back(a + b);
  }
  return p;
}

// The sums of the rows.
Problem reduction() {
  const Value x = value_of(DType::f32, {5, 141});
  Value y{DType::f32, {5}, std::vector<double>(5)};
  for (size_t i = 0; i < x.elements.size(); ++i) {
    y.elements[i / 141] += x.elements[i];
  }
  file::ReduceAttributesT attributes;
  attributes.axes = {1};
  return {Op::ReduceSum, Attributes::of(attributes), {x}, y};
}

// Causal, with two query heads per key head.
Problem attention() {
  constexpr int64_t kQueries = 9, kHeads = 2, kDim = 16;
  const Value q = value_of(DType::f32, {1, kQueries, kHeads, kDim});
  const Value k = value_of(DType::f32, {1, kQueries, 1, kDim});
  Value v = k;
  std::ranges::reverse(v.elements);
  Value y{DType::f32, q.shape, std::vector<double>(q.elements.size())};
  for (int64_t row = 0; row < kQueries * kHeads; ++row) {
    std::vector<double> weights;
    double sum = 0;
    for (int64_t key = 0; key <= row / kHeads; ++key) {
      double score = 0;
      for (int64_t d = 0; d < kDim; ++d) {
        score += q.elements[static_cast<size_t>(row * kDim + d)] *
                 k.elements[static_cast<size_t>(key * kDim + d)];
      }
      weights.push_back(std::exp(score / 4));  // the square root of kDim
      sum += weights.back();
    }
    for (int64_t d = 0; d < kDim; ++d) {
      for (size_t key = 0; key < weights.size(); ++key) {
        y.elements[static_cast<size_t>(row * kDim + d)] +=
            weights[key] / sum * v.elements[key * kDim + static_cast<size_t>(d)];
      }
    }
  }
  file::AttentionAttributesT attributes;
  attributes.causal = true;
  constexpr double kTolerance = 1e-4;
  return {Op::Attention, Attributes::of(attributes),
          {q, k, v},     y,
          kTolerance,    {{DType::f32, {1, kHeads, kQueries}, {}}}};
}

// A product with the tiles of large products.
std::string failure_of_tiles(OpenVulkan& device, const Problem& problem) {
  PhysicalDevice large = device.physical();
  large.many_groups = 1;
  return failure_of(device, large, problem);
}

bool uses_large_tiles(const PhysicalDevice& d) { return !d.prefers_lanes() && d.has_large_tiles; }

template <DType kType>
bool has_unit(const PhysicalDevice& d) {
  return d.matrix_unit(kType) != nullptr;
}

// A problem, and which devices it tests.
struct Test {
  bool (*is_needed)(const PhysicalDevice&);
  std::string (*failure)(OpenVulkan&);
};

// The kernels for CPUs are large and slow to compile. Of these, only a product is tested.
bool has_gpu_kernels(const PhysicalDevice& d) { return !d.uses_cpu_kernels(); }

constexpr auto kAlways = [](const PhysicalDevice&) { return true; };

template <Problem (*kProblem)()>
std::string failure_of_one(OpenVulkan& device) {
  return failure_of(device, device.physical(), kProblem());
}

// Simple problems first: their failures name the variant of which later ones would fail, too.
constexpr Test kTests[] = {
    {kAlways,
     [](OpenVulkan& d) {
       return failure_of(d, d.physical(), elementwise(d.physical().keeps_special_values));
     }},
    {kAlways, failure_of_one<[] { return cast(DType::f32, DType::f16); }>},
    {kAlways, failure_of_one<[] { return cast(DType::f16, DType::f32); }>},
    {kAlways, failure_of_one<comparison>},
    {kAlways, failure_of_one<[] { return cast(DType::boolean, DType::f32); }>},
    {[](const PhysicalDevice& d) { return d.has_int64; }, failure_of_one<large_integers>},
    {kAlways, failure_of_one<reduction>},
    {kAlways, failure_of_one<smallest_tile>},
    {uses_large_tiles,
     [](OpenVulkan& d) { return failure_of_tiles(d, large_product(DType::f32)); }},
    {has_gpu_kernels, failure_of_one<[] { return product_of(Op::Linear, DType::f32, 2, 9, 72); }>},
    {has_gpu_kernels, failure_of_one<attention>},
    {has_unit<DType::f16>, failure_of_one<[] { return small_product(DType::f16); }>},
    {has_unit<DType::bf16>, failure_of_one<[] { return small_product(DType::bf16); }>},
    {[](const PhysicalDevice& d) { return has_unit<DType::f16>(d) && uses_large_tiles(d); },
     [](OpenVulkan& d) { return failure_of_tiles(d, large_product(DType::f16)); }},
    {[](const PhysicalDevice& d) { return has_unit<DType::bf16>(d) && uses_large_tiles(d); },
     [](OpenVulkan& d) { return failure_of_tiles(d, large_product(DType::bf16)); }},
    {has_workgroup_matrices<DType::f16>,
     [](OpenVulkan& d) { return failure_of_tiles(d, product_of_workgroups(DType::f16)); }},
    {has_workgroup_matrices<DType::bf16>,
     [](OpenVulkan& d) { return failure_of_tiles(d, product_of_workgroups(DType::bf16)); }},
    {has_workgroup_matrices<DType::f16>,
     [](OpenVulkan& d) { return failure_of_tiles(d, product_of_small_workgroups(DType::f16)); }},
    {has_workgroup_matrices<DType::bf16>,
     [](OpenVulkan& d) { return failure_of_tiles(d, product_of_small_workgroups(DType::bf16)); }},
};

// ---- the stored result

// On what the result depends, apart from the driver and the shaders.
std::string key_text(const PhysicalDevice& d) {
  std::string text = format("{} {} {} {}", version(), std::string_view(d.properties.deviceName),
                            d.driver, d.properties.deviceID);
  for (const uint32_t number :
       {d.vendor(), d.default_subgroup, d.min_subgroup, d.max_subgroup, d.max_invocations,
        d.max_shared_bytes, d.many_groups, d.least_part, d.f16_unit.m, d.f16_unit.n, d.f16_unit.k,
        d.bf16_unit.m, d.bf16_unit.n, d.bf16_unit.k, d.max_matrix_side, d.reserved_shared_bytes}) {
    text += format(" {}", number);
  }
  for (const WorkgroupUnit& unit : d.workgroup_units) {
    text += format(" {} {} {} {} {}", unit.type, unit.invocations, unit.multiple.m, unit.multiple.n,
                   unit.multiple.k);
  }
  for (const bool has :
       {d.has_buffer_addresses, d.has_int64, d.keeps_special_values, d.has_16bit_storage,
        d.has_8bit_storage, d.has_matrix_hardware, d.runs_gpu_kernels}) {
    text += has ? '1' : '0';
  }
  return text;
}

std::string result_path(const std::string& folder, const PhysicalDevice& device) {
  const std::string text = key_text(device);
  return cache_path(folder, hash_bytes(std::as_bytes(std::span(text)), cache_key(device)), ".test");
}

// A result is a line per variant, after this line.
constexpr std::string_view kFirstLine = "switched off:\n";

}  // namespace

std::vector<std::vector<std::string_view>> suspects(const PhysicalDevice& device) {
  std::vector<std::string_view> all;
  for (const TestedVariant& v : kTestedVariants) {
    if (v.is_used(device)) {
      all.push_back(v.name);
    }
  }
  std::vector<std::vector<std::string_view>> sets;
  for (const std::string_view name : all) {
    sets.push_back({name});
  }
  sets.push_back(all);
  return sets;
}

void switch_off(std::string_view variant, PhysicalDevice* device) {
  const auto* const found = std::ranges::find(kTestedVariants, variant, &TestedVariant::name);
  if (found != std::end(kTestedVariants)) {
    found->switch_off(*device);
    device->variants += format("{}without {}", device->variants.empty() ? "" : ", ", variant);
  }
}

std::optional<TestFailure> first_failure(OpenVulkan& device) {
  for (size_t i = 0; i < std::size(kTests); ++i) {
    if (kTests[i].is_needed(device.physical())) {
      if (std::string what = kTests[i].failure(device); !what.empty()) {
        return TestFailure{i, std::move(what)};
      }
    }
  }
  return {};
}

std::optional<std::vector<SwitchedOff>> read_self_test(const std::string& folder,
                                                       const PhysicalDevice& device) {
  if (folder.empty()) {
    return {};
  }
  const std::vector<std::byte> bytes = read_cache(result_path(folder, device));
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kFirstLine)) {
    return {};
  }
  text.remove_prefix(kFirstLine.size());
  std::vector<SwitchedOff> result;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const size_t tab = line.find('\t');
    if (tab == line.npos) {
      return {};
    }
    result.push_back({std::string(line.substr(0, tab)), std::string(line.substr(tab + 1))});
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return result;
}

void save_self_test(const std::string& folder, const PhysicalDevice& device,
                    const std::vector<SwitchedOff>& result) {
  if (folder.empty()) {
    return;
  }
  std::string text(kFirstLine);
  for (const SwitchedOff& off : result) {
    std::string reason = off.reason;
    std::ranges::replace(reason, '\n', ' ');
    text += format("{}\t{}\n", off.variant, reason);
  }
  (void)write_cache(result_path(folder, device), std::as_bytes(std::span(text)));
}

}  // namespace bowline::detail::vulkan
