// Repeats a recorded run without its guest.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "common/file_descriptor.h"
#include "common/recording.h"
#include "pcie/tlp_trace.h"
#include "systemc_models/host/dram.h"
#include "systemc_models/server/platform.h"

namespace orrery::cli {

struct ReplayResult {
  std::uint64_t stimuli = 0;
  Picoseconds time;
  std::uint64_t trace_records = 0;
  std::uint64_t trace_hash = 0;
  bool recorded_complete = false;  // the recording has a result to compare with
  std::uint64_t recorded_hash = 0;
  [[nodiscard]] bool matches() const { return recorded_complete && recorded_hash == trace_hash; }
};

class Replayer final : private models::DramObserver {
 public:
  // Throws Error if the file is no recording, or of a configuration that can't be built.
  explicit Replayer(const std::string& path);
  ~Replayer();
  Replayer(const Replayer&) = delete;
  Replayer& operator=(const Replayer&) = delete;

  [[nodiscard]] const RecordingHeader& header() const { return reader_.header(); }
  // Writes the replay's trace there as well; before run(). Throws Error.
  void write_trace(const std::string& path);
  // Throws Error where the recording is damaged or the run takes another course than the recorded one.
  ReplayResult run();

 private:
  void advance();  // to the next stimulus of the file
  void inject(const Stimulus& stimulus);
  void before_device_read(unsigned file, std::uint64_t offset, std::span<std::byte> bytes) override;
  void after_device_write(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes) override;
  [[noreturn]] void diverged(const std::string& what) const;

  RecordingReader reader_;
  models::ServerConfig config_;
  std::unique_ptr<models::Platform> platform_;
  std::unique_ptr<pcie::TlpTrace> trace_;
  std::vector<FileDescriptor> files_;
  std::vector<std::string> guest_of_;  // by function
  Stimulus current_;
  bool more_ = false;
  std::exception_ptr failure_;  // of the reader, met inside a process of the kernel, which nothing may leave
  std::uint64_t stimuli_ = 0;
};

}  // namespace orrery::cli
