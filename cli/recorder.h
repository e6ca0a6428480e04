// Records what reaches a platform from outside, so that `orrery replay` can repeat the run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/page_shadow.h"
#include "common/recording.h"
#include "pcie/function_access.h"
#include "systemc_models/host/dram.h"
#include "systemc_models/server/platform.h"

namespace orrery::cli {

// One recording of one platform in timed mode. Stands between the vfio-user servers and the platform's
// functions; sees, as the memory's observer, what devices read of guest memory.
// BAR mapping must be off: what a guest does to mapped memory reaches nobody.
class Recorder final : private models::DramObserver, private PageShadow::Listener {
 public:
  // Throws Error if the platform isn't timed or the file can't be made.
  Recorder(models::Platform& platform, const std::string& path);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // The function to give to the server of an endpoint; lives as long as the recorder.
  [[nodiscard]] pcie::FunctionAccess& function(std::size_t endpoint);
  // Ends the recording. Throws Error if any of it was lost, or if the run can't be replayed (a device used
  // memory that the guest offered without a file descriptor).
  void close(std::uint64_t trace_records, std::uint64_t trace_hash);

 private:
  class Function;
  friend class Function;
  // A stimulus of now: everything due has been handled before it.
  [[nodiscard]] Stimulus begin(StimulusKind kind, std::size_t function);
  void before_device_read(unsigned file, std::uint64_t offset, std::span<std::byte> bytes) override;
  void after_device_write(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes) override;
  void on_difference(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes) override;

  models::Platform& platform_;
  std::string path_;
  RecordingWriter writer_;
  PageShadow shadow_;
  std::vector<std::unique_ptr<Function>> functions_;
  std::vector<bool> known_files_;
  bool used_messages_ = false;
};

}  // namespace orrery::cli
