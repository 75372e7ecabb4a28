#include "c/convert.h"

#include <algorithm>

#include "base/checked.h"

namespace bowline::c {

static_assert(same(Code::internal, BOWLINE_INTERNAL) && same(Code::cancelled, BOWLINE_CANCELLED) &&
              same(Code::non_finite, BOWLINE_NON_FINITE) && same(Code::bad_file, BOWLINE_BAD_FILE));
static_assert(kDTypes == BOWLINE_BOOL + 1 && same(DType::bf16, BOWLINE_BF16) &&
              same(DType::i64, BOWLINE_I64));
static_assert(same(StorageRole::constant, BOWLINE_ROLE_CONSTANT) &&
              same(StorageRole::kv_cache, BOWLINE_ROLE_KV_CACHE) &&
              same(StorageRole::running_statistic, BOWLINE_ROLE_RUNNING_STATISTIC));
static_assert(same(Init::Kind::uniform, BOWLINE_INIT_UNIFORM) &&
              same(Schedule::Kind::cosine, BOWLINE_COSINE) &&
              same(LoadMode::assign, BOWLINE_LOAD_ASSIGN) &&
              same(MatmulPrecision::tf32, BOWLINE_MATMUL_TF32));
static_assert(same(TrainStart::from_checkpoint, BOWLINE_FROM_CHECKPOINT) &&
              same(OnNonFinite::rollback, BOWLINE_ROLLBACK) &&
              same(TrainState::damaged, BOWLINE_DAMAGED) &&
              same(TrainState::paused, BOWLINE_PAUSED));
static_assert(same(LogLevel::info, BOWLINE_LOG_INFO) &&
              same(LogLevel::warning, BOWLINE_LOG_WARNING));

Status check_range(size_t size, size_t first, std::string_view type) {
  constexpr size_t kLargest = 4096;
  BOWLINE_REQUIRE(size >= first && size <= kLargest, "The size of {} is {}. Set it to sizeof({}).",
                  type, size, type);
  return {};
}

Status check_size(const void* from, size_t size, size_t first, size_t known,
                  std::string_view type) {
  BOWLINE_TRY(check_range(size, first, type));
  const auto* const bytes = static_cast<const unsigned char*>(from);
  for (size_t i = known; i < size; ++i) {
    BOWLINE_REQUIRE_CODE(bytes[i] == 0, Code::unsupported,
                         "{} has a member that this version of the library does not know.", type);
  }
  return {};
}

Result<std::string_view> required(const char* from, std::string_view name) {
  BOWLINE_TRY(given(from, name));
  return std::string_view(from);
}

Result<DType> dtype_of(bowline_dtype from) {
  BOWLINE_REQUIRE(from >= 0 && from < kDTypes, "There is no dtype {}.", from);
  return static_cast<DType>(from);
}

Result<std::optional<DType>> optional_dtype(bowline_dtype from) {
  if (from == BOWLINE_NO_DTYPE) {
    return std::optional<DType>();
  }
  BOWLINE_TRY_ASSIGN(const DType type, dtype_of(from));
  return std::optional<DType>(type);
}

Result<TensorShape> shape_of(const int64_t* dims, int32_t rank) {
  constexpr int32_t kMostDims = 8;
  BOWLINE_REQUIRE(rank >= 0 && rank <= kMostDims, "A tensor has 0 to 8 dimensions, not {}.", rank);
  BOWLINE_REQUIRE(rank == 0 || dims != nullptr, "The shape of a tensor of rank {} is NULL.", rank);
  return TensorShape(dims, static_cast<size_t>(rank));
}

Result<Tensor> tensor_of(const bowline_tensor& from) {
  const std::string_view name = text_or(from.name, "");
  BOWLINE_TRY_ASSIGN(const DType type, dtype_of(from.dtype));
  BOWLINE_TRY_ASSIGN(const TensorShape shape, shape_of(from.shape, from.rank));
  uint64_t bytes = size_of(type);
  bool fits = true;
  for (const int64_t size : shape) {
    BOWLINE_REQUIRE(size >= 0, "A dimension of tensor \"{}\" is {}.", name, size);
    fits = fits && checked_mul(bytes, static_cast<uint64_t>(size), bytes);
  }
  BOWLINE_REQUIRE(fits, "Tensor \"{}\" needs more than 2^64 bytes.", name);
  BOWLINE_REQUIRE(bytes == from.bytes,
                  "The data of tensor \"{}\" has {} bytes. Its shape and dtype need {}.", name,
                  from.bytes, bytes);
  Tensor out{name, type, shape, from.data};
  if (from.buffer != nullptr) {
    BOWLINE_TRY_ASSIGN(const auto buffer, object_of(from.buffer));
    out.buffer = buffer.get();  // the handle keeps it
    out.offset = from.offset;
    return out;
  }
  BOWLINE_REQUIRE(from.data != nullptr || bytes == 0, "The data of tensor \"{}\" is NULL.", name);
  return out;
}

Result<Tensor> value_of(const bowline_tensor* from) {
  BOWLINE_TRY_ASSIGN(const bowline_tensor tensor, read(from, "bowline_tensor"));
  return tensor_of(tensor);
}

Result<std::vector<Tensor>> tensors(const bowline_tensor* from, size_t count,
                                    std::string_view name) {
  return read_list(from, count, "bowline_tensor", [&](const bowline_tensor& t) -> Result<Tensor> {
    BOWLINE_REQUIRE(t.name != nullptr, "One of the {} has no name.", name);
    return tensor_of(t);
  });
}

Result<std::vector<StepScalar>> scalars(const bowline_scalar* from, size_t count) {
  return read_list(
      from, count, "bowline_scalar", [](const bowline_scalar& s) -> Result<StepScalar> {
        BOWLINE_TRY_ASSIGN(const std::string_view name, required(s.name, "name of a scalar"));
        return s.is_float != 0 ? StepScalar(name, s.real) : StepScalar(name, s.integer);
      });
}

Result<std::vector<BoundDim>> bound_dims(const bowline_bound_dim* from, size_t count) {
  return read_list(
      from, count, "bowline_bound_dim", [](const bowline_bound_dim& d) -> Result<BoundDim> {
        BOWLINE_TRY_ASSIGN(const std::string_view name, required(d.name, "name of a dimension"));
        return BoundDim{std::string(name), d.value};
      });
}

Result<BoundEntryPoint> entry_point_of(const bowline_entry_point& from) {
  BoundEntryPoint out;
  BOWLINE_TRY_ASSIGN(const std::string_view name, required(from.name, "name of an entry point"));
  out.name = name;
  BOWLINE_TRY_ASSIGN(out.dims, bound_dims(from.dims, from.dim_count));
  BOWLINE_TRY_ASSIGN(out.compute_dtype, optional_dtype(from.compute_dtype));
  return out;
}

Result<std::vector<GraphDim>> graph_dims(const bowline_graph_dim* from, size_t count) {
  return read_list(from, count, "bowline_graph_dim", [](const bowline_graph_dim& d) {
    return Result<GraphDim>(d.name == nullptr ? GraphDim(d.value) : GraphDim(d.name));
  });
}

Result<std::optional<View>> view_of(const bowline_view* from) {
  if (from == nullptr) {
    return std::optional<View>();
  }
  BOWLINE_TRY_ASSIGN(const bowline_view view, read(from, "bowline_view"));
  View out;
  out.row_start = view.row_start;
  out.rows = view.rows;
  out.transpose = view.transpose != 0;
  BOWLINE_TRY_ASSIGN(const TensorShape shape, shape_of(view.shape, view.rank));
  out.shape.assign(shape.begin(), shape.end());
  return std::optional<View>(std::move(out));
}

Result<Init> init_of(const bowline_init* from) {
  if (from == nullptr) {
    return Init::zeros();
  }
  BOWLINE_TRY_ASSIGN(const bowline_init init, read(from, "bowline_init"));
  Init out;
  BOWLINE_TRY_ASSIGN(out.kind, enum_of(init.kind, Init::Kind::uniform, "bowline_init.kind"));
  out.scale = init.scale;
  return out;
}

Result<Budget> budget_of(const bowline_budget* from, const Budget& otherwise) {
  BOWLINE_TRY_ASSIGN(const bowline_budget budget,
                     read(from, c_struct(otherwise), "bowline_budget"));
  Budget out;
  out.bytes = budget.bytes;
  out.nodes = budget.nodes;
  out.seconds = budget.seconds;
  return out;
}

Result<Schedule> schedule_of(const bowline_schedule* from) {
  BOWLINE_TRY_ASSIGN(const bowline_schedule s,
                     read(from, c_struct(Schedule{}), "bowline_schedule"));
  Schedule out;
  BOWLINE_TRY_ASSIGN(out.kind, enum_of(s.kind, Schedule::Kind::cosine, "bowline_schedule.kind"));
  out.learning_rate = s.learning_rate;
  out.final_fraction = s.final_fraction;
  out.warmup_steps = s.warmup_steps;
  out.total_steps = s.total_steps;
  return out;
}

namespace {

Result<Optimizer> optimizer_of(const bowline_optimizer* from) {
  Optimizer out;
  if (from == nullptr) {
    return out;
  }
  BOWLINE_TRY_ASSIGN(const bowline_optimizer optimizer, read(from, "bowline_optimizer"));
  out.name = text_or(optimizer.name, out.name);
  BOWLINE_TRY_ASSIGN(
      const auto settings,
      read_list(optimizer.settings, optimizer.setting_count, "bowline_setting",
                [](const bowline_setting& s) -> Result<std::pair<std::string, float>> {
                  BOWLINE_TRY_ASSIGN(const std::string_view name,
                                     required(s.name, "name of a setting"));
                  return std::pair(std::string(name), s.value);
                }));
  for (const auto& [name, value] : settings) {
    BOWLINE_REQUIRE(out.settings.emplace(name, value).second, "Setting \"{}\" is given twice.",
                    name);
  }
  return out;
}

Result<ParameterGroup> group_of(const bowline_parameter_group& from) {
  ParameterGroup out;
  BOWLINE_TRY_ASSIGN(const std::string_view pattern, required(from.pattern, "pattern of a group"));
  out.pattern = pattern;
  out.learning_rate_factor = from.learning_rate_factor;
  if (from.has_weight_decay != 0) {
    out.weight_decay = from.weight_decay;
  }
  return out;
}

Result<TrainPrecision> precision_of(const bowline_train_precision* from) {
  BOWLINE_TRY_ASSIGN(const bowline_train_precision p,
                     read(from, c_struct(TrainPrecision{}), "bowline_train_precision"));
  TrainPrecision out;
  BOWLINE_TRY_ASSIGN(out.compute_dtype, optional_dtype(p.compute_dtype));
  out.loss_scale = p.loss_scale;
  out.initial_scale = p.initial_scale;
  out.growth_interval = p.growth_interval;
  return out;
}

}  // namespace

Result<TrainOptions> train_options_of(const bowline_train_options* from) {
  TrainOptions out;
  BOWLINE_TRY_ASSIGN(const bowline_train_options o,
                     read(from, c_struct(out), "bowline_train_options"));
  out.entry_point = text_or(o.entry_point, out.entry_point);
  out.loss = text_or(o.loss, out.loss);
  BOWLINE_TRY_ASSIGN(out.dims, bound_dims(o.dims, o.dim_count));
  BOWLINE_TRY_ASSIGN(out.more_dims, read_list(o.more_dims, o.more_dims_count, "bowline_bound_dims",
                                              [](const bowline_bound_dims& d) {
                                                return bound_dims(d.dims, d.count);
                                              }));
  BOWLINE_TRY_ASSIGN(out.optimizer, optimizer_of(o.optimizer));
  BOWLINE_TRY_ASSIGN(out.schedule, schedule_of(o.schedule));
  BOWLINE_TRY_ASSIGN(out.budget, budget_of(o.budget, out.budget));
  BOWLINE_TRY_ASSIGN(out.groups,
                     read_list(o.groups, o.group_count, "bowline_parameter_group", group_of));
  BOWLINE_TRY_ASSIGN(out.precision, precision_of(o.precision));
  out.seed = o.seed;
  out.clip_norm = o.clip_norm;
  out.accumulation = o.accumulation;
  BOWLINE_TRY_ASSIGN(out.start, enum_of(o.start, TrainStart::from_checkpoint, "start"));
  BOWLINE_TRY_ASSIGN(out.on_nonfinite,
                     enum_of(o.on_nonfinite, OnNonFinite::rollback, "on_nonfinite"));
  out.max_nonfinite_in_row = o.max_nonfinite_in_row;
  return out;
}

bowline_budget c_struct(const Budget& from) {
  return {.size = sizeof(bowline_budget),
          .bytes = from.bytes,
          .nodes = from.nodes,
          .seconds = from.seconds};
}

bowline_schedule c_struct(const Schedule& from) {
  return {.size = sizeof(bowline_schedule),
          .kind = static_cast<int32_t>(from.kind),
          .learning_rate = from.learning_rate,
          .final_fraction = from.final_fraction,
          .warmup_steps = from.warmup_steps,
          .total_steps = from.total_steps};
}

bowline_train_precision c_struct(const TrainPrecision& from) {
  return {.size = sizeof(bowline_train_precision),
          .compute_dtype = BOWLINE_NO_DTYPE,
          .loss_scale = from.loss_scale,
          .initial_scale = from.initial_scale,
          .growth_interval = from.growth_interval};
}

bowline_train_options c_struct(const TrainOptions& from) {
  bowline_train_options out = {};
  out.size = sizeof(out);
  out.seed = from.seed;
  out.clip_norm = from.clip_norm;
  out.accumulation = from.accumulation;
  out.start = static_cast<int32_t>(from.start);
  out.on_nonfinite = static_cast<int32_t>(from.on_nonfinite);
  out.max_nonfinite_in_row = from.max_nonfinite_in_row;
  return out;
}

bowline_memory_report c_struct(const MemoryReport& from) {
  return {.size = sizeof(bowline_memory_report),
          .storage_bytes = from.storage_bytes,
          .copy_bytes = from.copy_bytes,
          .arena_bytes = from.arena_bytes,
          .io_bytes = from.io_bytes,
          .backend_bytes = from.backend_bytes,
          .staging_bytes = from.staging_bytes,
          .predicted_bytes = from.predicted_bytes,
          .lower_bound_bytes = from.lower_bound_bytes};
}

bowline_counters c_struct(const Counters& from) {
  return {.size = sizeof(bowline_counters),
          .plan_builds = from.plan_builds,
          .recordings = from.recordings,
          .submits = from.submits,
          .refreshes = from.refreshes,
          .transfers = from.transfers,
          .hook_calls = from.hook_calls,
          .launches = from.launches};
}

bowline_step_report c_struct(const StepReport& from) {
  return {.size = sizeof(bowline_step_report),
          .step = from.step,
          .loss = from.loss,
          .grad_norm = from.grad_norm,
          .learning_rate = from.learning_rate,
          .loss_scale = from.loss_scale,
          .skipped = from.skipped ? 1 : 0,
          .rolled_back = from.rolled_back ? 1 : 0,
          .weights_non_finite = from.weights_non_finite ? 1 : 0,
          .nonfinite_in_row = from.nonfinite_in_row,
          .nonfinite_steps = from.nonfinite_steps};
}

bowline_progress c_struct(const Progress& from) {
  return {.size = sizeof(bowline_progress),
          .step = from.step,
          .micro_step = from.micro_step,
          .epoch = from.epoch,
          .data_cursor = from.data_cursor,
          .data_seed = from.data_seed};
}

}  // namespace bowline::c
