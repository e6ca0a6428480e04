#include "systemc_models/server/capture_file.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"
#include "common/log.h"

namespace orrery::models {

CaptureFile::CaptureFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wbe")) {
  if (file_ == nullptr) {
    throw Error(fmt::format("network.capture: can't write {}: {}", path, std::strerror(errno)),
                "name a file in a folder that exists and may be written");
  }
  writer_ = std::make_unique<fabric::PcapngWriter>(static_cast<fabric::CaptureSink&>(*this), "Orrery");
}

void CaptureFile::write(std::span<const std::byte> bytes) {
  if (failed_) {
    return;
  }
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    failed_ = true;
    log(LogLevel::error, "{}: the capture ends here: {}", path_, std::strerror(errno));
  }
}

}  // namespace orrery::models
