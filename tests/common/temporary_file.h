// A file for one test, gone afterwards.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace orrery::test {

class TemporaryFile {
 public:
  TemporaryFile() {
    const int fd = ::mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    ::close(fd);
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::vector<std::byte> read() const {
    std::ifstream file(path_, std::ios::binary);
    const std::vector<char> text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  [[nodiscard]] std::string text() const {
    const std::vector<std::byte> bytes = read();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void write(std::span<const std::byte> bytes) const {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  void write(const std::string& text) const { write(std::as_bytes(std::span(text))); }

 private:
  std::string path_ = ::testing::TempDir() + "orrery_test_XXXXXX";
};

}  // namespace orrery::test
