// Quantized weights: a storage is quantized once, and every use reads the same quantized values.
#include <filesystem>

#include "ties/recipes/topics.h"

namespace bowline::test {
namespace {

// E with 16 or 32 columns of integers, which are exact with a scale of 1. Row 0 rises, row 1 falls.
struct Ramp {
  const char* encoding;
  int64_t columns;
  float first;  // of row 0
  std::vector<int> bytes;
};
const Ramp kRamps[] = {
    // Neighbouring elements share a byte, the first in the low bits.
    {"int4 block 16 with zero points", 16, 0, {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE}},
    // Elements i and i + 16 share a byte. The scale precedes them.
    {"q4_0", 32, -8, {0x00, 0x3C, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55}},
};

Floats numbers_of(const Ramp& ramp) {
  Floats out;
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t i = 0; i < ramp.columns; ++i) {
      out.push_back(ramp.first + static_cast<float>(row == 0 ? i % 16 : 15 - i % 16));
    }
  }
  return out;
}

std::vector<int> first_bytes(const Model& model, size_t count) {
  const std::vector<std::byte> bytes = must(model.storage_bytes(0));
  std::vector<int> out;
  for (size_t i = 0; i < std::min(count, bytes.size()); ++i) {
    out.push_back(static_cast<int>(bytes[i]));
  }
  return out;
}

// Expects that lookup and head read the same values.
void reads(Bench& t, std::string_view when, const Model& model, const Device& device,
           const Ramp& ramp) {
  const Floats right = numbers_of(ramp);
  Floats x(static_cast<size_t>(ramp.columns));
  x[3] = 1;
  const RowAndLogits out = run_lookup_and_head(model, device, 1, x);
  t.same(format("row 1, {}", when), out.row,
         std::span(right).subspan(static_cast<size_t>(ramp.columns)));
  const float logits[] = {right[3], right[static_cast<size_t>(ramp.columns) + 3]};
  t.same(format("logits, {}", when), out.logits, logits);
  t.holds(format("the codes are where they were, {}", when),
          first_bytes(model, ramp.bytes.size()) == ramp.bytes);
}

Model encoded(Bench& t, const Ramp& ramp) {
  Model m = lookup_and_head({2, ramp.columns}, numbers_of(ramp));
  t.count("storages that are encoded", must(quantize(m, ramp.encoding, "head")).storages, 1);
  return m;
}

void one_payload(Bench& t) {
  for (const Ramp& ramp : kRamps) {
    Model m = encoded(t, ramp);
    must(m.to(t.b));
    reads(t, ramp.encoding, m, t.b, ramp);
    t.count("events", m.counters().quantized, 1);
    const std::string path = t.file("codes.bowline");
    must(m.save(path));
    t.count("payload bytes", weight_bytes(must(Model::open(path))), weight_bytes(m));
  }
}

// Every verb that moves values keeps the quantized values.
void moved_by_every_verb(Bench& t) {
  for (const Ramp& ramp : kRamps) {
    Model m = encoded(t, ramp);
    const std::string path = t.file("codes.bowline");
    must(m.to(t.a));
    reads(t, "on A", m, t.a, ramp);
    must(m.to(t.b));
    reads(t, "after to(B)", m, t.b, ramp);
    must(offload(m));
    must(m.to(t.b, "head"));
    reads(t, "after offload() and to(B) of one name", m, t.b, ramp);
    must(m.save(path));
    for (const LoadMode mode : {LoadMode::copy, LoadMode::assign}) {
      must(m.load(path, {.mode = mode}));
      must(m.to(t.b));
      reads(t, "after a load", m, t.b, ramp);
    }
    Model copy = must(m.clone());
    must(copy.to(t.b));
    reads(t, "of a clone", copy, t.b, ramp);
    Model opened = must(Model::open(path));
    must(opened.to(t.b));
    reads(t, "of the file", opened, t.b, ramp);
    t.count("events", m.counters().quantized, 1);
    t.count("events the other way", m.counters().dequantized, 0);
    // Dequantizes and quantizes again.
    must(dequantize(m));
    must(quantize(m, ramp.encoding));
    reads(t, "after a way through numbers", m, t.b, ramp);
  }
}

