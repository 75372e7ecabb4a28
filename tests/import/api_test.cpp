// The functions of bowline_import.h: recognized formats, options that have no effect, limits, and
// damaged sources. What the readers do is tested beside their own tests.
#include <sys/stat.h>

#include <cstdlib>
#include <set>

#include "bowline_import.h"
#include "fixtures.h"
#include "peft/gguf_adapter.h"

namespace bowline::test {
namespace {

namespace fs = std::filesystem;

const std::string kGguf = BOWLINE_GGUF_DATA "/llama_f32.gguf";
const std::string kOnnx = BOWLINE_ONNX_FIXTURES "/batched.onnx";
const std::string kPeft = BOWLINE_PEFT_FIXTURES "/llama_qv";
const std::string kPeftBase = BOWLINE_PEFT_FIXTURES "/llama";

// A folder that is removed at the end.
class Place {
 public:
  Place() {
    std::string made = (fs::temp_directory_path() / "bowline_import_api_XXXXXX").string();
    EXPECT_NE(mkdtemp(made.data()), nullptr);
    path_ = made;
  }
  ~Place() { fs::remove_all(path_); }
  Place(const Place&) = delete;
  std::string path(const std::string& name = "") const { return (path_ / name).string(); }
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary).write(bytes.data(), std::ssize(bytes));
    return path(name);
  }

 private:
  fs::path path_;
};

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
void expect_refused(const Result<T>& result, Code code, std::initializer_list<const char*> parts) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(name_of(result.status().code()), name_of(code)) << result.status().message();
  for (const char* part : parts) {
    EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
  }
}

TEST(ImportFormats, AreRecognizedByFolderMarkAndName) {
  const Place place;
  EXPECT_EQ(import_format(fixture("llama")).value(), ImportFormat::hugging_face);
  EXPECT_EQ(import_format(kGguf).value(), ImportFormat::gguf);
  EXPECT_EQ(import_format(place.write("named.gguf", "x")).value(), ImportFormat::gguf);
  EXPECT_EQ(import_format(place.write("marked", "GGUF")).value(), ImportFormat::gguf);
  EXPECT_EQ(import_format(place.write("any.bin", "x")).value(), ImportFormat::onnx);
  EXPECT_EQ(name_of(ImportFormat::gguf), "GGUF");
}

TEST(ImportFormats, APathThatIsNoFileAndNoFolderIsRefused) {
  const Place place;
  ASSERT_EQ(mkfifo(place.path("pipe").c_str(), 0600), 0);
  const std::string with_nul = fixture("llama") + std::string("\0.gguf", 6);
  for (const auto& [path, code, part] :
       {std::tuple(std::string(), Code::bad_argument, "path"),
        {with_nul, Code::bad_argument, "NUL"},
        {place.path("absent"), Code::bad_file, "cannot be read"},
        {place.path("pipe"), Code::bad_file, "neither a file nor a folder"},
        {place.path("pipe/below"), Code::bad_file, "cannot be read"}}) {
    expect_refused(import_format(path), code, {part});
    expect_refused(import_model(path), code, {part});
    Model model = import_model(kPeftBase).value().model;
    expect_refused(import_adapter(model, path), code, {part});
  }
}

TEST(ImportFormats, AModelFileIsNotImportedAgain) {
  const Place place;
  const ImportedModel imported = import_model(fixture("llama")).value();
  ASSERT_FINE(imported.model.save_compacted(place.path("m.bowline")).status());
  expect_refused(import_model(place.path("m.bowline")), Code::bad_file,
                 {"already a Bowline model file", "Model::open()"});
}

// ---- models

TEST(ImportModel, TheReportOfAFolderListsAllTensors) {
  const auto imported = import_model(fixture("llama"));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const ImportReport& report = imported.value().report;
  EXPECT_EQ(report.format, ImportFormat::hugging_face);
  EXPECT_EQ(report.task, ImportTask::generate);
  EXPECT_EQ(report.tensors.size(), huggingface::read(fixture("llama")).value().tensors.size());
  EXPECT_TRUE(std::ranges::all_of(report.tensors, [](const ImportedTensor& t) {
    return t.use == ImportedTensor::Use::taken && !t.parameter.empty();
  }));
  EXPECT_TRUE(std::ranges::any_of(
      report.notes, [](const std::string& note) { return note.starts_with("The tokenizer is "); }));
}

