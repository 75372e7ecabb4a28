// Models that are opened from memory, from a part of an open file, and by a callback.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "model/tied_model.h"
#include "params/home.h"
#include "ties/seed_models.h"
#include "ties/test_devices.h"

namespace bowline::test {
namespace {

// Values with padding between them, and an asset.
std::string file_of_tied_model() {
  const Folder folder;
  Model model = make_tied_model();
  EXPECT_OK(model.materialize(5));
  const std::string text = "an asset";
  EXPECT_OK(model.set_asset("text", "text/plain", std::as_bytes(std::span(text))));
  EXPECT_OK(model.save(folder / "m"));
  return read_file(folder / "m");
}

OpenOptions read_at_once() {
  OpenOptions options;
  options.memory_map = false;
  return options;
}

class OpenedFile {
 public:
  explicit OpenedFile(const std::string& path, int flags = O_RDONLY)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC)) {
    EXPECT_GE(fd_, 0);
  }
  ~OpenedFile() { ::close(fd_); }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// A place that holds the bytes of a file, and outlives the models that are opened from it.
class Place {
 public:
  virtual ~Place() = default;
  virtual Result<Model> open() = 0;
  virtual std::string name() const = 0;  // in messages
};

class Path : public Place {
 public:
  explicit Path(const std::string& bytes) { write_file(path_, bytes); }
  Result<Model> open() override { return Model::open(path_); }
  std::string name() const override { return format("\"{}\"", path_); }

 private:
  Folder folder_;
  std::string path_ = folder_ / "m";
};

class Memory : public Place {
 public:
  Memory(const std::string& bytes, size_t before, const OpenOptions& options = {})
      : bytes_(before), options_(options) {
    const auto more = std::as_bytes(std::span(bytes));
    bytes_.insert(bytes_.end(), more.begin(), more.end());
    all_ = std::span(bytes_).subspan(before);
  }
  Result<Model> open() override { return Model::open_memory(all_, options_); }
  std::string name() const override { return "memory"; }
  std::span<std::byte> all() { return all_; }

 private:
  std::vector<std::byte> bytes_;
  std::span<std::byte> all_;
  OpenOptions options_;
};

// The model is between other bytes. The descriptor is closed after the call.
class Part : public Place {
 public:
  Part(const std::string& bytes, size_t before, const OpenOptions& options = {})
      : before_(before), size_(bytes.size()), options_(options) {
    write_file(folder_ / "container", std::string(before, 'b') + bytes + std::string(99, 'a'));
  }
  Result<Model> open() override {
    const OpenedFile file(folder_ / "container");
    name_ = format("descriptor {}", file.get());
    return Model::open_descriptor(file.get(), before_, size_, options_);
  }
  std::string name() const override { return name_; }

 private:
  Folder folder_;
  size_t before_;
  size_t size_;
  OpenOptions options_;
  std::string name_;
};

// Counts the calls and the bytes of a reader.
struct Asked {
  std::string bytes;
  std::atomic<uint64_t> calls = 0;
  std::atomic<uint64_t> read = 0;
  std::atomic<uint64_t> largest = 0;
  std::atomic<uint64_t> failing_call = 0;  // counts from 1; 0 means no failure
  Code code = Code::cancelled;

  ModelReader reader() {
    return {bytes.size(), [this](uint64_t first, std::span<std::byte> out) -> Status {
              if (++calls == failing_call) {
                return Status(code, "The key is gone.");
              }
              read += out.size();
              largest = std::max<uint64_t>(largest, out.size());
              std::memcpy(out.data(), bytes.data() + first, out.size());
              return {};
            }};
  }
};

class Reader : public Place {
 public:
  explicit Reader(const std::string& bytes, const OpenOptions& options = {})
      : asked_{bytes}, options_(options) {}
  Result<Model> open() override { return Model::open_reader(asked_.reader(), options_); }
  std::string name() const override { return "the reader"; }