// The scale is 0.01. The second value of row 2 is rounded.
void q8(Bench& t) {
  Model m = lookup_and_head({3, 2}, {1, -0.5f, 0.25f, 0.75f, -1.27f, 0.633f});
  must(m.to(t.b));
  const std::string ties = m.ties();
  const QuantizeReport report = must(quantize(m, "int8", "head"));
  t.count("storages", report.storages, 1);
  t.count("bytes before", report.bytes_before, 24);
  t.count("6 codes, 2 to reach a scale, the scale", report.bytes_after, 12);
  t.count("bytes that are listed", must(m.describe()).storages[0].bytes, 12);
  t.same("ties", m.ties(), ties);
  const auto check = [&](const Device& device) {
    const RowAndLogits out = run_lookup_and_head(m, device, 2, {1, 1});
    t.number("row 2, first", out.row[0], -1.27);
    t.number("row 2, second", out.row[1], 0.63,
             {{0.633, "the head was quantized, the embedding reads a copy"}});
    t.number("logit 0", out.logits[0], 0.5);
    t.number("logit 1", out.logits[1], 1.0);
    t.number("logit 2", out.logits[2], -0.64,
             {{-0.637, "the embedding was quantized, the head was not"}});
    t.holds("codes", first_bytes(m, 6) == std::vector<int>({100, 206, 25, 75, 129, 63}));
  };
  check(t.b);
  must(m.to(t.a));
  check(t.a);
  t.count("events", m.counters().quantized, 1);
}

// Quantized values, scales and zero points leave a device together.
void nothing_stays_behind(Bench& t) {
  const uint64_t begin = t.a.counters().live_bytes;
  Model m = lookup_and_head({67, 64});
  must(quantize(m, "int8 block row with zero points"));
  const Floats right = values(m, "embed");
  must(m.to(t.a));
  t.count("bytes on A", t.a.counters().live_bytes - begin, weight_bytes(m));
  must(m.to(t.b));
  t.count("bytes left on A", t.a.counters().live_bytes - begin, 0);
  const RowAndLogits out = run_lookup_and_head(m, t.b, 66, Floats(64));
  t.numbers("row 66", out.row, std::span(right).subspan(66 * 64, 64));
  must(m.to(t.a));
  t.same("on A again", run_lookup_and_head(m, t.a, 66, Floats(64)).row,
         std::span(right).subspan(66 * 64, 64));
}

// A consumer that cannot read the encoding decides for all consumers, and the report names it.
void strictest_consumer(Bench& t) {
  Model m;
  const Parameter embedding = must(m.parameter("embed", {5, 32}, Init::normal(0.5f)));
  View transposed;
  transposed.transpose = true;
  const Parameter head = must(m.tied_parameter("head", embedding, transposed));
  GraphBuilder g(m, "forward");
  g.output("row", g.op("Embedding", {g.parameter(embedding), g.input("id", DType::i32, {1})}));
  g.output("logits", g.op("MatMul", {g.input("x", DType::f32, {1, 32}), g.parameter(head)}));
  must(g.finish());
  must(m.materialize(1));
  const std::string before = m.storages();
  const QuantizeReport rows = must(quantize(m, "int8 block row", "embed"));
  t.count("storages with a scale per row", rows.storages, 0);
  t.holds("the consumer is named: " + rows.text(),
          rows.text().find("\"head\"") != std::string::npos);
  t.same("storages", m.storages(), before);
  t.count("storages with one scale", must(quantize(m, "int8", "embed")).storages, 1);
  t.holds("the listing has it: " + m.storages(), m.storages().find("int8") != std::string::npos);
  const Floats right = values(m, "embed");
  must(m.to(t.b));
  Session session = must(Session::create(m, t.b, "forward", {}));
  std::vector<int32_t> id = {4};
  Floats x(32), row(32), logits(5);
  x[7] = 1;
  const Tensor in[] = {tensor("id", {1}, id), tensor("x", {1, 32}, x)};
  const Tensor out[] = {tensor("row", {1, 32}, row), tensor("logits", {1, 5}, logits)};
  must(session.run(in, out));
  t.numbers("row 4", row, std::span(right).subspan(4 * 32, 32));
  for (size_t r = 0; r < 5; ++r) {
    t.number(format("logit {}", r), logits[r], right[r * 32 + 7]);
  }
}

