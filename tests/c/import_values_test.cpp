// Does an import through C make the same model as through C++, with every option?
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "bowline_import.h"
#include "world.h"

namespace c_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A report as its JSON should be.
Json json_of(const bowline::ImportReport& report) {
  static const char* const kFormats[] = {"hugging_face", "gguf", "onnx"};
  Json out;
  out["format"] = kFormats[static_cast<size_t>(report.format)];
  out["task"] = report.task ? Json(name_of(*report.task)) : Json();
  out["notes"] = report.notes;
  out["tensors"] = Json::array();
  for (const bowline::ImportedTensor& t : report.tensors) {
    out["tensors"].push_back({{"name", t.name},
                              {"stored", t.stored},
                              {"shape", t.shape},
                              {"use", name_of(t.use)},
                              {"parameter", t.parameter},
                              {"reason", t.reason}});
  }
  return out;
}

// The options of C++, and the same ones of C. The latter show the memory of the former.
struct Both {
  explicit Both(bowline::ImportOptions from) : cpp(std::move(from)) {
    const bowline::TextImportOptions& t = cpp.text;
    text.task = t.task ? static_cast<int32_t>(*t.task) : BOWLINE_NO_TASK;
    text.labels = pointers(t.labels);
    text.label_count = t.labels.size();
    text.dtype = t.dtype ? static_cast<bowline_dtype>(*t.dtype) : BOWLINE_NO_DTYPE;
    text.kv_dtype = static_cast<bowline_dtype>(t.kv_dtype);
    text.pooling = t.pooling.empty() ? nullptr : t.pooling.c_str();
    text.multi_label = t.multi_label ? 1 : 0;
    text.label_smoothing = t.label_smoothing;
    text.matryoshka = t.matryoshka.data();
    text.matryoshka_count = t.matryoshka.size();
    for (const auto& [a, b] : t.ties) {
      tied.insert(tied.end(), {a, b});
    }
    text.ties = pointers(tied);
    text.tie_count = t.ties.size();
    text.tie_equal = t.tie_equal ? 1 : 0;
    text.dropout = t.dropout ? 1 : 0;
    text.seed = t.seed;
    text.skeleton = t.skeleton ? 1 : 0;
    const bowline::OnnxImportOptions& o = cpp.onnx;
    onnx.entry = o.entry == "forward" ? nullptr : o.entry.c_str();
    for (const bowline::BoundDim& dim : o.dims) {
      dims.push_back({sizeof(bowline_bound_dim), dim.name.c_str(), dim.value});
    }
    onnx.dims = dims.data();
    onnx.dim_count = dims.size();
    for (const auto& [name, shape] : o.shapes) {
      shapes.push_back({sizeof(bowline_input_shape), name.c_str(), shape.data(),
                        static_cast<int32_t>(shape.size())});
    }
    onnx.shapes = shapes.data();
    onnx.shape_count = shapes.size();
    onnx.batch_dim = o.batch_dim.c_str();
    for (const auto& [name, values] : o.given) {
      given.push_back({sizeof(bowline_input_values), name.c_str(), values.data(), values.size()});
    }
    onnx.given = given.data();
    onnx.given_count = given.size();
    onnx.trainable = pointers(o.trainable);
    onnx.trainable_count = o.trainable.size();
    onnx.freeze = pointers(o.freeze);
    onnx.freeze_count = o.freeze.size();
    onnx.tie_equal = o.tie_equal ? 1 : 0;
    c.text = &text;
    c.onnx = &onnx;
  }
  Both(const Both&) = delete;

  const char* const* pointers(const std::vector<std::string>& texts) {
    std::vector<const char*>& out = kept.emplace_back();
    for (const std::string& item : texts) {
      out.push_back(item.c_str());
    }
    return out.data();
  }

  bowline::ImportOptions cpp;
  bowline_text_import_options text = sized<bowline_text_import_options>();
  bowline_onnx_import_options onnx = sized<bowline_onnx_import_options>();
  bowline_import_options c = sized<bowline_import_options>();
  std::vector<std::string> tied;
  std::vector<std::vector<const char*>> kept;
  std::vector<bowline_bound_dim> dims;
  std::vector<bowline_input_shape> shapes;
  std::vector<bowline_input_values> given;
};