TEST(ImportModel, AGgufFileHasTheTensorsOfItsFormat) {
  const auto imported = import_model(kGguf);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported.value().report.format, ImportFormat::gguf);
  ASSERT_FALSE(imported.value().report.tensors.empty());
  EXPECT_EQ(imported.value().report.tensors[0].stored, "F32");
}

TEST(ImportModel, OptionsChangeTheModel) {
  const auto imported = import_model(fixture("bert"), {.text = {.task = ImportTask::classify,
                                                                .labels = {"knot", "rope"},
                                                                .dtype = DType::bf16,
                                                                .seed = 7}});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const Model& model = imported.value().model;
  EXPECT_EQ(model.metadata("task"), "classify");
  const ModelInfo info = model.describe().value();
  for (const ParameterInfo& p : info.parameters) {
    EXPECT_TRUE(!p.trainable || p.dtype == DType::bf16) << p.name;
  }
}

#ifdef BOWLINE_NO_ONNX
constexpr bool kHasOnnx = false;
#else
constexpr bool kHasOnnx = true;
#endif

// Stops the import at each call of its progress, by `false` and by an exception.
TEST(ImportModel, ProgressStopsItAtEachCall) {
  std::vector<std::pair<std::string, ImportOptions>> sources = {
      {fixture("llama"), {}},
      {fixture("llama"), {.text = {.tie_equal = true}}},
      {kGguf, {}},
  };
  if (kHasOnnx) {
    sources.push_back({kOnnx, {.onnx = {.dims = {{"batch", 2}}}}});
  }
  for (auto& [path, options] : sources) {
    SCOPED_TRACE(path);
    size_t calls = 0, stop_at = SIZE_MAX;
    bool throws = false;
    std::set<std::string_view> parts;
    options.progress = [&](const ImportProgress& at) {
      EXPECT_TRUE(at.done < at.total || at.total == 0);
      parts.insert(name_of(at.part));
      const bool goes_on = ++calls <= stop_at;
      return !goes_on && throws ? throw 1 : goes_on;
    };
    ASSERT_FINE(import_model(path, options).status());
    EXPECT_EQ(parts, path == kOnnx ? (std::set<std::string_view>{"bytes", "tensors", "nodes"})
                                   : (std::set<std::string_view>{"files", "tensors"}));
    const size_t all = calls;
    for (stop_at = 0; stop_at < all; ++stop_at) {
      throws = stop_at % 2 == 1;
      calls = 0;
      const Status status = import_model(path, options).status();
      EXPECT_EQ(status.code(), Code::cancelled) << stop_at << ": " << status.message();
      EXPECT_TRUE(status.message().starts_with("The import was cancelled.")) << status.message();
      EXPECT_EQ(calls, stop_at + 1);
    }
  }
}

// The message of a failed import of `path`. Empty: it did not fail with bad_argument.
std::string refusal(const std::string& path, const ImportOptions& options) {
  const auto imported = import_model(path, options);
  return imported.status().code() == Code::bad_argument ? imported.status().message() : "";
}