void two_consumers(Bench& t) {
  Model m;
  const Parameter w = must(m.parameter("first.w", {2, 2}, Init::zeros()));
  const Parameter other = must(m.tied_parameter("second.w", w));
  GraphBuilder g(m, "forward");
  const Value x = g.input("x", DType::f32, {1, 2});
  g.output("first", g.op("Linear", {x, g.parameter(w)}));
  g.output("second", g.op("Linear", {x, g.parameter(other)}));
  must(g.finish());
  must(m.materialize(1));
  must(set(m, "first.w", {2, 2}, {1.27f, 0.633f, -0.5f, 0.25f}));
  must(m.to(t.b));
  t.count("storages", must(quantize(m, "int8")).storages, 1);
  t.count("events", m.counters().quantized, 1);
  Session session = must(Session::create(m, t.b, "forward", {}));
  Floats in = {1, 1}, first(2), second(2);
  const Dims shape = {1, 2};
  const Tensor inputs[] = {tensor("x", shape, in)};
  const Tensor outputs[] = {tensor("first", shape, first), tensor("second", shape, second)};
  must(session.run(inputs, outputs));
  t.numbers("first", first, Floats({1.9f, -0.25f}));
  t.same("second", second, first);
}

void casts_keep_codes(Bench& t) {
  Model m = lookup_and_head({3, 2}, {1, -0.5f, 0.25f, 0.75f, -1.27f, 0.633f});
  must(quantize(m, "int8"));
  must(m.to(t.b));
  const std::vector<std::byte> before = must(m.storage_bytes(0));
  t.count("storages that are cast", must(m.cast(DType::bf16)).storages, 1);
  t.holds("codes and scale are as before", must(m.storage_bytes(0)) == before);
  t.same("what is reported", name_of(must(m.describe()).storages[0].dtype), "bf16");
  Session session = must(Session::create(m, t.b, "forward", {}));
  std::vector<int32_t> ids = {2};
  std::vector<uint16_t> x = {0x3F80, 0x3F80}, row(2), logits(3);  // 1, 1
  const Dims one = {1}, wide = {1, 2}, out = {1, 3};
  const Tensor in[] = {tensor("id", one, ids), {"x", DType::bf16, wide, x.data()}};
  const Tensor results[] = {{"row", DType::bf16, wide, row.data()},
                            {"logits", DType::bf16, out, logits.data()}};
  must(session.run(in, results));
  t.holds("-1.27 and 0.63 in bf16", row == std::vector<uint16_t>({0xBFA3, 0x3F21}));
  t.holds("0.5, 1 and -0.64 in bf16", logits == std::vector<uint16_t>({0x3F00, 0x3F80, 0xBF24}));
}

