// Models and adapters of other formats.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <thread>

#include "world.h"

namespace c_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kTests = BOWLINE_ROOT "/tests/";
const std::string kLlama = kTests + "import/fixtures/llama";
const std::string kBert = kTests + "import/fixtures/bert";
const std::string kGguf = kTests + "gguf/data/llama_f32.gguf";
const std::string kOnnx = kTests + "onnx/fixtures/batched.onnx";
const std::string kPeft = kTests + "peft/fixtures/llama_qv";
const std::string kPeftBase = kTests + "peft/fixtures/llama";

#ifdef BOWLINE_NO_ONNX
constexpr bool kHasOnnx = false;
#else
constexpr bool kHasOnnx = true;
#endif

bowline_model* const kNoModel = reinterpret_cast<bowline_model*>(8);
bowline_buffer* const kNoBuffer = reinterpret_cast<bowline_buffer*>(8);

struct Import : ::testing::Test {
  void SetUp() override {
    if (i == nullptr) {
      GTEST_SKIP() << "The library was built without bowline::import.";
    }
    std::string made = (fs::temp_directory_path() / "bowline_c_import_XXXXXX").string();
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    folder = made;
    must(i->text_import_options_init, &text);
    must(i->onnx_import_options_init, &onnx);
    must(i->import_options_init, &options);
    options.text = &text;
    options.onnx = &onnx;
  }
  void TearDown() override {
    if (!folder.empty()) {
      fs::remove_all(folder);
    }
  }

  std::string written(const char* name, std::string_view bytes) const {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    return (folder / name).string();
  }
  // The model of a source, and its report.
  bowline_model* imported(const std::string& path, Json* said = nullptr) {
    bowline_model* model = nullptr;
    bowline_buffer* out = nullptr;
    must(i->import_model, path.c_str(), &options, &model, &out);
    const std::string report = out == nullptr ? "{}" : text_of(out);
    if (said != nullptr) {
      *said = Json::parse(report);
    }
    return model;
  }
  // What an import that fails returns. It must leave its outputs as they were.
  Outcome refused(const std::string& path) const {
    bowline_model* model = kNoModel;
    bowline_buffer* out = kNoBuffer;
    const Outcome done = call(i->import_model, path.c_str(), &options, &model, &out);
    EXPECT_NE(done.code, BOWLINE_OK) << path;
    EXPECT_EQ(model, kNoModel);
    EXPECT_EQ(out, kNoBuffer);
    return done;
  }
  Json described(bowline_model* model) const {
    bowline_buffer* out = nullptr;
    must(api()->model_describe, model, &out);
    return Json::parse(text_of(out));
  }
  Json not_finite(bowline_model* model) const {
    bowline_buffer* out = nullptr;
    must(i->model_not_finite, model, &out);
    return Json::parse(text_of(out));
  }
  Json adapters(bowline_model* model) const {
    bowline_buffer* out = nullptr;
    must(api()->model_adapters, model, &out);
    return Json::parse(text_of(out));
  }

  const bowline_import_api* i = import_api();
  fs::path folder;
  bowline_text_import_options text = sized<bowline_text_import_options>();
  bowline_onnx_import_options onnx = sized<bowline_onnx_import_options>();
  bowline_import_options options = sized<bowline_import_options>();
  bowline_bound_dim two = {sizeof(two), "batch", 2};
};

