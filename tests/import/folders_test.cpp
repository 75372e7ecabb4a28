// Import of Hugging Face folders: taken, tied and dropped tensors, with the bits of the source, and
// errors in damaged folders.
#include "fixtures.h"
#include "source/numbers.h"

namespace bowline::test {
namespace {

using import::Built;
using Use = ImportedTensor::Use;

std::map<std::string, ImportedTensor> by_name(const Built& built) {
  std::map<std::string, ImportedTensor> out;
  for (const ImportedTensor& t : built.tensors) {
    out[t.name] = t;
  }
  return out;
}

std::vector<std::byte> value_of(const Model& model, const std::string& name) {
  const auto info = model.describe();
  EXPECT_TRUE(info.ok());
  for (const ParameterInfo& p : info.value().parameters) {
    if (p.name == name) {
      std::vector<std::byte> out(info.value().storages[p.tie].bytes);
      const Status got = model.get_value(name, {name, p.dtype, p.shape, out.data()});
      EXPECT_TRUE(got.ok()) << got.message();
      return out;
    }
  }
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

bool has_note(const Built& built, const std::string& part) {
  return std::ranges::any_of(
      built.notes, [&](const std::string& n) { return n.find(part) != std::string::npos; });
}

void expect_refused(const Result<Built>& built, Code code,
                    std::initializer_list<const char*> parts) {
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().code(), code) << built.status().message();
  for (const char* part : parts) {
    EXPECT_NE(built.status().message().find(part), std::string::npos) << built.status().message();
  }
}

// ---- weights and the Repeat

class Folders : public testing::TestWithParam<const char*> {};

TEST_P(Folders, WeightsHaveTheBitsOfTheSource) {
  const auto source = huggingface::read(fixture(GetParam()));
  ASSERT_TRUE(source.ok()) << source.status().message();
  auto built = build_model(source.value(), {});
  ASSERT_TRUE(built.ok()) << built.status().message();
  const auto reports = by_name(built.value());
  ASSERT_EQ(reports.size(), source.value().tensors.size());
  size_t taken = 0;
  for (const import::SourceTensor& t : source.value().tensors) {
    const ImportedTensor& report = reports.at(t.name);
    if (report.use == Use::taken) {
      std::vector<std::byte> bytes(t.bytes);
      ASSERT_FINE(t.read(0, bytes));
      EXPECT_EQ(value_of(built.value().model, report.parameter), bytes) << t.name;
      ++taken;
    } else {
      EXPECT_NE(report.use, Use::unexpected);
      EXPECT_FALSE(report.reason.empty()) << t.name;
    }
  }
  EXPECT_GT(taken, 10u);
}

// For each set of texts that a graph reads: a loss of embeddings reads several.
TEST_P(Folders, LayersAreOneRepeat) {
  const auto built = import_folder(fixture(GetParam()));
  ASSERT_TRUE(built.ok()) << built.status().message();
  const auto info = built.value().model.describe();
  ASSERT_TRUE(info.ok());
  for (const EntryPointInfo& entry : info.value().entry_points) {
    const auto repeats = std::ranges::count(entry.nodes, "Repeat", &NodeInfo::op);
    const auto sets = std::ranges::count_if(
        entry.inputs, [](const InputInfo& input) { return input.name.ends_with("tokens"); });
    EXPECT_EQ(repeats, sets) << entry.name;
    EXPECT_EQ(std::ranges::find(entry.nodes, "Repeat", &NodeInfo::op)->count, 2u);
  }
}

TEST_P(Folders, WhatIsSavedOpensAndIsTheSame) {
  const auto built = import_folder(fixture(GetParam()));
  ASSERT_TRUE(built.ok()) << built.status().message();
  const std::string path = testing::TempDir() + "saved_" + GetParam() + ".bowline";
  ASSERT_FINE(built.value().model.save_compacted(path).status());
  const auto opened = Model::open(path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened.value().parameters(), built.value().model.parameters());
  EXPECT_EQ(opened.value().ties(), built.value().model.ties());
  EXPECT_EQ(opened.value().metadata("task"), name_of(built.value().task));
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(All, Folders,
                         testing::Values("llama", "llama_biased", "llama3", "mistral", "qwen2",
                                         "qwen3", "gemma", "gemma2", "granite", "phi3", "stablelm",
                                         "gpt2", "bert", "bert_classes", "bert_sentences",
                                         "roberta", "roberta_classes", "distilbert_classes"),
                         [](const auto& of) { return std::string(of.param); });

TEST(Dtypes, WeightsAreConvertedToNearestEven) {
  const auto f32 = import_folder(fixture("llama"));
  const auto bf16 = import_folder(fixture("llama"), {.dtype = DType::bf16});
  ASSERT_TRUE(f32.ok() && bf16.ok()) << bf16.status().message();
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const std::vector<std::byte> wide = value_of(f32.value().model, name);
  const std::vector<std::byte> narrow = value_of(bf16.value().model, name);
  ASSERT_EQ(narrow.size(), wide.size() / 2);
  std::vector<std::byte> expected(narrow.size());
  import::convert(wide, DType::f32, expected, DType::bf16);
  EXPECT_EQ(narrow, expected);
}

TEST(Dtypes, AllNumbersOf16BitsSurviveF32) {
  for (const DType narrow : {DType::f16, DType::bf16}) {
    std::vector<uint16_t> all(65536), back(65536);
    std::vector<float> wide(65536);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = static_cast<uint16_t>(i);
    }
    import::convert(std::as_bytes(std::span(all)), narrow, std::as_writable_bytes(std::span(wide)),
                    DType::f32);
    import::convert(std::as_bytes(std::span(wide)), DType::f32,
                    std::as_writable_bytes(std::span(back)), narrow);
    for (size_t i = 0; i < all.size(); ++i) {
      if (!std::isnan(wide[i])) {
        ASSERT_EQ(back[i], all[i]) << name_of(narrow);
      }
    }
  }
}

TEST(Dtypes, HalvesAreRoundedAsIeeeSays) {
  const auto f16 = [](float f) {
    uint16_t h = 0;
    import::convert(std::as_bytes(std::span(&f, 1)), DType::f32,
                    std::as_writable_bytes(std::span(&h, 1)), DType::f16);
    return h;
  };
  EXPECT_EQ(f16(1.0f), 0x3c00);
  EXPECT_EQ(f16(1.00048828125f), 0x3c00);  // half a step: ties to even
  EXPECT_EQ(f16(1.0014647f), 0x3c01);      // just below three halves
  EXPECT_EQ(f16(1.00146484375f), 0x3c02);  // three halves: ties to even
  EXPECT_EQ(f16(65504.0f), 0x7bff);
  EXPECT_EQ(f16(65519.996f), 0x7bff);
  EXPECT_EQ(f16(65520.0f), 0x7c00);
  EXPECT_EQ(f16(-0x1p-24f), 0x8001);
  EXPECT_EQ(f16(0x1p-25f), 0x0000);
  EXPECT_EQ(f16(0x1.8p-24f), 0x0002);
  EXPECT_EQ(f16(0x1.ff8p-15f), 0x03ff);
  EXPECT_EQ(f16(0x1.ffcp-15f), 0x0400);  // half a step: ties to even, to the smallest normal value
}

TEST(Dtypes, AnyRunOfAConvertedTensorIsThatOfTheWhole) {
  std::vector<float> numbers(40000);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(i) * 0.37f;
  }
  const auto bytes = std::as_bytes(std::span(numbers));
  const ValueSource source = [&](uint64_t first, std::span<std::byte> out) {
    EXPECT_LE(first + out.size(), bytes.size());
    std::memcpy(out.data(), bytes.data() + first, out.size());
    return Status();
  };
  const ValueSource narrow = import::converted(source, DType::f32, DType::f16, numbers.size());
  std::vector<std::byte> whole(numbers.size() * 2);
  ASSERT_FINE(narrow(0, whole));
  for (const auto& [first, n] :
       {std::pair<size_t, size_t>(0, 1), {1, 3}, {32767, 40001}, {79999, 1}}) {
    std::vector<std::byte> run(n);
    ASSERT_FINE(narrow(first, run));
    EXPECT_TRUE(std::ranges::equal(run, std::span(whole).subspan(first, n))) << first;
  }
  std::byte beyond[2];
  EXPECT_EQ(narrow(79999, beyond).code(), Code::bad_argument);
}

// ---- ties

TEST(Ties, AreThoseThatTheSourceDeclares) {
  const auto same = [](const char* name, const char* a, const char* b) {
    const auto built = import_folder(fixture(name));
    EXPECT_TRUE(built.ok()) << built.status().message();
    const auto tied = built.value().model.same_storage(a, b);
    EXPECT_TRUE(tied.ok());
    return tied.value();
  };
  EXPECT_TRUE(same("llama3", "model.embed_tokens.weight", "lm_head.weight"));
  EXPECT_TRUE(same("gpt2", "transformer.wte.weight", "lm_head.weight"));
  EXPECT_FALSE(same("llama", "model.embed_tokens.weight", "lm_head.weight"));
}

TEST(Ties, AHeadThatIsAbsentIsTied) {
  const FolderCopy folder("llama3");
  folder.replace("config.json", "\"tie_word_embeddings\": true,", "");
  const auto built = import_folder(folder.path());
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_TRUE(
      built.value().model.same_storage("model.embed_tokens.weight", "lm_head.weight").value());
  EXPECT_TRUE(has_note(built.value(), "the source has no separate head"));
  folder.replace("config.json", "\"use_cache\"", "\"tie_word_embeddings\": false, \"use_cache\"");
  expect_refused(
      import_folder(folder.path()), Code::bad_file,
      {"lm_head.weight", "model.embed_tokens.weight", "\"tie_word_embeddings\" to true"});
}

TEST(Ties, ADeclaredTieOfTwoEqualTensorsDropsNone) {
  const FolderCopy folder("llama3");
  auto tensors = read_numbers(folder.path("model.safetensors"));
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  write_numbers(folder.path("model.safetensors"), tensors);
  const auto built = import_folder(folder.path());
  ASSERT_TRUE(built.ok()) << built.status().message();
  const ImportedTensor head = by_name(built.value()).at("lm_head.weight");
  EXPECT_EQ(head.use, Use::tied);
  EXPECT_NE(head.reason.find("tie_word_embeddings"), std::string::npos);
}

TEST(Ties, ADeclaredTieWhoseTensorsDifferIsRefused) {
  const FolderCopy folder("llama3");
  auto tensors = read_numbers(folder.path("model.safetensors"));
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  tensors["lm_head.weight"].bytes.back() ^= std::byte{1};
  write_numbers(folder.path("model.safetensors"), tensors);
  expect_refused(import_folder(folder.path()), Code::bad_file,
                 {"lm_head.weight", "model.embed_tokens.weight", "values differ",
                  "set \"tie_word_embeddings\" to false", "remove the other"});
}

TEST(Ties, EqualTensorsThatNobodyTiesAreReportedAndTiedWhenAskedFor) {
  const std::string a = "model.layers.0.mlp.up_proj.weight",
                    b = "model.layers.1.mlp.up_proj.weight";
  const FolderCopy folder("llama");
  auto tensors = read_numbers(folder.path("model.safetensors"));
  tensors[b] = tensors[a];
  write_numbers(folder.path("model.safetensors"), tensors);
  const auto apart = import_folder(folder.path());
  ASSERT_TRUE(apart.ok()) << apart.status().message();
  EXPECT_FALSE(apart.value().model.same_storage(a, b).value());
  EXPECT_TRUE(has_note(apart.value(), "--tie " + a + " " + b));
  const auto tied = import_folder(folder.path(), {.ties = {{a, b}}});
  ASSERT_TRUE(tied.ok()) << tied.status().message();
  EXPECT_TRUE(tied.value().model.same_storage(a, b).value());
  EXPECT_EQ(by_name(tied.value()).at(b).use, Use::tied);
  EXPECT_FALSE(has_note(tied.value(), "--tie"));
  expect_refused(
      import_folder(folder.path(), {.ties = {{a, "model.layers.0.mlp.gate_proj.weight"}}}),
      Code::bad_argument, {"values differ"});
  expect_refused(import_folder(folder.path(), {.ties = {{a, "nothing"}}}), Code::bad_argument,
                 {"nothing", "not a tensor"});
}

TEST(Ties, TensorsOfTheSameBytesAreOne) {
  const std::string a = "model.layers.0.mlp.up_proj.weight",
                    b = "model.layers.1.mlp.up_proj.weight";
  const auto source = huggingface::read(fixture("llama"));
  ASSERT_TRUE(source.ok());
  import::Source shared = source.value();
  const auto at = [&](const std::string& name) {
    return std::ranges::find(shared.tensors, name, &import::SourceTensor::name);
  };
  const std::string name = at(b)->name;
  *at(b) = *at(a);
  std::ranges::find(shared.tensors.rbegin(), shared.tensors.rend(), a, &import::SourceTensor::name)
      ->name = name;
  const auto built = build_model(shared, {});
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_TRUE(built.value().model.same_storage(a, b).value());
}

// ---- assets and metadata

std::string asset(const Model& model, const std::string& name) {
  const auto bytes = model.asset(name);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return bytes.ok() ? std::string(reinterpret_cast<const char*>(bytes.value().data()),
                                  bytes.value().size())
                    : std::string();
}

TEST(Metadata, OfADecoder) {
  const FolderCopy folder("llama");
  const auto built = import_folder(folder.path());
  ASSERT_TRUE(built.ok()) << built.status().message();
  const Model& m = built.value().model;
  const std::pair<const char*, const char*> entries[] = {
      {"task", "generate"}, {"architecture", "llama"}, {"context_length", "320"},
      {"vocabulary", "64"}, {"bos_token_id", "1"},     {"eos_token_ids", "2,7"},
      {"pad_token_id", ""}, {"bos_token", "<s>"},      {"eos_token", "</s>"}};
  for (const auto& [key, value] : entries) {
    EXPECT_EQ(m.metadata(key), value) << key;
  }
  EXPECT_EQ(asset(m, "chat_template"), "{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(asset(m, "tokenizer"), folder.text("tokenizer.json"));
  EXPECT_EQ(asset(m, "config.json"), folder.text("config.json"));
  EXPECT_EQ(asset(m, "generation_config.json"), folder.text("generation_config.json"));
}

TEST(Metadata, OfSentences) {
  const auto built = import_folder(fixture("bert_sentences"));
  ASSERT_TRUE(built.ok()) << built.status().message();
  const Model& m = built.value().model;
  const std::pair<const char*, const char*> entries[] = {
      {"task", "embed"},    {"pooling", "mean"},      {"normalize", "true"},
      {"max_tokens", "32"}, {"context_length", "40"}, {"pad_token_id", "0"}};
  for (const auto& [key, value] : entries) {
    EXPECT_EQ(m.metadata(key), value) << key;
  }
}

TEST(Metadata, OfClasses) {
  const auto own = import_folder(fixture("bert_classes"));
  ASSERT_TRUE(own.ok()) << own.status().message();
  EXPECT_EQ(own.value().task, ImportTask::classify);
  EXPECT_EQ(asset(own.value().model, "labels"), "admin\nlibs\nnet\n");
  EXPECT_EQ(own.value().model.metadata("pooling"), "cls");
  const auto fresh =
      import_folder(fixture("bert_sentences"),
                    {.task = ImportTask::classify, .labels = {"a", "b"}, .multi_label = true});
  ASSERT_TRUE(fresh.ok()) << fresh.status().message();
  EXPECT_EQ(asset(fresh.value().model, "labels"), "a\nb\n");
  EXPECT_EQ(fresh.value().model.metadata("multi_label"), "true");
  EXPECT_EQ(fresh.value().model.metadata("pooling"), "mean");
  EXPECT_EQ(value_of(fresh.value().model, "classifier.weight").size(), 2u * 32 * sizeof(float));
}

// ---- sliding windows

// Number of iterations of the Repeat, and the windows of the layers in its body.
struct Windows {
  uint32_t count = 0;
  std::vector<std::string> of;
  bool operator==(const Windows&) const = default;
};

Windows windows_of(const std::string& folder) {
  Windows out;
  const auto built = import_folder(folder);
  EXPECT_TRUE(built.ok()) << built.status().message();
  const auto info = built.ok() ? built.value().model.describe() : Result<ModelInfo>(ModelInfo());
  for (const EntryPointInfo& entry : info.value().entry_points) {
    Windows own;
    const NodeInfo& repeat = *std::ranges::find(entry.nodes, "Repeat", &NodeInfo::op);
    own.count = repeat.count;
    for (const NodeInfo& node : repeat.body) {
      if (node.op == "Attention") {
        own.of.push_back(
            std::ranges::find(node.attributes, "window", &Settings::value_type::first)->second);
      }
    }
    EXPECT_TRUE(out.of.empty() || own == out) << entry.name;
    out = own;
  }
  return out;
}

TEST(Windows, ThoseOfTheConfig) {
  EXPECT_EQ(windows_of(fixture("gemma2")), (Windows{2, {"5", "0"}}));
  EXPECT_EQ(windows_of(fixture("gemma2_biased")), (Windows{1, {"5", "0", "5"}}));
  EXPECT_EQ(windows_of(fixture("mistral")), (Windows{2, {"0"}}));
  EXPECT_EQ(windows_of(fixture("mistral_window")), (Windows{2, {"4"}}));
  EXPECT_EQ(windows_of(fixture("qwen3_window")), (Windows{1, {"5", "0", "5"}}));
  EXPECT_EQ(windows_of(fixture("gemma3")), (Windows{2, {"5", "0"}}));
  EXPECT_EQ(windows_of(fixture("gemma3_older")), (Windows{1, {"5", "0", "5"}}));
  EXPECT_EQ(windows_of(fixture("smollm3_window")), (Windows{1, {"0", "5", "0"}}));
  EXPECT_EQ(windows_of(fixture("phi3")), (Windows{2, {"5"}}));
  EXPECT_EQ(windows_of(fixture("phi3_part")), (Windows{2, {"0"}}));
}

// transformers reads the key only in some architectures.
TEST(Windows, AKeyThatTheArchitectureDoesNotHaveChangesNothing) {
  const FolderCopy folder("gemma2");
  folder.replace("config.json", "\"sliding_window\"",
                 "\"use_sliding_window\": false, \"sliding_window\"");
  EXPECT_EQ(windows_of(folder.path()), (Windows{2, {"5", "0"}}));
}

TEST(Windows, ThoseOfAConfigThatLeavesThemOut) {
  const FolderCopy folder("gemma2");
  folder.replace("config.json", "\"layer_types\"", "\"_kinds\"");
  EXPECT_EQ(windows_of(folder.path()), (Windows{2, {"5", "0"}}));
  folder.replace("config.json", "\"sliding_window\"", "\"_window\"");
  EXPECT_EQ(windows_of(folder.path()), (Windows{4, {"0"}})) << "4096 tokens, of 320";
  folder.replace("config.json", "\"max_position_embeddings\": 320",
                 "\"max_position_embeddings\": 8192");
  EXPECT_EQ(windows_of(folder.path()), (Windows{2, {"4096", "0"}}));
  const FolderCopy mistral("mistral_window");
  mistral.replace("config.json", "\"max_position_embeddings\": 320",
                  "\"max_position_embeddings\": 8192");
  EXPECT_EQ(windows_of(mistral.path()), (Windows{2, {"4"}}));
  mistral.replace("config.json", "\"sliding_window\": 4", "\"_window\": 4");
  EXPECT_EQ(windows_of(mistral.path()), (Windows{2, {"4096"}})) << "the default of transformers";
  mistral.replace("config.json", "\"_window\": 4", "\"sliding_window\": null");
  EXPECT_EQ(windows_of(mistral.path()), (Windows{2, {"0"}}));
  const FolderCopy qwen("qwen2");
  qwen.replace("config.json", "\"layer_types\"", "\"_kinds\"");
  EXPECT_EQ(windows_of(qwen.path()), (Windows{2, {"0"}}));
  qwen.replace("config.json", "\"use_sliding_window\": false", "\"use_sliding_window\": true");
  qwen.replace("config.json", "\"max_window_layers\": 28", "\"max_window_layers\": 1");
  qwen.replace("config.json", "\"sliding_window\": null", "\"sliding_window\": 7");
  EXPECT_EQ(windows_of(qwen.path()), (Windows{1, {"0", "7"}}));
  EXPECT_EQ(windows_of(fixture("qwen2_window")), (Windows{1, {"0", "6", "6"}}));
}

// ---- rotations

using Values = std::vector<double>;

// The values of an attribute of all Rope nodes in the layers.
Values rope_of(const std::string& folder, std::string_view attribute) {
  const auto built = import_folder(folder);
  EXPECT_TRUE(built.ok()) << built.status().message();
  const auto info = built.ok() ? built.value().model.describe() : Result<ModelInfo>(ModelInfo());
  Values out;
  for (const EntryPointInfo& entry : info.value().entry_points) {
    Values own;
    const NodeInfo& repeat = *std::ranges::find(entry.nodes, "Repeat", &NodeInfo::op);
    for (const NodeInfo& node : repeat.body) {
      if (node.op == "Rope") {
        own.push_back(std::stod(
            std::ranges::find(node.attributes, attribute, &Settings::value_type::first)->second));
      }
    }
    EXPECT_TRUE(out.empty() || own == out) << entry.name;
    out = own;
  }
  return out;
}

TEST(Rotations, ThoseOfTheConfig) {
  EXPECT_EQ(rope_of(fixture("gemma3"), "base"), (Values{50, 50, 5000, 5000}));
  EXPECT_EQ(rope_of(fixture("gemma3"), "factor"), (Values{1, 1, 4, 4}));
  EXPECT_EQ(rope_of(fixture("gemma3_older"), "base"), (Values{1e4, 1e4, 1e6, 1e6, 1e4, 1e4}));
  EXPECT_EQ(rope_of(fixture("smollm3"), "base"), (Values{100, 100})) << "of two layers";
  EXPECT_EQ(rope_of(fixture("phi3_part"), "rotary_dims"), (Values{6, 6}));
  EXPECT_EQ(rope_of(fixture("stablelm_parallel"), "rotary_dims"), (Values{2, 2}));
}

// Keys of transformers 4, whose values are those of its configuration classes if they are missing.
TEST(Rotations, ThoseOfAConfigThatLeavesThemOut) {
  const FolderCopy smollm3("smollm3");
  smollm3.replace("config.json", "\"rope_parameters\"", "\"_rope\"");
  smollm3.replace("config.json", "\"no_rope_layers\"", "\"_layers\"");
  EXPECT_EQ(rope_of(smollm3.path(), "base"), (Values{2e6, 2e6}));
  smollm3.replace("config.json", "\"no_rope_layer_interval\"", "\"_interval\"");
  EXPECT_EQ(rope_of(smollm3.path(), "base"), Values(6, 2e6)) << "three of four layers";
  const FolderCopy gemma3("gemma3");
  gemma3.replace("config.json", "\"rope_parameters\"", "\"_rope\"");
  EXPECT_EQ(rope_of(gemma3.path(), "base"), (Values{1e4, 1e4, 1e6, 1e6}));
  gemma3.replace("config.json", "\"_rope\"",
                 "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 8}, "
                 "\"rope_local_base_freq\": 20, \"rope_theta\": 300, \"_rope\"");
  EXPECT_EQ(rope_of(gemma3.path(), "base"), (Values{20, 20, 300, 300}));
  EXPECT_EQ(rope_of(gemma3.path(), "factor"), (Values{1, 1, 8, 8}));
  const FolderCopy stablelm("stablelm");
  stablelm.replace("config.json", "\"rope_parameters\"", "\"_rope\"");
  EXPECT_EQ(rope_of(stablelm.path(), "rotary_dims"), (Values{2, 2}));
  stablelm.replace("config.json", "\"_rope\"", "\"partial_rotary_factor\": 0.75, \"_rope\"");
  EXPECT_EQ(rope_of(stablelm.path(), "rotary_dims"), (Values{6, 6}));
  const FolderCopy modern("modernbert_classes");
  EXPECT_EQ(rope_of(modern.path(), "base"), (Values{50, 50, 50, 50, 5e3, 5e3}))
      << "behind the first layer";
  modern.replace("config.json", "\"rope_parameters\"", "\"_rope\"");
  modern.replace("config.json", "\"layer_types\"", "\"_types\"");
  EXPECT_EQ(rope_of(modern.path(), "base"), (Values{1e4, 1e4, 1e4, 1e4, 16e4, 16e4}));
  modern.replace("config.json", "\"_rope\"",
                 "\"global_rope_theta\": 300, \"local_rope_theta\": 20, "
                 "\"global_attn_every_n_layers\": 2, \"_rope\"");
  EXPECT_EQ(rope_of(modern.path(), "base"), (Values{20, 20, 300, 300, 20, 20}));
  const FolderCopy neox("gpt_neox");
  neox.replace("config.json", "\"rope_parameters\"", "\"_rope\"");
  EXPECT_EQ(rope_of(neox.path(), "rotary_dims"), (Values{2, 2}));
  EXPECT_EQ(rope_of(neox.path(), "base"), (Values{1e4, 1e4}));
  neox.replace("config.json", "\"_rope\"",
               "\"rotary_pct\": 0.75, \"rotary_emb_base\": 300, \"_rope\"");
  EXPECT_EQ(rope_of(neox.path(), "rotary_dims"), (Values{6, 6}));
  EXPECT_EQ(rope_of(neox.path(), "base"), (Values{300, 300}));
}

// The base of HunYuan depends on "alpha", and then on no length. Without "alpha" it is dynamic.
TEST(Rotations, AlphaChangesTheBaseForAllLengths) {
  const FolderCopy folder("hunyuan");
  const auto built = import_folder(folder.path());
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_TRUE(built.value().notes.empty()) << built.value().notes.front();
  folder.replace("config.json", "\"alpha\": 5.0", "\"alpha\": 0");
  const auto other = import_folder(folder.path());
  ASSERT_TRUE(other.ok()) << other.status().message();
  const auto is_said = [](const std::string& note) {
    return note.find("\"dynamic\"") != note.npos;
  };
  EXPECT_EQ(std::ranges::count_if(other.value().notes, is_said), 1);
  const FolderCopy llama("llama");
  llama.replace("config.json", "\"rope_type\": \"default\"",
                "\"alpha\": 5.0, \"factor\": 4.0, \"rope_type\": \"dynamic\"");
  EXPECT_EQ(import_folder(llama.path()).status().code(), Code::unsupported);
}

// The base of transformers grows only with texts longer than the context.
TEST(Rotations, ADynamicScalingChangesNothingInTheContext) {
  const FolderCopy folder("llama");
  folder.replace("config.json", "\"rope_type\": \"default\"",
                 "\"factor\": 4.0, \"rope_type\": \"dynamic\"");
  EXPECT_EQ(rope_of(folder.path(), "base"), rope_of(fixture("llama"), "base"));
  EXPECT_EQ(rope_of(folder.path(), "factor"), (Values{1, 1}));
  const auto built = import_folder(folder.path());
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_EQ(built.value().model.metadata("context_length"), "320");
  const auto is_said = [](const std::string& note) {
    return note.find("\"dynamic\"") != note.npos && note.find("320 tokens") != note.npos;
  };
  EXPECT_EQ(std::ranges::count_if(built.value().notes, is_said), 1);
}

// The divisors change behind 320 tokens, and queries are scaled from position 640 on.
TEST(Rotations, TheContextEndsWhereTheConfigChangesThem) {
  for (const auto& [name, most] : {std::pair("phi3_long", "320"), {"ministral3_images", "640"}}) {
    const auto built = import_folder(fixture(name));
    ASSERT_TRUE(built.ok()) << built.status().message();
    EXPECT_EQ(built.value().model.metadata("context_length"), most) << name;
    EXPECT_TRUE(has_note(built.value(), std::string(most) + " tokens")) << name;
  }
}

// ---- models of texts and images

TEST(TextModels, OnlyTheTensorsOfTextsAreTaken) {
  const FolderCopy newer("gemma3_images");  // with the names of newer files
  std::string file = newer.text("model.safetensors");
  constexpr std::string_view kOlder = "language_model.model.", kNewer = "model.language_model.";
  for (size_t at = file.find(kOlder); at != file.npos; at = file.find(kOlder, at)) {
    file.replace(at, kOlder.size(), kNewer);
  }
  newer.write("model.safetensors", file);
  const auto built = import_folder(fixture("gemma3_images"));
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_TRUE(has_note(built.value(), "Only its text model"));
  const auto again = import_folder(newer.path());
  ASSERT_TRUE(again.ok()) << again.status().message();
  const std::string norm = "model.norm.weight";
  EXPECT_EQ(value_of(again.value().model, norm), value_of(built.value().model, norm));
  size_t of_images = 0;
  for (const Built* const one : {&built.value(), &again.value()}) {
    for (const auto& [name, report] : by_name(*one)) {
      const bool dropped = name.starts_with("vision_") || name.starts_with("multi_modal_");
      EXPECT_EQ(report.use == Use::dropped, dropped) << name;
      of_images += dropped ? 1 : 0;
    }
  }
  EXPECT_GT(of_images, 20u);
}

TEST(TextModels, TheKeysOfTheWholeModelCount) {
  const FolderCopy folder("ministral3_images");
  folder.replace("config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  folder.replace("config.json", "\"transformers_version\"",
                 "\"eos_token_id\": [5, 6], \"transformers_version\"");
  const auto built = import_folder(folder.path());  // the first key is of "text_config"
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_EQ(by_name(built.value()).at("lm_head.weight").use, Use::taken);
  EXPECT_EQ(built.value().model.metadata("eos_token_ids"), "5,6");
}

TEST(TextModels, DefaultsOfAConfigThatLeavesThemOut) {
  const FolderCopy folder("gemma3_images");
  folder.replace("config.json", "\"num_attention_heads\": 4", "\"_heads\": 4");
  expect_refused(import_folder(folder.path()), Code::bad_file, {"q_proj", "[128,32]"});
}

// ---- damaged folders

struct BadEdit {
  const char* name;
  const char* model;
  const char* file;
  const char* part;
  const char* by;
  Code code;
  std::vector<const char*> messages;
};

const std::vector<BadEdit>& bad_edits() {
  static const std::vector<BadEdit> all = {
      {"UnknownArchitecture",
       "llama",
       "config.json",
       "\"model_type\": \"llama\"",
       "\"model_type\": \"mamba\"",
       Code::unsupported,
       {"\"mamba\" is not supported",
        "albert",
        "bert",
        "distilbert",
        "gemma2",
        "falcon",
        "gpt2",
        "gpt_neox",
        "llama",
        "mistral",
        "opt",
        "qwen2",
        "qwen3",
        "roberta",
        "gemma3_text",
        "granite",
        "ministral",
        "ministral3",
        "olmo2",
        "olmo3",
        "phi3",
        "smollm3",
        "stablelm"}},
      {"TwoNamesOfTheBase",
       "gpt_neox",
       "config.json",
       "\"rope_parameters\"",
       "\"rotary_emb_base\": 300, \"rope_theta\": 301, \"_rope\"",
       Code::unsupported,
       {"different values of \"rope_theta\" and \"rotary_emb_base\""}},
      {"AnOlderNameOfTheBase",
       "gpt_neox",
       "config.json",
       "\"rope_parameters\"",
       "\"rotary_emb_base\": 300, \"rope_parameters\"",
       Code::unsupported,
       {"\"rotary_emb_base\" 300", "another base (100)"}},
      {"TooManyRotatedChannels",
       "gptj",
       "config.json",
       "\"rotary_dim\": 6",
       "\"rotary_dim\": 10",
       Code::unsupported,
       {"the rotation covers 10 of 8 channels"}},
      {"NarrowEmbeddings",
       "opt",
       "config.json",
       "\"word_embed_proj_dim\": 32",
       "\"word_embed_proj_dim\": 16",
       Code::unsupported,
       {"\"word_embed_proj_dim\"", "16 channels"}},
      {"NoLastNorm",
       "opt",
       "config.json",
       "\"_remove_final_layer_norm\": false",
       "\"_remove_final_layer_norm\": true",
       Code::unsupported,
       {"_remove_final_layer_norm"}},
      {"KindsOfOtherLayers",
       "gpt_neo",
       "config.json",
       "\"num_layers\": 3",
       "\"num_layers\": 2",
       Code::bad_file,
       {"describes 3 layers"}},
      {"NewerFalconInTurn",
       "falcon_groups",
       "config.json",
       "\"parallel_attn\": true",
       "\"parallel_attn\": false",
       Code::unsupported,
       {"without \"parallel_attn\""}},
      {"HeadsOfKeysInTwoKeys",
       "gpt_bigcode",
       "config.json",
       "\"num_key_value_heads\": 1",
       "\"num_key_value_heads\": 4",
       Code::bad_file,
       {"4 heads of keys and values", "\"multi_query\" is true"}},
      {"NoArchitecture",
       "llama",
       "config.json",
       "\"model_type\"",
       "\"model_kind\"",
       Code::bad_file,
       {"The config has no \"model_type\""}},
      {"AnotherWidth",
       "llama",
       "config.json",
       "\"hidden_size\": 32",
       "\"hidden_size\": 48",
       Code::bad_file,
       {"model.embed_tokens.weight has the shape [64,32]", "[64,48]"}},
      {"AnotherVocabulary",
       "llama",
       "config.json",
       "\"vocab_size\": 64",
       "\"vocab_size\": 65",
       Code::bad_file,
       {"[64,32]", "[65,32]"}},
      {"MoreLayers",
       "llama",
       "config.json",
       "\"num_hidden_layers\": 2",
       "\"num_hidden_layers\": 3",
       Code::bad_file,
       {"no tensor model.layers.2.input_layernorm.weight"}},
      {"FewerLayers",
       "llama",
       "config.json",
       "\"num_hidden_layers\": 2",
       "\"num_hidden_layers\": 1",
       Code::bad_file,
       {"9 of the 21 tensors are unexpected: model.layers.1."}},
      {"BiasesThatAreNot",
       "llama",
       "config.json",
       "\"attention_bias\": false",
       "\"attention_bias\": true",
       Code::bad_file,
       {"model.layers.0.self_attn.q_proj.bias"}},
      {"BiasesThatAre",
       "llama_biased",
       "config.json",
       "\"mlp_bias\": true",
       "\"mlp_bias\": false",
       Code::bad_file,
       {"unexpected", "bias"}},
      {"LayersOfAnUnknownType",
       "gemma2",
       "config.json",
       "\"sliding_attention\"",
       "\"linear_attention\"",
       Code::unsupported,
       {"Layer 0 has the type \"linear_attention\"", "full_attention, sliding_attention"}},
      {"TypesOfOtherLayers",
       "gemma2",
       "config.json",
       "\"full_attention\",\n",
       "",
       Code::bad_file,
       {"4 layers", "\"layer_types\" has 3 entries"}},
      {"AttentionThatIsNotCausal",
       "gemma2",
       "config.json",
       "\"use_bidirectional_attention\": null",
       "\"use_bidirectional_attention\": true",
       Code::unsupported,
       {"use_bidirectional_attention"}},
      {"HeadsThatDoNotDivide",
       "llama",
       "config.json",
       "\"num_key_value_heads\": 2",
       "\"num_key_value_heads\": 3",
       Code::bad_file,
       {"4 attention heads over 3"}},
      {"NoLayers",
       "llama",
       "config.json",
       "\"num_hidden_layers\": 2",
       "\"num_hidden_layers\": 0",
       Code::bad_file,
       {"\"num_hidden_layers\" is 0, not an integer from 1"}},
      {"HugeWidth",
       "llama",
       "config.json",
       "\"hidden_size\": 32",
       "\"hidden_size\": 18446744073709551615",
       Code::bad_file,
       {"\"hidden_size\" is 18446744073709551615"}},
      {"WidthOfText",
       "llama",
       "config.json",
       "\"hidden_size\": 32",
       "\"hidden_size\": \"wide\"",
       Code::bad_file,
       {"\"hidden_size\" is \"wide\""}},
      {"UnknownActivation",
       "llama",
       "config.json",
       "\"hidden_act\": \"silu\"",
       "\"hidden_act\": \"swoosh\"",
       Code::unsupported,
       {"\"swoosh\" is not supported", "gelu_new", "silu"}},
      {"UnknownRotation",
       "llama3",
       "config.json",
       "\"rope_type\": \"llama3\"",
       "\"rope_type\": \"spiral\"",
       Code::unsupported,
       {"\"rope_type\" \"spiral\"",
        "default, dynamic, linear, llama3, longrope, proportional, yarn"}},
      {"DivisorsOfAnotherNumberOfPairs",
       "phi3_long",
       "config.json",
       "\"short_factor\": [",
       "\"short_factor\": [1.0,",
       Code::bad_file,
       {"\"short_factor\" has 4 factors", "3 pairs"}},
      {"DivisorsOfLongTextsThatAreNoNumbers",
       "phi3_long",
       "config.json",
       "\"long_factor\": [",
       "\"long_factor\": [false,",
       Code::bad_file,
       {"\"long_factor\""}},
      {"NoScalingOfLateQueries",
       "ministral3",
       "config.json",
       "\"llama_4_scaling_beta\"",
       "\"_beta\"",
       Code::bad_file,
       {"\"llama_4_scaling_beta\""}},
      {"NoTextModel",
       "gemma3_images",
       "config.json",
       "\"text_config\"",
       "\"_text\"",
       Code::bad_file,
       {"no \"text_config\""}},
      {"UnknownTextModel",
       "gemma3_images",
       "config.json",
       "\"gemma3_text\"",
       "\"gemma9_text\"",
       Code::unsupported,
       {"\"gemma9_text\"", "Supported: gemma3_text"}},
      {"TextsAndImagesAndSounds",
       "ministral3_images",
       "config.json",
       "\"spatial_merge_size\": 2",
       "\"audio_config\": {\"layers\": 2}",
       Code::unsupported,
       {"\"audio_config\""}},
      {"UnknownKeyOfARotation",
       "llama3",
       "config.json",
       "\"factor\": 4.0,",
       "\"factor\": 4.0, \"beta_fast\": 32,",
       Code::unsupported,
       {"rope_parameters", "\"beta_fast\""}},
      {"FactorOfNoScaling",
       "llama",
       "config.json",
       "\"rope_type\": \"default\"",
       "\"factor\": 2.0, \"rope_type\": \"default\"",
       Code::unsupported,
       {"rope_parameters", "\"factor\""}},
      {"TwoKindsOfARotation",
       "llama3",
       "config.json",
       "\"rope_type\": \"llama3\"",
       "\"rope_type\": \"llama3\", \"type\": \"linear\"",
       Code::unsupported,
       {"\"rope_type\" \"llama3\"", "\"type\" \"linear\""}},
      {"TwoBasesOfARotation",
       "llama",
       "config.json",
       "\"rope_parameters\"",
       "\"rope_theta\": 5.0, \"rope_parameters\"",
       Code::unsupported,
       {"\"rope_theta\" 5", "another base (10000)"}},
      {"RotationOfAnUnknownLayerType",
       "gemma3",
       "config.json",
       "\"sliding_attention\": {",
       "\"chunked_attention\": {",
       Code::unsupported,
       {"rope_parameters", "\"chunked_attention\"", "full_attention"}},
      {"OneRotationOfTwoLayerTypes",
       "gemma3",
       "config.json",
       "\"rope_parameters\": {",
       "\"rope_parameters\": {\"rope_theta\": 7.0}, \"_parameters\": {",
       Code::unsupported,
       {"rope_parameters", "no entries of layer types"}},
      {"OddNumberOfRotatedChannels",
       "phi3_part",
       "config.json",
       "\"partial_rotary_factor\": 0.75",
       "\"partial_rotary_factor\": 0.63",
       Code::unsupported,
       {"5 of 8 channels"}},
      {"TwoRotatedParts",
       "phi3_part",
       "config.json",
       "\"rope_parameters\"",
       "\"partial_rotary_factor\": 0.5, \"rope_parameters\"",
       Code::unsupported,
       {"different values of \"partial_rotary_factor\""}},
      {"TooFewRotaryLayers",
       "smollm3_window",
       "config.json",
       "\"no_rope_layers\": [\n    1,",
       "\"no_rope_layers\": [",
       Code::bad_file,
       {"3 layers", "\"no_rope_layers\" has 2 entries"}},
      {"WindowsThatAreOff",
       "smollm3_window",
       "config.json",
       "\"use_sliding_window\": true",
       "\"use_sliding_window\": false",
       Code::unsupported,
       {"\"layer_types\"", "\"use_sliding_window\""}},
      {"RotationWithoutFactor",
       "llama3",
       "config.json",
       "\"factor\": 4.0,",
       "",
       Code::bad_file,
       {"rope_parameters", "has no \"factor\""}},
      {"ConfigThatIsNoJson",
       "llama",
       "config.json",
       "{",
       "{,",
       Code::bad_file,
       {"is not valid JSON", "line 1, column 2"}},
      {"RelativePositions",
       "bert",
       "config.json",
       "\"model_type\"",
       "\"position_embedding_type\": \"relative_key\", \"model_type\"",
       Code::unsupported,
       {"relative_key"}},
      {"MoreLabelsThanRows",
       "bert_classes",
       "config.json",
       "\"2\": \"net\"",
       "\"2\": \"net\", \"3\": \"web\"",
       Code::bad_file,
       {"4 labels", "classifier.weight", "3 rows"}},
      {"AnotherPooling",
       "bert_sentences",
       "1_Pooling/config.json",
       "pooling_mode_mean_tokens",
       "pooling_mode_weightedmean_tokens",
       Code::unsupported,
       {"weightedmean_tokens", "cls, lasttoken, mean, max"}},
      {"NoPooling",
       "bert_sentences",
       "1_Pooling/config.json",
       "true",
       "false",
       Code::bad_file,
       {"enables 0 pooling modes"}},
      {"AnotherModule",
       "bert_sentences",
       "modules.json",
       "models.Normalize",
       "models.Dense",
       Code::unsupported,
       {"sentence_transformers.models.Dense"}},
      {"ModuleElsewhere",
       "bert_sentences",
       "modules.json",
       "1_Pooling",
       "../other",
       Code::bad_file,
       {"../other", "not a plain file name"}},
      {"ShardOfWhichATensorIsElsewhere",
       "qwen2",
       "model.safetensors.index.json",
       "model-00002-of-00002.safetensors",
       "model-00003-of-00002.safetensors",
       Code::bad_file,
       {"model-00002-of-00002.safetensors\" has a tensor lm_head.weight", "index.json"}},
      {"ShardElsewhere",
       "qwen2",
       "model.safetensors.index.json",
       "model-00002-of-00002.safetensors",
       "../model.safetensors",
       Code::bad_file,
       {"not a plain file name"}},
      {"ShardOfAnotherTensor",
       "qwen2",
       "model.safetensors.index.json",
       "\"lm_head.weight\"",
       "\"lm_head.wait\"",
       Code::bad_file,
       {"lm_head"}},
      {"EndIdsOfText",
       "llama",
       "generation_config.json",
       "7",
       "\"x\"",
       Code::bad_file,
       {"\"eos_token_id\"", "not a token id"}},
  };
  return all;
}

class BadFolders : public testing::TestWithParam<size_t> {};

TEST_P(BadFolders, AreRefusedWithASentence) {
  const BadEdit& bad = bad_edits()[GetParam()];
  const FolderCopy folder(bad.model);
  folder.replace(bad.file, bad.part, bad.by);
  const auto built = import_folder(folder.path());
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().code(), bad.code) << built.status().message();
  for (const char* part : bad.messages) {
    EXPECT_NE(built.status().message().find(part), std::string::npos)
        << part << " in " << built.status().message();
  }
}

INSTANTIATE_TEST_SUITE_P(All, BadFolders, testing::Range<size_t>(0, bad_edits().size()),
                         [](const auto& of) { return std::string(bad_edits()[of.param].name); });

TEST(BadFolder, FilesThatAreMissing) {
  for (const auto& [file, message] :
       {std::pair("config.json", "config.json"),
        {"model.safetensors", "neither model.safetensors nor model.safetensors.index.json"}}) {
    const FolderCopy folder("llama");
    std::filesystem::remove(folder.path(file));
    expect_refused(import_folder(folder.path()), Code::bad_file, {message});
  }
}

TEST(BadFolder, AShardThatIsMissing) {
  const FolderCopy folder("qwen2");
  std::filesystem::remove(folder.path("model-00002-of-00002.safetensors"));
  expect_refused(import_folder(folder.path()), Code::bad_file,
                 {"model-00002-of-00002.safetensors\" is missing", "index.json"});
}

TEST(BadFolder, DeepJsonIsRefused) {
  const FolderCopy folder("llama");
  folder.write("config.json", std::string(10000, '[') + std::string(10000, ']'));
  expect_refused(import_folder(folder.path()), Code::bad_file, {"nested deeper than 64"});
}

TEST(BadFolder, ATensorTooManyOrTooFewIsNamed) {
  const FolderCopy folder("llama");
  auto tensors = read_numbers(folder.path("model.safetensors"));
  tensors["model.surprise"] = tensors["model.norm.weight"];
  write_numbers(folder.path("model.safetensors"), tensors);
  expect_refused(import_folder(folder.path()), Code::bad_file,
                 {"1 of the 22 tensors are unexpected: model.surprise"});
  tensors.erase("model.surprise");
  tensors.erase("model.norm.weight");
  write_numbers(folder.path("model.safetensors"), tensors);
  expect_refused(import_folder(folder.path()), Code::bad_file, {"no tensor model.norm.weight"});
}

TEST(BadFolder, TasksAndLabelsThatDoNotGo) {
  expect_refused(import_folder(fixture("llama_classes"), {.task = ImportTask::generate}),
                 Code::unsupported, {"score.weight", "cannot generate text"});
  expect_refused(import_folder(fixture("bert"), {.task = ImportTask::generate}), Code::unsupported,
                 {"not generate text"});
  expect_refused(import_folder(fixture("bert"), {.task = ImportTask::classify}), Code::bad_argument,
                 {"--labels"});
  expect_refused(import_folder(fixture("bert"), {.task = ImportTask::classify, .labels = {"a"}}),
                 Code::bad_argument, {"with a single class", "--multi-label", "--task embed"});
  expect_refused(
      import_folder(fixture("bert"), {.task = ImportTask::classify, .labels = {"a", "a"}}),
      Code::bad_argument, {"label a occurs twice"});
  expect_refused(import_folder(fixture("bert_classes"), {.labels = {"a", "b"}}), Code::bad_argument,
                 {"2 labels", "3 classes"});
  expect_refused(import_folder(fixture("bert_classes"), {.pooling = "mean"}), Code::bad_argument,
                 {"--pooling mean"});
}

}  // namespace
}  // namespace bowline::test
