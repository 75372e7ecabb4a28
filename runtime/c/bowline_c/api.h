/// \file
/// The functions of the library, without text.
///
/// bowline_c.h has the rules.
#ifndef BOWLINE_C_API_H
#define BOWLINE_C_API_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define BOWLINE_C_EXPORT __declspec(dllexport)
#else
#define BOWLINE_C_EXPORT __attribute__((visibility("default")))
#endif

/// The functions of the library without text. See bowline_c.h for the rules.
typedef struct bowline_api {
  size_t size;  ///< Size of the table of this library.

  /// bowline::version().
  const char* (*version)(void);
  /// name_of(Code), for example "bad_file". An unknown code has the name "unknown".
  const char* (*code_name)(bowline_code code);
  /// name_of(DType), and size_of(DType) in bytes. An unknown dtype has the name "unknown", size 0.
  const char* (*dtype_name)(bowline_dtype dtype);
  size_t (*dtype_size)(bowline_dtype dtype);

  /// An error for a callback. NULL if there is no memory for it.
  bowline_error* (*error_create)(bowline_code code, const char* message);
  /// Status::code(), Status::message(). Of NULL: BOWLINE_OK and "".
  bowline_code (*error_code)(const bowline_error* error);
  const char* (*error_message)(const bowline_error* error);
  void (*error_free)(bowline_error* error);

  /// The bytes of a buffer. A zero byte follows them, so a text is a C string.
  const void* (*buffer_data)(const bowline_buffer* buffer);
  size_t (*buffer_size)(const bowline_buffer* buffer);
  void (*buffer_free)(bowline_buffer* buffer);

  /// Set all members but `size` to their defaults. The caller sets `size` before.
  bowline_code (*device_options_init)(bowline_device_options* options, bowline_error** error);
  bowline_code (*open_options_init)(bowline_open_options* options, bowline_error** error);
  bowline_code (*load_options_init)(bowline_load_options* options, bowline_error** error);
  bowline_code (*file_budget_init)(bowline_budget* budget, uint64_t table_bytes,
                                   bowline_error** error);
  bowline_code (*plan_budget_init)(bowline_budget* budget, bowline_error** error);
  bowline_code (*adapter_options_init)(bowline_adapter_options* options, bowline_error** error);
  bowline_code (*train_options_init)(bowline_train_options* options, bowline_error** error);
  bowline_code (*train_precision_init)(bowline_train_precision* options, bowline_error** error);
  bowline_code (*schedule_init)(bowline_schedule* options, bowline_error** error);
  bowline_code (*tune_options_init)(bowline_tune_options* options, bowline_error** error);

  // Devices. Device::list() and Device::info() are JSON: DeviceInfo.
  bowline_code (*device_list)(bowline_buffer** out, bowline_error** error);
  bowline_code (*device_open)(const char* name, const bowline_device_options* options,
                              bowline_device** out, bowline_error** error);
  bowline_code (*device_close)(bowline_device* device, bowline_error** error);
  bowline_code (*device_info)(bowline_device* device, bowline_buffer** out, bowline_error** error);
  bowline_code (*device_counters)(bowline_device* device, bowline_device_counters* out,
                                  bowline_error** error);
  bowline_code (*device_reset_counters)(bowline_device* device, bowline_error** error);

  // Models and files. model_create() makes an empty model.
  bowline_code (*model_create)(bowline_model** out, bowline_error** error);
  bowline_code (*model_close)(bowline_model* model, bowline_error** error);
  bowline_code (*model_open)(const char* path, const bowline_open_options* options,
                             bowline_model** out, bowline_error** error);
  /// The bytes belong to the caller. They must stay unchanged until the model and its clones are
  /// closed, unless `memory_map` is 0.
  bowline_code (*model_open_memory)(const void* bytes, size_t count,
                                    const bowline_open_options* options, bowline_model** out,
                                    bowline_error** error);
  /// `count` bytes of an open file, from `offset` on. 0: up to the end of the file. The descriptor
  /// may be closed afterwards.
  bowline_code (*model_open_descriptor)(int32_t descriptor, uint64_t offset, uint64_t count,
                                        const bowline_open_options* options, bowline_model** out,
                                        bowline_error** error);
  /// A file of `count` bytes that `read` reads. Weights are read when they are needed.
  bowline_code (*model_open_reader)(bowline_value_source read, void* user, uint64_t count,
                                    const bowline_open_options* options, bowline_model** out,
                                    bowline_error** error);
  bowline_code (*model_verify)(const char* path, const bowline_open_options* options,
                               bowline_error** error);
  bowline_code (*model_save)(bowline_model* model, const char* path, bowline_error** error);
  bowline_code (*model_save_compacted)(bowline_model* model, const char* path,
                                       bowline_buffer** report, bowline_error** error);
  bowline_code (*model_load)(bowline_model* model, const char* path,
                             const bowline_load_options* options, bowline_buffer** report,
                             bowline_error** error);

  // Declaring parameters. `init` NULL: zeros. `view` NULL: the view of the other parameter.
  bowline_code (*model_parameter)(bowline_model* model, const char* name, const int64_t* shape,
                                  int32_t rank, const bowline_init* init, int32_t role,
                                  bowline_dtype dtype, bowline_parameter* out,
                                  bowline_error** error);
  bowline_code (*model_tied_parameter)(bowline_model* model, const char* name,
                                       bowline_parameter other, const bowline_view* view,
                                       bowline_parameter* out, bowline_error** error);
  /// The first form of Model::parameters(): writes `count` handles to `out`.
  bowline_code (*model_declare_parameters)(bowline_model* model, const char* name, int32_t count,
                                           const int64_t* shape, int32_t rank,
                                           const bowline_init* init, int32_t role,
                                           bowline_dtype dtype, bowline_parameter* out,
                                           bowline_error** error);
  bowline_code (*model_find)(bowline_model* model, const char* name, bowline_parameter* out,
                             bowline_error** error);
  bowline_code (*model_set_dim_limits)(bowline_model* model, const char* name,
                                       const bowline_dim_limits* limits, bowline_error** error);

  // Values. The tensors need no name.
  bowline_code (*model_materialize)(bowline_model* model, uint64_t seed, bowline_error** error);
  bowline_code (*model_set_value)(bowline_model* model, const char* name,
                                  const bowline_tensor* value, bowline_error** error);
  bowline_code (*model_get_value)(bowline_model* model, const char* name, const bowline_tensor* out,
                                  bowline_error** error);
  /// `encoding` NULL: "plain".
  bowline_code (*model_set_source)(bowline_model* model, const char* name,
                                   bowline_value_source source, void* user, const char* encoding,
                                   bowline_error** error);
  bowline_code (*model_assign)(bowline_model* model, const char* name, const bowline_tensor* value,
                               bowline_error** error);
  bowline_code (*model_swap)(bowline_model* model, const char* a, const char* b,
                             bowline_error** error);
  bowline_code (*model_resize)(bowline_model* model, const char* pattern, int64_t rows,
                               const bowline_init* init, uint64_t seed, bowline_buffer** report,
                               bowline_error** error);
  bowline_code (*model_cast)(bowline_model* model, bowline_dtype to, const char* pattern,
                             bowline_buffer** report, bowline_error** error);

  // Ties.
  bowline_code (*model_tie)(bowline_model* model, const char* a, const char* b,
                            const bowline_view* view, bowline_buffer** report,
                            bowline_error** error);
  bowline_code (*model_tie_layers)(bowline_model* model, const char* pattern,
                                   bowline_buffer** report, bowline_error** error);
  bowline_code (*model_untie)(bowline_model* model, const char* name, uint64_t* bytes,
                              bowline_error** error);
  bowline_code (*model_untie_cost)(bowline_model* model, const char* name, uint64_t* bytes,
                                   bowline_error** error);
  bowline_code (*model_same_storage)(bowline_model* model, const char* a, const char* b,
                                     int32_t* out, bowline_error** error);

  // Training state.
  bowline_code (*model_freeze)(bowline_model* model, const char* name, int32_t frozen,
                               bowline_error** error);
  bowline_code (*model_freeze_storage)(bowline_model* model, const char* name, int32_t frozen,
                                       bowline_error** error);
  bowline_code (*model_drop_training_state)(bowline_model* model, bowline_error** error);

  // Devices and copies. `pattern` NULL: all storages, and the device for new ones.
  bowline_code (*model_to)(bowline_model* model, bowline_device* device, const char* pattern,
                           bowline_error** error);
  bowline_code (*model_clone)(bowline_model* model, bowline_model** out, bowline_error** error);
  bowline_code (*model_skeleton)(bowline_model* model, bowline_model** out, bowline_error** error);
  bowline_code (*model_share)(bowline_model* model, bowline_model** out, bowline_error** error);

  // Placement. `pattern` NULL: "*".
  bowline_code (*model_offload)(bowline_model* model, const char* pattern, bowline_error** error);
  bowline_code (*model_replicate)(bowline_model* model, bowline_device* device, const char* pattern,
                                  bowline_buffer** report, bowline_error** error);
  bowline_code (*model_shard)(bowline_model* model, bowline_device* const* devices, size_t count,
                              const char* pattern, bowline_buffer** report, bowline_error** error);

  // Metadata, assets and self-tests.
  bowline_code (*model_set_metadata)(bowline_model* model, const char* key, const char* value,
                                     bowline_error** error);
  bowline_code (*model_metadata)(bowline_model* model, const char* key, bowline_buffer** out,
                                 bowline_error** error);
  bowline_code (*model_set_asset)(bowline_model* model, const char* name, const char* media_type,
                                  const void* bytes, size_t count, bowline_error** error);
  bowline_code (*model_asset)(bowline_model* model, const char* name, bowline_buffer** out,
                              bowline_error** error);
  /// The bytes of input or output `tensor` of a self-test, in the order of SelfTestInfo.
  bowline_code (*model_self_test)(bowline_model* model, size_t number, int32_t is_output,
                                  size_t tensor, bowline_buffer** out, bowline_error** error);

  // Describing. model_describe() is JSON: ModelInfo. The three lists are texts for people.
  bowline_code (*model_describe)(bowline_model* model, bowline_buffer** out, bowline_error** error);
  bowline_code (*model_storage_bytes)(bowline_model* model, uint32_t tie, bowline_buffer** out,
                                      bowline_error** error);
  bowline_code (*model_parameters)(bowline_model* model, bowline_buffer** out,
                                   bowline_error** error);
  bowline_code (*model_storages)(bowline_model* model, bowline_buffer** out, bowline_error** error);
  bowline_code (*model_ties)(bowline_model* model, bowline_buffer** out, bowline_error** error);
  bowline_code (*model_counters)(bowline_model* model, bowline_model_counters* out,
                                 bowline_error** error);
  bowline_code (*model_reset_counters)(bowline_model* model, bowline_error** error);

  // Quantization. `pattern` NULL: "*".
  bowline_code (*model_quantize)(bowline_model* model, const char* encoding, const char* pattern,
                                 bowline_buffer** report, bowline_error** error);
  bowline_code (*model_dequantize)(bowline_model* model, const char* pattern, bowline_dtype to,
                                   bowline_buffer** report, bowline_error** error);

  // Weight formats. model_weight_formats() is JSON: a list of FormatInfo.
  bowline_code (*model_set_weight_format)(bowline_model* model, const char* format,
                                          const char* pattern, bowline_buffer** report,
                                          bowline_error** error);
  bowline_code (*model_restore_weight_format)(bowline_model* model, const char* pattern,
                                              uint32_t* dissolved, bowline_error** error);
  bowline_code (*model_register_weight_format)(bowline_model* model,
                                               const bowline_weight_format* format,
                                               bowline_error** error);
  bowline_code (*model_weight_formats)(bowline_model* model, bowline_buffer** out,
                                       bowline_error** error);

  // Adapters. model_adapters() is JSON: a list of names.
  bowline_code (*model_add_adapter)(bowline_model* model, const char* name,
                                    const bowline_adapter_options* options, bowline_buffer** report,
                                    bowline_error** error);
  bowline_code (*model_adapters)(bowline_model* model, bowline_buffer** out, bowline_error** error);
  bowline_code (*model_set_adapter_weight)(bowline_model* model, const char* name, float weight,
                                           bowline_error** error);
  bowline_code (*model_adapter_weight)(bowline_model* model, const char* name, float* out,
                                       bowline_error** error);
  bowline_code (*model_remove_adapter)(bowline_model* model, const char* name,
                                       bowline_error** error);
  bowline_code (*model_merge_adapter)(bowline_model* model, const char* name,
                                      bowline_error** error);
  bowline_code (*model_save_adapter)(bowline_model* model, const char* name, const char* path,
                                     bowline_error** error);
  /// `name` NULL: the saved name. `out` (may be NULL) receives the name.
  bowline_code (*model_load_adapter)(bowline_model* model, const char* path, const char* name,
                                     bowline_buffer** out, bowline_error** error);

  // Building graphs. An error of a builder is returned by builder_finish(). builder_repeat() also
  // returns the error of its callback at once.
  bowline_code (*builder_create)(bowline_model* model, const char* name, bowline_builder** out,
                                 bowline_error** error);
  bowline_code (*builder_close)(bowline_builder* builder, bowline_error** error);
  bowline_code (*builder_input)(bowline_builder* builder, const char* name, bowline_dtype dtype,
                                const bowline_graph_dim* dims, size_t rank, bowline_value* out,
                                bowline_error** error);
  bowline_code (*builder_parameter)(bowline_builder* builder, bowline_parameter parameter,
                                    bowline_value* out, bowline_error** error);
  /// GraphBuilder::parameter(const ParameterList&), in the body of a Repeat.
  bowline_code (*builder_parameter_list)(bowline_builder* builder, const bowline_parameter* items,
                                         size_t count, bowline_value* out, bowline_error** error);
  bowline_code (*builder_op)(bowline_builder* builder, const char* name,
                             const bowline_value* inputs, size_t input_count,
                             const bowline_attribute* attributes, size_t attribute_count,
                             bowline_value* out, bowline_error** error);
  /// Writes at most `capacity` values to `out`, and the number of outputs to `count`.
  bowline_code (*builder_last_outputs)(bowline_builder* builder, bowline_value* out,
                                       size_t capacity, size_t* count, bowline_error** error);
  /// `carried` and `out` have `carried_count` values.
  bowline_code (*builder_repeat)(bowline_builder* builder, int32_t count,
                                 const bowline_value* carried, size_t carried_count,
                                 bowline_body body, void* user, bowline_value* out,
                                 bowline_error** error);
  bowline_code (*builder_capture)(bowline_builder* builder, bowline_value outer, bowline_value* out,
                                  bowline_error** error);
  bowline_code (*builder_named)(bowline_builder* builder, const char* name, bowline_error** error);
  bowline_code (*builder_output)(bowline_builder* builder, const char* name, bowline_value value,
                                 bowline_error** error);
  bowline_code (*builder_finish)(bowline_builder* builder, bowline_error** error);

  // Sessions. `entry_point` may be NULL if the session has one. session_profile() is JSON: a list
  // of NodeTime.
  bowline_code (*session_create)(bowline_model* model, bowline_device* device,
                                 const bowline_entry_point* entry_points, size_t count,
                                 const bowline_budget* budget, bowline_session** out,
                                 bowline_error** error);
  bowline_code (*session_close)(bowline_session* session, bowline_error** error);
  bowline_code (*session_run)(bowline_session* session, const char* entry_point,
                              const bowline_tensor* inputs, size_t input_count,
                              const bowline_tensor* outputs, size_t output_count,
                              const bowline_scalar* scalars, size_t scalar_count,
                              const bowline_tensor* overrides, size_t override_count,
                              bowline_error** error);
  bowline_code (*session_profile)(bowline_session* session, const char* entry_point,
                                  const bowline_tensor* inputs, size_t input_count,
                                  const bowline_scalar* scalars, size_t scalar_count,
                                  bowline_buffer** out, bowline_error** error);
  bowline_code (*session_memory)(bowline_session* session, bowline_memory_report* out,
                                 bowline_error** error);
  bowline_code (*session_counters)(bowline_session* session, bowline_counters* out,
                                   bowline_error** error);
  bowline_code (*session_describe)(bowline_session* session, bowline_buffer** out,
                                   bowline_error** error);
  bowline_code (*session_listing)(bowline_session* session, const char* part, int32_t columns,
                                  bowline_buffer** out, bowline_error** error);

  // Training.
  bowline_code (*trainer_create)(bowline_model* model, bowline_device* device,
                                 const bowline_train_options* options, bowline_trainer** out,
                                 bowline_error** error);
  bowline_code (*trainer_close)(bowline_trainer* trainer, bowline_error** error);
  bowline_code (*trainer_step)(bowline_trainer* trainer, const bowline_batch* batches, size_t count,
                               bowline_step_report* report, bowline_error** error);
  /// `finished` (may be NULL) is 1 if the micro-batch finished a step and `report` is set, else 0.
  bowline_code (*trainer_micro_step)(bowline_trainer* trainer, const bowline_tensor* batch,
                                     size_t count, const bowline_tensor* overrides,
                                     size_t override_count, bowline_step_report* report,
                                     int32_t* finished, bowline_error** error);
  bowline_code (*trainer_needs_loss_weights)(bowline_trainer* trainer, int32_t* out,
                                             bowline_error** error);
  bowline_code (*trainer_add_loss_weights)(bowline_trainer* trainer, const bowline_tensor* batch,
                                           size_t count, bowline_error** error);
  bowline_code (*trainer_cancel)(bowline_trainer* trainer, bowline_error** error);
  /// `rate` NULL: the schedule applies again.
  bowline_code (*trainer_set_learning_rate)(bowline_trainer* trainer, const float* rate,
                                            bowline_error** error);
  /// `hook` NULL removes the hook.
  bowline_code (*trainer_set_gradient_hook)(bowline_trainer* trainer, bowline_gradient_hook hook,
                                            void* user, bowline_error** error);
  bowline_code (*trainer_evaluate)(bowline_trainer* trainer, const bowline_tensor* batch,
                                   size_t count, const bowline_tensor* outputs, size_t output_count,
                                   float* loss, bowline_error** error);
  bowline_code (*trainer_gradient)(bowline_trainer* trainer, const char* name,
                                   const bowline_tensor* out, bowline_error** error);
  bowline_code (*trainer_profile)(bowline_trainer* trainer, const bowline_tensor* batch,
                                  size_t count, bowline_buffer** out, bowline_error** error);
  bowline_code (*trainer_snapshot)(bowline_trainer* trainer, bowline_error** error);
  bowline_code (*trainer_rollback)(bowline_trainer* trainer, bowline_error** error);
  /// `config` has `config_count` pairs: a key, then its value. See Progress::config.
  bowline_code (*trainer_save)(bowline_trainer* trainer, const char* path,
                               const bowline_progress* progress, const char* const* config,
                               size_t config_count, bowline_error** error);
  /// `extend` as ResumeOptions::extend. `report` is JSON: Progress, with config and notes.
  bowline_code (*trainer_resume)(bowline_trainer* trainer, const char* path, int32_t extend,
                                 bowline_progress* progress, bowline_buffer** report,
                                 bowline_error** error);
  bowline_code (*trainer_state)(bowline_trainer* trainer, int32_t* out, bowline_error** error);
  bowline_code (*trainer_restart_step)(bowline_trainer* trainer, bowline_error** error);
  bowline_code (*trainer_steps)(bowline_trainer* trainer, uint64_t* out, bowline_error** error);
  bowline_code (*trainer_accumulated)(bowline_trainer* trainer, uint32_t* out,
                                      bowline_error** error);
  bowline_code (*trainer_memory)(bowline_trainer* trainer, bowline_memory_report* out,
                                 bowline_error** error);
  bowline_code (*trainer_counters)(bowline_trainer* trainer, bowline_counters* out,
                                   bowline_error** error);
  bowline_code (*trainer_describe)(bowline_trainer* trainer, bowline_buffer** out,
                                   bowline_error** error);
  bowline_code (*trainer_listing)(bowline_trainer* trainer, const char* part, int32_t columns,
                                  bowline_buffer** out, bowline_error** error);

  /// optimizers(), as JSON: a list of OptimizerInfo.
  bowline_code (*optimizers)(bowline_buffer** out, bowline_error** error);
  bowline_code (*learning_rate_at)(const bowline_schedule* schedule, uint64_t step, float* out,
                                   bowline_error** error);

  // Tuning. tune() measures runs of a session with these arguments, which it makes itself.
  /// As tune() with sessions of one entry point. `report` is JSON: TuneReport.
  bowline_code (*tune_session)(bowline_model* model, bowline_device* device,
                               const bowline_entry_point* entry_point, const bowline_tensor* inputs,
                               size_t input_count, const bowline_scalar* scalars,
                               size_t scalar_count, const bowline_tune_options* options,
                               bowline_buffer** report, bowline_error** error);
  bowline_code (*stored_tuning)(bowline_device* device, bowline_buffer** out,
                                bowline_error** error);
  /// The path of the removed file, or an empty text. `out` may be NULL.
  bowline_code (*reset_tuning)(bowline_device* device, bowline_buffer** out, bowline_error** error);

  /// write_file(). `pieces` and `bytes` have `count` entries.
  bowline_code (*write_file)(const char* path, const void* const* pieces, const size_t* bytes,
                             size_t count, bowline_error** error);

  /// Session::cancel(). Any thread may call it.
  bowline_code (*session_cancel)(bowline_session* session, bowline_error** error);
  /// Model::copy_values_from(). If another thread uses one of the models, it waits.
  bowline_code (*model_copy_values_from)(bowline_model* model, bowline_model* other,
                                         bowline_error** error);
  /// Trainer::pause(). The parameters are those of trainer_save().
  bowline_code (*trainer_pause)(bowline_trainer* trainer, const char* path,
                                const bowline_progress* progress, const char* const* config,
                                size_t config_count, bowline_error** error);

  // Buffers of a device. Any thread may call the functions.
  bowline_code (*device_buffer_create)(bowline_device* device, uint64_t bytes,
                                       bowline_device_buffer** out, bowline_error** error);
  bowline_code (*device_buffer_close)(bowline_device_buffer* buffer, bowline_error** error);
  bowline_code (*device_buffer_bytes)(bowline_device_buffer* buffer, uint64_t* out,
                                      bowline_error** error);
  bowline_code (*device_buffer_write)(bowline_device_buffer* buffer, uint64_t offset,
                                      const void* from, uint64_t bytes, bowline_error** error);
  bowline_code (*device_buffer_read)(bowline_device_buffer* buffer, uint64_t offset, void* to,
                                     uint64_t bytes, bowline_error** error);

  // Submitted runs. Any thread may call the functions of a run. A run can be closed before it ends.
  /// Session::submit(). `done` is optional. `out` may be NULL.
  bowline_code (*session_submit)(bowline_session* session, const char* entry_point,
                                 const bowline_tensor* inputs, size_t input_count,
                                 const bowline_tensor* outputs, size_t output_count,
                                 const bowline_scalar* scalars, size_t scalar_count,
                                 const bowline_tensor* overrides, size_t override_count,
                                 bowline_run_callback done, void* user, bowline_pending_run** run,
                                 bowline_error** error);
  bowline_code (*pending_run_close)(bowline_pending_run* run, bowline_error** error);
  /// 1 if the run has ended.
  bowline_code (*pending_run_done)(bowline_pending_run* run, int32_t* out, bowline_error** error);
  /// Waits, and returns the result of the run.
  bowline_code (*pending_run_wait)(bowline_pending_run* run, bowline_error** error);
  bowline_code (*pending_run_cancel)(bowline_pending_run* run, bowline_error** error);

  // Objects of the program (bowline/external.h).
  /// vulkan_requirements(), as JSON, without the chain of structs.
  bowline_code (*vulkan_requirements)(bowline_vulkan_loader get_instance_proc_addr, void* instance,
                                      void* physical_device, bowline_buffer** out,
                                      bowline_error** error);
  bowline_code (*adopt_vulkan)(const bowline_external_vulkan* external,
                               const bowline_device_options* options, bowline_device** out,
                               bowline_error** error);
  bowline_code (*adopt_cuda)(const bowline_external_cuda* external,
                             const bowline_device_options* options, bowline_device** out,
                             bowline_error** error);
  /// `buffer` is a VkBuffer.
  bowline_code (*adopt_vulkan_buffer)(bowline_device* device, uint64_t buffer, uint64_t offset,
                                      uint64_t bytes, bowline_device_buffer** out,
                                      bowline_error** error);
  bowline_code (*create_exportable)(bowline_device* device, uint64_t bytes, int32_t kind,
                                    bowline_device_buffer** out, bowline_error** error);
  bowline_code (*export_memory)(bowline_device_buffer* buffer, bowline_exported_memory* out,
                                bowline_error** error);
  bowline_code (*import_memory)(bowline_device* device, const bowline_exported_memory* memory,
                                int32_t kind, bowline_device_buffer** out, bowline_error** error);
  /// `semaphore` is a VkSemaphore. `timeline` is 0 for a binary semaphore.
  bowline_code (*device_semaphore_adopt_vulkan)(bowline_device* device, uint64_t semaphore,
                                                int32_t timeline, bowline_device_semaphore** out,
                                                bowline_error** error);
  bowline_code (*device_semaphore_create_exportable)(bowline_device* device, int32_t timeline,
                                                     bowline_device_semaphore** out,
                                                     bowline_error** error);
  bowline_code (*device_semaphore_import_fd)(bowline_device* device, int32_t fd, int32_t timeline,
                                             bowline_device_semaphore** out, bowline_error** error);
  bowline_code (*device_semaphore_close)(bowline_device_semaphore* semaphore,
                                         bowline_error** error);
  bowline_code (*device_semaphore_export_fd)(bowline_device_semaphore* semaphore, int32_t* out,
                                             bowline_error** error);
  bowline_code (*device_semaphore_wait_for)(bowline_device_semaphore* semaphore, uint64_t value,
                                            bowline_error** error);
  bowline_code (*device_semaphore_signal)(bowline_device_semaphore* semaphore, uint64_t value,
                                          bowline_error** error);
  /// `data` is set to the address of the memory, which is valid until the buffer is closed and no
  /// run uses it.
  bowline_code (*create_host_buffer)(bowline_device* device, uint64_t bytes, void** data,
                                     bowline_device_buffer** out, bowline_error** error);
  /// `address` is a CUdeviceptr.
  bowline_code (*adopt_cuda_memory)(bowline_device* device, uint64_t address, uint64_t bytes,
                                    bowline_device_buffer** out, bowline_error** error);
  bowline_code (*cuda_address)(bowline_device_buffer* buffer, uint64_t* out, bowline_error** error);
} bowline_api;

/// Returns the table of functions of this version, or NULL if the library does not have it.
BOWLINE_C_EXPORT const bowline_api* bowline_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif  // BOWLINE_C_API_H
