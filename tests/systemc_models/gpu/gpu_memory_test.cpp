#include "systemc_models/gpu/gpu_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <string>

#include "common/error.h"

namespace orrery::models::gpu_memory_test {
namespace {

TEST(GpuMemory, IsSparse) {
  GpuMemory memory("big", std::uint64_t{128} << 30);
  memory.data()[0] = std::byte{1};
  memory.data()[memory.size() - 1] = std::byte{2};
  struct stat status {};
  ASSERT_EQ(::fstat(memory.fd(), &status), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(status.st_size), std::uint64_t{128} << 30);
  EXPECT_LE(status.st_blocks * 512, 16 << 20) << "two touched pages, huge or not";
}

TEST(GpuMemory, AClientWithTheDescriptorCannotTruncateIt) {
  const GpuMemory memory("sealed", 1 << 20);
  const int copy = ::dup(memory.fd());
  EXPECT_EQ(::ftruncate(copy, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(copy, 2 << 20), -1);
  ::close(copy);
}

TEST(GpuMemory, EraseShowsInOtherMappings) {
  GpuMemory memory("erased", 1 << 20);
  void* other = ::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  static_cast<std::byte*>(other)[4096] = std::byte{9};
  EXPECT_EQ(memory.data()[4096], std::byte{9});
  memory.erase();
  EXPECT_EQ(memory.data()[4096], std::byte{0});
  EXPECT_EQ(static_cast<std::byte*>(other)[4096], std::byte{0});
  ::munmap(other, 1 << 20);
}

TEST(GpuMemory, BytesStayInside) {
  GpuMemory memory("bounds", 8192);
  EXPECT_EQ(memory.bytes(0, 8192).size(), 8192U);
  EXPECT_EQ(memory.bytes(8192, 0).size(), 0U);
  EXPECT_TRUE(memory.bytes(1, 8192).empty());
  EXPECT_TRUE(memory.bytes(8193, 0).empty());
  EXPECT_TRUE(memory.bytes(~std::uint64_t{0}, 2).empty());
}

// Not with sanitizers: without descriptors their own checks of memory fail.
TEST(GpuMemory, ARefusalOfTheHostIsAnErrorWithARemedy) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "the sanitizer needs descriptors of its own";
#endif
#endif
  struct rlimit old {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  struct rlimit none = old;
  none.rlim_cur = 3;  // standard streams only
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::exception_ptr thrown;
  try {
    const GpuMemory memory("gpu7", 4096);
  } catch (...) {
    thrown = std::current_exception();  // looked at with descriptors at hand: sanitizers need some
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  ASSERT_NE(thrown, nullptr);
  std::string what;
  std::string remedy;
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    what = error.what();
    remedy = error.remedy();
  }
  EXPECT_NE(what.find("gpu7"), std::string::npos);
  EXPECT_NE(remedy.find("ulimit -n"), std::string::npos);
}

}  // namespace
}  // namespace orrery::models::gpu_memory_test