TEST_F(Import, FormatsAreRecognizedAndNamed) {
  const std::pair<std::string, int32_t> formats[] = {{kLlama, BOWLINE_IMPORT_HUGGING_FACE},
                                                     {kGguf, BOWLINE_IMPORT_GGUF},
                                                     {kOnnx, BOWLINE_IMPORT_ONNX}};
  for (const auto& [path, expected] : formats) {
    int32_t format = -7;
    must(i->import_format, path.c_str(), &format);
    EXPECT_EQ(format, expected) << path;
  }
  int32_t format = -7;
  expect_error(call(i->import_format, "/no/file", &format), BOWLINE_BAD_FILE, "cannot be read");
  expect_error(call(i->import_format, "", &format), BOWLINE_BAD_ARGUMENT, "path");
  EXPECT_EQ(format, -7);
  EXPECT_STREQ(i->import_format_name(BOWLINE_IMPORT_HUGGING_FACE), "Hugging Face");
  EXPECT_STREQ(i->import_format_name(BOWLINE_IMPORT_ONNX), "ONNX");
  EXPECT_STREQ(i->import_task_name(BOWLINE_TASK_EMBED), "embed");
  EXPECT_STREQ(i->import_part_name(BOWLINE_IMPORT_NODES), "nodes");
  for (const int32_t number : {-1, 99}) {
    EXPECT_STREQ(i->import_format_name(number), "unknown");
    EXPECT_STREQ(i->import_task_name(number), "unknown");
    EXPECT_STREQ(i->import_part_name(number), "unknown");
  }
}

TEST_F(Import, AFolderBecomesAModelLikeAnOpenedOne) {
  Json report;
  bowline_model* const model = imported(kLlama, &report);
  EXPECT_EQ(report["format"], "hugging_face");
  EXPECT_EQ(report["task"], "generate");
  ASSERT_GT(report["tensors"].size(), 10u);
  for (const Json& tensor : report["tensors"]) {
    EXPECT_EQ(tensor["use"], "taken") << tensor;
    EXPECT_EQ(tensor["stored"], "F32") << tensor;
  }
  EXPECT_FALSE(report["notes"].empty());
  EXPECT_TRUE(not_finite(model).empty());
  bowline_device* const device = open_cpu();
  must(api()->model_to, model, device, nullptr);
  bowline_generator* generator = nullptr;
  must(text_api()->generator_create, model, device, nullptr, &generator);
  must(api()->model_close, model);
  must(api()->device_close, device);
  const int32_t prompt[] = {1, 5};
  must(text_api()->generator_feed, generator, prompt, 2);
  int32_t next = -1;
  must(text_api()->generator_next, generator, &next);
  EXPECT_GE(next, 0);
  must(text_api()->generator_close, generator);
}

TEST_F(Import, OptionsAndTheReportMayBeNull) {
  bowline_model* model = nullptr;
  must(i->import_model, kGguf.c_str(), nullptr, &model, nullptr);
  EXPECT_FALSE(described(model)["parameters"].empty());
  must(api()->model_close, model);
  options.text = nullptr;
  options.onnx = nullptr;
  Json report;
  must(api()->model_close, imported(kGguf, &report));
  EXPECT_EQ(report["format"], "gguf");
  EXPECT_EQ(report["tensors"][0]["stored"], "F32");
}

TEST_F(Import, AnOnnxFileBecomesAnEntryPoint) {
  const char* const all[] = {"*"};
  onnx.entry = "main";
  onnx.dims = &two;
  onnx.dim_count = 1;
  onnx.freeze = all;
  onnx.freeze_count = 1;
  if (!kHasOnnx) {
    expect_error(refused(kOnnx), BOWLINE_UNSUPPORTED, "no reader of ONNX");
    return;
  }
  Json report;
  bowline_model* const model = imported(kOnnx, &report);
  EXPECT_EQ(report["format"], "onnx");
  EXPECT_TRUE(report["task"].is_null());
  const Json info = described(model);
  ASSERT_EQ(info["entry_points"].size(), 1u);
  EXPECT_EQ(info["entry_points"][0]["name"], "main");
  for (const Json& parameter : info["parameters"]) {
    EXPECT_EQ(parameter["trainable"], false) << parameter;
  }
  must(api()->model_close, model);
}

// ---- progress

using Tell = std::function<int32_t(const bowline_import_progress&)>;
int32_t tell(void* user, const bowline_import_progress* at) {
  return (*static_cast<const Tell*>(user))(*at);
}