struct ImportValues : ::testing::Test {
  void SetUp() override {
    ASSERT_NE(import_api(), nullptr);
    std::string made = (fs::temp_directory_path() / "bowline_c_import_XXXXXX").string();
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    folder = made;
  }
  void TearDown() override { fs::remove_all(folder); }

  // Imports a source both ways, and saves both models. Returns the bytes of the file, or the error
  // that both ways have.
  std::string both(const std::string& name, bowline::ImportOptions options) {
    const std::string path = name.front() == '/' ? name : BOWLINE_ROOT "/tests/" + name;
    SCOPED_TRACE(name);
    const Both o(std::move(options));
    bowline::Result<bowline::ImportedModel> expected = bowline::import_model(path, o.cpp);
    bowline_model* model = nullptr;
    bowline_buffer* report = nullptr;
    const Outcome done = call(import_api()->import_model, path.c_str(), &o.c, &model, &report);
    EXPECT_EQ(done.code, static_cast<bowline_code>(expected.status().code())) << done.message;
    EXPECT_EQ(done.message, expected.status().message());
    if (done.code != BOWLINE_OK || !expected.ok()) {
      return done.message;
    }
    EXPECT_EQ(Json::parse(text_of(report)), json_of(expected.value().report));
    const std::string a = (folder / "cpp.bowline").string(), b = (folder / "c.bowline").string();
    EXPECT_TRUE(expected.value().model.save(a).ok());
    must(api()->model_save, model, b.c_str());
    must(api()->model_close, model);
    EXPECT_TRUE(bytes_of(a) == bytes_of(b)) << "The models are not the same.";
    return bytes_of(b);
  }
  // An option that both ways follow changes the model.
  void changes(const std::string& name, const bowline::ImportOptions& options) {
    EXPECT_TRUE(both(name, options) != both(name, {})) << "The option changes nothing.";
  }

