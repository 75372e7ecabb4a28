// Structs with the size of another version of the header, and with wrong sizes.
#include <cstring>
#include <functional>
#include <set>

#include "world.h"

namespace c_test {
namespace {

constexpr size_t kMore = 16;

// A struct of a later version, which has more members.
template <class T>
struct Larger {
  T known;
  unsigned char more[kMore];
};

// The size of a struct before it grew. Programs that were compiled then still work.
template <class T>
constexpr size_t kOldSize = sizeof(T);
template <>
constexpr size_t kOldSize<bowline_tensor> = offsetof(bowline_tensor, buffer);
template <>
constexpr size_t kOldSize<bowline_device_options> = offsetof(bowline_device_options, allocate);

template <class T>
std::vector<size_t> wrong_sizes() {
  return {0, 1, kOldSize<T> - 1, 1 << 20, SIZE_MAX};
}

struct Sizes : ::testing::Test {
  // A struct that the library reads. `use` passes it to a call, which may fail for other reasons.
  template <class T>
  void reads(const char* name, const T& good, const std::function<Outcome(const T*)>& use) {
    SCOPED_TRACE(name);
    tested.insert(name);
    Larger<T> larger = {good, {}};
    larger.known.size = sizeof(T);
    const Outcome exact = use(&larger.known);
    EXPECT_EQ(exact.message.find("The size of"), std::string::npos) << exact.message;
    larger.known.size = kOldSize<T>;
    const Outcome old = use(&larger.known);
    EXPECT_EQ(old.message, exact.message);
    larger.known.size = sizeof(larger);
    const Outcome same = use(&larger.known);
    EXPECT_EQ(same.code, exact.code);
    EXPECT_EQ(same.message, exact.message);
    larger.more[kMore - 1] = 1;
    expect_error(use(&larger.known), BOWLINE_UNSUPPORTED, name);
    for (const size_t size : wrong_sizes<T>()) {
      larger.known.size = size;
      expect_error(use(&larger.known), BOWLINE_BAD_ARGUMENT, std::string("The size of ") + name);
    }
  }

  // A struct that the library writes.
  template <class T>
  void writes(const char* name, const std::function<Outcome(T*)>& use) {
    SCOPED_TRACE(name);
    tested.insert(name);
    Larger<T> larger;
    for (const size_t size : wrong_sizes<T>()) {
      std::memset(&larger, 0xAA, sizeof(larger));
      larger.known.size = size;
      expect_error(use(&larger.known), BOWLINE_BAD_ARGUMENT, std::string("The size of ") + name);
      EXPECT_EQ(larger.more[0], 0xAA);
    }
    larger.known.size = sizeof(T);
    const Outcome exact = use(&larger.known);
    EXPECT_EQ(exact.code, BOWLINE_OK) << exact.message;
    EXPECT_EQ(larger.more[0], 0xAA) << "The library wrote behind the struct.";
    larger.known.size = sizeof(larger);
    const Outcome same = use(&larger.known);
    EXPECT_EQ(same.code, BOWLINE_OK) << same.message;
    EXPECT_EQ(larger.known.size, sizeof(larger));
    // Otherwise the struct could not be passed back.
    EXPECT_EQ(larger.more[kMore - 1], 0) << "A member that the library does not know is not set.";
  }

  // An options struct with its init function: what it sets can be passed back.
  template <class T>
  void options(const char* name, bowline_code (*init)(T*, bowline_error**),
               const std::function<Outcome(const T*)>& use) {
    writes<T>(name, [&](T* t) { return call(init, t); });
    auto defaults = sized<T>();
    must(init, &defaults);
    reads<T>(name, defaults, use);
  }

  // For a call that makes a handle, which is read after the call.
  template <class C>
  Outcome closed(const Outcome& made, bowline_code (*close)(C*, bowline_error**), C** handle) {
    must(close, *handle);
    return made;
  }

