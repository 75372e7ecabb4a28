// peft adapters: the results equal those of peft, written adapters have the same tensors, a
// training run matches peft, and damaged folders are rejected. make_peft_fixtures.py made the
// fixtures.
#include <bowline.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "architectures/architecture.h"
#include "gguf/file.h"
#include "gtest/gtest.h"
#include "huggingface/read.h"
#include "huggingface/safetensors.h"
#include "peft/adapter.h"
#include "peft/gguf_adapter.h"

namespace bowline::peft {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const std::string kFixtures = BOWLINE_PEFT_FIXTURES;

template <class T>
T must(Result<T> r) {
  EXPECT_TRUE(r.ok()) << r.status().message();
  return std::move(r).value();
}
#define EXPECT_OK(call)                                 \
  do {                                                  \
    const Status ok_status = (call);                    \
    EXPECT_TRUE(ok_status.ok()) << ok_status.message(); \
  } while (false)

const json& expected() {
  static const json loaded = [] {
    std::ifstream file(kFixtures + "/expected.json");
    return json::parse(file);
  }();
  return loaded;
}

// A fixture of this folder or of tests/import.
Model model_of(const std::string& name) {
  const std::string own = kFixtures + "/" + name;
  const std::string folder = fs::exists(own) ? own : BOWLINE_IMPORT_FIXTURES "/" + name;
  const import::Source source = must(huggingface::read(folder));
  return must(import::build_model(source, {})).model;
}

Device cpu() {
  DeviceOptions options;
  options.threads = 1;
  return must(Device::open("cpu", options));
}

struct Batch {
  std::vector<int32_t> tokens = expected()["tokens"];
  std::vector<int32_t> labels = expected()["labels"];
  TensorShape shape{2, 8};
  std::vector<Tensor> tensors(bool with_labels) {
    std::vector<Tensor> out = {{"tokens", DType::i32, shape, tokens.data()}};
    if (with_labels) {
      out.push_back({"labels", DType::i32, shape, labels.data()});
    }
    return out;
  }
};

// Logits of both rows of the batch.
std::vector<float> logits_of(Model& model, int64_t vocabulary = 48) {
  const Device device = cpu();
  EXPECT_OK(model.to(device));
  const BoundDim dims[] = {{"batch", 2}, {"seq", 8}};
  Session session = must(Session::create(model, device, "forward", dims));
  std::vector<float> out(static_cast<size_t>(2 * 8 * vocabulary));
  Batch batch;
  const Tensor outputs[] = {{"logits", DType::f32, {2, 8, vocabulary}, out.data()}};
  EXPECT_OK(session.run(batch.tensors(false), outputs));
  EXPECT_OK(offload(model));
  return out;
}

class Folder {
 public:
  // Tests run in parallel.
  explicit Folder(const std::string& name)
      : path_(testing::TempDir() + "peft_" + name + "_" + std::to_string(getpid())) {
    fs::remove_all(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void write_folder(const Model& model, const std::string& folder) {
  fs::create_directories(folder);
  for (const FolderFile& file : must(adapter_folder(model, "ad")).files) {
    std::ofstream to(folder + "/" + file.name, std::ios::binary);
    for (const std::vector<std::byte>& piece : file.pieces) {
      to.write(reinterpret_cast<const char*>(piece.data()), std::ssize(piece));
    }
  }
}

class Adapters : public testing::TestWithParam<const char*> {
 protected:
  const json& expected_ = expected()["adapters"][GetParam()];
  const std::string folder_ = kFixtures + "/" + GetParam();

  Model model() const { return model_of(expected_["model"]); }
  std::vector<float> logits_of(Model& model) const {
    return peft::logits_of(model, std::ssize(expected_["logits"]) / (2 * 8));
  }
};
INSTANTIATE_TEST_SUITE_P(All, Adapters,
                         testing::Values("llama_qv", "llama_some_layers", "llama_tables",
                                         "gpt2_conv1d", "gemma2_all"));

TEST_P(Adapters, ComputeWhatPeftComputes) {
  Model adapted = model();
  const std::vector<float> before = logits_of(adapted);
  must(read_adapter(adapted, folder_, "ad"));
  const std::vector<float> logits = logits_of(adapted);
  double most = 0, changed = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    most = std::max(most, std::abs(logits[i] - expected_["logits"][i].get<double>()));
    changed = std::max<double>(changed, std::abs(logits[i] - before[i]));
  }
  EXPECT_LT(most, 2e-5);
  EXPECT_GT(changed, 0.05);
}

std::map<std::string, std::pair<std::vector<int64_t>, std::vector<std::byte>>> tensors_in(
    const std::string& folder) {
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<std::byte>>> out;
  for (const import::SourceTensor& t :
       must(huggingface::read_safetensors(folder + "/adapter_model.safetensors")).tensors) {
    std::vector<std::byte> bytes(t.bytes);
    EXPECT_OK(t.read(0, bytes));
    if (!t.name.ends_with(".base_layer.weight")) {
      out[t.name] = {t.shape, bytes};
    }
  }
  return out;
}

TEST_P(Adapters, AreWrittenAsTheyWereRead) {
  Model first = model(), again = model();
  must(read_adapter(first, folder_, "ad"));
  const Folder to(GetParam());
  write_folder(first, to.path());
  EXPECT_EQ(tensors_in(to.path()), tensors_in(folder_));
  must(read_adapter(again, to.path(), "other"));
  EXPECT_EQ(logits_of(again), logits_of(first));
}

// Through a llama.cpp file and back: the same logits, and the names, shapes and alpha that
// llama.cpp expects.
TEST_P(Adapters, GoThroughGguf) {
  Model first = model(), again = model();
  must(read_adapter(first, folder_, "ad"));
  const Folder to(std::string("gguf_") + GetParam());
  fs::create_directories(to.path());
  const std::string path = to.path() + "/adapter.gguf";
  must(write_gguf_adapter(first, "ad", path));
  EXPECT_TRUE(must(is_gguf_adapter(path)));
  must(read_gguf_adapter(again, path, "ad"));
  const std::vector<float> logits = logits_of(again), before = logits_of(first);
  for (size_t i = 0; i < logits.size(); ++i) {
    ASSERT_NEAR(logits[i], before[i], 1e-6);  // lora_alpha is an f32
  }
}

TEST(Adapter, AGgufFileHasWhatLlamaCppAsksFor) {
  Model model = model_of("llama");
  must(read_adapter(model, kFixtures + "/llama_tables", "tables"));
  must(read_adapter(model, kFixtures + "/llama_qv", "qv"));
  const Folder to("gguf_file");
  fs::create_directories(to.path());
  must(write_gguf_adapter(model, "qv", to.path() + "/qv.gguf"));
  must(write_gguf_adapter(model, "tables", to.path() + "/tables.gguf"));
  const auto qv = must(gguf::File::open(to.path() + "/qv.gguf"));
  const auto tables = must(gguf::File::open(to.path() + "/tables.gguf"));
  EXPECT_EQ(qv->find("general.architecture")->value.text(), "llama");
  EXPECT_EQ(qv->find("general.type")->value.text(), "adapter");
  EXPECT_EQ(qv->find("adapter.type")->value.text(), "lora");
  EXPECT_EQ(qv->find("adapter.lora.alpha")->value.real(), 10.0);
  const auto tensor = [](const gguf::File& file, std::string_view name) {
    const auto found = std::ranges::find(file.tensors, name, &gguf::TensorEntry::name);
    EXPECT_NE(found, file.tensors.end()) << name;
    return *found;
  };
  EXPECT_EQ(tensor(*qv, "blk.1.ffn_down.weight.lora_a").shape, (std::vector<int64_t>{4, 24}));
  EXPECT_EQ(tensor(*qv, "blk.1.ffn_down.weight.lora_b").shape, (std::vector<int64_t>{16, 4}));
  EXPECT_EQ(tensor(*tables, "token_embd.weight.lora_a").shape, (std::vector<int64_t>{48, 3}));
  EXPECT_EQ(tensor(*tables, "token_embd.weight.lora_b").shape, (std::vector<int64_t>{16, 3}));
  EXPECT_EQ(tensor(*tables, "output.weight.lora_b").shape, (std::vector<int64_t>{48, 3}));
  // Two heads of 8 rows: GGUF stores the rows i and i + 4 of a rotary pair as neighbours.
  const auto theirs = tensor(*qv, "blk.0.attn_q.weight.lora_b").bytes;
  const auto all = tensors_in(kFixtures + "/llama_qv");
  const auto& ours =
      all.at("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight").second;
  const size_t row_bytes = 4 * sizeof(float);
  const size_t rows[] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
  for (size_t row = 0; row < 16; ++row) {
    EXPECT_TRUE(std::ranges::equal(theirs.subspan(row * row_bytes, row_bytes),
                                   std::span(ours).subspan(rows[row] * row_bytes, row_bytes)))
        << row;
  }
  Model other = model_of("gpt2");
  const auto refused = read_gguf_adapter(other, to.path() + "/qv.gguf", "ad");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("architecture llama, but this model is gpt2"),
            std::string::npos)
      << refused.status().message();
}

TEST(Adapter, AConfigSaysWhatPeftNeeds) {
  Model model = model_of("llama");
  AdapterOptions options;
  options.rank = 2;
  options.alpha = 3;
  options.dropout = 0.25f;
  options.target = "*.{q_proj,k_proj}.weight";
  must(add_adapter(model, "ad", options));
  EXPECT_OK(set_adapter_weight(model, "ad", 0.5f));
  const Folder to("config");
  write_folder(model, to.path());
  std::ifstream file(to.path() + "/adapter_config.json");
  const json config = json::parse(file);
  EXPECT_EQ(config["r"], 2);
  EXPECT_EQ(config["lora_alpha"], 1.5) << "with the scale";
  EXPECT_EQ(config["lora_dropout"], 0.25);
  EXPECT_EQ(config["target_modules"], json({"k_proj", "q_proj"}));
  EXPECT_EQ(config["fan_in_fan_out"], false);
  EXPECT_EQ(config["task_type"], "CAUSAL_LM");
}

TEST(Adapter, TwentyLossesAreThoseOfPeft) {
  Model model = model_of("llama");
  must(read_adapter(model, kFixtures + "/llama_begin", "ad"));
  for (const ParameterInfo& p : must(model.describe()).parameters) {
    if (p.trainable && p.target.empty()) {
      EXPECT_OK(model.freeze_storage(p.name));
    }
  }
  const Device device = cpu();
  EXPECT_OK(model.to(device));
  TrainOptions options;
  options.dims = {{"batch", 2}, {"seq", 8}};
  options.schedule.learning_rate = 5e-3f;
  options.optimizer.settings["weight_decay"] = 0.01f;
  Trainer trainer = must(Trainer::create(model, device, options));
  Batch batch;
  double first = 0;
  for (const json& loss : expected()["losses"]) {
    const auto report = must(trainer.micro_step(batch.tensors(true)));
    ASSERT_TRUE(report.has_value());
    EXPECT_NEAR(report->loss, loss.get<double>(), 1e-4) << "step " << report->step;
    first = first == 0 ? report->loss : first;
  }
  EXPECT_EQ(trainer.steps(), 20u);
  EXPECT_GT(first, expected()["losses"].back().get<double>() + 0.3) << "it learns";
}

// A copy of the adapter llama_qv with one change.
class Damaged {
 public:
  Damaged() : folder_("damaged") {
    fs::copy(kFixtures + "/llama_qv", folder_.path(), fs::copy_options::recursive);
  }
  void set(const std::string& key, const json& value) {
    std::ifstream in(config());
    json j = json::parse(in);
    j[key] = value;
    std::ofstream(config()) << j.dump();
  }
  void write(const std::string& text) { std::ofstream(config()) << text; }
  void remove(const std::string& file) { fs::remove(folder_.path() + "/" + file); }
  // Returns the message of read_adapter() and checks that the model is unchanged.
  std::string read(const std::string& model_name = "llama") {
    Model model = model_of(model_name);
    const std::string before = model.parameters() + model.storages();
    const auto r = read_adapter(model, folder_.path(), "ad");
    EXPECT_FALSE(r.ok());
    EXPECT_EQ(model.parameters() + model.storages(), before);
    return r.ok() ? "read" : std::string(name_of(r.status().code())) + ": " + r.status().message();
  }

