// Fails the n-th allocation of host memory, alone or with all later ones. Each call must return
// out_of_memory and leave the state unchanged, and the same call must then succeed. A hang is a
// failure: ctest has a time limit.
#include <array>
#include <functional>
#include <regex>

#include "api/internals.h"
#include "base/boundary.h"
#include "bowline.h"
#include "bowline/external.h"
#include "failing_new.h"
#include "model/tied_model.h"
#include "threads.h"
#include "ties/seed_models.h"

namespace bowline {
namespace {

using test::Folder;
using test::must;

// A trained model with everything that a call may need.
struct World {
  Device device = must(Device::open("cpu", {.threads = 1, .cache_folder = {}}));
  std::vector<Device> devices = {device,
                                 must(Device::open("cpu", {.threads = 1, .cache_folder = {}}))};
  Folder folder;
  test::Seed seed = test::lm32();
  std::optional<Session> session;
  std::optional<Trainer> trainer;
  std::optional<Model> made;
  std::optional<DeviceBuffer> in, out;
  std::array<float, 6> numbers{};  // values that a call has read
  // Created in advance, because allocations of the test are not allocations of the library.
  std::string file = folder / "file";
  std::string file_bytes;
  std::string saved = folder / "saved";
  std::string checkpoint = folder / "checkpoint";
  Progress progress;

  TrainOptions settings;