TEST_F(Import, ProgressStopsItAtEachCall) {
  size_t calls = 0, stop_at = SIZE_MAX;
  bool throws = false;
  std::set<std::string> parts;
  const Tell told = [&](const bowline_import_progress& at) {
    EXPECT_EQ(at.size, sizeof(at));
    EXPECT_TRUE(at.done < at.total || at.total == 0);
    parts.insert(i->import_part_name(at.part));
    if (calls++ < stop_at) {
      return 0;
    }
    return throws ? throw std::runtime_error("no") : stop_at % 4 == 0 ? 1 : -1;
  };
  options.progress = tell;
  options.user = const_cast<Tell*>(&told);
  std::vector<std::string> sources = {kLlama, kGguf};
  if (kHasOnnx) {
    sources.push_back(kOnnx);
  }
  for (const std::string& path : sources) {
    SCOPED_TRACE(path);
    onnx.dims = path == kOnnx ? &two : nullptr;
    onnx.dim_count = path == kOnnx ? 1 : 0;
    calls = 0;
    stop_at = SIZE_MAX;
    parts.clear();
    must(api()->model_close, imported(path));
    EXPECT_EQ(parts, path == kOnnx ? (std::set<std::string>{"bytes", "tensors", "nodes"})
                                   : (std::set<std::string>{"files", "tensors"}));
    const size_t all = calls;
    for (stop_at = 0; stop_at < all; ++stop_at) {
      throws = stop_at % 2 == 1;
      calls = 0;
      expect_error(refused(path), BOWLINE_CANCELLED, "The import was cancelled.");
      EXPECT_EQ(calls, stop_at + 1);
    }
  }
}

TEST_F(Import, ACallbackMayUseOtherModels) {
  const Tell told = [&](const bowline_import_progress&) {
    bowline_model* other = nullptr;
    EXPECT_EQ(i->import_model(kLlama.c_str(), nullptr, &other, nullptr, nullptr), BOWLINE_OK);
    return api()->model_close(other, nullptr);
  };
  options.progress = tell;
  options.user = const_cast<Tell*>(&told);
  must(api()->model_close, imported(kGguf));
}

// ---- wrong arguments and files

TEST_F(Import, WrongTextOptionsAreRefused) {
  const auto refuses = [&](const char* part, const std::function<void()>& change) {
    const bowline_text_import_options before = text;
    change();
    expect_error(refused(kBert), BOWLINE_BAD_ARGUMENT, part);
    text = before;
  };
  const char* const with_null[] = {"a", nullptr};
  refuses("The task of an import has no value 4.", [&] { text.task = 4; });
  refuses("has no value -2", [&] { text.task = -2; });
  refuses("dtype", [&] { text.dtype = 99; });
  refuses("dtype", [&] { text.kv_dtype = BOWLINE_NO_DTYPE; });
  refuses("--dtype is i32", [&] { text.dtype = BOWLINE_I32; });
  refuses("--pooling is middle", [&] { text.pooling = "middle"; });
  refuses("--label-smoothing is 1", [&] {
    text.task = BOWLINE_TASK_CLASSIFY;
    text.label_smoothing = 1;
  });
  refuses("\"labels\" is NULL", [&] { text.label_count = 1; });
  refuses("\"ties\" is NULL", [&] { text.tie_count = 1; });
  refuses("There are ", [&] {
    text.ties = with_null;
    text.tie_count = SIZE_MAX;
  });
  for (const bool is_label : {true, false}) {
    refuses(is_label ? "\"labels\" is NULL" : "\"ties\" is NULL", [&] {
      (is_label ? text.labels : text.ties) = with_null;
      (is_label ? text.label_count : text.tie_count) = is_label ? 2 : 1;
    });
  }
  refuses("\"matryoshka\" is NULL", [&] { text.matryoshka_count = 1; });
  refuses("--kv-dtype has no effect", [&] { text.kv_dtype = BOWLINE_F16; });
  refuses("--seed has no effect", [&] { text.seed = 3; });
  onnx.entry = "main";
  refuses("--entry has no effect on a folder", [] {});
}

