#include "world.h"

namespace c_test {

const bowline_api* api() { return bowline_get_api(BOWLINE_API_VERSION); }
const bowline_text_api* text_api() { return bowline_get_text_api(BOWLINE_API_VERSION); }
const bowline_import_api* import_api() { return bowline_get_import_api(BOWLINE_API_VERSION); }

Outcome outcome_of(bowline_code code, bowline_error* error) {
  EXPECT_EQ(api()->error_code(error), code);
  Outcome out{code, api()->error_message(error)};
  api()->error_free(error);
  return out;
}

void expect_error(const Outcome& done, bowline_code code, std::string_view part) {
  EXPECT_EQ(done.code, code) << done.message;
  EXPECT_NE(done.message.find(part), std::string::npos) << done.message;
}

std::string text_of(bowline_buffer* buffer) {
  std::string out(static_cast<const char*>(api()->buffer_data(buffer)), api()->buffer_size(buffer));
  api()->buffer_free(buffer);
  return out;
}

Batch::Batch() {
  for (int i = 0; i < kBatch * kWidth; ++i) {
    points[i] = static_cast<float>(i * 7 % 11) * 0.2f - 1.0f;
  }
  for (int i = 0; i < kBatch; ++i) {
    labels[i] = i % kClasses;
  }
  tensors[0] = {
      sizeof(bowline_tensor), "points", BOWLINE_F32, 2, shape, points, sizeof(points), nullptr, 0};
  tensors[1] = {
      sizeof(bowline_tensor), "labels", BOWLINE_I32, 1, shape, labels, sizeof(labels), nullptr, 0};
}

namespace {

bowline_parameter weight(bowline_model* model, const char* name, int64_t rows) {
  const bowline_init init = {sizeof(init), BOWLINE_INIT_UNIFORM, 0.8f};
  const int64_t shape[] = {rows, kWidth};
  bowline_parameter out = {};
  must(api()->model_parameter, model, name, shape, 2, &init, BOWLINE_ROLE_WEIGHT, BOWLINE_F32,
       &out);
  return out;
}

bowline_value linear(bowline_builder* g, bowline_value x, bowline_parameter weight) {
  bowline_value in[2] = {x, {}};
  must(api()->builder_parameter, g, weight, &in[1]);
  bowline_value out = {};
  must(api()->builder_op, g, "Linear", in, 2, nullptr, 0, &out);
  return out;
}

}  // namespace

bowline_model* make_model() {
  bowline_model* model = nullptr;
  bowline_builder* g = nullptr;
  must(api()->model_create, &model);
  must(api()->builder_create, model, "loss", &g);
  const bowline_graph_dim dims[] = {{sizeof(dims[0]), 0, "batch"},
                                    {sizeof(dims[0]), kWidth, nullptr}};
  bowline_value in[2] = {};
  must(api()->builder_input, g, "points", BOWLINE_F32, dims, 2, &in[0]);
  must(api()->builder_input, g, "labels", BOWLINE_I32, dims, 1, &in[1]);
  const bowline_parameter first = weight(model, "first.weight", kWidth);
  bowline_parameter second = {};
  must(api()->model_tied_parameter, model, "second.weight", first, nullptr, &second);
  in[0] = linear(g, in[0], first);
  must(api()->builder_op, g, "Tanh", in, 1, nullptr, 0, in);
  in[0] = linear(g, in[0], second);
  in[0] = linear(g, in[0], weight(model, "last.weight", kClasses));
  must(api()->builder_output, g, "scores", in[0]);
  must(api()->builder_op, g, "CrossEntropy", in, 2, nullptr, 0, in);
  must(api()->builder_output, g, "loss", in[0]);
  must(api()->builder_finish, g);
  must(api()->builder_close, g);
  must(api()->model_materialize, model, 1);
  return model;
}

bowline_device* open_cpu() {
  bowline_device* device = nullptr;
  must(api()->device_open, "cpu", nullptr, &device);
  return device;
}

bowline_trainer* make_trainer(bowline_model* model, bowline_device* device) {
  const bowline_bound_dim dim = {sizeof(dim), "batch", kBatch};
  bowline_train_options options;
  options.size = sizeof(options);
  must(api()->train_options_init, &options);
  options.dims = &dim;
  options.dim_count = 1;
  bowline_trainer* trainer = nullptr;
  must(api()->trainer_create, model, device, &options, &trainer);
  return trainer;
}

bowline_session* make_session(bowline_model* model, bowline_device* device) {
  const bowline_bound_dim dim = {sizeof(dim), "batch", kBatch};
  const bowline_entry_point point = {sizeof(point), "loss", &dim, 1, BOWLINE_NO_DTYPE};
  bowline_session* session = nullptr;
  must(api()->session_create, model, device, &point, 1, nullptr, &session);
  return session;
}

std::vector<float> scores_of(bowline_session* session) {
  std::vector<float> out(kBatch * kClasses);
  const int64_t shape[] = {kBatch, kClasses};
  const bowline_tensor scores = {
      sizeof(scores), "scores", BOWLINE_F32, 2, shape, out.data(), out.size() * sizeof(float),
      nullptr,        0};
  const Batch batch;
  must(api()->session_run, session, nullptr, batch.tensors, 2, &scores, 1, nullptr, 0, nullptr, 0);
  return out;
}

World::World() {
  h.device = open_cpu();
  h.model = make_model();
  must(api()->model_to, h.model, h.device, nullptr);
  h.session = make_session(h.model, h.device);
  h.trainer = make_trainer(h.model, h.device);
  must(api()->builder_create, h.model, "other", &h.builder);
  must(api()->device_buffer_create, h.device, uint64_t{64}, &h.device_buffer);
  must(api()->session_submit, h.session, "none", nullptr, 0, nullptr, 0, nullptr, 0, nullptr, 0,
       nullptr, nullptr, &h.pending_run);
  expect_error(call(api()->pending_run_wait, h.pending_run), BOWLINE_BAD_ARGUMENT, "none");
  if (text_api() == nullptr) {
    return;
  }
  must(text_api()->tokenizer_of_bytes, &h.tokenizer);
  must(text_api()->tokenizer_stream, h.tokenizer, 0, &h.decoder);
  must(text_api()->chat_template_named, "chatml", &h.chat_template);
  must(text_api()->stop_strings_create, nullptr, 0, &h.stop_strings);
  bowline_model* decoder = nullptr;
  must(api()->model_open, decoder_path().c_str(), nullptr, &decoder);
  must(api()->model_to, decoder, h.device, nullptr);
  must(text_api()->generator_create, decoder, h.device, nullptr, &h.generator);
  must(api()->model_close, decoder);
}

void World::close() {
  must(api()->device_close, h.device);
  must(api()->model_close, h.model);
  must(api()->session_close, h.session);
  must(api()->trainer_close, h.trainer);
  must(api()->builder_close, h.builder);
  must(api()->device_buffer_close, h.device_buffer);
  must(api()->pending_run_close, h.pending_run);
  if (text_api() != nullptr) {
    must(text_api()->tokenizer_close, h.tokenizer);
    must(text_api()->decoder_close, h.decoder);
    must(text_api()->chat_template_close, h.chat_template);
    must(text_api()->stop_strings_close, h.stop_strings);
    must(text_api()->generator_close, h.generator);
  }
  h = {};
}

std::string decoder_path() { return BOWLINE_ROOT "/samples/finetune_text/base.bowline"; }

}  // namespace c_test
