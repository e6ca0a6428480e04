// A pcapng file of a run's network ports.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "fabric/pcapng.h"

namespace orrery::models {

// Buffered; complete once it has been destroyed. A write that fails (a full disk) is reported once, and ends the
// capture: what is in the file then is whole blocks, as many as fitted.
class CaptureFile final : private fabric::CaptureSink {
 public:
  // Makes or empties the file. Throws Error that names it if it can't.
  explicit CaptureFile(const std::string& path);

  [[nodiscard]] fabric::PcapngWriter& writer() { return *writer_; }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { static_cast<void>(std::fclose(file)); }
  };
  void write(std::span<const std::byte> bytes) override;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::unique_ptr<fabric::PcapngWriter> writer_;
  bool failed_ = false;
};

}  // namespace orrery::models