 private:
  Asked asked_;
  OpenOptions options_;
};

std::vector<std::unique_ptr<Place>> places_of(const std::string& bytes) {
  std::vector<std::unique_ptr<Place>> out;
  out.push_back(std::make_unique<Memory>(bytes, 0));
  out.push_back(std::make_unique<Memory>(bytes, 1));
  out.push_back(std::make_unique<Memory>(bytes, 0, read_at_once()));
  for (const size_t before : {0, 1, 4095, 4096, 70'001}) {
    out.push_back(std::make_unique<Part>(bytes, before));
    out.push_back(std::make_unique<Part>(bytes, before, read_at_once()));
  }
  out.push_back(std::make_unique<Reader>(bytes));
  out.push_back(std::make_unique<Reader>(bytes, read_at_once()));
  return out;
}

// The places that keep the file where it is.
std::vector<std::unique_ptr<Place>> few_places_of(const std::string& bytes) {
  std::vector<std::unique_ptr<Place>> out;
  out.push_back(std::make_unique<Memory>(bytes, 0));
  out.push_back(std::make_unique<Part>(bytes, 33));
  out.push_back(std::make_unique<Reader>(bytes));
  return out;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Listings, values, ties and assets.
std::string content_of(const Model& model) {
  std::string out = model.parameters() + model.storages() + model.ties();
  for (const StorageInfo& s : must(model.describe()).storages) {
    out += text_of(must(model.storage_bytes(s.tie)));
  }
  return out + text_of(must(model.asset("text")));
}

Floats logits_of(Model& model, const Device& device) {
  must(model.to(device));
  const BoundDim dims[] = {{"batch", 1}, {"seq", 3}};
  Session session = must(Session::create(model, device, "forward", dims));
  std::vector<int32_t> tokens = {3, 1, 10};
  Floats logits(33);
  const Tensor in[] = {tensor("tokens", {1, 3}, tokens)};
  const Tensor out[] = {tensor("logits", {1, 3, 11}, logits)};
  must(session.run(in, out));
  return logits;
}

TEST(OpenPlaces, GiveTheSameModel) {
  const std::string bytes = file_of_tied_model();
  Path path(bytes);
  Model wanted = must(path.open());
  const std::string content = content_of(wanted);
  const Device cpu = open_test_device("cpu");
  const Floats logits = logits_of(wanted, cpu);
  for (const auto& place : places_of(bytes)) {
    Result<Model> opened = place->open();
    SCOPED_TRACE(place->name());
    ASSERT_OK(opened.status());
    EXPECT_EQ(content_of(opened.value()), content);
    const Folder folder;
    ASSERT_OK(opened.value().save(folder / "saved"));
    EXPECT_EQ(read_file(folder / "saved"), bytes);
    EXPECT_TRUE(must(opened.value().same_storage("emb.weight", "head.weight")));
    // A clone lives longer than the model.
    Model clone = must(opened.value().clone());
    opened = Model();
    EXPECT_EQ(content_of(clone), content);
    EXPECT_EQ(logits_of(clone, cpu), logits);
  }
}

// The message, with another name of the place.
std::string without(const std::string& name, const Status& status) {
  std::string out = format("{}: {}", name_of(status.code()), status.message());
  for (size_t at = out.find(name); at != std::string::npos; at = out.find(name)) {
    out.replace(at, name.size(), "PLACE");
  }
  return out;
}

void expect_same_refusal(const std::string& bytes) {
  Path path(bytes);
  const Status wanted = path.open().status();
  for (const auto& place : few_places_of(bytes)) {
    const Status status = place->open().status();
    ASSERT_EQ(without(place->name(), status), without(path.name(), wanted));
  }
}

TEST(OpenPlaces, RefuseADamagedFileInTheSameWay) {
  const std::string bytes = file_of_tied_model();
  // Every byte of the header and of the trailer; some of the tables, of the padding and the values.
  for (size_t i = 0; i < bytes.size(); i += i < 64 || i + 33 > bytes.size() ? 1 : 17) {
    SCOPED_TRACE(i);
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (i % 2 == 0 ? 1 : 128));
    expect_same_refusal(damaged);
  }
}

TEST(OpenPlaces, RefuseATruncatedFileInTheSameWay) {
  const std::string bytes = file_of_tied_model();
  EXPECT_EQ(Model::open_memory({}).status().message(),
            "The file is an empty file, not a Bowline model.\n- While loading memory.");
  for (size_t size = 1; size < bytes.size(); size += size < 100 ? 7 : 311) {
    SCOPED_TRACE(size);
    expect_same_refusal(bytes.substr(0, size));
  }
}

// Only the first bytes of the file are read for this. They may end within a character.
TEST(OpenPlaces, NameTheFormatOfAnotherProgram) {
  const auto format_of = [](const std::string& bytes) {
    expect_same_refusal(bytes);
    const Status status = Model::open_memory(std::as_bytes(std::span(bytes))).status();
    return status.message().substr(0, status.message().find('\n'));
  };
  std::string safetensors(1000, ' ');
  safetensors.replace(0, 9, std::string("\xE0\x03\0\0\0\0\0\0{", 9));
  EXPECT_EQ(format_of(safetensors), "The file is a safetensors file, not a Bowline model.");
  EXPECT_EQ(format_of(std::string(511, 'a') + "\u00e9"),
            "The file is a text file, not a Bowline model.");
}

// The checksum of a weight is verified when the weight is read, wherever the file is.
TEST(OpenPlaces, FindADamagedWeight) {
  std::string bytes = file_of_tied_model();
  bytes[4096] = static_cast<char>(bytes[4096] ^ 1);
  const Device cpu = open_test_device("cpu");
  for (const auto& place : places_of(bytes)) {
    Model model = must(place->open());
    SCOPED_TRACE(place->name());
    Floats table(66);
    const Status status = model.get_value("head.weight", tensor("", {11, 6}, table));
    EXPECT_EQ(status.code(), Code::bad_file);
    EXPECT_EQ(status.message(),
              format("The 264 bytes at offset 4096 of {} do not match their checksum.\n- While "
                     "reading parameter \"head.weight\".",
                     place->name()));
    const Folder folder;
    EXPECT_EQ(must(place->open()).save(folder / "saved").code(), Code::bad_file);
    EXPECT_EQ(folder.files(), 0u);
    model = must(place->open());
    EXPECT_EQ(model.to(cpu).code(), Code::bad_file);
    EXPECT_EQ(must(model.describe()).storages[0].where, "file");
    EXPECT_EQ(model.to(cpu).code(), Code::bad_file) << "a second time";
  }
}

TEST(OpenMemory, UsesAlignedBytesInPlace) {
  const std::string bytes = file_of_tied_model();
  for (const size_t before : {0, 1, 4, 8, 15, 16}) {
    Memory memory(bytes, before);
    const Model model = must(memory.open());
    for (const detail::params::Storage& s : Internals::state(model)->table.storages) {
      std::vector<std::byte> scratch;
      const auto all = must(detail::params::read_all(s, scratch));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(all.data()) % alignof(std::max_align_t), 0u);
      const bool in_place = all.data() >= memory.all().data() &&
                            all.data() < memory.all().data() + memory.all().size();
      EXPECT_EQ(in_place, before % alignof(std::max_align_t) == 0);
    }
  }
}

TEST(OpenMemory, ACopyOutlivesTheBytes) {
  Memory memory(file_of_tied_model(), 0, read_at_once());
  const Model model = must(memory.open());
  const std::string content = content_of(model);
  std::ranges::fill(memory.all(), std::byte{0xA5});
  EXPECT_EQ(content_of(must(model.clone())), content);
}

TEST(OpenDescriptor, LeavesItAsItIs) {
  const std::string bytes = file_of_tied_model();
  const Folder folder;
  write_file(folder / "m", "123" + bytes);
  for (const OpenOptions& options : {OpenOptions(), read_at_once()}) {
    const OpenedFile file(folder / "m");
    ASSERT_EQ(lseek(file.get(), 7, SEEK_SET), 7);
    const Model model = must(Model::open_descriptor(file.get(), 3, 0, options));
    EXPECT_EQ(lseek(file.get(), 0, SEEK_CUR), 7);
    ASSERT_OK(model.save(folder / "saved"));
    EXPECT_EQ(read_file(folder / "saved"), bytes);
    EXPECT_EQ(fcntl(file.get(), F_GETFD), FD_CLOEXEC) << "it is open still";
  }
}

TEST(OpenDescriptor, RefusesPartsThatAreNotThere) {
  const std::string bytes = file_of_tied_model();
  const Folder folder;
  write_file(folder / "m", bytes);
  const OpenedFile file(folder / "m");
  const uint64_t size = bytes.size(), most = UINT64_MAX;
  const std::pair<uint64_t, uint64_t> parts[] = {{0, size + 1}, {1, size},     {size + 1, 0},
                                                 {most, 0},     {most, most},  {2, most},
                                                 {size, 1},     {most - 1, 3}, {0, most}};
  for (const auto& [offset, count] : parts) {
    for (const OpenOptions& options : {OpenOptions(), read_at_once()}) {
      const Status status = Model::open_descriptor(file.get(), offset, count, options).status();
      EXPECT_EQ(status.code(), Code::bad_file);
      EXPECT_EQ(status.message(),
                format("File descriptor {} has {} bytes and ends before the end of the model ({} "
                       "bytes at offset {}).",
                       file.get(), size, count, offset));
    }
  }
  EXPECT_EQ(Model::open_descriptor(file.get(), size).status().code(), Code::bad_file);
  EXPECT_OK(Model::open_descriptor(file.get(), 0, size).status());
}

TEST(OpenDescriptor, RefusesWhatIsNoFile) {
  const auto refusal = [](int fd) {
    const Status status = Model::open_descriptor(fd).status();
    EXPECT_EQ(status.code(), Code::bad_argument);
    return status.message();
  };
  EXPECT_EQ(refusal(-1), "File descriptor -1 cannot be examined: Bad file descriptor.");
  const Folder folder;
  write_file(folder / "m", file_of_tied_model());
  const int closed = OpenedFile(folder / "m").get();
  EXPECT_EQ(refusal(closed),
            format("File descriptor {} cannot be examined: Bad file descriptor.", closed));
  const OpenedFile directory(folder / ".");
  EXPECT_EQ(refusal(directory.get()),
            format("File descriptor {} is a directory, not a file.", directory.get()));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(refusal(ends[0]), format("File descriptor {} is not a regular file.", ends[0]));
  close(ends[0]);
  close(ends[1]);
  const OpenedFile device("/dev/zero");
  EXPECT_EQ(refusal(device.get()),
            format("File descriptor {} is not a regular file.", device.get()));
  const OpenedFile written(folder / "m", O_WRONLY);
  for (const OpenOptions& options : {OpenOptions(), read_at_once()}) {
    EXPECT_EQ(Model::open_descriptor(written.get(), 0, 0, options).status().code(), Code::io_error);
  }
}

// Opens the model and uses everything in it. Returns the first error.
Status use(Asked& asked, const OpenOptions& options, const Device& device,
           const std::string& path) {
  BOWLINE_TRY_ASSIGN(Model model, Model::open_reader(asked.reader(), options));
  BOWLINE_TRY(model.asset("text").status());
  BOWLINE_TRY(model.storage_bytes(1).status());
  BOWLINE_TRY(model.save(path));
  return model.to(device);
}

TEST(OpenReader, ReturnsTheFailureOfAnyCall) {
  const std::string bytes = file_of_tied_model();
  const Device cpu = open_test_device("cpu");
  for (const OpenOptions& options : {OpenOptions(), read_at_once()}) {
    for (const Code code : {Code::cancelled, Code::bad_argument, Code::io_error}) {
      uint64_t n = 1;
      for (;; ++n) {
        SCOPED_TRACE(n);
        Asked asked{bytes};
        asked.failing_call = n;
        asked.code = code;
        const Folder folder;
        const Status status = use(asked, options, cpu, folder / "m");
        if (asked.calls < n) {
          ASSERT_OK(status);
          EXPECT_EQ(read_file(folder / "m"), bytes);
          break;
        }
        ASSERT_EQ(status.code(), code) << status.message();
        EXPECT_EQ(status.message().substr(0, status.message().find('\n')), "The key is gone.");
        EXPECT_OK(use(asked, options, cpu, folder / "m"));  // a second time
      }
      EXPECT_EQ(n > 10, options.memory_map) << n;
    }
  }
}

TEST(OpenReader, AFailureDoesNotCountAsACheck) {
  Asked asked{file_of_tied_model()};
  asked.bytes[4096] = static_cast<char>(asked.bytes[4096] ^ 1);
  const Model model = must(Model::open_reader(asked.reader()));
  asked.failing_call = asked.calls + 1;
  EXPECT_EQ(model.storage_bytes(0).status().code(), Code::cancelled);
  EXPECT_EQ(model.storage_bytes(0).status().code(), Code::bad_file);
  EXPECT_EQ(model.storage_bytes(0).status().code(), Code::bad_file);
}

TEST(OpenReader, TurnsExceptionsIntoAStatus) {
  const auto refusal = [](std::function<void()> fails) {
    return Model::open_reader({1000,
                               [fails](uint64_t, std::span<std::byte>) {
                                 fails();
                                 return Status();
                               }})
        .status();
  };
  const Status named = refusal([] { throw std::runtime_error("no key"); });
  EXPECT_EQ(named.code(), Code::bad_argument);
  EXPECT_EQ(named.message(), "The reader throws an exception: no key\n- While loading the reader.");
  const Status other = refusal([] { throw 7; });
  EXPECT_EQ(other.code(), Code::bad_argument);
  EXPECT_EQ(other.message(), "The reader throws an exception.\n- While loading the reader.");
  EXPECT_EQ(refusal([] { throw std::bad_alloc(); }).code(), Code::out_of_memory);
  const Status empty = Model::open_reader({1000, nullptr}).status();
  EXPECT_EQ(empty.code(), Code::bad_argument);
  EXPECT_EQ(empty.message(), "The reader has no function.");
}

// A large weight is not read before it is needed, then once, and in pieces.
TEST(OpenReader, ReadsAWeightWhenItIsNeeded) {
  const uint64_t weight_bytes = 1100 * 4096 * sizeof(float);
  const Folder folder;
  {
    Model model;
    ASSERT_OK(model.parameter("w", {1100, 4096}, Init::ones()).status());
    ASSERT_OK(model.materialize(1));
    ASSERT_OK(model.save(folder / "m"));
  }
  Asked asked{read_file(folder / "m")};
  {
    Model model = must(Model::open_reader(asked.reader()));
    EXPECT_LT(asked.read, 8192u);
    asked.read = 0;
    ASSERT_OK(model.to(open_test_device("cpu")));
    EXPECT_EQ(asked.read, weight_bytes);
    EXPECT_EQ(asked.largest, uint64_t{16} << 20);
    EXPECT_EQ(values(model, "w")[1100 * 4096 - 1], 1.0f);
    EXPECT_EQ(asked.read, weight_bytes);
  }
  {
    const Model model = must(Model::open_reader(asked.reader()));
    asked.read = 0;
    EXPECT_EQ(must(model.storage_bytes(0)).size(), weight_bytes);
    EXPECT_EQ(asked.read, weight_bytes) << "its checksum needs no second read";
  }
  {
    const Model model = must(Model::open_reader(asked.reader()));
    ASSERT_OK(model.save(folder / "saved"));  // part by part, before the weight was checked
    EXPECT_TRUE(read_file(folder / "saved") == asked.bytes);
  }
  asked.read = 0;
  const Model whole = must(Model::open_reader(asked.reader(), read_at_once()));
  EXPECT_EQ(asked.read, asked.bytes.size());
  EXPECT_EQ(asked.largest, uint64_t{16} << 20);
  EXPECT_EQ(values(whole, "w")[0], 1.0f);
  EXPECT_EQ(asked.read, asked.bytes.size());
}

// A second pass could return other bytes than those that were checked.
TEST(OpenReader, WhatWasMovedIsWhatWasChecked) {
  Asked asked{file_of_tied_model()};
  ModelReader reader = asked.reader();
  reader.read = [inner = reader.read, reads = 0](uint64_t first, std::span<std::byte> out) mutable {
    Status status = inner(first, out);
    if (first == 4096 && ++reads > 1) {
      out[0] ^= std::byte{1};
    }
    return status;
  };
  Model model = must(Model::open_reader(reader));
  ASSERT_OK(model.to(open_test_device("cpu")));
  Path path(asked.bytes);
  EXPECT_EQ(values(model, "emb.weight"), values(must(path.open()), "emb.weight"));
}

TEST(OpenReader, KeepsTheReaderWhileItIsNeeded) {
  const std::string bytes = file_of_tied_model();
  for (const OpenOptions& options : {OpenOptions(), read_at_once()}) {
    auto held = std::make_shared<std::string>(bytes);
    const std::weak_ptr<std::string> watched = held;
    ModelReader reader{bytes.size(), [held](uint64_t first, std::span<std::byte> out) {
                         std::memcpy(out.data(), held->data() + first, out.size());
                         return Status();
                       }};
    held.reset();
    std::optional<Model> model = must(Model::open_reader(std::move(reader), options));
    std::optional<Model> clone = must(model->clone());
    EXPECT_EQ(watched.expired(), !options.memory_map);
    model.reset();
    EXPECT_EQ(watched.expired(), !options.memory_map);
    EXPECT_EQ(values(*clone, "norm.weight"), Floats(6, 1));
    clone.reset();
    EXPECT_TRUE(watched.expired());
  }
}

// Clones are models of their own, but read the same file.
TEST(OpenPlaces, AreReadByTwoThreads) {
  const std::string bytes = file_of_tied_model();
  for (const auto& place : places_of(bytes)) {
    SCOPED_TRACE(place->name());
    const Model model = must(place->open());
    const Model clone = must(model.clone());
    std::string contents[2];
    {
      const std::jthread first([&] { contents[0] = content_of(model); });
      const std::jthread second([&] { contents[1] = content_of(clone); });
    }
    EXPECT_EQ(contents[0], content_of(model));
    EXPECT_EQ(contents[1], contents[0]);
  }
}

}  // namespace
}  // namespace bowline::test
