#include "cli/output.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "common/error.h"

namespace orrery::cli {

namespace fs = std::filesystem;

void note_line(std::string_view line) {
  const std::string text = std::string(line) + '\n';
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    const int reason = errno != 0 ? errno : EIO;
    throw std::system_error(reason, std::generic_category(), "standard output can't be written");
  }
}

void write_output(std::string_view bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  flush_output();
}

void require_other_file(const std::string& output, const std::string& input) {
  std::error_code ignored;
  if (fs::equivalent(output, input, ignored)) {
    throw Error(output + " is the file that is read", "name another file to write to");
  }
}

void discard_file(const std::string& path) noexcept {
  std::error_code ignored;
  if (fs::is_regular_file(fs::symlink_status(path, ignored))) {
    fs::remove(path, ignored);
  }
}

}  // namespace orrery::cli