 private:
  std::string config() const { return folder_.path() + "/adapter_config.json"; }
  Folder folder_;
};

TEST(Adapter, WhatAnAdapterHasNotIsRefusedByName) {
  const std::pair<const char*, json> cases[] = {
      {"use_dora", true},
      {"modules_to_save", {"lm_head"}},
      {"rank_pattern", {{"q_proj", 8}}},
      {"alpha_pattern", {{"q_proj", 8}}},
      {"lora_bias", true},
      {"trainable_token_indices", {1}},
  };
  for (const auto& [key, value] : cases) {
    Damaged d;
    d.set(key, value);
    const std::string said = d.read();
    EXPECT_TRUE(said.starts_with("unsupported: ")) << said;
    EXPECT_NE(said.find(key), std::string::npos) << said;
  }
  Damaged kind;
  kind.set("peft_type", "IA3");
  EXPECT_NE(kind.read().find("IA3"), std::string::npos);
  Damaged bias;
  bias.set("bias", "all");
  EXPECT_NE(bias.read().find("\"bias\""), std::string::npos);
}

TEST(Adapter, ADamagedFolderIsRefused) {
  Damaged rank;
  rank.set("r", 3);
  EXPECT_NE(rank.read().find("rank 3"), std::string::npos);
  for (const json& value : {json(0), json(-1), json(1e9), json("4"), json(nullptr)}) {
    Damaged d;
    d.set("r", value);
    EXPECT_NE(d.read().find("\"r\""), std::string::npos) << value;
  }
  Damaged none;
  none.remove("adapter_model.safetensors");
  EXPECT_NE(none.read().find("adapter_model.safetensors"), std::string::npos);
  Damaged cut;
  cut.write("{\"r\": 4");
  EXPECT_TRUE(cut.read().starts_with("bad_file: "));
  Damaged list;
  list.write("[]");
  EXPECT_TRUE(list.read().starts_with("bad_file: "));
}

TEST(Adapter, OfAnotherModelIsRefused) {
  Damaged d;
  const std::string said = d.read("gpt2");
  EXPECT_NE(said.find("the adapter is for another model"), std::string::npos) << said;
}

TEST(Adapter, WithAnotherTableIsRefused) {
  Model model = model_of("llama");
  std::vector<float> table(48 * 16, 0.5f);
  EXPECT_OK(model.set_value("model.embed_tokens.weight", {"", DType::f32, {48, 16}, table.data()}));
  const auto r = read_adapter(model, kFixtures + "/llama_tables", "ad");
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.status().message().find("contains a \"model.embed_tokens.weight\""),
            std::string::npos)
      << r.status().message();
}

}  // namespace
}  // namespace bowline::peft
