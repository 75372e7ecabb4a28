/// \file
/// Codes, handles, and the structs for tensors and options of the C interface.
///
/// bowline_c.h has the rules.
#ifndef BOWLINE_C_TYPES_H
#define BOWLINE_C_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The version of the tables that this header declares. A later version of the library also
/// returns the tables of earlier versions.
#define BOWLINE_API_VERSION 1

/// The kind of an error, as bowline::Code. Each code asks the caller for a different reaction.
typedef int32_t bowline_code;
enum {
  BOWLINE_OK = 0,                  ///< No error.
  BOWLINE_BAD_ARGUMENT = 1,        ///< Fix the call.
  BOWLINE_BAD_FILE = 2,            ///< Do not use this file.
  BOWLINE_INDEX_OUT_OF_RANGE = 3,  ///< Fix the input data.
  BOWLINE_UNSUPPORTED = 4,         ///< Choose another device, model or precision.
  BOWLINE_NON_FINITE = 5,          ///< Look for the cause of the infinity or NaN.
  BOWLINE_OUT_OF_MEMORY = 6,       ///< Free memory of the host or the device.
  BOWLINE_OVER_BUDGET = 7,         ///< Raise the budget, if you trust the file.
  BOWLINE_IO_ERROR = 8,            ///< Try again, or choose another path.
  BOWLINE_DEVICE_LOST = 9,         ///< Open the device again.
  BOWLINE_DEVICE_POISONED = 10,    ///< Restart the process.
  BOWLINE_CANCELLED = 11,          ///< The program cancelled the call.
  BOWLINE_INTERNAL = 12            ///< Report a bug.
};

/// The type of an element, as bowline::DType.
typedef int32_t bowline_dtype;
enum {
  BOWLINE_F32 = 0,
  BOWLINE_F16 = 1,
  BOWLINE_BF16 = 2,
  BOWLINE_I8 = 3,
  BOWLINE_U8 = 4,
  BOWLINE_I32 = 5,
  BOWLINE_I64 = 6,
  BOWLINE_BOOL = 7
};
/// An optional dtype that is not set.
#define BOWLINE_NO_DTYPE (-1)

typedef struct bowline_error bowline_error;      ///< A code and a sentence.
typedef struct bowline_buffer bowline_buffer;    ///< Bytes, or a text.
typedef struct bowline_device bowline_device;    ///< As bowline::Device.
typedef struct bowline_model bowline_model;      ///< As bowline::Model.
typedef struct bowline_builder bowline_builder;  ///< As bowline::GraphBuilder.
typedef struct bowline_session bowline_session;  ///< As bowline::Session.
typedef struct bowline_trainer bowline_trainer;  ///< As bowline::Trainer.

typedef struct bowline_device_buffer bowline_device_buffer;        ///< As bowline::DeviceBuffer.
typedef struct bowline_pending_run bowline_pending_run;            ///< As bowline::PendingRun.
typedef struct bowline_device_semaphore bowline_device_semaphore;  ///< As DeviceSemaphore.

// ---------------------------------------------------------------------------- structs for tensors

/// A tensor in host memory or in a buffer of a device, as bowline::Tensor. It is contiguous and
/// row-major.
typedef struct bowline_tensor {
  size_t size;
  const char* name;  ///< Name of an input, an output or a parameter.
  bowline_dtype dtype;
  int32_t rank;          ///< Number of dimensions, at most 8.
  const int64_t* shape;  ///< `rank` sizes. It may be NULL if `rank` is 0.
  void* data;            ///< The first element. Inputs are only read.
  uint64_t bytes;        ///< Size of `data`. It must be the size of the tensor.
  /// (optional) The buffer that has the elements, for inputs and outputs of a session. `data` is
  /// then NULL.
  bowline_device_buffer* buffer;
  uint64_t offset;  ///< Where the elements begin in `buffer`, in bytes.
} bowline_tensor;

/// A per-step scalar, as bowline::StepScalar.
typedef struct bowline_scalar {
  size_t size;
  const char* name;
  int32_t is_float;  ///< 0: `integer` counts. Otherwise `real` counts.
  int64_t integer;
  double real;
} bowline_scalar;

/// The size of a named dimension, as bowline::BoundDim.
typedef struct bowline_bound_dim {
  size_t size;
  const char* name;
  int64_t value;
} bowline_bound_dim;

