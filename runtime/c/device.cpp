// Devices, options and what needs no handle.
#include "c/convert.h"
#include "generated/c_api.h"

namespace bowline::c {
namespace {

// The C struct of the defaults, where text is NULL.
bowline_device_options c_struct(const DeviceOptions& from) {
  bowline_device_options out = {};
  out.threads = from.threads;
  out.matmul_precision = static_cast<int32_t>(from.matmul_precision);
  out.memory_budget = from.memory_budget;
  out.max_load = from.max_load;
  out.nice = from.nice;
  return out;
}

// The callbacks of the program. An exception that leaves one is handled as in C++.
Executor executor_of(bowline_executor executor, void* user) {
  if (executor == nullptr) {
    return {};
  }
  return [executor, user](size_t count, const std::function<void(size_t)>& task) {
    const auto run = [](void* context, size_t index) {
      (*static_cast<const std::function<void(size_t)>*>(context))(index);
    };
    executor(user, count, run, const_cast<std::function<void(size_t)>*>(&task));
  };
}

std::function<void(LogLevel, std::string_view)> log_of(bowline_log_callback log, void* user) {
  if (log == nullptr) {
    return {};
  }
  return [log, user](LogLevel level, std::string_view message) {
    log(user, static_cast<int32_t>(level), std::string(message).c_str());
  };
}

// Sets an options struct of the caller to the defaults.
template <class T>
bowline_code init(const T& defaults, T* options, std::string_view type, bowline_error** error) {
  return call(error, [&] { return write(defaults, options, type); });
}

}  // namespace

Result<DeviceOptions> device_options_of(const bowline_device_options* from) {
  BOWLINE_TRY_ASSIGN(const bowline_device_options o,
                     read(from, c_struct(DeviceOptions{}), "bowline_device_options"));
  DeviceOptions out;
  out.threads = o.threads;
  out.cache_folder = text_or(o.cache_folder, "");
  out.memory_budget = o.memory_budget;
  out.nice = o.nice;
  out.max_load = o.max_load;
  BOWLINE_REQUIRE(o.cores != nullptr || o.core_count == 0, "The list of cores is NULL.");
  out.cores.assign(o.cores, o.cores + o.core_count);
  out.executor = executor_of(o.executor, o.executor_user);
  out.log = log_of(o.log, o.log_user);
  BOWLINE_TRY_ASSIGN(out.matmul_precision,
                     enum_of(o.matmul_precision, MatmulPrecision::tf32, "matmul_precision"));
  if (o.allocate != nullptr) {
    out.allocator.allocate = [o](size_t bytes, size_t alignment) {
      return o.allocate(o.allocator_user, bytes, alignment);
    };
  }
  if (o.deallocate != nullptr) {
    out.allocator.free = [o](void* memory, size_t bytes) {
      o.deallocate(o.allocator_user, memory, bytes);
    };
  }
  return out;
}

namespace api {

const char* version() { return bowline::version().data(); }

const char* code_name(bowline_code code) {
  const bool known = code >= BOWLINE_OK && code <= BOWLINE_INTERNAL;
  return known ? bowline::name_of(static_cast<Code>(code)).data() : "unknown";
}

const char* dtype_name(bowline_dtype dtype) {
  const Result<DType> type = dtype_of(dtype);
  return type.ok() ? bowline::name_of(type.value()).data() : "unknown";
}

size_t dtype_size(bowline_dtype dtype) {
  const Result<DType> type = dtype_of(dtype);
  return type.ok() ? size_of(type.value()) : 0;
}

bowline_code device_options_init(bowline_device_options* options, bowline_error** error) {
  return init(c_struct(DeviceOptions{}), options, "bowline_device_options", error);
}
bowline_code file_budget_init(bowline_budget* budget, uint64_t table_bytes, bowline_error** error) {
  return init(c_struct(Budget::of_file(table_bytes)), budget, "bowline_budget", error);
}
bowline_code plan_budget_init(bowline_budget* budget, bowline_error** error) {
  return init(c_struct(Budget::of_plan()), budget, "bowline_budget", error);
}
bowline_code train_options_init(bowline_train_options* options, bowline_error** error) {
  return init(c_struct(TrainOptions{}), options, "bowline_train_options", error);
}
bowline_code train_precision_init(bowline_train_precision* options, bowline_error** error) {
  return init(c_struct(TrainPrecision{}), options, "bowline_train_precision", error);
}
bowline_code schedule_init(bowline_schedule* options, bowline_error** error) {
  return init(c_struct(Schedule{}), options, "bowline_schedule", error);
}

bowline_code device_list(bowline_buffer** out, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_json(Result(Device::list()), out);
  });
}

bowline_code device_open(const char* name, const bowline_device_options* options,
                         bowline_device** out, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const std::string_view device_name, required(name, "name"));
    BOWLINE_TRY_ASSIGN(const DeviceOptions given_options, device_options_of(options));
    BOWLINE_TRY_ASSIGN(Device device, Device::open(device_name, given_options));
    *out = make_handle<bowline_device>(std::make_shared<const Device>(std::move(device)), nullptr);
    return {};
  });
}

bowline_code device_close(bowline_device* device, bowline_error** error) {
  return close(device, error);
}

bowline_code device_info(bowline_device* device, bowline_buffer** out, bowline_error** error) {
  return with(device, error, [&](const Device& d) -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_json(Result(d.info()), out);
  });
}

bowline_code device_counters(bowline_device* device, bowline_device_counters* out,
                             bowline_error** error) {
  return with(device, error, [&](const Device& d) {
    const DeviceCounters c = d.counters();
    return write({.size = sizeof(*out),
                  .allocations = c.allocations,
                  .live_bytes = c.live_bytes,
                  .peak_bytes = c.peak_bytes,
                  .copies_in = c.copies_in,
                  .copies_out = c.copies_out,
                  .copies = c.copies,
                  .fills = c.fills,
                  .records = c.records,
                  .submits = c.submits},
                 out, "bowline_device_counters");
  });
}

bowline_code device_reset_counters(bowline_device* device, bowline_error** error) {
  return with(device, error, [&](const Device& d) {
    Device(d).reset_counters();
    return Status();
  });
}

bowline_code optimizers(bowline_buffer** out, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    return put_json(Result(bowline::optimizers()), out);
  });
}

bowline_code learning_rate_at(const bowline_schedule* schedule, uint64_t step, float* out,
                              bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const Schedule s, schedule_of(schedule));
    *out = bowline::learning_rate_at(s, step);
    return {};
  });
}

bowline_code write_file(const char* path, const void* const* pieces, const size_t* bytes,
                        size_t count, bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY_ASSIGN(const std::string_view to, required(path, "path"));
    std::vector<std::span<const std::byte>> parts;
    for (size_t i = 0; i < count; ++i) {
      BOWLINE_TRY(given(pieces, "pieces"));
      BOWLINE_TRY(given(bytes, "bytes"));
      BOWLINE_REQUIRE(pieces[i] != nullptr || bytes[i] == 0, "Part {} is NULL.", i);
      parts.emplace_back(static_cast<const std::byte*>(pieces[i]), bytes[i]);
    }
    return bowline::write_file(std::string(to), parts);
  });
}

}  // namespace api
}  // namespace bowline::c