TEST(ImportModel, AnOptionThatHasNoEffectIsNamed) {
  const auto text = [](TextImportOptions o) { return ImportOptions{.text = std::move(o)}; };
  const auto onnx = [](OnnxImportOptions o) { return ImportOptions{.onnx = std::move(o)}; };
  const std::tuple<std::string, ImportOptions, const char*> wrong[] = {
      {fixture("llama"), onnx({.batch_dim = "batch"}), "--batch-dim has no effect on a folder"},
      {fixture("llama"), onnx({.entry = "main"}), "--entry has no effect"},
      {kGguf, onnx({.dims = {{"batch", 1}}}), "--dim has no effect on a GGUF file"},
      {kGguf, onnx({.tie_equal = true}), "--tie-equal has no effect on a GGUF file"},
      {kOnnx, text({.dtype = DType::f16}), "--dtype has no effect on an ONNX file"},
      {kOnnx, text({.tie_equal = true}), "--tie-equal has no effect on an ONNX file"},
      {kGguf, text({.skeleton = true}), "--skeleton reads config.json in a folder"},
      {fixture("llama"), text({.pooling = "cls", .skeleton = true}),
       "--pooling has no effect on a skeleton"},
      {fixture("llama"), text({.labels = {"a", "b"}}), "--labels has no effect"},
      {fixture("llama"), text({.seed = 1}), "--seed has no effect"},
      {fixture("bert_classes"), text({.seed = 1}), "the values of all weights"},
      {fixture("bert"), text({.kv_dtype = DType::f16}), "--kv-dtype has no effect"},
      {fixture("bert_classes"), text({.matryoshka = {8}}), "--matryoshka has no effect"},
  };
  for (const auto& [path, options, part] : wrong) {
    EXPECT_NE(refusal(path, options).find(part), std::string::npos)
        << part << ": " << refusal(path, options);
  }
}

TEST(ImportModel, AValueOutOfRangeIsRefused) {
  const auto text = [](TextImportOptions o) { return ImportOptions{.text = std::move(o)}; };
  const auto onnx = [](OnnxImportOptions o) { return ImportOptions{.onnx = std::move(o)}; };
  const std::tuple<std::string, ImportOptions, const char*> wrong[] = {
      {fixture("llama"), text({.dtype = DType::i32}), "--dtype is i32"},
      {fixture("llama"), text({.kv_dtype = DType::i32}), "--kv-dtype is i32"},
      {fixture("bert"), text({.pooling = "middle"}), "--pooling is middle"},
      {fixture("bert_classes"), text({.label_smoothing = 1}), "--label-smoothing is 1"},
      {fixture("bert_classes"), text({.label_smoothing = std::nan("")}), "--label-smoothing is "},
      {kOnnx, onnx({.dims = {{"batch", 0}}}), "--dim batch=0"},
      {kOnnx, onnx({.shapes = {{"x", {-1, 4}}}}), "--shape"},
      {kOnnx, onnx({.dims = {{"batch", 2}}, .freeze = {"nothing.*"}}), "matches no parameter"},
      {kOnnx, onnx({.dims = {{"batch", 2}}, .trainable = {"nothing.*"}}), "matches no parameter"},
      {kOnnx, onnx({.given = {{"nothing", {1}}}}), "no input \"nothing\""},
  };
  for (const auto& [path, options, part] : wrong) {
    const bool reads = options.onnx.dims.empty() || options.onnx.dims[0].value > 0;
    if (path == kOnnx && reads && !kHasOnnx) {
      continue;  // the file is read before the option is found to be wrong
    }
    EXPECT_NE(refusal(path, options).find(part), std::string::npos)
        << part << ": " << import_model(path, options).status().message();
  }
}

TEST(ImportModel, DamagedSourcesAreRefused) {
  const Place place;
  fs::create_directory(place.path("empty"));
  expect_refused(import_model(place.path("empty")), Code::bad_file, {"has no config.json"});
  expect_refused(import_model(kPeft), Code::bad_file, {"PEFT adapter", "import_adapter()"});
  const std::string gguf = bytes_of(kGguf);
  expect_refused(import_model(place.write("half.gguf", gguf.substr(0, gguf.size() / 2))),
                 Code::bad_file, {"half.gguf"});
  expect_refused(import_model(place.write("empty.gguf", "")), Code::io_error, {"is empty"});
  expect_refused(import_model(place.write("text.onnx", "This is no model.")),
                 kHasOnnx ? Code::bad_file : Code::unsupported, {kHasOnnx ? "text.onnx" : "ONNX"});
  const FolderCopy folder("llama");
  const std::string weights = folder.text("model.safetensors");
  folder.write("model.safetensors", weights.substr(0, weights.size() - 4));
  expect_refused(import_model(folder.path()), Code::bad_file, {"model.safetensors"});
}

