// Buffers of devices, and objects of the program.
#include "c/convert.h"
#include "generated/c_api.h"

namespace bowline::c {
namespace {

// Makes a handle that any thread may use.
template <class C, class T>
Status put_shared(Result<T> made, C** out) {
  if (!made.ok()) {
    return std::move(made).status();
  }
  *out = make_handle<C>(std::make_shared<const T>(std::move(made).value()), nullptr);
  return {};
}

// Calls make(device) and returns a handle of the result.
template <class C, class F>
bowline_code make(bowline_device* device, C** out, bowline_error** error, F&& make_one) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY_ASSIGN(const auto d, object_of(device));
    BOWLINE_TRY(given(out, "out"));
    return put_shared(make_one(*d), out);
  });
}

// Calls work(object) without using a family.
template <class C, class F>
bowline_code on(C* handle, bowline_error** error, F&& work) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY_ASSIGN(const auto object, object_of(handle));
    return work(*object);
  });
}

}  // namespace

namespace api {

bowline_code device_buffer_create(bowline_device* device, uint64_t bytes,
                                  bowline_device_buffer** out, bowline_error** error) {
  return make(device, out, error, [&](const Device& d) { return DeviceBuffer::create(d, bytes); });
}

bowline_code device_buffer_close(bowline_device_buffer* buffer, bowline_error** error) {
  return close(buffer, error);
}

bowline_code device_buffer_bytes(bowline_device_buffer* buffer, uint64_t* out,
                                 bowline_error** error) {
  return on(buffer, error, [&](const DeviceBuffer& b) -> Status {
    BOWLINE_TRY(given(out, "out"));
    *out = b.bytes();
    return {};
  });
}

bowline_code device_buffer_write(bowline_device_buffer* buffer, uint64_t offset, const void* from,
                                 uint64_t bytes, bowline_error** error) {
  return on(buffer, error, [&](const DeviceBuffer& b) -> Status {
    BOWLINE_TRY(bytes == 0 ? Status() : given(from, "from"));
    return b.write(offset, {static_cast<const std::byte*>(from), bytes});
  });
}

bowline_code device_buffer_read(bowline_device_buffer* buffer, uint64_t offset, void* to,
                                uint64_t bytes, bowline_error** error) {
  return on(buffer, error, [&](const DeviceBuffer& b) -> Status {
    BOWLINE_TRY(bytes == 0 ? Status() : given(to, "to"));
    return b.read(offset, {static_cast<std::byte*>(to), bytes});
  });
}

bowline_code pending_run_close(bowline_pending_run* run, bowline_error** error) {
  return close(run, error);
}

bowline_code pending_run_done(bowline_pending_run* run, int32_t* out, bowline_error** error) {
  return on(run, error, [&](const PendingRun& r) -> Status {
    BOWLINE_TRY(given(out, "out"));
    *out = r.done() ? 1 : 0;
    return {};
  });
}

bowline_code pending_run_wait(bowline_pending_run* run, bowline_error** error) {
  return on(run, error, [](const PendingRun& r) { return r.wait(); });
}

bowline_code pending_run_cancel(bowline_pending_run* run, bowline_error** error) {
  return on(run, error, [](const PendingRun& r) {
    r.cancel();
    return Status();
  });
}

bowline_code vulkan_requirements(bowline_vulkan_loader get_instance_proc_addr, void* instance,
                                 void* physical_device, bowline_buffer** out,
                                 bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(
        const VulkanRequirements r,
        bowline::vulkan_requirements(get_instance_proc_addr, instance, physical_device));
    // Not `features`: the buffer of the text cannot own the structs.
    const Json names = {{"extensions", r.extensions},
                        {"needed_features", r.needed_features},
                        {"wanted_features", r.wanted_features}};
    return put_bytes(text_of(names), out);
  });
}

bowline_code adopt_vulkan(const bowline_external_vulkan* external,
                          const bowline_device_options* options, bowline_device** out,
                          bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const bowline_external_vulkan e, read(external, "bowline_external_vulkan"));
    BOWLINE_TRY_ASSIGN(const DeviceOptions o, device_options_of(options));
    ExternalVulkan wanted;
    wanted.get_instance_proc_addr = e.get_instance_proc_addr;
    wanted.instance = e.instance;
    wanted.physical_device = e.physical_device;
    wanted.device = e.device;
    wanted.queue = e.queue;
    wanted.queue_family = e.queue_family;
    wanted.create_info = e.create_info;
    if (e.lock != nullptr) {
      wanted.lock = [e] { e.lock(e.user); };
    }
    if (e.unlock != nullptr) {
      wanted.unlock = [e] { e.unlock(e.user); };
    }
    return put_shared(bowline::adopt_vulkan(wanted, o), out);
  });
}

bowline_code adopt_cuda(const bowline_external_cuda* external,
                        const bowline_device_options* options, bowline_device** out,
                        bowline_error** error) {
  return call(error, [&]() -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(const bowline_external_cuda e, read(external, "bowline_external_cuda"));
    BOWLINE_TRY_ASSIGN(const DeviceOptions o, device_options_of(options));
    return put_shared(bowline::adopt_cuda({e.context, e.stream}, o), out);
  });
}