TEST_F(Import, WrongOnnxOptionsAreRefused) {
  const int64_t sizes[] = {2, 1, 8, 8};
  const double values[] = {0};
  bowline_input_shape shape = {sizeof(shape), "x", sizes, 4};
  bowline_input_values given = {sizeof(given), "labels", values, 1};
  const auto refuses = [&](const char* part, const std::function<void()>& change) {
    const bowline_onnx_import_options before = onnx;
    const auto shape_before = shape;
    const auto given_before = given;
    onnx.shapes = &shape;
    onnx.shape_count = 1;
    onnx.given = &given;
    onnx.given_count = 1;
    change();
    expect_error(refused(kOnnx), BOWLINE_BAD_ARGUMENT, part);
    onnx = before;
    shape = shape_before;
    given = given_before;
  };
  refuses("\"name of a shape\" is NULL", [&] { shape.name = nullptr; });
  refuses("\"x\" has -1 dimensions", [&] { shape.rank = -1; });
  refuses("\"shape\" is NULL", [&] { shape.shape = nullptr; });
  refuses("\"name of an input\" is NULL", [&] { given.name = nullptr; });
  refuses("\"values\" is NULL", [&] { given.values = nullptr; });
  refuses("bowline_input_shape", [&] { onnx.shapes = nullptr; });
  refuses("bowline_input_values", [&] { onnx.given = nullptr; });
  refuses("bowline_bound_dim", [&] { onnx.dim_count = 1; });
  refuses("\"trainable\" is NULL", [&] { onnx.trainable_count = 1; });
  refuses("\"freeze\" is NULL", [&] { onnx.freeze_count = 1; });
  const bowline_input_shape shapes[] = {shape, shape};
  refuses("\"shapes\" has the input \"x\" twice", [&] {
    onnx.shapes = shapes;
    onnx.shape_count = 2;
  });
  const bowline_input_values both[] = {given, given};
  refuses("\"given\" has the input \"labels\" twice", [&] {
    onnx.given = both;
    onnx.given_count = 2;
  });
  text.seed = 1;
  refuses("--seed has no effect on an ONNX file", [] {});
}

TEST_F(Import, FilesThatAreNoModelAreRefused) {
  fs::create_directory(folder / "empty");
  expect_error(refused((folder / "empty").string()), BOWLINE_BAD_FILE, "has no config.json");
  expect_error(refused(kPeft), BOWLINE_BAD_FILE, "PEFT adapter");
  expect_error(refused(decoder_path()), BOWLINE_BAD_FILE, "already a Bowline model file");
  expect_error(refused("/no/file"), BOWLINE_BAD_FILE, "cannot be read");
  expect_error(refused(written("none.gguf", "GGUFxyz")), BOWLINE_BAD_FILE, "none.gguf");
  expect_error(refused(written("text.onnx", "This is no model.")),
               kHasOnnx ? BOWLINE_BAD_FILE : BOWLINE_UNSUPPORTED, kHasOnnx ? "text.onnx" : "ONNX");
}

// ---- values that are not finite

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct NotFinite : Import {
  // A model whose last value is NaN.
  bowline_model* damaged() {
    fs::copy(kLlama, folder / "llama");
    std::string weights = bytes_of(folder / "llama/model.safetensors");
    const float nan = std::nanf("");
    std::memcpy(weights.data() + weights.size() - sizeof nan, &nan, sizeof nan);
    fs::remove(folder / "llama/model.safetensors");
    written("llama/model.safetensors", weights);
    return imported((folder / "llama").string());
  }
  const std::string saved() const { return (folder / "m.bowline").string(); }
};