TEST(ImportModel, AFileOverItsLimitIsRefusedWithoutReadingIt) {
  const FolderCopy folder("llama");
  fs::resize_file(folder.path("config.json"), (uint64_t{64} << 20) + 1);  // sparse
  expect_refused(import_model(folder.path()), Code::bad_file,
                 {"config.json", "67108865", "more than the limit"});
  const Place place;
  const std::string large = place.write("large.onnx", "x");
  fs::resize_file(large, uint64_t{1} << 31);
  if (kHasOnnx) {
    expect_refused(import_model(large), Code::bad_file, {"2147483648", "at most"});
  }
}

TEST(ImportModel, AnOnnxFileBecomesAnEntryPoint) {
  if (!kHasOnnx) {
    expect_refused(import_model(kOnnx), Code::unsupported, {"no reader of ONNX", "protobuf"});
    return;
  }
  const auto imported =
      import_model(kOnnx, {.onnx = {.entry = "main", .dims = {{"batch", 2}}, .freeze = {"*"}}});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported.value().report.format, ImportFormat::onnx);
  EXPECT_FALSE(imported.value().report.task.has_value());
  EXPECT_TRUE(imported.value().not_finite().empty());
  const ModelInfo info = imported.value().model.describe().value();
  ASSERT_EQ(info.entry_points.size(), 1u);
  EXPECT_EQ(info.entry_points[0].name, "main");
  for (const ParameterInfo& p : info.parameters) {
    EXPECT_FALSE(p.trainable) << p.name;
  }
}

TEST(ImportModel, ValuesThatAreNotFiniteAreCountedWhenTheyAreRead) {
  const FolderCopy folder("llama");
  std::string weights = folder.text("model.safetensors");
  const float nan = std::nanf("");
  std::memcpy(weights.data() + weights.size() - sizeof nan, &nan, sizeof nan);
  folder.write("model.safetensors", weights);
  const auto imported = import_model(folder.path());
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_TRUE(imported.value().not_finite().empty());
  const Place place;
  ASSERT_FINE(imported.value().model.save_compacted(place.path("m.bowline")).status());
  const std::vector<NotFiniteTensor> found = imported.value().not_finite();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].values, 1u);
}

// ---- adapters

TEST(ImportAdapter, AFolderAndItsGgufFileAddTheSameTargets) {
  Model model = import_model(kPeftBase).value().model;
  const auto report = import_adapter(model, kPeft, "mine");
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report.value().targets.empty());
  EXPECT_EQ(adapters(model), std::vector<std::string>{"mine"});
  const Place place;
  const std::string gguf = place.path("adapter.gguf");
  ASSERT_FINE(peft::write_gguf_adapter(model, "mine", gguf).status());
  Model other = import_model(kPeftBase).value().model;
  const auto again = import_adapter(other, gguf);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again.value().targets, report.value().targets);
  EXPECT_EQ(adapters(other), std::vector<std::string>{"lora"});
  expect_refused(import_adapter(model, kPeft, "mine"), Code::bad_argument, {"mine"});
}

TEST(ImportAdapter, WhatIsNoAdapterIsRefusedAndTheModelStays) {
  Model model = import_model(kPeftBase).value().model;
  expect_refused(import_adapter(model, fixture("llama")), Code::bad_file,
                 {"is not a PEFT adapter", "adapter_config.json"});
  expect_refused(import_adapter(model, kGguf), Code::unsupported, {"not a LoRA adapter"});
  expect_refused(import_adapter(model, kOnnx), Code::bad_file, {"batched.onnx"});
  EXPECT_TRUE(adapters(model).empty());
  Model bert = import_model(fixture("bert")).value().model;
  expect_refused(import_adapter(bert, kPeft), Code::bad_file, {"another model"});
}

}  // namespace
}  // namespace bowline::test
