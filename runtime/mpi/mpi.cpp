// A ProcessGroup over MPI. Each message goes directly from its sender to its receiver, so that a
// process which waits knows who has not answered.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "bowline_mpi.h"

namespace bowline {
namespace {

using Clock = std::chrono::steady_clock;

// MPI counts in int. Larger messages are sent in pieces.
constexpr size_t kPiece = size_t{1} << 28;
constexpr int kTag = 1;

std::string text_of(int error) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(error, text, &length);
  return {text, static_cast<size_t>(length)};
}

// Asks about the processes of this machine.
int in_this_machine(int (*question)(MPI_Comm, int*), int otherwise) {
  MPI_Comm local = MPI_COMM_NULL;
  if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local) ==
      MPI_SUCCESS) {
    question(local, &otherwise);
    MPI_Comm_free(&local);
  }
  return otherwise;
}

class MpiGroup final : public ProcessGroup {
 public:
  MpiGroup(MPI_Comm communicator, const MpiOptions& options)
      : communicator_(communicator), options_(options) {
    int rank = 0, size = 1;
    MPI_Comm_rank(communicator_, &rank);
    MPI_Comm_size(communicator_, &size);
    rank_ = static_cast<uint32_t>(rank);
    size_ = static_cast<uint32_t>(size);
  }

  ~MpiGroup() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0 && lost_.ok()) {
      MPI_Comm_free(&communicator_);
    }
  }
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return size_; }
  double timeout_seconds() const override { return options_.timeout_seconds; }

  Status exchange(std::span<const std::span<const std::byte>> to,
                  std::span<const std::span<std::byte>> from) override {
    BOWLINE_REQUIRE(to.size() == size_ && from.size() == size_,
                    "{} and {} parts are given for {} processes.", to.size(), from.size(), size_);
    if (lost_.ok()) {
      lost_ = exchange_all(to, from);
    }
    return lost_;
  }

 private:
  struct Request {
    MPI_Request handle = MPI_REQUEST_NULL;
    uint32_t peer = 0;
    bool receives = false;
  };

  Status check(int error, uint32_t peer) const {
    BOWLINE_REQUIRE_CODE(error == MPI_SUCCESS, Code::device_lost,
                         "Process {} cannot exchange data with process {} of {}: {}. Start all "
                         "processes again from the last checkpoint.",
                         rank_, peer, size_, text_of(error));
    return {};
  }

  Status exchange_all(std::span<const std::span<const std::byte>> to,
                      std::span<const std::span<std::byte>> from) {
    std::vector<Request> requests;
    // Every process starts with its right neighbour, so that not all send to the same one.
    for (uint32_t i = 1; i < size_; ++i) {
      const uint32_t peer = (rank_ + size_ - i) % size_;
      for (size_t at = 0; at < from[peer].size(); at += kPiece) {
        const std::span piece = from[peer].subspan(at, std::min(kPiece, from[peer].size() - at));
        Request& r = requests.emplace_back(Request{MPI_REQUEST_NULL, peer, true});
        BOWLINE_TRY(check(MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE,
                                    static_cast<int>(peer), kTag, communicator_, &r.handle),
                          peer));
      }
    }
    for (uint32_t i = 1; i < size_; ++i) {
      const uint32_t peer = (rank_ + i) % size_;
      for (size_t at = 0; at < to[peer].size(); at += kPiece) {
        const std::span piece = to[peer].subspan(at, std::min(kPiece, to[peer].size() - at));
        Request& r = requests.emplace_back(Request{MPI_REQUEST_NULL, peer, false});
        BOWLINE_TRY(check(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE,
                                    static_cast<int>(peer), kTag, communicator_, &r.handle),
                          peer));
      }
    }
    return wait(requests);
  }

  Status wait(std::vector<Request>& requests) const {
    Clock::time_point last = Clock::now();
    uint64_t idle = 0;
    while (!requests.empty()) {
      bool progress = false;
      for (size_t i = 0; i < requests.size();) {
        int done = 0;
        MPI_Status status;
        const int error = MPI_Test(&requests[i].handle, &done, &status);
        BOWLINE_TRY(check(error, requests[i].peer));
        if (done == 0) {
          ++i;
          continue;
        }
        progress = true;
        requests.erase(requests.begin() + static_cast<ptrdiff_t>(i));
      }
      const Clock::time_point now = Clock::now();
      if (progress) {
        last = now;
        idle = 0;
        continue;
      }
      const double waited = std::chrono::duration<double>(now - last).count();
      BOWLINE_REQUIRE_CODE(
          waited < options_.timeout_seconds, Code::device_lost,
          "Process {} of {} has not answered for {} seconds; it hangs, is stopped, or its machine "
          "cannot be reached. Start all processes again from the last checkpoint. If it only needs "
          "more time, raise the timeout.",
          silent(requests), size_, options_.timeout_seconds);
      // The other process may need this core.
      if (++idle > 1000) {
        std::this_thread::sleep_for(std::chrono::microseconds(waited < 0.1 ? 20 : 500));
      } else {
        std::this_thread::yield();
      }
    }
    return {};
  }

  // The process that this one waits for. A message that was not received counts more than one that
  // was not taken.
  static uint32_t silent(const std::vector<Request>& requests) {
    const auto receive = std::ranges::find(requests, true, &Request::receives);
    return receive == requests.end() ? requests[0].peer : receive->peer;
  }

  MPI_Comm communicator_;
  MpiOptions options_;
  uint32_t rank_ = 0;
  uint32_t size_ = 1;
  Status lost_;  // the first error, which names the process; later exchanges return it, too
};

}  // namespace

Result<std::shared_ptr<ProcessGroup>> mpi_processes(MPI_Comm communicator,
                                                    const MpiOptions& options) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  BOWLINE_REQUIRE(initialized != 0, "MPI is not initialized. Call MPI_Init() first.");
  MPI_Comm copy = MPI_COMM_NULL;
  const int error = MPI_Comm_dup(communicator, &copy);
  BOWLINE_REQUIRE_CODE(error == MPI_SUCCESS, Code::io_error,
                       "The MPI communicator cannot be copied: {}.", text_of(error));
  // Errors become a Status. By default MPI would end the process.
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return std::shared_ptr<ProcessGroup>(std::make_shared<MpiGroup>(copy, options));
}

}  // namespace bowline

const char* bowline_mpi_open(double timeout_seconds, bowline::ProcessGroup** group) {
  static std::string reason;
  int provided = 0;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
      error != MPI_SUCCESS) {
    reason = bowline::text_of(error);
    return reason.c_str();
  }
  MPI_Comm copy = MPI_COMM_NULL;
  if (const int error = MPI_Comm_dup(MPI_COMM_WORLD, &copy); error != MPI_SUCCESS) {
    reason = bowline::text_of(error);
    return reason.c_str();
  }
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  *group = new bowline::MpiGroup(copy, {timeout_seconds});
  return nullptr;
}

int bowline_mpi_local_size(void) { return bowline::in_this_machine(MPI_Comm_size, 1); }

int bowline_mpi_local_rank(void) { return bowline::in_this_machine(MPI_Comm_rank, 0); }

void bowline_mpi_close(int exit_code) {
  if (exit_code != 0) {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  MPI_Finalize();
}
