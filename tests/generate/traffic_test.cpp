// The bytes that a generated token reads: each weight once, in its real encoding.
#include "generate/decoder_model.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

struct ReadBudget {
  const char* weights;  // a dtype, or an encoding of quantize()
  double least;         // bytes per parameter: less would mean that weights are not counted
  double most;
};
// The bytes of the encoding per parameter, and 10 percent or 0.1 for everything else.
constexpr ReadBudget kBudgets[] = {
    {"f32", 4, 4.4},      {"bf16", 2, 2.2}, {"f16", 2, 2.2}, {"int8 block row", 1, 1.2},
    {"q4_0", 0.56, 0.67},
};

struct Read {
  uint64_t bytes = 0;
  uint64_t parameters = 0;
  double per_parameter() const {
    return static_cast<double>(bytes) / static_cast<double>(parameters);
  }
};

// Plans the decoding of a model whose weights outweigh the rest, as in real models.
Read decode_of(const Device& planning, const std::string& weights) {
  DecoderShape shape{.layers = 2,
                     .width = 512,
                     .heads = 8,
                     .kv_heads = 2,
                     .ffn = 1536,
                     .vocabulary = 4096,
                     .context = 16};
  const bool is_dtype = weights == "f32" || weights == "f16" || weights == "bf16";
  shape.dtype = weights == "f16" ? DType::f16 : weights == "bf16" ? DType::bf16 : DType::f32;
  Model model = must(decoder_shapes(shape).skeleton());
  Read out;
  for (const StorageInfo& s : must(model.describe()).storages) {
    out.parameters += s.role == StorageRole::weight ? s.bytes / size_of(s.dtype) : 0;
  }
  if (!is_dtype) {
    must(quantize(model, weights));
  }
  must(model.resize("cache.*", 16));
  must(model.to(planning));
  const PlanInfo plan = must(
      must(Session::create(model, planning, "decode", std::vector<BoundDim>{{"kv_length", 16}}))
          .describe());
  double runs = 1;
  for (const RecordInfo& r : plan.segments.back().records) {
    if (r.kind != RecordInfo::Kind::op) {
      runs = r.kind == RecordInfo::Kind::repeat_begin ? r.count : 1;
    } else {
      out.bytes += static_cast<uint64_t>(runs * static_cast<double>(r.read_bytes));
    }
  }
  return out;
}

class DecodeTraffic : public testing::TestWithParam<std::string> {};

// On the CPU, the workspace of a product is scratch memory of its threads, which stays in caches.
// The software driver of Vulkan runs kernels for CPUs, so Vulkan plans for a graphics card.
std::vector<std::string> gpu_names() {
  std::vector<std::string> names = computing_device_names();
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("cuda"); });
  if (Device::open("planning:vulkan@rx7800xt").ok()) {
    names.emplace_back("vulkan@rx7800xt");
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Devices, DecodeTraffic, testing::ValuesIn(gpu_names()),
                         [](const auto& p) { return test_name(p.param); });

TEST_P(DecodeTraffic, ReadsEachWeightOnce) {
  const Device planning = must(Device::open("planning:" + GetParam()));
  for (const ReadBudget& b : kBudgets) {
    SCOPED_TRACE(b.weights);
    const Read read = decode_of(planning, b.weights);
    EXPECT_GE(read.per_parameter(), b.least);
    EXPECT_LE(read.per_parameter(), b.most);
  }
}

}  // namespace
}  // namespace bowline::test