  // A copy of a model. kUp has the values of kGate.
  std::string with_equal_tensors() const {
    const fs::path copy = folder / "llama";
    fs::copy(BOWLINE_ROOT "/tests/import/fixtures/llama", copy);
    std::string bytes = bytes_of(copy / "model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const Json header = Json::parse(bytes.substr(8, length));
    const auto place = [&](const char* name, int end) {
      return 8 + length + header[name]["data_offsets"][end].get<uint64_t>();
    };
    const std::string values = bytes.substr(place(kGate, 0), place(kGate, 1) - place(kGate, 0));
    bytes.replace(place(kUp, 0), values.size(), values);
    fs::remove(copy / "model.safetensors");
    std::ofstream(copy / "model.safetensors", std::ios::binary) << bytes;
    return copy.string();
  }

  static constexpr const char* kUp = "model.layers.0.mlp.up_proj.weight";
  static constexpr const char* kGate = "model.layers.0.mlp.gate_proj.weight";
  fs::path folder;
};

using bowline::DType;
using bowline::ImportTask;

TEST_F(ImportValues, TextModelsAreTheSameWithEachOption) {
  both("import/fixtures/llama", {});
  both("gguf/data/llama_q4_k.gguf", {});
  changes("import/fixtures/llama", {.text = {.dtype = DType::bf16}});
  changes("import/fixtures/llama", {.text = {.kv_dtype = DType::f16}});
  changes("import/fixtures/gpt2", {.text = {.dropout = true}});
  changes("import/fixtures/llama", {.text = {.skeleton = true}});
  changes("import/fixtures/bert", {.text = {.pooling = "max"}});
  changes("import/fixtures/bert", {.text = {.matryoshka = {8, 16}}});
  const bowline::TextImportOptions classifier = {.task = ImportTask::classify,
                                                 .labels = {"knot", "rope"}};
  const std::string plain = both("import/fixtures/bert", {.text = classifier});
  auto more = [&](auto change) {
    bowline::TextImportOptions o = classifier;
    change(o);
    EXPECT_TRUE(both("import/fixtures/bert", {.text = o}) != plain);
  };
  more([](auto& o) { o.labels = {"rope", "knot"}; });
  more([](auto& o) { o.multi_label = true; });
  more([](auto& o) { o.label_smoothing = 0.1; });
  more([](auto& o) { o.seed = 7; });
  // The values of two tensors become equal.
  const std::string folder_of_ties = with_equal_tensors();
  changes(folder_of_ties, {.text = {.ties = {{kUp, kGate}}}});
  changes(folder_of_ties, {.text = {.tie_equal = true}});
  // The order of a pair is in the message.
  const std::string message = both("import/fixtures/llama", {.text = {.ties = {{kUp, kGate}}}});
  EXPECT_LT(message.find(kUp), message.find(kGate)) << message;
}

TEST_F(ImportValues, MissingOptionsAreTheDefaults) {
  auto text = sized<bowline_text_import_options>();
  auto onnx = sized<bowline_onnx_import_options>();
  auto none = sized<bowline_import_options>(), init = none;
  must(import_api()->text_import_options_init, &text);
  must(import_api()->onnx_import_options_init, &onnx);
  must(import_api()->import_options_init, &init);
  init.text = &text;
  init.onnx = &onnx;
  for (const char* name : {"gguf/data/llama_bf16.gguf", "import/fixtures/bert_classes"}) {
    const std::string expected = both(name, {});
    for (const bowline_import_options* options :
         {static_cast<bowline_import_options*>(nullptr), &none, &init}) {
      bowline_model* model = nullptr;
      const std::string path = std::string(BOWLINE_ROOT "/tests/") + name;
      must(import_api()->import_model, path.c_str(), options, &model, nullptr);
      const std::string file = (folder / "default.bowline").string();
      must(api()->model_save, model, file.c_str());
      must(api()->model_close, model);
      EXPECT_TRUE(bytes_of(file) == expected) << name;
    }
  }
}

#ifndef BOWLINE_NO_ONNX
TEST_F(ImportValues, OnnxModelsAreTheSameWithEachOption) {
  const bowline::OnnxImportOptions fixed = {.dims = {{"batch", 2}}};
  const std::string file = "onnx/fixtures/batched.onnx";
  const std::string plain = both(file, {.onnx = fixed});
  const auto more = [&](auto change) {
    bowline::OnnxImportOptions o = fixed;
    change(o);
    const std::string made = both(file, {.onnx = o});
    EXPECT_TRUE(made != plain);
    return made;
  };
  more([](auto& o) { o.dims[0].value = 3; });
  more([](auto& o) { o.entry = "main"; });
  more([](auto& o) { o.freeze = {"features.*"}; });
  more([](auto& o) { o.given = {{"labels", {1, 0}}}; });
  EXPECT_NE(more([](auto& o) { o.trainable = {"none.*"}; }).find("\"none.*\""), std::string::npos);
  EXPECT_TRUE(both(file, {.onnx = {.shapes = {{"x", {2, 1, 8, 8}}, {"labels", {2}}}}}) == plain);
  const std::string heads = "onnx/batch/test_heads/model.onnx";
  EXPECT_TRUE(both(heads, {.onnx = {.batch_dim = "batch"}}).starts_with("BOWLINE1"));
  EXPECT_NE(both("gguf/data/llama_f32.gguf", {.onnx = {.tie_equal = true}}).find("--tie-equal"),
            std::string::npos);
}
#endif

TEST_F(ImportValues, AdaptersAreTheSame) {
  const std::string base = BOWLINE_ROOT "/tests/peft/fixtures/llama";
  const std::string adapter = BOWLINE_ROOT "/tests/peft/fixtures/llama_qv";
  bowline::Model expected = bowline::import_model(base).value().model;
  const auto added = bowline::import_adapter(expected, adapter, "mine");
  ASSERT_TRUE(added.ok()) << added.status().message();
  bowline_model* model = nullptr;
  bowline_buffer* report = nullptr;
  must(import_api()->import_model, base.c_str(), nullptr, &model, nullptr);
  must(import_api()->model_import_adapter, model, adapter.c_str(), "mine", &report);
  EXPECT_EQ(Json::parse(text_of(report))["targets"], Json(added.value().targets));
  const std::string a = (folder / "cpp.bowline").string(), b = (folder / "c.bowline").string();
  ASSERT_TRUE(save_adapter(expected, "mine", a).ok());
  must(api()->model_save_adapter, model, "mine", b.c_str());
  must(api()->model_close, model);
  EXPECT_FALSE(bytes_of(a).empty());
  EXPECT_TRUE(bytes_of(a) == bytes_of(b));
}

}  // namespace
}  // namespace c_test