  TrainOptions options() const {
    TrainOptions o = settings;
    o.accumulation = 2;
    o.clip_norm = 1;
    return o;
  }
  Status micro_step() { return trainer->micro_step(seed.batch()).status(); }
};

void on_device(World& w) { EXPECT_OK(w.seed.model.to(w.device)); }
void quantized(World& w) { must(quantize(w.seed.model, "int8 scale f16")); }
void with_session(World& w) {
  on_device(w);
  w.session = must(Session::create(w.seed.model, w.device, "loss", {}));
}
void with_trainer(World& w) {
  w.progress.config = {{"a setting of the caller", "and what it was set to"}};
  on_device(w);
  w.trainer = must(Trainer::create(w.seed.model, w.device, w.options()));
  EXPECT_OK(w.micro_step());
}
void with_checkpoint(World& w) {
  with_trainer(w);
  EXPECT_OK(w.trainer->snapshot());
  EXPECT_OK(w.trainer->save(w.checkpoint, {}));
}
void with_file(World& w) { EXPECT_OK(w.seed.model.save(w.file)); }
void with_file_bytes(World& w) {
  with_file(w);
  w.file_bytes = test::read_file(w.file);
}
// 16-bit storages with masters, and a loss scale that decreases in the first step.
void with_masters(World& w) {
  must(w.seed.model.cast(DType::f16));
  on_device(w);
  w.settings.precision.initial_scale = 0x1p40f;
  w.trainer = must(Trainer::create(w.seed.model, w.device, w.options()));
  EXPECT_OK(w.micro_step());
}
void with_parameter(World& w) { must(w.seed.model.parameter("fresh", {40, 30}, Init::normal(1))); }

void with_adapter(World& w) {
  on_device(w);
  must(add_adapter(w.seed.model, "ad", {.rank = 2, .target = "embed"}));
}

std::string bits_of(const Model& model) {
  // A replica that was transferred before the failure has the right values.
  const std::string storages = std::regex_replace(model.storages(), std::regex(", on [^\n]*"), "");
  std::string out = model.parameters() + storages + model.ties() + model.metadata("k");
  for (const params::Storage& s : Internals::state(model)->table.storages) {
    if (s.home.valid()) {
      const auto bytes = must(params::read_bytes(s));
      out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  for (const graph::GenericGraph& g : Internals::state(model)->entry_points.graphs) {
    out += g.name;
  }
  return out;
}

std::string state_of(const World& w) {
  std::string out = bits_of(w.seed.model);
  out.append(reinterpret_cast<const char*>(w.numbers.data()), sizeof(w.numbers));
  out += w.made ? bits_of(*w.made) : "";
  out += w.trainer ? format("{}", w.trainer->steps()) : "";
  for (const auto& entry : std::filesystem::directory_iterator(w.folder / "")) {
    out += entry.path().filename().string() + test::read_file(entry.path().string());
  }
  return out;
}

struct Call {
  const char* name;
  void (*prepare)(World& w);
  Status (*run)(World& w);
  friend void PrintTo(const Call& c, std::ostream* out) { *out << c.name; }
};

void nothing(World&) {}

Status build(World& w) {
  GraphBuilder g(w.seed.model, "second");
  const Result<Parameter> embed = w.seed.model.find("embed");
  const Value x = g.input("x", DType::f32, {"batch", 2});
  const auto y = g.repeat(2, {x}, [&](GraphBuilder& b, const std::vector<Value>& in) {
    return std::vector<Value>{b.named("turn").op("Gelu", {in[0]}, {{"form", 1}})};
  });
  const Value w0 = embed.ok() ? g.parameter(embed.value()) : Value{};
  g.output("y", g.op("Linear", {y.empty() ? Value{} : y[0], w0}));
  const Status status = g.finish();
  return embed.ok() ? status : embed.status();
}

// The lists for the builder are allocations of the caller, so this code converts bad_alloc itself.
Status build_graph(World& w) {
  return guarded([&] { return build(w); });
}

Status make(World& w, Result<Model> made) {
  if (made.ok()) {
    w.made = std::move(made).value();
  }
  return std::move(made).status();
}

// Stores the values that a call returned, if it succeeded.
Status read(World& w, const Status& status, std::span<const float> numbers) {
  if (status.ok()) {
    std::ranges::copy(numbers, w.numbers.begin());
  }
  return status;
}

Status get(World& w) {
  float values[6] = {};
  return read(w, w.seed.model.get_value("head", {"", DType::f32, {3, 2}, values}), values);
}

Status run_session(World& w) {
  float loss = 0;
  int32_t id = 2;
  const Tensor in[] = {{"x", DType::i32, {1}, &id}};
  const Tensor out[] = {{"loss", DType::f32, {}, &loss}};
  return read(w, w.session->run(in, out), {&loss, 1});
}

Status step(World& w) {
  int32_t id = 2;
  const Tensor in[] = {{"x", DType::i32, {1}, &id}};
  const auto report = w.trainer->micro_step(in);
  const float norm = report.ok() && report.value() ? report.value()->grad_norm : 0;
  return read(w, report.status(), {&norm, 1});
}

Status evaluate(World& w) {
  int32_t id = 2;
  const Tensor in[] = {{"x", DType::i32, {1}, &id}};
  const Result<float> loss = w.trainer->evaluate(in);
  const float value = loss.ok() ? loss.value() : 0;
  return read(w, loss.status(), {&value, 1});
}

// A source of zeros.
Status set_source(World& w, std::string_view encoding) {
  const auto zeros = [](uint64_t, std::span<std::byte> out) {
    std::ranges::fill(out, std::byte{});
    return Status();
  };
  return w.seed.model.set_source("head", zeros, encoding);
}

Status set(World& w) {
  float values[6] = {6, 5, 4, 3, 2, 1};
  return w.seed.model.set_value("head", {"", DType::f32, {3, 2}, values});
}

Status create_session(World& w) {
  Result<Session> s = Session::create(w.seed.model, w.device, "loss", {});
  if (s.ok()) {
    w.session = std::move(s).value();
  }
  return std::move(s).status();
}

Status create_trainer(World& w) {
  TrainOptions options;
  options.accumulation = 2;
  Result<Trainer> t = Trainer::create(w.seed.model, w.device, options);
  if (t.ok()) {
    w.trainer = std::move(t).value();
  }
  return std::move(t).status();
}

// A weight format with consecutive storages.
void with_format(World& w) {
  on_device(w);
  WeightFormat row;
  row.name = "row";
  row.layout = [](std::span<const StorageInfo> group) -> Result<FormatLayout> {
    FormatLayout out;
    for (const StorageInfo& s : group) {
      out.offsets.push_back(out.bytes);
      out.bytes += s.bytes;
    }
    return out;
  };
  must(register_weight_format(w.seed.model, std::move(row)));
}

Status set_format(World& w) { return set_weight_format(w.seed.model, "row", "embed").status(); }

// Created before allocations fail, except the values of the hook.
const LoadOptions& hooked() {
  static const LoadOptions options = [] {
    LoadOptions o;
    o.aliases = {{"embed", "embed"}};
    o.hook = [](const LoadedParameter&, const Tensor& value) -> Result<std::optional<LoadedValue>> {
      LoadedValue same{value.dtype, value.shape, std::vector<std::byte>(24)};
      std::memcpy(same.bytes.data(), value.data, 24);
      return std::optional(std::move(same));
    };
    return o;
  }();
  return options;
}

Status run_with_override(World& w) {
  int32_t id = 2;
  float values[6] = {6, 5, 4, 3, 2, 1}, sum = 0;
  const Tensor in[] = {{"x", DType::i32, {1}, &id}}, out[] = {{"loss", DType::f32, {}, &sum}};
  const Tensor other[] = {{"head", DType::f32, {3, 2}, values}};
  return read(w, w.session->run(in, out, {}, other), {&sum, 1});
}

Status step_with_override(World& w) {
  int32_t id = 2;
  float values[6] = {6, 5, 4, 3, 2, 1};
  const Tensor in[] = {{"x", DType::i32, {1}, &id}};
  const Tensor other[] = {{"head", DType::f32, {3, 2}, values}};
  const auto report = w.trainer->micro_step(in, other);
  const float norm = report.ok() && report.value() ? report.value()->grad_norm : 0;
  return read(w, report.status(), {&norm, 1});
}

void with_buffers(World& w) {
  with_session(w);
  w.in = must(DeviceBuffer::create(w.device, 4));
  w.out = must(DeviceBuffer::create(w.device, 4));
  const int32_t id = 2;
  EXPECT_OK(w.in->write(0, std::as_bytes(std::span(&id, 1))));
}

// Runs the session on its buffers, and stores the loss.
template <class F>
Status with_loss(World& w, F&& run) {
  Tensor in{"x", DType::i32, {1}}, out{"loss", DType::f32, {}};
  in.buffer = &*w.in;
  out.buffer = &*w.out;
  BOWLINE_TRY(run(std::span(&in, 1), std::span(&out, 1)));
  float loss = 0;
  return read(w, w.out->read(0, std::as_writable_bytes(std::span(&loss, 1))), {&loss, 1});
}

Status run_buffers(World& w) {
  return with_loss(w, [&](auto in, auto out) { return w.session->run(in, out); });
}

Status submit(World& w) {
  return with_loss(w, [&](auto in, auto out) -> Status {
    RunRequest request;
    request.inputs = in;
    request.outputs = out;
    BOWLINE_TRY_ASSIGN(const PendingRun run, w.session->submit(request));
    return run.wait();
  });
}

const Call kCalls[] = {
    {"CreateBuffer", nothing, [](World& w) { return DeviceBuffer::create(w.device, 64).status(); }},
    {"CreateHostBuffer", nothing,
     [](World& w) { return create_host_buffer(w.device, 64).status(); }},
    {"RunBuffers", with_buffers, run_buffers},
    {"Submit", with_buffers, submit},
    {"SubmitAgain",
     [](World& w) {
       with_buffers(w);
       EXPECT_OK(submit(w));
     },
     submit},
    {"Open", with_file, [](World& w) { return make(w, Model::open(w.file)); }},
    {"OpenRead", with_file,
     [](World& w) {
       return make(w, Model::open(w.file, {false, {}}));
     }},
    {"OpenMemory", with_file_bytes,
     [](World& w) { return make(w, Model::open_memory(std::as_bytes(std::span(w.file_bytes)))); }},
    {"OpenReader", with_file_bytes,
     [](World& w) {
       const auto read = [&w](uint64_t first, std::span<std::byte> out) {
         std::memcpy(out.data(), w.file_bytes.data() + first, out.size());
         return Status();
       };
       return make(w, Model::open_reader({w.file_bytes.size(), read}));
     }},
    {"Declare", nothing,
     [](World& w) {
       return w.seed.model.parameter("fresh one", {2, 2}, Init::ones()).status();
     }},
    {"DeclareMany", nothing,
     [](World& w) {
       return w.seed.model.parameters("a long name of {}", 20, {2, 2}, Init::ones()).status();
     }},
    {"DeclareTied", nothing,
     [](World& w) {
       const Result<Parameter> embed = w.seed.model.find("embed");
       BOWLINE_TRY(Status(embed.status()));
       return w.seed.model.tied_parameter("a tied parameter", embed.value()).status();
     }},
    {"Build", nothing, build_graph},
    {"Materialize", with_parameter, [](World& w) { return w.seed.model.materialize(3); }},
    {"Untie", on_device, [](World& w) { return w.seed.model.untie("head").status(); }},
    {"Tie", [](World& w) { must(w.seed.model.untie("head")); },
     [](World& w) { return w.seed.model.tie("embed", "head").status(); }},
    {"TieNumbered",
     [](World& w) {
       must(w.seed.model.parameters("block.{}.weight", 5, {2, 2}, Init::ones()));
     },
     [](World& w) { return w.seed.model.tie_layers("{block,other}.{}.weight").status(); }},
    {"Assign", on_device,
     [](World& w) {
       float values[12] = {0.5f, 1, 2};
       const int64_t shape[] = {6, 2};
       return w.seed.model.assign("embed", {"", DType::f32, shape, values});
     }},
    {"Swap", [](World& w) { must(w.seed.model.untie("head")); },
     [](World& w) { return w.seed.model.swap("embed", "head"); }},
    {"Resize", on_device, [](World& w) { return w.seed.model.resize("embed", 4).status(); }},
    {"AddAdapter", on_device,
     [](World& w) {
       return guarded([&] { return add_adapter(w.seed.model, "ad", {.target = "head"}).status(); });
     }},
    {"SetAdapterWeight", with_adapter,
     [](World& w) { return set_adapter_weight(w.seed.model, "ad", 0.5f); }},
    {"RemoveAdapter", with_adapter, [](World& w) { return remove_adapter(w.seed.model, "ad"); }},
    {"MergeAdapter", with_adapter, [](World& w) { return merge_adapter(w.seed.model, "ad"); }},
    {"SaveAdapter", with_adapter,
     [](World& w) { return save_adapter(w.seed.model, "ad", w.saved); }},
    {"LoadAdapter",
     [](World& w) {
       with_adapter(w);
       EXPECT_OK(save_adapter(w.seed.model, "ad", w.file));
       EXPECT_OK(remove_adapter(w.seed.model, "ad"));
     },
     [](World& w) { return load_adapter(w.seed.model, w.file).status(); }},
    {"RunAdapter",
     [](World& w) {
       with_adapter(w);
       w.session = must(Session::create(w.seed.model, w.device, "loss", {}));
     },
     run_session},
    {"SetValue", nothing, set},
    {"SetValueOnDevice", on_device, set},
    {"GetValue", on_device, get},
    {"Freeze", nothing, [](World& w) { return w.seed.model.freeze("head"); }},
    {"To", nothing, [](World& w) { return w.seed.model.to(w.device); }},
    {"Offload", on_device, [](World& w) { return offload(w.seed.model); }},
    {"Skeleton", on_device, [](World& w) { return make(w, w.seed.model.skeleton()); }},
    {"Replicate", on_device,
     [](World& w) { return replicate(w.seed.model, w.devices[1]).status(); }},
    {"Shard", on_device, [](World& w) { return shard(w.seed.model, w.devices).status(); }},
    {"SetValueOfShards", [](World& w) { must(shard(w.seed.model, w.devices)); }, set},
    {"CreateSessionOfShards", [](World& w) { must(shard(w.seed.model, w.devices)); },
     create_session},
    {"RunReplica",
     [](World& w) {
       on_device(w);
       must(replicate(w.seed.model, w.devices[1]));
       w.session = must(Session::create(w.seed.model, w.devices[1], "loss", {}));
       EXPECT_OK(set(w));
     },
     run_session},
    {"SetFormat", with_format, set_format},
    {"RestoreFormat",
     [](World& w) {
       with_format(w);
       must(set_format(w));
     },
     [](World& w) { return restore_weight_format(w.seed.model).status(); }},
    {"LoadHook",
     [](World& w) {
       with_file(w);
       hooked();
     },
     [](World& w) { return w.seed.model.load(w.file, hooked()).status(); }},
    {"RunOverride", with_session, run_with_override},
    {"LastMicroStepOverride", with_trainer, step_with_override},
    {"Clone", with_trainer, [](World& w) { return make(w, w.seed.model.clone()); }},
    {"Save", on_device, [](World& w) { return w.seed.model.save(w.saved); }},
    {"Load", with_file, [](World& w) { return w.seed.model.load(w.file).status(); }},
    {"LoadAssign", with_file,
     [](World& w) { return w.seed.model.load(w.file, {.mode = LoadMode::assign}).status(); }},
    {"SetSource", nothing, [](World& w) { return set_source(w, "plain"); }},
    {"SetSourceOfCodes", nothing, [](World& w) { return set_source(w, "int8 scale f16"); }},
    {"SaveSource", [](World& w) { must(set_source(w, "plain")); },
     [](World& w) { return w.seed.model.save(w.saved); }},
    {"SetAsset", nothing,
     [](World& w) {
       const std::array<std::byte, 100> bytes{};
       return w.seed.model.set_asset("an asset with a long name", "application/json", bytes);
     }},
    {"Metadata", nothing,
     [](World& w) { return w.seed.model.set_metadata("k", "a text that is long enough"); }},
    {"Quantize", nothing,
     [](World& w) { return quantize(w.seed.model, "int8 scale f16").status(); }},
    {"QuantizeOnDevice", on_device,
     [](World& w) { return quantize(w.seed.model, "int8 scale f16").status(); }},
    {"Dequantize", quantized, [](World& w) { return dequantize(w.seed.model).status(); }},
    {"Cast", nothing, [](World& w) { return w.seed.model.cast(DType::bf16).status(); }},
    {"CastOnDevice", on_device, [](World& w) { return w.seed.model.cast(DType::f16).status(); }},
    {"CreateSession", on_device, create_session},
    {"Run", with_session, run_session},
    {"Listing", with_session,
     [](World& w) { return w.session->listing("forward", true).status(); }},
    {"CreateTrainer", on_device, create_trainer},
    {"CreateTrainerOfMasters",
     [](World& w) {
       must(w.seed.model.cast(DType::bf16));
       on_device(w);
     },
     create_trainer},
    {"LastMicroStepOfMasters", with_masters, step},
    {"SaveMasters", with_masters, [](World& w) { return w.trainer->save(w.saved, w.progress); }},
    {"LastMicroStep", with_trainer, step},
    {"FirstMicroStep",
     [](World& w) {
       with_trainer(w);
       EXPECT_OK(w.micro_step());
     },
     step},
    {"Evaluate", with_trainer, evaluate},
    {"Snapshot", with_trainer, [](World& w) { return w.trainer->snapshot(); }},
    {"Rollback", with_checkpoint, [](World& w) { return w.trainer->rollback(); }},
    {"SaveCheckpoint", with_trainer, [](World& w) { return w.trainer->save(w.saved, w.progress); }},
    {"Resume", with_checkpoint, [](World& w) { return w.trainer->resume(w.checkpoint).status(); }},
};

class Allocations : public testing::TestWithParam<Call> {};

// Tries every call, or about 60 calls at equal distances.
int stride_of(int calls) {
  return std::getenv("BOWLINE_ALL_ALLOCATIONS") != nullptr ? 1 : std::max(1, calls / 60);
}

TEST_P(Allocations, FailOneByOne) {
  const Call& call = GetParam();
  int calls = 0;
  std::string wanted;
  {
    World w;
    call.prepare(w);
    test::fail_allocation(0, false);
    ASSERT_OK(call.run(w));
    calls = test::allocations_counted();
    wanted = state_of(w);
  }
  ASSERT_GT(calls, 0);
  for (const bool all : {false, true}) {
    for (int n = 1; n <= calls && !HasFailure(); n += stride_of(calls)) {
      SCOPED_TRACE(format("allocation {} of {}{}", n, calls, all ? " and all after it" : ""));
      World w;
      call.prepare(w);
      const std::string before = state_of(w);
      test::fail_allocation(n, all);
      const Status status = call.run(w);
      const bool failed = test::allocations_succeed();
      if (!status.ok()) {
        EXPECT_TRUE(failed) << status.message();
        EXPECT_EQ(status.code(), Code::out_of_memory) << status.message();
        EXPECT_TRUE(state_of(w) == before) << "the state is as before";
        ASSERT_OK(call.run(w));  // a second time
      }
      EXPECT_TRUE(state_of(w) == wanted) << "the state is that of a call without failure";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Allocations, testing::ValuesIn(kCalls),
                         [](const auto& i) { return std::string(i.param.name); });

TEST(Exhausted, DestructorsNeedNone) {
  auto w = std::make_unique<World>();
  with_checkpoint(*w);
  w->session = must(Session::create(w->seed.model, w->device, "loss", {}));
  w->made = must(w->seed.model.clone());
  test::fail_allocation(1, true);
  w->trainer.reset();
  w->session.reset();
  w->made.reset();
  { const Model moved = std::move(w->seed.model); }
  EXPECT_FALSE(test::allocations_succeed()) << "none was asked for";
}

TEST(Exhausted, ListingsAreEmptyAndObjectsAnswer) {
  World w;
  test::fail_allocation(1, true);
  const std::string listing = w.seed.model.parameters() + w.seed.model.storages();
  Model none;
  GraphBuilder builder(w.seed.model, "a name that needs an allocation");
  const Status finished = builder.finish();
  test::allocations_succeed();
  EXPECT_EQ(listing, "");
  EXPECT_EQ(none.materialize(1).code(), Code::bad_argument);
  EXPECT_EQ(finished.code(), Code::out_of_memory);
  EXPECT_FALSE(w.seed.model.parameters().empty());
}

// Sizes that no machine has.
TEST(Exhausted, AbsurdSizesAreRefused) {
  Model model;
  must(model.parameter("w", {1 << 20, 1 << 19}, Init::normal(1)));
  const std::string before = model.storages();
  const Status status = model.materialize(1);
  EXPECT_EQ(status.code(), Code::out_of_memory);
  EXPECT_EQ(status.message().substr(0, status.message().find('\n')),
            "2199023255552 bytes are more than the memory of the host.");
  EXPECT_EQ(model.storages(), before);
}

TEST(Threads, WhatATaskThrowsReachesTheCaller) {
  cpu::Threads pool(4);
  std::atomic<int> ran = 0;
  for (int round = 0; round < 50; ++round) {
    ran = 0;
    bool caught = false;
    try {
      pool.parallel_for(16, [&](size_t task, size_t) {
        ++ran;
        if (task % 5 == 3) {
          throw std::bad_alloc();
        }
      });
    } catch (const std::bad_alloc&) {
      caught = true;
    }
    EXPECT_TRUE(caught);
    EXPECT_EQ(ran, 16);
    std::atomic<int> sum = 0;
    pool.parallel_for(16, [&](size_t task, size_t) { sum += static_cast<int>(task); });
    EXPECT_EQ(sum, 120);
  }
}

}  // namespace
}  // namespace bowline