/// Several sizes of named dimensions.
typedef struct bowline_bound_dims {
  size_t size;
  const bowline_bound_dim* dims;
  size_t count;
} bowline_bound_dims;

/// An entry point with the sizes of its dimensions, as bowline::BoundEntryPoint.
typedef struct bowline_entry_point {
  size_t size;
  const char* name;
  const bowline_bound_dim* dims;
  size_t dim_count;
  bowline_dtype compute_dtype;  ///< BOWLINE_F16, BOWLINE_BF16 or BOWLINE_NO_DTYPE.
} bowline_entry_point;

/// A dimension in a graph: a size, or the name of a dimension. As bowline::GraphDim.
typedef struct bowline_graph_dim {
  size_t size;
  int64_t value;     ///< The size, if `name` is NULL.
  const char* name;  ///< (optional)
} bowline_graph_dim;

/// The limits of a named dimension, as bowline::DimLimits.
typedef struct bowline_dim_limits {
  size_t size;
  int64_t min;
  int64_t max;
  int32_t dynamic;  ///< Not 0: each run chooses its own size.
} bowline_dim_limits;

/// A part of a storage, as bowline::View.
typedef struct bowline_view {
  size_t size;
  int64_t row_start;
  int64_t rows;          ///< -1: all rows from `row_start`.
  const int64_t* shape;  ///< (optional) The new shape of the selected rows.
  int32_t rank;          ///< Number of dimensions of `shape`. 0: no reshape.
  int32_t transpose;     ///< Not 0: exchanges the last two axes.
} bowline_view;

/// The kind of initial values, as bowline::Init::Kind.
enum {
  BOWLINE_INIT_ZEROS = 0,
  BOWLINE_INIT_ONES = 1,
  BOWLINE_INIT_NORMAL = 2,
  BOWLINE_INIT_UNIFORM = 3
};

/// Initial values of a storage, as bowline::Init.
typedef struct bowline_init {
  size_t size;
  int32_t kind;
  float scale;  ///< The standard deviation (normal), or the bound (uniform).
} bowline_init;

/// What a storage is for, as bowline::StorageRole. These roles can be declared.
enum {
  BOWLINE_ROLE_WEIGHT = 0,
  BOWLINE_ROLE_CONSTANT = 1,
  BOWLINE_ROLE_KV_CACHE = 4,
  BOWLINE_ROLE_RUNNING_STATISTIC = 6
};

/// A handle of a parameter, as bowline::Parameter. It needs no close function.
typedef struct bowline_parameter {
  uint64_t model;
  uint32_t index;
} bowline_parameter;

/// A value in a graph, as bowline::Value. It needs no close function.
typedef struct bowline_value {
  uint32_t index;
  uint32_t graph;
} bowline_value;

// ---------------------------------------------------------------------------- structs for options

/// As bowline::MatmulPrecision.
enum { BOWLINE_MATMUL_F32 = 0, BOWLINE_MATMUL_TF32 = 1 };

/// As bowline::LogLevel.
enum { BOWLINE_LOG_INFO = 0, BOWLINE_LOG_WARNING = 1 };

/// Gets a log message, as bowline::DeviceOptions::log. `message` is valid during the call.
typedef void (*bowline_log_callback)(void* user, int32_t level, const char* message);

/// A task for an executor. It is called with `context` and an index.
typedef void (*bowline_task)(void* context, size_t index);

/// Calls task(context, i) for each i from 0 to count - 1, as bowline::DeviceOptions::executor.
typedef void (*bowline_executor)(void* user, size_t count, bowline_task task, void* context);

/// As bowline::HostAllocator. The memory begins at a multiple of `alignment`. NULL: there is none.
typedef void* (*bowline_allocate)(void* user, size_t bytes, size_t alignment);
typedef void (*bowline_free)(void* user, void* memory, size_t bytes);

/// Called after a submitted run, as bowline::RunRequest::done. `message` is "" without an error.
typedef void (*bowline_run_callback)(void* user, bowline_code code, const char* message);