bowline_code adopt_vulkan_buffer(bowline_device* device, uint64_t buffer, uint64_t offset,
                                 uint64_t bytes, bowline_device_buffer** out,
                                 bowline_error** error) {
  return make(device, out, error, [&](const Device& d) {
    return bowline::adopt_vulkan_buffer(d, buffer, offset, bytes);
  });
}

bowline_code adopt_cuda_memory(bowline_device* device, uint64_t address, uint64_t bytes,
                               bowline_device_buffer** out, bowline_error** error) {
  return make(device, out, error,
              [&](const Device& d) { return bowline::adopt_cuda_memory(d, address, bytes); });
}

bowline_code cuda_address(bowline_device_buffer* buffer, uint64_t* out, bowline_error** error) {
  return on(buffer, error, [&](const DeviceBuffer& b) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(*out, bowline::cuda_address(b));
    return {};
  });
}

bowline_code create_host_buffer(bowline_device* device, uint64_t bytes, void** data,
                                bowline_device_buffer** out, bowline_error** error) {
  return make(device, out, error, [&](const Device& d) -> Result<DeviceBuffer> {
    BOWLINE_TRY(given(data, "data"));
    BOWLINE_TRY_ASSIGN(HostBuffer made, bowline::create_host_buffer(d, bytes));
    *data = made.data;
    return std::move(made.buffer);
  });
}

bowline_code create_exportable(bowline_device* device, uint64_t bytes, int32_t kind,
                               bowline_device_buffer** out, bowline_error** error) {
  return make(device, out, error, [&](const Device& d) -> Result<DeviceBuffer> {
    BOWLINE_TRY_ASSIGN(const auto k, enum_of(kind, ExternalHandle::dma_buf, "kind"));
    return bowline::create_exportable(d, bytes, k);
  });
}

bowline_code export_memory(bowline_device_buffer* buffer, bowline_exported_memory* out,
                           bowline_error** error) {
  return on(buffer, error, [&](const DeviceBuffer& b) -> Status {
    BOWLINE_TRY(check_output(out, "bowline_exported_memory"));
    BOWLINE_TRY_ASSIGN(const ExportedMemory m, bowline::export_memory(b));
    return write({.size = sizeof(*out),
                  .allocation_bytes = m.allocation_bytes,
                  .bytes = m.bytes,
                  .fd = m.fd},
                 out, "bowline_exported_memory");
  });
}

bowline_code import_memory(bowline_device* device, const bowline_exported_memory* memory,
                           int32_t kind, bowline_device_buffer** out, bowline_error** error) {
  return make(device, out, error, [&](const Device& d) -> Result<DeviceBuffer> {
    BOWLINE_TRY_ASSIGN(const bowline_exported_memory m, read(memory, "bowline_exported_memory"));
    BOWLINE_TRY_ASSIGN(const auto k, enum_of(kind, ExternalHandle::dma_buf, "kind"));
    return bowline::import_memory(d, {m.fd, m.allocation_bytes, m.bytes}, k);
  });
}

bowline_code device_semaphore_adopt_vulkan(bowline_device* device, uint64_t semaphore,
                                           int32_t timeline, bowline_device_semaphore** out,
                                           bowline_error** error) {
  return make(device, out, error, [&](const Device& d) {
    return DeviceSemaphore::adopt_vulkan(d, semaphore, timeline != 0);
  });
}

bowline_code device_semaphore_create_exportable(bowline_device* device, int32_t timeline,
                                                bowline_device_semaphore** out,
                                                bowline_error** error) {
  return make(device, out, error, [&](const Device& d) {
    return DeviceSemaphore::create_exportable(d, timeline != 0);
  });
}

bowline_code device_semaphore_import_fd(bowline_device* device, int32_t fd, int32_t timeline,
                                        bowline_device_semaphore** out, bowline_error** error) {
  return make(device, out, error,
              [&](const Device& d) { return DeviceSemaphore::import_fd(d, fd, timeline != 0); });
}

bowline_code device_semaphore_close(bowline_device_semaphore* semaphore, bowline_error** error) {
  return close(semaphore, error);
}

bowline_code device_semaphore_export_fd(bowline_device_semaphore* semaphore, int32_t* out,
                                        bowline_error** error) {
  return on(semaphore, error, [&](const DeviceSemaphore& s) -> Status {
    BOWLINE_TRY(given(out, "out"));
    BOWLINE_TRY_ASSIGN(*out, s.export_fd());
    return {};
  });
}

bowline_code device_semaphore_wait_for(bowline_device_semaphore* semaphore, uint64_t value,
                                       bowline_error** error) {
  return on(semaphore, error, [&](const DeviceSemaphore& s) { return s.wait_for(value); });
}

bowline_code device_semaphore_signal(bowline_device_semaphore* semaphore, uint64_t value,
                                     bowline_error** error) {
  return on(semaphore, error, [&](const DeviceSemaphore& s) { return s.signal(value); });
}

}  // namespace api
}  // namespace bowline::c
