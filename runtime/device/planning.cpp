#include "device/planning.h"

namespace bowline::detail::device {
namespace {

Status refused(std::string_view what) {
  return Status(Code::unsupported,
                format("The device was opened for planning only: it has no memory, and {}.", what));
}

class PlanningDevice : public Device {
 public:
  explicit PlanningDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}

  const Capabilities& capabilities() const override { return inner_->capabilities(); }
  NodeAnswer query(const NodeQuery& node) const override { return inner_->query(node); }
  // Unknown: the memory of the inner device does not matter.
  Result<MemoryInfo> memory_info() override { return MemoryInfo{}; }

  Result<Buffer> allocate(uint64_t bytes, MemoryKind kind) override {
    return capabilities().host_memory ? inner_->allocate(bytes, kind) : Buffer{1};
  }
  void free(Buffer buffer) override {
    if (capabilities().host_memory) {
      inner_->free(buffer);
    }
  }

  Status copy_in(Buffer, uint64_t, std::span<const std::byte>) override { return {}; }
  Status copy_out(std::span<std::byte>, Buffer, uint64_t) override {
    return refused("nothing can be read from it");
  }
  Status copy(Buffer, uint64_t, Buffer, uint64_t, uint64_t) override { return {}; }
  Status fill(Buffer, uint64_t, uint64_t, std::byte) override { return {}; }

  Result<std::unique_ptr<Recording>> record(const Program& program,
                                            std::span<const Buffer> buffers) override {
    return capabilities().host_memory ? inner_->record(program, buffers) : inner_->plan(program);
  }
  Status submit(std::span<Recording* const>) override { return refused("nothing can run on it"); }
  Status wait() override { return {}; }
  Result<std::vector<RecordTime>> timestamps(Recording&) override {
    return refused("nothing can run on it");
  }

 private:
  std::unique_ptr<Device> inner_;
};

}  // namespace

std::unique_ptr<Device> planning_device(std::unique_ptr<Device> inner) {
  return std::make_unique<PlanningDevice>(std::move(inner));
}

}  // namespace bowline::detail::device