TEST_F(NotFinite, ValuesAreCountedWhenTheyAreRead) {
  bowline_model* const model = damaged();
  EXPECT_TRUE(not_finite(model).empty());
  must(api()->model_save_compacted, model, saved().c_str(), nullptr);
  const Json found = not_finite(model);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["values"], 1);
  EXPECT_GT(found[0]["elements"], 1);
  EXPECT_FALSE(found[0]["tensor"].get<std::string>().empty());
  must(api()->model_close, model);
}

TEST_F(NotFinite, OnlyAnImportedModelCounts) {
  bowline_model* const model = imported(kGguf);
  bowline_model* clone = nullptr;
  must(api()->model_clone, model, &clone);
  bowline_model* const created = make_model();
  for (bowline_model* other : {clone, created}) {
    bowline_buffer* out = kNoBuffer;
    expect_error(call(i->model_not_finite, other, &out), BOWLINE_BAD_ARGUMENT,
                 "was not made by import_model()");
    EXPECT_EQ(out, kNoBuffer);
    must(api()->model_close, other);
  }
  must(api()->model_close, model);
}

// A hook of model_load() runs while the model is in use.
TEST_F(NotFinite, AnyThreadMayAskWhileTheModelIsInUse) {
  struct During {
    NotFinite* test;
    bowline_model* model;
    size_t found;
  } during = {this, damaged(), 0};
  must(api()->model_save_compacted, during.model, saved().c_str(), nullptr);
  auto load = sized<bowline_load_options>();
  must(api()->load_options_init, &load);
  load.user = &during;
  load.hook = [](void* user, const char*, const bowline_tensor*, const bowline_tensor**,
                 bowline_error**) -> bowline_code {
    auto& d = *static_cast<During*>(user);
    std::thread([&] {
      bowline_buffer* out = nullptr;
      expect_error(call(api()->model_describe, d.model, &out), BOWLINE_BAD_ARGUMENT,
                   "Another thread uses the model");
      d.found += d.test->not_finite(d.model).size();
    }).join();
    return BOWLINE_OK;
  };
  must(api()->model_load, during.model, saved().c_str(), &load, nullptr);
  EXPECT_GT(during.found, 0u);
  must(api()->model_close, during.model);
}

// ---- adapters

TEST_F(Import, AnAdapterIsAdded) {
  bowline_model* const model = imported(kPeftBase);
  bowline_buffer* out = nullptr;
  must(i->model_import_adapter, model, kPeft.c_str(), "mine", &out);
  EXPECT_FALSE(Json::parse(text_of(out))["targets"].empty());
  must(i->model_import_adapter, model, kPeft.c_str(), nullptr, nullptr);
  EXPECT_EQ(adapters(model), Json({"mine", "lora"})) << adapters(model);
  expect_error(call(i->model_import_adapter, model, kPeft.c_str(), "mine", &out),
               BOWLINE_BAD_ARGUMENT, "mine");
  must(api()->model_close, model);
}

TEST_F(Import, WhatIsNoAdapterLeavesTheModel) {
  bowline_model* const model = imported(kPeftBase);
  const Json before = described(model);
  bowline_buffer* out = kNoBuffer;
  const auto add = [&](const std::string& path) {
    return call(i->model_import_adapter, model, path.c_str(), "a", &out);
  };
  expect_error(add(kLlama), BOWLINE_BAD_FILE, "is not a PEFT adapter");
  expect_error(add(kGguf), BOWLINE_UNSUPPORTED, "not a LoRA adapter");
  expect_error(add("/no/file"), BOWLINE_BAD_FILE, "cannot be read");
  EXPECT_EQ(out, kNoBuffer);
  EXPECT_EQ(described(model), before);
  must(api()->model_close, model);
  expect_error(add(kPeft), BOWLINE_BAD_ARGUMENT, "is closed");
  expect_error(call(i->model_not_finite, model, &out), BOWLINE_BAD_ARGUMENT, "is closed");
}

}  // namespace
}  // namespace c_test