/// As bowline::DeviceOptions.
typedef struct bowline_device_options {
  size_t size;
  int32_t threads;           ///< Threads of the CPU. 0: one per core.
  int32_t matmul_precision;  ///< BOWLINE_MATMUL_F32 or BOWLINE_MATMUL_TF32.
  const char* cache_folder;  ///< (optional) Folder for pipelines and tuning files.
  uint64_t memory_budget;    ///< Limit of device memory in bytes. 0: no limit.
  const int32_t* cores;      ///< (optional) Cores of the threads of the CPU.
  size_t core_count;
  double max_load;            ///< Largest share of the time in which a thread computes.
  int32_t nice;               ///< Lowers the priority of the threads of the CPU, 0 to 19.
  bowline_executor executor;  ///< (optional) Runs the tasks of the CPU.
  void* executor_user;        ///< Passed to `executor`.
  bowline_log_callback log;   ///< (optional) Gets messages.
  void* log_user;             ///< Passed to `log`.
  bowline_allocate allocate;  ///< (optional) Allocates the memory of the CPU.
  bowline_free deallocate;    ///< Takes the memory back. It is set if `allocate` is.
  void* allocator_user;       ///< Passed to `allocate` and `deallocate`.
} bowline_device_options;

/// vkGetInstanceProcAddr, cast to this type.
typedef void (*bowline_vulkan_loader)(void);

/// Locks or unlocks a queue, as bowline::ExternalVulkan::lock.
typedef void (*bowline_queue_lock)(void* user);

/// As bowline::ExternalVulkan. The C++ header external.h describes the members.
typedef struct bowline_external_vulkan {
  size_t size;
  bowline_vulkan_loader get_instance_proc_addr;
  void* instance;             ///< VkInstance
  void* physical_device;      ///< VkPhysicalDevice
  void* device;               ///< VkDevice
  void* queue;                ///< VkQueue
  const void* create_info;    ///< VkDeviceCreateInfo
  bowline_queue_lock lock;    ///< (optional)
  bowline_queue_lock unlock;  ///< (optional)
  void* user;                 ///< Passed to `lock` and `unlock`.
  uint32_t queue_family;
} bowline_external_vulkan;

/// As bowline::ExternalCuda.
typedef struct bowline_external_cuda {
  size_t size;
  void* context;  ///< CUcontext
  void* stream;   ///< (optional) CUstream
} bowline_external_cuda;

/// The kind of a file descriptor, as bowline::ExternalHandle.
enum { BOWLINE_OPAQUE_FD = 0, BOWLINE_DMA_BUF = 1 };

/// As bowline::ExportedMemory.
typedef struct bowline_exported_memory {
  size_t size;
  uint64_t allocation_bytes;
  uint64_t bytes;
  int32_t fd;  ///< The caller closes it.
} bowline_exported_memory;

/// As bowline::DeviceCounters.
typedef struct bowline_device_counters {
  size_t size;
  uint64_t allocations;
  uint64_t live_bytes;
  uint64_t peak_bytes;
  uint64_t copies_in;
  uint64_t copies_out;
  uint64_t copies;
  uint64_t fills;
  uint64_t records;
  uint64_t submits;
} bowline_device_counters;

/// As bowline::Budget.
typedef struct bowline_budget {
  size_t size;
  uint64_t bytes;
  uint64_t nodes;
  double seconds;
} bowline_budget;

/// As bowline::OpenOptions.
typedef struct bowline_open_options {
  size_t size;
  int32_t memory_map;            ///< 0: reads the whole file at once.
  int32_t ignore_tie_metadata;   ///< Not 0: ties may contradict the metadata.
  const bowline_budget* budget;  ///< (optional) Limits for opening the file.
} bowline_open_options;

/// As bowline::LoadMode.
enum { BOWLINE_LOAD_COPY = 0, BOWLINE_LOAD_ASSIGN = 1 };

/// A parameter with another name in the file.
typedef struct bowline_alias {
  size_t size;
  const char* in_file;
  const char* in_model;
} bowline_alias;

/// Replaces the values of a parameter while model_load() reads them, as bowline::LoadHook.
///
/// `of` is a bowline::LoadedParameter as JSON. `value` holds the values of the file. The callback
/// may set `*replacement` to a tensor that stays valid until the next call. Otherwise model_load()
/// takes `value`.
typedef bowline_code (*bowline_load_hook)(void* user, const char* of, const bowline_tensor* value,
                                          const bowline_tensor** replacement,
                                          bowline_error** error);

