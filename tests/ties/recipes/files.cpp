// Files: one payload per storage, and the ties in the tables.
#include <filesystem>
#include <fstream>

#include "ties/recipes/topics.h"

namespace bowline::test {
namespace {

// Returns the bytes of a file without the weights.
uint64_t beside_the_weights(const std::string& path, const Model& model) {
  return std::filesystem::file_size(path) - weight_bytes(model);
}

// Returns names, shape and bytes of a storage.
std::string text_of_row(const Model& model, uint32_t tie) {
  const ModelInfo info = must(model.describe());
  std::string out = format("{} bytes of", info.storages.at(tie).bytes);
  for (const ParameterInfo& p : info.parameters) {
    out += p.tie == tie ? " " + p.name : "";
  }
  return out;
}

// Expects that every way to load a file restores E.
void loads(Bench& t) {
  const std::string both = t.file("both.bowline"), one = t.file("one.bowline");
  {
    Seed source = lm32();
    must(set(source.model, "embed", {3, 2}, {4, 1, 2, 3, 5, 6}));
    must(source.model.save(both));
    Model half;
    must(half.parameter("head", {3, 2}, Init::zeros()));
    must(half.materialize(1));
    must(set(half, "head", {3, 2}, {4, 1, 2, 3, 5, 6}));
    must(half.save(one));
  }
  for (const std::string& path : {both, one}) {
    for (const LoadMode mode : {LoadMode::copy, LoadMode::assign}) {
      Seed s = lm32();
      must(s.model.to(t.b));
      Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
      const std::string ties = s.model.ties();
      must(s.model.load(path, {.mode = mode}));
      t.same("ties", s.model.ties(), ties);
      t.same("embed", values(s.model, "embed"), Floats({4, 1, 2, 3, 5, 6}));
      t.same("head", values(s.model, "head"), Floats({4, 1, 2, 3, 5, 6}));
      // The trainer was created before the load and reads the new values.
      t.number("the loss", loss(trainer, s), 4 * 5 + 1 * 6 + 2 * 5 + 3 * 6 + 25 + 36);
    }
  }
}

// Rows 0 and 1 are q, rows 2 and 3 are k, rows 4 and 5 are v.
void fused_rows(Bench& t) {
  Model m;
  const Parameter qkv = must(m.parameter("qkv", {6, 2}, Init::zeros()));
  for (const auto& [name, first] : {std::pair{"q", 0}, {"k", 2}, {"v", 4}}) {
    View rows;
    rows.row_start = first;
    rows.rows = 2;
    must(m.tied_parameter(name, qkv, rows));
  }
  must(m.materialize(1));
  must(m.to(t.b));
  must(set(m, "q", {2, 2}, {1, 2, 3, 4}));
  t.same("qkv", values(m, "qkv"), Floats({1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0}));
  const std::string path = t.file("qkv.bowline");
  must(m.save(path));
  Model again = must(Model::open(path));
  must(again.to(t.b));
  must(set(again, "v", {2, 2}, {5, 6, 7, 8}));
  t.same("qkv of the file", values(again, "qkv"), Floats({1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8}));
  t.count("payload bytes", weight_bytes(again), 48);
}

// Loads values under other names, and with a hook that changes them.
void hooks_of_a_load(Bench& t) {
  const std::string path = t.file("other.bowline");
  {
    Model other;
    const Parameter e = must(other.parameter("transformer.wte", {3, 2}, Init::zeros()));
    must(other.tied_parameter("lm_head", e));
    must(other.materialize(1));
    must(set(other, "lm_head", {3, 2}, {1, 0, 0, 1, 1, 1}));
    must(other.save(path));
  }
  LoadOptions o;
  o.aliases = {{"transformer.wte", "embed"}, {"lm_head", "head"}};
  for (const LoadMode mode : {LoadMode::copy, LoadMode::assign}) {
    Seed s = lm32();
    must(set(s.model, "embed", {3, 2}, Floats(6, 9)));
    must(s.model.to(t.b));
    const std::string ties = s.model.ties();
    int calls = 0;
    o.mode = mode;
    o.hook = [&](const LoadedParameter& of,
                 const Tensor& value) -> Result<std::optional<LoadedValue>> {
      ++calls;
      t.same("the name here", of.here.name, "embed");
      t.same("the name in the file", of.file.name, "transformer.wte");
      t.same("where it lies", of.storage_here.where, t.b.info().name);
      LoadedValue twice{DType::f32, value.shape, std::vector<std::byte>(24)};
      Floats numbers(6);
      std::memcpy(numbers.data(), value.data, 24);
      for (float& n : numbers) {
        n *= 2;
      }
      std::memcpy(twice.bytes.data(), numbers.data(), 24);
      return std::optional(std::move(twice));
    };
    const LoadReport report = must(s.model.load(path, o));
    t.count("calls of the hook, one per tie", static_cast<uint64_t>(calls), 1);
    t.count("storages", report.storages, 1);
    t.same("ties", s.model.ties(), ties);
    t.same("logits of 2 E", logits_of(s, t.b), Floats({4, 4, 8}));
    const std::string before = s.model.storages();
    o.hook = [](const LoadedParameter&, const Tensor&) -> Result<std::optional<LoadedValue>> {
      return Status(Code::bad_argument, "The hook refuses.");
    };
    t.refused("a hook that fails", s.model.load(path, o).status(), Code::bad_argument,
              {"The hook refuses.", "\"transformer.wte\""});
    o.hook = [](const LoadedParameter&, const Tensor&) -> Result<std::optional<LoadedValue>> {
      return std::optional(LoadedValue{DType::f32, {3, 2}, std::vector<std::byte>(20)});
    };
    t.refused("too few bytes", s.model.load(path, o).status(), Code::bad_argument, {"20 bytes"});
    o.hook = {};
    LoadOptions unknown = o;
    unknown.aliases.push_back({"wpe", "embed"});
    t.refused("an alias of nothing", s.model.load(path, unknown).status(), Code::bad_argument,
              {"\"wpe\""});
    t.same("storages", s.model.storages(), before);
    must(s.model.load(path, o));
    t.same("logits of E", logits_of(s, t.b), Floats({1, 1, 2}));
  }
}

// Creates the shapes first. A hook then stores the loaded values in another encoding.
void quantize_on_load(Bench& t) {
  const std::string path = t.file("plain.bowline");
  must(lookup_and_head({3, 2}, {1, -0.5f, 0.25f, 0.75f, -1.27f, 0.633f}).save(path));
  Model right = must(Model::open(path));
  must(quantize(right, "int8"));
  LoadOptions o;
  o.mode = LoadMode::assign;
  o.hook = [](const LoadedParameter&, const Tensor& value) -> Result<std::optional<LoadedValue>> {
    LoadedValue codes{value.dtype, value.shape, std::vector<std::byte>(24), "int8"};
    std::memcpy(codes.bytes.data(), value.data, 24);
    return std::optional(std::move(codes));
  };
  Model m = must(right.clone());
  must(dequantize(m));
  must(m.to(t.b));
  t.refused("a trainable storage",
            [&] {
              Model trainable = must(Model::open(path));
              return trainable.load(path, o).status();
            }(),
            Code::bad_argument, {"\"embed\"", "freeze()"});
  const std::string ties = m.ties(), before = m.storages();
  LoadOptions copy = o;
  copy.mode = LoadMode::copy;
  t.refused("codes for numbers", m.load(path, copy).status(), Code::bad_argument, {"int8"});
  t.same("storages", m.storages(), before);
  must(m.load(path, o));
  t.same("ties", m.ties(), ties);
  t.holds("the codes are those of quantize()",
          must(m.storage_bytes(0)) == must(right.storage_bytes(0)));
  const RowAndLogits out = run_lookup_and_head(m, t.b, 2, {1, 1});
  t.number("row 2, second", out.row[1], 0.63);
  t.number("logit 2", out.logits[2], -0.64);
  o.hook = [](const LoadedParameter&, const Tensor& value) -> Result<std::optional<LoadedValue>> {
    return std::optional(LoadedValue{value.dtype, value.shape, std::vector<std::byte>(24), "int9"});
  };
  t.refused("an encoding that there is not", m.load(path, o).status(), Code::bad_argument,
            {"\"int9\""});
}

// Replaces text in the tables of a file. Both texts have the same length.
void edit(const std::string& path, std::string_view from, std::string_view to) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const size_t at = bytes.find(from);
  require(from.size() == to.size() && at != std::string::npos &&
              bytes.find(from, at + 1) == std::string::npos,
          "The text is in the file once.");
  file.clear();
  file.seekp(static_cast<std::streamoff>(at));
  file.write(to.data(), static_cast<std::streamsize>(to.size()));
  require(file.good(), "The file is written.");
}

// Loads files whose metadata is missing or agrees with the table. The ties follow the table.
void agreeing_metadata(Bench& t) {
  const std::pair<const char*, const char*> entries[] = {
      {"license", "none"}, {"tie_word_embeddings", "true"}, {"tied_to.head", "embed"}};
  for (const auto& [key, value] : entries) {
    Seed s = lm32();
    must(s.model.set_metadata(key, value));
    const std::string path = t.file("metadata.bowline");
    must(s.model.save(path));
    s.model = must(Model::open(path));
    t.holds("embed and head are tied", must(s.model.same_storage("embed", "head")));
    t.same("the entry", s.model.metadata(key), value);
    must(s.model.to(t.b));
    Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
    step(trainer, s);
    t.number("the loss after a step", loss(trainer, s), 2.1, {{2.72, "untied"}});
    // save() writes the ties of the table.
    must(s.model.untie("head"));
    must(s.model.save(path));
    const Model untied = must(Model::open(path));
    t.holds("they are untied", !must(untied.same_storage("embed", "head")));
    t.same("the entry of an untied model", untied.metadata(key),
           key == std::string_view("license")  ? value
           : value == std::string_view("true") ? "false"
                                               : "");
  }
}

// Loads files whose metadata contradicts the table. load() fails unless the caller trusts the
// table.
void contradicting_metadata(Bench& t) {
  struct Case {
    bool tied;
    const char* written;
    const char* edited;
    const char* value;
    std::initializer_list<std::string_view> words;
  };
  const Case cases[] = {
      {true,
       "tie_word_embeddingz",
       "tie_word_embeddings",
       "false",
       {"tie_word_embeddings", "share"}},
      {false,
       "tie_word_embeddingz",
       "tie_word_embeddings",
       "true",
       {"tie_word_embeddings", "head"}},
      {false, "tied_ta.head", "tied_to.head", "embed", {"\"head\"", "\"embed\"", "storage"}},
      {true, "tied_ta.head", "tied_to.head", "lm_head", {"\"lm_head\""}},
  };
  for (const Case& c : cases) {
    Seed s = lm32();
    if (!c.tied) {
      must(s.model.untie("head"));
    }
    const std::string path = t.file("metadata.bowline"), again = t.file("again.bowline");
    must(s.model.set_metadata(c.written, c.value));
    must(s.model.save(path));
    edit(path, c.written, c.edited);
    t.refused(format("\"{}\" = \"{}\"", c.edited, c.value), Model::open(path).status(),
              Code::bad_file, c.words);
    OpenOptions o;
    o.ignore_tie_metadata = true;
    Model m = must(Model::open(path, o));
    t.same("ties are those of the table", m.ties(), s.model.ties());
    must(m.to(t.b));
    must(m.save(again));
    t.same("ties of what was saved", must(Model::open(again)).ties(), s.model.ties());
  }
}

// Three planes that are stored channels-last. A view shows them in the layout of the model.
void channels_last(Bench& t) {
  Model m;
  const Parameter stored = must(m.parameter("stored", {2, 4, 3}, Init::zeros()));
  View view;
  view.transpose = true;
  must(m.tied_parameter("w", stored, view));
  must(m.materialize(1));
  Floats logical(24);
  for (size_t i = 0; i < 24; ++i) {
    logical[i] = static_cast<float>(i);
  }
  must(m.to(t.a));
  must(set(m, "w", {2, 3, 4}, logical));
  const std::string path = t.file("channels.bowline");
  must(m.to(t.b));
  must(m.save(path));
  const Model again = must(Model::open(path));
  for (const Model* model : std::initializer_list<const Model*>{&m, &again}) {
    t.same("logical values", values(*model, "w"), logical);
    Floats stored_values = values(*model, "stored");
    stored_values.resize(6);
    t.same("first stored values", stored_values, Floats({0, 4, 8, 1, 5, 9}));
  }
}

constexpr Recipe kFilesRecipes[] = {
    {"R60", "safetensors/safetensors#98, #202, #304; NVIDIA-NeMo/Megatron-Bridge#919; trl#5150",
     "\"Some tensors share memory\": a tied model could not be saved",
     [](Bench& t) {
       Seed s = lm32();
       Model lm = tied_table(1000, 64);
       must(s.model.to(t.b));
       must(lm.to(t.b));
       const std::string small = t.file("lm32.bowline"), large = t.file("lm.bowline");
       must(s.model.save(small));
       must(lm.save(large));
       const Model again = must(Model::open(large));
       t.count("payload bytes", weight_bytes(again), 256000);
       t.at_most("other bytes of the file", beside_the_weights(large, again), 8192);
       t.same("parameters", again.parameters(), lm.parameters());
       t.same("ties", again.ties(), lm.ties());
       t.same("ties of LM32", must(Model::open(small)).ties(), s.model.ties());
     }},
    {"R62", "pytorch#188346; TransformerLensOrg/TransformerLens#1725, #1637",
     "load(assign) per name: the optimizer updated a tie twice, or one of its names was stale",
     [](Bench& t) {
       loads(t);
       fused_rows(t);
     }},
    {"R63", "huggingface/accelerate PR#2875",
     "names that the save had dropped were missing on load",
     [](Bench& t) {
       Seed s = lm32();
       const std::string path = t.file("lm32.bowline");
       must(s.model.save(path));
       Seed again = lm32();
       const LoadReport report = must(again.model.load(path));
       t.count("missing names", report.missing.size(), 0);
       t.count("unexpected names", report.unexpected.size(), 0);
       t.count("storages", report.storages, 1);
     }},
    {"I34", "measured: a state dict with two payloads for one weight is taken, the last one wins",
     "a file with two different payloads for one tie was loaded silently",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.untie("head"));
       must(set(s.model, "head", {3, 2}, {9, 9, 9, 9, 9, 9}));
       const std::string path = t.file("two.bowline");
       must(s.model.save(path));
       Seed tied = lm32();
       must(tied.model.to(t.b));
       t.refused("two payloads", tied.model.load(path).status(), Code::bad_argument,
                 {"\"embed\"", "\"head\""});
       t.same("nothing is loaded", values(tied.model, "head"), Floats({1, 0, 0, 1, 1, 1}));
     }},
    {"S10", "the recipe \"Extension points in nn.Module\", module_load",
     "a load under another name or with a transformation lost the ties", hooks_of_a_load},
    {"R66", "huggingface/transformers PR#43429; vec2text/vec2text PR#94",
     "the flag of a tie was in another part of the config: the head had random values",
     agreeing_metadata},
    {"R68", "vllm-project/vllm PR#51665; NVIDIA-NeMo/Automodel#2941",
     "the config said tied, but the file had its own head: the loader dropped the head",
     contradicting_metadata},
    {"R74", "NVIDIA/physicsnemo PR#1614",
     "bytes were sent in storage order instead of element order: permuted weights", channels_last},
    {"S12", "the recipe \"Extension points in nn.Module\", its quantization on load",
     "a hook changed a weight during load, and the change was lost if the model had only shapes",
     quantize_on_load},
    {"R67", "huggingface/transformers PR#43207, #1730, #35141",
     "resize worked per module: the head or its bias kept the old size, or got new random values",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       Session session = must(Session::create(s.model, t.b, "loss", {}));
       must(s.model.resize("embed", 4));
       must(s.model.materialize(9));
       t.same("logits", logits_of(session, s, 4), Floats({1, 1, 2, 0}));
       t.same("head", values(s.model, "head"), Floats({1, 0, 0, 1, 1, 1, 0, 0}));
       t.holds("the tie stays", must(s.model.same_storage("embed", "head")));
       must(s.model.resize("head", 3));
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
       step(trainer, s);
       t.number("the loss after a step", loss(trainer, s), 2.1, {{2.72, "untied"}});
     }},
    {"R69", "NVIDIA-NeMo/Automodel PR#2511",
     "a config said that a model is tied, but it was not: the file lost its head",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       t.count("the cost told before", must(s.model.untie_cost("head")), 24);
       t.count("the cost", must(s.model.untie("head")), 24);
       Trainer trainer = must(Trainer::create(s.model, t.b, plain_sgd(0.1f)));
       step(trainer, s);
       t.number("the loss", loss(trainer, s), 2.72, {{2.1, "still tied"}});
       const std::string path = t.file("untied.bowline");
       must(s.model.save(path));
       Seed again = lm32();
       again.model = must(Model::open(path));
       t.count("payload bytes", weight_bytes(again.model), 48);
       must(again.model.to(t.b));
       Trainer other = must(Trainer::create(again.model, t.b, plain_sgd(0.1f)));
       t.number("the loss of the file", loss(other, again), 2.72, {{2.1, "still tied"}});
     }},
    {"I32", "rows that no parameter uses any more",
     "untying and tying again left gaps, and shifted indices referred to other weights",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.parameter("last", {2}, Init::ones()));
       must(s.model.materialize(1));
       must(s.model.untie("head"));
       must(s.model.tie("head", "embed"));
       must(s.model.to(t.b));
       const std::string before = s.model.storages(), path = t.file("compact.bowline");
       const CompactReport report = must(s.model.save_compacted(path));
       t.same("the live model", s.model.storages(), before);
       Seed again = lm32();
       again.model = must(Model::open(path));
       const ModelInfo info = must(again.model.describe());
       t.count("rows of the file", info.storages.size(), 2);
       t.holds("rows are dropped", report.dropped > 0 && !report.renumbered.empty());
       for (const auto& [from, to] : report.renumbered) {
         t.same("a storage under its new number", text_of_row(again.model, to),
                text_of_row(s.model, from));
       }
       t.holds("the tie", must(again.model.same_storage("embed", "head")));
       must(again.model.to(t.b));
       t.same("logits", logits_of(again, t.b), Floats({1, 1, 2}));
     }},
    {"R73", "huggingface/transformers#12426",
     "the head had the tied weight and the model did not, so the loader missed a key",
     [](Bench& t) {
       Seed s = lm32();
       const std::string path = t.file("lm32.bowline");
       must(s.model.to(t.b));
       must(s.model.save(path));
       const Model again = must(Model::open(path));
       std::string names;
       for (const ParameterInfo& p : must(again.describe()).parameters) {
         names += p.name + "\n";
       }
       t.same("names", names, "embed\nhead\n");
     }},
    {"R76", "keras-team/keras-hub PR#1568",
     "a tie was found by its index in the variables, and a new variable shifted the index",
     [](Bench& t) {
       Seed s = lm32();
       const std::string path = t.file("grown.bowline");
       must(s.model.parameter("scale", {1}, Init::ones()));
       must(s.model.materialize(1));
       must(s.model.save(path));
       Seed again = lm32();
       again.model = must(Model::open(path));
       t.holds("the tie", must(again.model.same_storage("embed", "head")));
       must(again.model.to(t.b));
       t.same("logits", logits_of(again, t.b), Floats({1, 1, 2}));
     }},
    {"R79 R72",
     "onnxruntime#10340, transformers#8869, onnx/onnx#3278, pytorch#51343; BVLC/caffe#2375",
     "ALBERT's one block was written once per use: 44.6 MB became 341.6 MB",
     [](Bench& t) {
       Seed ut = universal(12, 64);
       must(ut.model.to(t.b));
       const std::string path = t.file("ut.bowline");
       must(ut.model.save(path));
       const Model again = must(Model::open(path));
       t.count("payload bytes", weight_bytes(again), 16384);
       t.at_most("other bytes of the file", beside_the_weights(path, again), 8192);
       const EntryPointInfo graph = must(again.describe()).entry_points.at(0);
       t.count("nodes of the graph", graph.nodes.size(), 2);
       t.count("nodes of the body", graph.nodes.at(0).body.size(), 1);
       must(again.describe());
     }},
    {"R83", "tensorflow#48027; apple/coremltools#1832; onnxruntime PR#32507",
     "each interpreter made its own copies of the weights: 139 MB, then 476 MB for eight",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.cast(DType::f16, "embed"));
       must(s.model.to(t.b));
       const uint64_t begin = t.b.counters().live_bytes;
       std::vector<Session> sessions;
       for (int i = 0; i < 8; ++i) {
         sessions.push_back(must(Session::create(s.model, t.b, "loss", {})));
         t.count("bytes of storages", sessions.back().memory().storage_bytes, 12);
       }
       t.at_most("bytes of eight sessions", t.b.counters().live_bytes - begin, 8 * 65536);
     }},
    {"R84", "alibaba/TinyNeuralNetwork#167; google-coral/edgetpu#463; Tencent/ncnn#3191, #235",
     "an export wrote a constant per use: a head on five maps wrote its weights five times",
     [](Bench& t) {
       Model m;
       const Parameter w = must(m.parameter("head.weight", {2, 1, 3, 3}, Init::normal(1)));
       GraphBuilder g(m, "forward");
       Value sum;
       for (int i = 0; i < 5; ++i) {
         const Value x = g.input(format("map{}", i), DType::f32, {1, 1, 3 + i, 3 + i});
         const Value y = g.op("ReduceSum", {g.op("Conv", {x, g.parameter(w)})});
         sum = i == 0 ? y : g.op("Add", {sum, y});
       }
       g.output("y", sum);
       must(g.finish());
       must(m.materialize(1));
       const std::string path = t.file("maps.bowline");
       must(m.save(path));
       t.count("payload bytes", weight_bytes(must(Model::open(path))), 72);
       const uint64_t begin = t.b.counters().live_bytes;
       must(m.to(t.b));
       t.count("bytes on B", t.b.counters().live_bytes - begin, 72);
       t.count("bytes of storages in the plan",
               must(Session::create(m, t.b, "forward", {})).memory().storage_bytes, 72);
     }},
    {"R88 R87", "pytorch/executorch#8121, #12804, PR#21823; NVIDIA/TensorRT#2024",
     "two entry points were lowered alone, and everything that they share was written twice",
     [](Bench& t) {
       Model m;
       std::vector<Parameter> shared;
       for (int i = 0; i < 9; ++i) {
         shared.push_back(must(m.parameter(format("w{}", i), {4}, Init::ones())));
       }
       for (const char* name : {"prefill", "decode"}) {
         const Parameter own = must(m.parameter(format("{}.own", name), {4}, Init::ones()));
         GraphBuilder g(m, name);
         Value x = g.input("x", DType::f32, {4});
         for (const Parameter& w : shared) {
           x = g.op("Mul", {x, g.parameter(w)});
         }
         g.output("y", g.op("Mul", {x, g.parameter(own)}));
         must(g.finish());
       }
       must(m.materialize(1));
       const std::string path = t.file("two.bowline");
       must(m.save(path));
       t.count("payload bytes of 11 storages", weight_bytes(must(Model::open(path))), 11 * 16);
       const uint64_t begin = t.b.counters().live_bytes;
       must(m.to(t.b));
       t.count("bytes on B", t.b.counters().live_bytes - begin, 11 * 16);
       const BoundEntryPoint entries[] = {{"prefill", {}, {}}, {"decode", {}, {}}};
       const Session session = must(Session::create(m, t.b, entries));
       t.count("bytes of storages", session.memory().storage_bytes, 11 * 16);
     }},
    {"R91", "ggml-org/llama.cpp PR#5824, PR#12451, PR#12456, PR#13328",
     "a missing key marked a tie: each architecture needed its own code, and one model was "
     "inverted",
     [](Bench& t) {
       for (const bool head_first : {false, true}) {
         Model m;
         const Parameter first =
             must(m.parameter(head_first ? "head" : "embed", {3, 2}, Init::zeros()));
         must(m.tied_parameter(head_first ? "embed" : "head", first));
         must(m.materialize(1));
         must(set(m, "head", {3, 2}, {1, 0, 0, 1, 1, 1}));
         const std::string path = t.file(head_first ? "head.bowline" : "embed.bowline");
         must(m.save(path));
         Seed s = lm32();
         must(set(s.model, "embed", {3, 2}, Floats(6, 9)));
         must(s.model.load(path));
         must(s.model.to(t.b));
         t.same("logits", logits_of(s, t.b), Floats({1, 1, 2}));
       }
     }},
    {"R92", "unslothai/unsloth PR#9929", "an alias became a copy on the device: 924 MiB more",
     [](Bench& t) {
       Seed s = lm32();
       must(s.model.to(t.b));
       Session session = must(Session::create(s.model, t.b, "loss", {}));
       t.count("predicted bytes of storages", session.memory().storage_bytes, 24);
       logits_of(session, s);
     }},
    {"R94", "sksq96/pytorch-summary#37, #201; karpathy/llama2.c#378; pytorch/torchtitan PR#3225",
     "parameters were counted once per use, or shared parameters were subtracted twice",
     [](Bench& t) {
       Model m = tied_table(1000, 64);
       must(m.to(t.b));
       uint64_t logical = 0;
       const ModelInfo info = must(m.describe());
       for (const ParameterInfo& p : info.parameters) {
         logical += static_cast<uint64_t>(Shape(p.shape).elements());
       }
       t.count("values of parameters", logical, 128000);
       t.count("values of storages", weight_bytes(m) / 4, 64000);
       t.count("bytes that the tie saves", info.ties.at(0).saved_bytes, 256000);
     }},
    {"R96", "tensorflow#40055", "equal values were taken for a tie: a bias and a beta, both zeros",
     [](Bench& t) {
       Model m;
       must(m.parameter("conv.bias", {8}, Init::zeros()));
       must(m.parameter("norm.beta", {8}, Init::zeros()));
       must(m.parameter("empty", {0}, Init::zeros()));
       must(m.parameter("also empty", {0}, Init::zeros()));
       must(m.materialize(1));
       const std::string path = t.file("zeros.bowline");
       must(m.to(t.b));
       must(m.cast(DType::bf16));
       must(m.save(path));
       const Model again = must(Model::open(path));
       for (const Model* model : std::initializer_list<const Model*>{&m, &again}) {
         t.holds("zeros are no tie", !must(model->same_storage("conv.bias", "norm.beta")));
         t.holds("nothing is no tie", !must(model->same_storage("empty", "also empty")));
       }
     }},
};

}  // namespace

std::span<const Recipe> recipes_of_files() { return kFilesRecipes; }

}  // namespace bowline::test
