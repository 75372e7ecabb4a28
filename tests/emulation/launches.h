// The launches of plans for GPUs.
#pragma once

#include "emulation/gpt2.h"
#include "generate/decoder_model.h"

namespace bowline::test {

struct Launches {
  uint64_t count = 0;
  std::string listing;  // by record: how often it runs, and its launches
};

inline void add_records(const SegmentInfo& segment, Launches& to) {
  uint32_t runs = 1;
  for (const RecordInfo& r : segment.records) {
    if (r.kind != RecordInfo::Kind::op) {
      runs = r.kind == RecordInfo::Kind::repeat_begin ? r.count : 1;
      continue;
    }
    to.listing += format("{} x {}:", runs, r.op);
    for (const std::string& kernel : r.kernels) {
      to.listing += format(" [{}]", kernel);
    }
    to.listing += "\n";
  }
  to.count += segment.launches;
}

// A token with a context of 256.
inline Launches launches_of_a_token(Model& model, const char* device) {
  const Device planning = must(Device::open(device));
  EXPECT_OK(model.resize("cache.*", 256).status());
  EXPECT_OK(model.to(planning));
  const BoundDim length = {"kv_length", 256};
  const Session session = must(Session::create(model, planning, "decode", {&length, 1}));
  Launches out;
  for (const SegmentInfo& segment : must(session.describe()).segments) {
    if (segment.name == "forward") {
      add_records(segment, out);
    }
  }
  return out;
}

// A token of GPT-2 124M, and of a Llama of 12 layers, also with q4_0 weights and an int8 cache.
// The limits may only decrease.
inline void limit_launches_of_a_token(const char* device, uint64_t of_gpt2, uint64_t of_llama) {
  const auto limit = [&](Model& model, uint64_t most) {
    const Launches launches = launches_of_a_token(model, device);
    EXPECT_LE(launches.count, most) << launches.listing;
    EXPECT_GE(launches.count, 12u) << launches.listing;
  };
  Gpt2 gpt(kGpt2Shape);
  gpt.add_decode();
  limit(gpt.model, of_gpt2);
  DecoderShape shape = {.layers = 12,
                        .width = 768,
                        .heads = 12,
                        .kv_heads = 4,
                        .ffn = 2048,
                        .vocabulary = 32000,
                        .dtype = DType::bf16};
  Model llama = decoder_shapes(shape);
  limit(llama, of_llama);
  shape.int8_cache = true;
  Model compact = decoder_shapes(shape);
  must(quantize(compact, "q4_0", "model.layers.*_proj.weight"));
  limit(compact, of_llama);
}

}  // namespace bowline::test