/// As bowline::LoadOptions.
typedef struct bowline_load_options {
  size_t size;
  int32_t mode;     ///< BOWLINE_LOAD_COPY or BOWLINE_LOAD_ASSIGN.
  int32_t partial;  ///< Not 0: skips parameters that only one side has.
  const bowline_alias* aliases;
  size_t alias_count;
  bowline_load_hook hook;  ///< (optional)
  void* user;              ///< Passed to `hook`.
} bowline_load_options;

/// As bowline::AdapterOptions.
typedef struct bowline_adapter_options {
  size_t size;
  int64_t rank;
  float alpha;
  float dropout;
  const char* target;  ///< Pattern of the targets.
  int32_t per_parameter;
  int32_t freeze_others;
  uint64_t seed;
} bowline_adapter_options;

/// A setting of an optimizer.
typedef struct bowline_setting {
  size_t size;
  const char* name;
  float value;
} bowline_setting;

/// As bowline::Optimizer.
typedef struct bowline_optimizer {
  size_t size;
  const char* name;
  const bowline_setting* settings;
  size_t setting_count;
} bowline_optimizer;

/// As bowline::Schedule::Kind.
enum { BOWLINE_CONSTANT = 0, BOWLINE_LINEAR = 1, BOWLINE_COSINE = 2 };

/// As bowline::Schedule.
typedef struct bowline_schedule {
  size_t size;
  int32_t kind;
  float learning_rate;
  float final_fraction;
  uint64_t warmup_steps;
  uint64_t total_steps;
} bowline_schedule;

/// As bowline::ParameterGroup.
typedef struct bowline_parameter_group {
  size_t size;
  const char* pattern;
  float learning_rate_factor;
  int32_t has_weight_decay;  ///< 0: the setting of the optimizer applies.
  float weight_decay;
} bowline_parameter_group;

/// As bowline::TrainPrecision.
typedef struct bowline_train_precision {
  size_t size;
  bowline_dtype compute_dtype;  ///< BOWLINE_F16, BOWLINE_BF16 or BOWLINE_NO_DTYPE.
  float loss_scale;
  float initial_scale;
  uint32_t growth_interval;
} bowline_train_precision;

/// As bowline::TrainStart and bowline::OnNonFinite.
enum { BOWLINE_FRESH = 0, BOWLINE_FROM_CHECKPOINT = 1 };
enum { BOWLINE_SKIP = 0, BOWLINE_STOP = 1, BOWLINE_ROLLBACK = 2 };

/// As bowline::TrainOptions. The pointers are optional.
typedef struct bowline_train_options {
  size_t size;
  const char* entry_point;
  const char* loss;
  const bowline_bound_dim* dims;
  size_t dim_count;
  const bowline_bound_dims* more_dims;
  size_t more_dims_count;
  const bowline_optimizer* optimizer;
  const bowline_schedule* schedule;
  const bowline_budget* budget;
  const bowline_parameter_group* groups;
  size_t group_count;
  const bowline_train_precision* precision;
  uint64_t seed;
  float clip_norm;
  uint32_t accumulation;
  int32_t start;         ///< BOWLINE_FRESH or BOWLINE_FROM_CHECKPOINT.
  int32_t on_nonfinite;  ///< BOWLINE_SKIP, BOWLINE_STOP or BOWLINE_ROLLBACK.
  uint32_t max_nonfinite_in_row;
} bowline_train_options;

/// The micro-batches of a step: tensors for each of them.
typedef struct bowline_batch {
  size_t size;
  const bowline_tensor* tensors;
  size_t count;
} bowline_batch;

/// As bowline::StepReport.
typedef struct bowline_step_report {
  size_t size;
  uint64_t step;
  float loss;
  float grad_norm;
  float learning_rate;
  float loss_scale;
  int32_t skipped;
  int32_t rolled_back;
  int32_t weights_non_finite;
  uint32_t nonfinite_in_row;
  uint64_t nonfinite_steps;
} bowline_step_report;

/// As bowline::Progress. The members `step` and `micro_step` are set by trainer_resume().
typedef struct bowline_progress {
  size_t size;
  uint64_t step;
  uint64_t micro_step;
  uint64_t epoch;
  uint64_t data_cursor;
  uint64_t data_seed;
} bowline_progress;