// Cases: no operand quantized, both with one encoding, both with two encodings, one operand; with
// tied and with separate storages.
void partitions(Bench& t) {
  for (const bool is_tied : {true, false}) {
    const auto make = [&] {
      Model m = lookup_and_head({64, 64});
      if (!is_tied) {
        must(m.untie("head"));
      }
      must(m.to(t.b));
      return m;
    };
    const std::string_view which = is_tied ? "tied" : "untied";
    const uint64_t plain = 64 * 64 * 4, int8 = 64 * 64 + 4, q4 = 64 * 2 * 18;
    const std::string ties = make().ties();
    const auto check = [&](std::string_view what, const Model& m, uint64_t bytes) {
      t.count(format("bytes, {}, {}", which, what), weight_bytes(m), bytes);
      t.same(format("ties, {}, {}", which, what), m.ties(), ties);
    };
    check("no side", make(), is_tied ? plain : 2 * plain);
    Model same = make();
    must(quantize(same, "int8"));
    check("both in one encoding", same, is_tied ? int8 : 2 * int8);
    Model different = make();
    must(quantize(different, "int8", "embed"));
    const Status second = quantize(different, "q4_0", "head").status();
    if (is_tied) {
      t.refused("a second encoding of one storage", second, Code::bad_argument,
                {"\"head\"", "int8", "q4_0", "dequantize()"});
    } else {
      must(second);
    }
    check("both in two encodings", different, is_tied ? int8 : int8 + q4);
    Model one = make();
    must(quantize(one, "int8", "head"));
    check("one side", one, is_tied ? int8 : plain + int8);
  }
}

void shrinks(Bench& t) {
  Model m = lookup_and_head({1000, 64});
  must(m.to(t.b));
  const uint64_t device = t.b.counters().live_bytes;
  const std::string before = t.file("f32.bowline"), after = t.file("int8.bowline");
  must(m.save(before));
  const QuantizeReport report = must(quantize(m, "int8 block row"));
  t.count("bytes before", report.bytes_before, 256000);
  t.count("bytes after", report.bytes_after, 68000);
  t.count("bytes less on B", device - t.b.counters().live_bytes, 256000 - 68000);
  must(m.save(after));
  t.count("payload bytes", weight_bytes(must(Model::open(after))), 68000);
  t.at_most("bytes of the file", std::filesystem::file_size(after), 68000 + 8192);
}

constexpr Recipe kQuantizedRecipes[] = {
    {"Q8", "measured: torchao, ONNX Runtime and MLX keep two int8 copies of a tied table",
     "one use of a shared table was quantized, or each use had its own quantized values", q8},
    {"R50", "the recipe \"Extension points in nn.Module\", its quantized weight cast",
     "a cast of a quantized weight changed the reported values, or rounded its scales",
     casts_keep_codes},
    {"R89", "pytorch/executorch PR#18360",
     "lookup and head packed their nibbles in opposite orders: two copies, 125 MB", one_payload},
    {"R93", "ggml-org/llama.cpp PR#5944, PR#5650",
     "the type of a shared table fitted only one of its uses", strictest_consumer},
    {"R97", "tensorflow PR#19894; Samsung/ONE PR#4649; openvinotoolkit/nncf PR#2467",
     "two layers shared a weight: only one got the quantized kernel, or neither", two_consumers},
    {"R106", "bitsandbytes-foundation/bitsandbytes#1332, #1527",
     "scales and tables did not move with the model", nothing_stays_behind},
    {"R107", "bitsandbytes-foundation/bitsandbytes#2078",
     "one of two ways to move a model treated quantized values as floats", moved_by_every_verb},
    {"R108", "jllllll/bitsandbytes#2", "the parameter showed the bytes of its quantized values",
     [](Bench& t) {
       Model m = lookup_and_head({100, 100});
       must(quantize(m, "int4 block row"));
       must(m.to(t.b));
       const ModelInfo info = must(m.describe());
       t.count("values of the parameter",
               static_cast<uint64_t>(Shape(info.parameters[0].shape).elements()), 10000);
       t.count("bytes of codes, and of a scale per row", info.storages[0].bytes, 5000 + 100 * 2);
       t.count("values that are read", values(m, "embed").size(), 10000);
     }},
    {"R116", "huggingface/transformers#31474",
     "quantizing the head of a tied model broke the tie: 3.40 GB instead of 3.13", shrinks},
    {"R117",
     "vllm-project/llm-compressor PR#2798, PR#2835; huggingface/transformers PR#37905; "
     "ml-explore/mlx-examples PR#566",
     "a tie was a flag that was applied again after quantization, even with one side quantized",
     partitions},
};

}  // namespace

std::span<const Recipe> recipes_of_quantized() { return kQuantizedRecipes; }

}  // namespace bowline::test
