#include "bench/c_session.h"

#include <dlfcn.h>

#include <vector>

#include "base/status.h"
#include "bowline_c.h"

namespace bowline::command {
namespace {

Status status_of(const bowline_api& api, bowline_code code, bowline_error* error) {
  if (code == BOWLINE_OK) {
    return {};
  }
  Status out(static_cast<Code>(code), api.error_message(error));
  api.error_free(error);
  return out;
}

bowline_tensor tensor_of(const Tensor& t) {
  uint64_t bytes = size_of(t.dtype);
  for (const int64_t size : t.shape) {
    bytes *= static_cast<uint64_t>(size);
  }
  return {sizeof(bowline_tensor),
          t.name.data(),
          static_cast<bowline_dtype>(t.dtype),
          static_cast<int32_t>(t.shape.size()),
          t.shape.begin(),
          t.data,
          bytes,
          nullptr,
          0};
}

}  // namespace

struct CSession::State {
  const bowline_api* api = nullptr;
  bowline_device* device = nullptr;
  bowline_model* model = nullptr;
  bowline_session* session = nullptr;
  std::vector<bowline_tensor> inputs;

  ~State() {
    if (api != nullptr) {
      api->session_close(session, nullptr);
      api->model_close(model, nullptr);
      api->device_close(device, nullptr);
    }
  }

  // Calls a function of the table. The last argument is the error.
  template <class Function, class... Arguments>
  Status call(Function function, Arguments... arguments) const {
    bowline_error* error = nullptr;
    const bowline_code code = function(arguments..., &error);
    return status_of(*api, code, error);
  }
};

CSession::CSession(std::unique_ptr<State> state) : state_(std::move(state)) {}
CSession::~CSession() = default;
CSession::CSession(CSession&&) noexcept = default;
CSession& CSession::operator=(CSession&&) noexcept = default;

Result<CSession> CSession::open(const std::string& library, const std::string& model,
                                const std::string& device, const BoundEntryPoint& entry,
                                std::span<const Tensor> inputs) {
  // It stays loaded: its threads may outlive the session.
  void* const file = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  BOWLINE_REQUIRE(file != nullptr, "The library {} cannot be loaded: {}.", library, dlerror());
  auto* const get = reinterpret_cast<decltype(&bowline_get_api)>(dlsym(file, "bowline_get_api"));
  const bowline_api* const api = get == nullptr ? nullptr : get(BOWLINE_API_VERSION);
  BOWLINE_REQUIRE(api != nullptr, "{} has no C interface of Bowline of version {}.", library,
                  BOWLINE_API_VERSION);
  auto state = std::make_unique<State>();
  state->api = api;
  BOWLINE_TRY(state->call(api->device_open, device.c_str(), nullptr, &state->device));
  BOWLINE_TRY(state->call(api->model_open, model.c_str(), nullptr, &state->model));
  BOWLINE_TRY(state->call(api->model_to, state->model, state->device, nullptr));
  std::vector<bowline_bound_dim> dims;
  for (const BoundDim& dim : entry.dims) {
    dims.push_back({sizeof(bowline_bound_dim), dim.name.c_str(), dim.value});
  }
  const bowline_entry_point point = {
      sizeof(bowline_entry_point), entry.name.c_str(), dims.data(), dims.size(),
      entry.compute_dtype ? static_cast<bowline_dtype>(*entry.compute_dtype) : BOWLINE_NO_DTYPE};
  BOWLINE_TRY(state->call(api->session_create, state->model, state->device, &point, size_t{1},
                          nullptr, &state->session));
  for (const Tensor& t : inputs) {
    state->inputs.push_back(tensor_of(t));
  }
  return CSession(std::move(state));
}

Status CSession::run() {
  const State& s = *state_;
  return s.call(s.api->session_run, s.session, nullptr, s.inputs.data(), s.inputs.size(), nullptr,
                size_t{0}, nullptr, size_t{0}, nullptr, size_t{0});
}

}  // namespace bowline::command