  Outcome session(const bowline_entry_point* of, const bowline_budget* budget) {
    bowline_session* out = nullptr;
    const Outcome made = call(api()->session_create, h.model, h.device, of, 1, budget, &out);
    return closed(made, api()->session_close, &out);
  }
  Outcome train(const std::function<void(bowline_train_options*)>& change) {
    auto o = sized<bowline_train_options>();
    must(api()->train_options_init, &o);
    o.dims = &dim;
    o.dim_count = 1;
    change(&o);
    return train(&o);
  }
  Outcome train(const bowline_train_options* o) {
    bowline_trainer* out = nullptr;
    const Outcome made = call(api()->trainer_create, h.model, h.device, o, &out);
    return closed(made, api()->trainer_close, &out);
  }

  void tensors_and_graphs();
  void devices_and_files();
  void training();
  void written();
  void extras();
  void text();
  void imports();

  World world;
  Handles& h = world.h;
  std::set<std::string> tested;
  bowline_bound_dim dim = {sizeof(dim), "batch", kBatch};
  bowline_entry_point point = {sizeof(point), "loss", &dim, 1, BOWLINE_NO_DTYPE};
};

void Sizes::tensors_and_graphs() {
  Batch batch;
  float data[kClasses * kWidth] = {};
  const int64_t shape[] = {kClasses, kWidth};
  const bowline_tensor value = {sizeof(value), nullptr,      BOWLINE_F32, 2, shape,
                                data,          sizeof(data), nullptr,     0};
  reads<bowline_tensor>("bowline_tensor", value, [&](const bowline_tensor* t) {
    return call(api()->model_set_value, h.model, "last.weight", t);
  });
  reads<bowline_scalar>("bowline_scalar", {0, "none", 0, 1, 0}, [&](const bowline_scalar* s) {
    return call(api()->session_run, h.session, nullptr, batch.tensors, 2, nullptr, 0, s, 1, nullptr,
                0);
  });
  reads<bowline_bound_dim>("bowline_bound_dim", dim, [&](const bowline_bound_dim* d) {
    bowline_entry_point p = point;
    p.dims = d;
    return session(&p, nullptr);
  });
  reads<bowline_entry_point>("bowline_entry_point", point,
                             [&](const bowline_entry_point* p) { return session(p, nullptr); });
  reads<bowline_graph_dim>("bowline_graph_dim", {0, 3, nullptr}, [&](const bowline_graph_dim* d) {
    return call(api()->builder_input, h.builder, "x", BOWLINE_F32, d, 1, nullptr);
  });
  reads<bowline_attribute>(
      "bowline_attribute",
      {0, "axis", BOWLINE_ATTRIBUTE_INTEGER, 1, 0, nullptr, nullptr, nullptr, nullptr, 0},
      [&](const bowline_attribute* a) {
        return call(api()->builder_op, h.builder, "Softmax", nullptr, 0, a, 1, nullptr);
      });
  reads<bowline_dim_limits>("bowline_dim_limits", {0, 1, 8, 0}, [&](const bowline_dim_limits* l) {
    return call(api()->model_set_dim_limits, h.model, "batch", l);
  });
  reads<bowline_view>("bowline_view", {0, 0, -1, nullptr, 0, 0}, [&](const bowline_view* v) {
    return call(api()->model_tie, h.model, "none", "last.weight", v, nullptr);
  });
  reads<bowline_init>("bowline_init", {0, BOWLINE_INIT_ONES, 0}, [&](const bowline_init* i) {
    return call(api()->model_resize, h.model, "none", 4, i, 1, nullptr);
  });
}

void Sizes::devices_and_files() {
  options<bowline_device_options>(
      "bowline_device_options", api()->device_options_init, [&](const bowline_device_options* o) {
        bowline_device* out = nullptr;
        return closed(call(api()->device_open, "cpu", o, &out), api()->device_close, &out);
      });
  options<bowline_budget>("bowline_budget", api()->plan_budget_init,
                          [&](const bowline_budget* b) { return session(&point, b); });
  writes<bowline_budget>("bowline_budget",
                         [](bowline_budget* b) { return call(api()->file_budget_init, b, 1000); });
  options<bowline_open_options>("bowline_open_options", api()->open_options_init,
                                [&](const bowline_open_options* o) {
                                  return call(api()->model_verify, decoder_path().c_str(), o);
                                });
  options<bowline_load_options>("bowline_load_options", api()->load_options_init,
                                [&](const bowline_load_options* o) {
                                  return call(api()->model_load, h.model, "/no/file", o, nullptr);
                                });
  reads<bowline_alias>("bowline_alias", {0, "a", "b"}, [&](const bowline_alias* a) {
    auto o = sized<bowline_load_options>();
    o.aliases = a;
    o.alias_count = 1;
    return call(api()->model_load, h.model, "/no/file", &o, nullptr);
  });
}

void Sizes::training() {
  options<bowline_train_options>("bowline_train_options", api()->train_options_init,
                                 [&](const bowline_train_options* o) { return train(o); });
  options<bowline_train_precision>(
      "bowline_train_precision", api()->train_precision_init,
      [&](const bowline_train_precision* p) {
        return train([&](bowline_train_options* o) { o->precision = p; });
      });
  options<bowline_schedule>("bowline_schedule", api()->schedule_init,
                            [&](const bowline_schedule* s) {
                              float rate = 0;
                              return call(api()->learning_rate_at, s, 1, &rate);
                            });
  const bowline_setting setting = {sizeof(setting), "beta1", 0.8f};
  const bowline_optimizer adamw = {sizeof(adamw), nullptr, &setting, 1};
  reads<bowline_optimizer>("bowline_optimizer", adamw, [&](const bowline_optimizer* p) {
    return train([&](bowline_train_options* o) { o->optimizer = p; });
  });
  reads<bowline_setting>("bowline_setting", setting, [&](const bowline_setting* s) {
    const bowline_optimizer one = {sizeof(one), nullptr, s, 1};
    return train([&](bowline_train_options* o) { o->optimizer = &one; });
  });
  reads<bowline_parameter_group>("bowline_parameter_group", {0, "*", 0.5f, 0, 0},
                                 [&](const bowline_parameter_group* g) {
                                   return train([&](bowline_train_options* o) {
                                     o->groups = g;
                                     o->group_count = 1;
                                   });
                                 });
  const bowline_bound_dim eight = {sizeof(eight), "batch", 8};
  reads<bowline_bound_dims>("bowline_bound_dims", {0, &eight, 1}, [&](const bowline_bound_dims* d) {
    return train([&](bowline_train_options* o) {
      o->more_dims = d;
      o->more_dims_count = 1;
    });
  });
  const Batch batch;
  reads<bowline_batch>("bowline_batch", {0, batch.tensors, 2}, [&](const bowline_batch* b) {
    return call(api()->trainer_step, h.trainer, b, 1, nullptr);
  });
  reads<bowline_progress>(
      "bowline_progress", sized<bowline_progress>(), [&](const bowline_progress* p) {
        return call(api()->trainer_save, h.trainer, "/no/folder/file", p, nullptr, 0);
      });
}

void Sizes::written() {
  writes<bowline_device_counters>("bowline_device_counters", [&](bowline_device_counters* c) {
    return call(api()->device_counters, h.device, c);
  });
  writes<bowline_model_counters>("bowline_model_counters", [&](bowline_model_counters* c) {
    return call(api()->model_counters, h.model, c);
  });
  writes<bowline_memory_report>("bowline_memory_report", [&](bowline_memory_report* r) {
    return call(api()->session_memory, h.session, r);
  });
  writes<bowline_counters>("bowline_counters", [&](bowline_counters* c) {
    return call(api()->trainer_counters, h.trainer, c);
  });
}

void Sizes::extras() {
  reads<bowline_external_vulkan>("bowline_external_vulkan", {}, [&](const auto* e) {
    bowline_device* out = nullptr;
    return call(api()->adopt_vulkan, e, static_cast<const bowline_device_options*>(nullptr), &out);
  });
  reads<bowline_external_cuda>("bowline_external_cuda", {}, [&](const auto* e) {
    bowline_device* out = nullptr;
    return call(api()->adopt_cuda, e, static_cast<const bowline_device_options*>(nullptr), &out);
  });
  reads<bowline_exported_memory>("bowline_exported_memory", {}, [&](const auto* m) {
    bowline_device_buffer* out = nullptr;
    return call(api()->import_memory, h.device, m, BOWLINE_OPAQUE_FD, &out);
  });
  options<bowline_adapter_options>("bowline_adapter_options", api()->adapter_options_init,
                                   [&](const bowline_adapter_options* o) {
                                     return call(api()->model_add_adapter, h.model, "", o, nullptr);
                                   });
  auto format = sized<bowline_weight_format>();
  format.name = "format";
  reads<bowline_weight_format>("bowline_weight_format", format,
                               [&](const bowline_weight_format* f) {
                                 return call(api()->model_register_weight_format, h.model, f);
                               });
  const Batch batch;
  options<bowline_tune_options>("bowline_tune_options", api()->tune_options_init,
                                [&](const bowline_tune_options* o) {
                                  return call(api()->tune_session, h.model, h.device, &point,
                                              batch.tensors, 2, nullptr, 0, o, nullptr);
                                });
}

void Sizes::text() {
  const bowline_text_api* const t = text_api();
  options<bowline_encode_options>(
      "bowline_encode_options", t->encode_options_init, [&](const bowline_encode_options* o) {
        return call(t->tokenizer_encode, h.tokenizer, "a", 1, o, nullptr, 0, nullptr);
      });
  options<bowline_sampler_options>("bowline_sampler_options", t->sampler_options_init,
                                   [&](const bowline_sampler_options* o) {
                                     return call(t->generator_set_sampler, h.generator, o);
                                   });
  options<bowline_generator_options>("bowline_generator_options", t->generator_options_init,
                                     [&](const bowline_generator_options* o) {
                                       bowline_generator* out = nullptr;
                                       return closed(
                                           call(t->generator_create, h.model, h.device, o, &out),
                                           t->generator_close, &out);
                                     });
  const auto render = [&](const bowline_chat_message* m, const bowline_chat_inputs* i,
                          const bowline_special_tokens* s) {
    bowline_buffer* out = nullptr;
    const Outcome done = call(t->chat_template_render, h.chat_template, m, 1, i, s, &out);
    api()->buffer_free(out);
    return done;
  };
  const bowline_chat_message message = {sizeof(message), "user", "hi", nullptr};
  reads<bowline_chat_message>("bowline_chat_message", message, [&](const bowline_chat_message* m) {
    return render(m, nullptr, nullptr);
  });
  reads<bowline_chat_inputs>(
      "bowline_chat_inputs", sized<bowline_chat_inputs>(),
      [&](const bowline_chat_inputs* i) { return render(&message, i, nullptr); });
  reads<bowline_special_tokens>(
      "bowline_special_tokens", sized<bowline_special_tokens>(),
      [&](const bowline_special_tokens* s) { return render(&message, nullptr, s); });
}

void Sizes::imports() {
  const bowline_import_api* const i = import_api();
  const std::string folder = BOWLINE_ROOT "/tests/import/fixtures/llama";
  const auto import_with = [&](const bowline_import_options* o, const std::string& path) {
    bowline_model* out = nullptr;
    return closed(call(i->import_model, path.c_str(), o, &out, nullptr), api()->model_close, &out);
  };
  const auto import_onnx = [&](const std::function<void(bowline_onnx_import_options*)>& change) {
    auto onnx = sized<bowline_onnx_import_options>();
    must(i->onnx_import_options_init, &onnx);
    change(&onnx);
    auto o = sized<bowline_import_options>();
    o.onnx = &onnx;
    return import_with(&o, BOWLINE_ROOT "/tests/onnx/fixtures/batched.onnx");
  };
  options<bowline_import_options>(
      "bowline_import_options", i->import_options_init,
      [&](const bowline_import_options* o) { return import_with(o, folder); });
  options<bowline_text_import_options>("bowline_text_import_options", i->text_import_options_init,
                                       [&](const bowline_text_import_options* t) {
                                         auto o = sized<bowline_import_options>();
                                         o.text = t;
                                         return import_with(&o, folder);
                                       });
  options<bowline_onnx_import_options>("bowline_onnx_import_options", i->onnx_import_options_init,
                                       [&](const bowline_onnx_import_options* t) {
                                         auto o = sized<bowline_import_options>();
                                         o.onnx = t;
                                         return import_with(&o, folder);
                                       });
  const int64_t sizes[] = {2};
  reads<bowline_input_shape>("bowline_input_shape", {0, "none", sizes, 1},
                             [&](const bowline_input_shape* s) {
                               return import_onnx([&](bowline_onnx_import_options* o) {
                                 o->shapes = s;
                                 o->shape_count = 1;
                               });
                             });
  const double values[] = {2};
  reads<bowline_input_values>("bowline_input_values", {0, "none", values, 1},
                              [&](const bowline_input_values* v) {
                                return import_onnx([&](bowline_onnx_import_options* o) {
                                  o->given = v;
                                  o->given_count = 1;
                                });
                              });
  tested.insert("bowline_import_progress");  // the library makes it, see import_test.cpp
}

// A wrong report must not cost a step.
TEST_F(Sizes, AWrongReportTakesNoStep) {
  const Batch batch;
  uint64_t before = 0, after = 0;
  bowline_step_report report = {};
  must(api()->trainer_steps, h.trainer, &before);
  expect_error(
      call(api()->trainer_micro_step, h.trainer, batch.tensors, 2, nullptr, 0, &report, nullptr),
      BOWLINE_BAD_ARGUMENT, "The size of bowline_step_report is 0.");
  must(api()->trainer_steps, h.trainer, &after);
  EXPECT_EQ(after, before);
}

// In an array, the first struct states the size of all.
TEST_F(Sizes, AnArrayOfLargerStructsIsRead) {
  Batch batch;
  Larger<bowline_tensor> larger[2] = {{batch.tensors[0], {}}, {batch.tensors[1], {}}};
  larger[0].known.size = larger[1].known.size = sizeof(larger[0]);
  must(api()->trainer_micro_step, h.trainer, &larger[0].known, 2, nullptr, 0, nullptr, nullptr);
  larger[1].more[0] = 1;
  expect_error(
      call(api()->trainer_micro_step, h.trainer, &larger[0].known, 2, nullptr, 0, nullptr, nullptr),
      BOWLINE_UNSUPPORTED, "bowline_tensor");
}

TEST_F(Sizes, EveryStructIsChecked) {
  tensors_and_graphs();
  devices_and_files();
  training();
  const Batch batch;
  writes<bowline_step_report>("bowline_step_report", [&](bowline_step_report* r) {
    return call(api()->trainer_micro_step, h.trainer, batch.tensors, 2, nullptr, 0, r, nullptr);
  });
  written();
  extras();
  if (text_api() == nullptr) {
    GTEST_SKIP() << "The library was built without bowline::text.";
  }
  text();
  if (import_api() != nullptr) {
    imports();
  }
  EXPECT_EQ(tested, std::set<std::string>(std::begin(kSizedStructs), std::end(kSizedStructs)));
}

}  // namespace
}  // namespace c_test