/// As bowline::TrainState.
enum {
  BOWLINE_READY = 0,
  BOWLINE_UNREAD = 1,
  BOWLINE_GRADIENTS_LOST = 2,
  BOWLINE_DAMAGED = 3,
  BOWLINE_PAUSED = 4
};

/// As bowline::MemoryReport, in bytes.
typedef struct bowline_memory_report {
  size_t size;
  uint64_t storage_bytes;
  uint64_t copy_bytes;
  uint64_t arena_bytes;
  uint64_t io_bytes;
  uint64_t backend_bytes;
  uint64_t staging_bytes;
  uint64_t predicted_bytes;
  uint64_t lower_bound_bytes;
} bowline_memory_report;

/// As bowline::Counters.
typedef struct bowline_counters {
  size_t size;
  uint64_t plan_builds;
  uint64_t recordings;
  uint64_t submits;
  uint64_t refreshes;
  uint64_t transfers;
  uint64_t hook_calls;
  uint64_t launches;
} bowline_counters;

/// As bowline::ModelCounters.
typedef struct bowline_model_counters {
  size_t size;
  uint64_t casts;
  uint64_t quantized;
  uint64_t dequantized;
  uint64_t packs;
  uint64_t repacks;
  uint64_t fallbacks;
} bowline_model_counters;

/// An attribute of an operator, as bowline::Attribute. The member that `kind` names counts.
typedef struct bowline_attribute {
  size_t size;
  const char* name;
  int32_t kind;
  int64_t integer;
  double real;
  const char* text;
  const bowline_graph_dim* dims;
  const double* reals;
  const char* const* texts;
  size_t count;  ///< Of `dims`, `reals` or `texts`.
} bowline_attribute;
enum {
  BOWLINE_ATTRIBUTE_INTEGER = 0,
  BOWLINE_ATTRIBUTE_REAL = 1,
  BOWLINE_ATTRIBUTE_TEXT = 2,
  BOWLINE_ATTRIBUTE_DIMS = 3,
  BOWLINE_ATTRIBUTE_REALS = 4,
  BOWLINE_ATTRIBUTE_TEXTS = 5
};

// ------------------------------------------------------------------------------------- callbacks

/// Reads bytes [first, first + bytes) of a storage into `out`, as bowline::ValueSource. Several
/// threads may call it at once.
typedef bowline_code (*bowline_value_source)(void* user, uint64_t first, void* out, uint64_t bytes,
                                             bowline_error** error);

/// Reads or changes the gradient of a storage, as bowline::GradientHook. `of` is a
/// bowline::GradientInfo as JSON.
typedef bowline_code (*bowline_gradient_hook)(void* user, const char* of, float* gradient,
                                              uint64_t count, bowline_error** error);

/// Builds the body of a Repeat, as bowline::GraphBuilder::Body. It writes as many values to `next`
/// as `carried` has. `body` is valid during the call, and the library closes it.
typedef bowline_code (*bowline_body)(void* user, bowline_builder* body,
                                     const bowline_value* carried, size_t count,
                                     bowline_value* next, bowline_error** error);

/// Computes the layout of a group of storages, as bowline::WeightFormat::layout. `storages` is a
/// list of bowline::StorageInfo as JSON. The callback writes an offset for each storage.
typedef bowline_code (*bowline_format_layout)(void* user, const char* storages, size_t count,
                                              uint64_t* bytes, uint64_t* offsets,
                                              bowline_error** error);

/// Tells where model_tune() is. A return value other than 0 stops it; results so far are kept.
typedef int32_t (*bowline_tune_progress)(void* user, uint32_t done, uint32_t total);

/// A weight format, as bowline::WeightFormat.
typedef struct bowline_weight_format {
  size_t size;
  const char* name;
  const char* const* ops;
  size_t op_count;
  const char* device;  ///< Pattern of device names.
  const char* about;
  bowline_format_layout layout;
  void* user;
} bowline_weight_format;

/// As bowline::TuneOptions.
typedef struct bowline_tune_options {
  size_t size;
  int32_t rounds;
  double least_gain;
  bowline_tune_progress progress;  ///< (optional)
  void* user;
} bowline_tune_options;

#ifdef __cplusplus
}
#endif

#endif  // BOWLINE_C_TYPES_H
