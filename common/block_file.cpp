#include "common/block_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "common/bytes.h"
#include "common/error.h"

namespace orrery {
namespace {

constexpr std::size_t header_bytes = 16;
constexpr std::size_t block_header_bytes = 16;

struct BlockHeader {
  std::uint32_t kind;
  std::uint32_t bytes;
  std::uint64_t checksum;
};
static_assert(sizeof(BlockHeader) == block_header_bytes);

std::uint64_t checksum(std::uint32_t kind, std::span<const std::byte> payload) {
  return XXH3_64bits_withSeed(payload.data(), payload.size(), kind);
}

const char* remedy_for(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space, or write the file to another file system";
    case EFBIG:
      return "raise the file size limit (ulimit -f), or write less";
    case ENOENT:
      return "create its directory, or check the path";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose a path you may write to";
    case EISDIR:
      return "give the path of a file, not of a directory";
    default:
      return "check the path and the file system";
  }
}

}  // namespace

BlockFileWriter::BlockFileWriter(const std::string& path, const BlockFileFormat& format)
    : path_(path), format_(format) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd_ < 0) {
    const int error = errno;
    throw Error(fmt::format("{}: cannot create the {}: {}", path, format.what, std::strerror(error)),
                remedy_for(error));
  }
  ByteWriter header;
  header.put(std::as_bytes(std::span(format.magic)));
  header.put(format.version);
  header.put(std::uint32_t{0});
  write_all(header.bytes(), {});
}

BlockFileWriter::~BlockFileWriter() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void BlockFileWriter::write_all(std::span<const std::byte> first, std::span<const std::byte> second) {
  while (error_ == 0 && (!first.empty() || !second.empty())) {
    // writev doesn't write through its pointers; iovec only lacks the const.
    const std::array<iovec, 2> pieces{
        {{const_cast<std::byte*>(first.data()), first.size()}, {const_cast<std::byte*>(second.data()), second.size()}}};
    const ssize_t written = ::writev(fd_, pieces.data(), static_cast<int>(pieces.size()));
    if (written < 0) {
      if (errno != EINTR) {
        error_ = errno;
      }
      continue;
    }
    const auto done = static_cast<std::size_t>(written);
    const std::size_t of_first = std::min(done, first.size());
    first = first.subspan(of_first);
    second = second.subspan(std::min(done - of_first, second.size()));
  }
}

void BlockFileWriter::write(std::uint32_t kind, std::span<const std::byte> payload) {
  if (fd_ < 0 || error_ != 0) {
    return;
  }
  const BlockHeader header{kind, static_cast<std::uint32_t>(payload.size()), checksum(kind, payload)};
  write_all(std::as_bytes(std::span(&header, 1)), payload);
}

void BlockFileWriter::close() {
  if (fd_ < 0) {
    return;
  }
  write(BlockFileFormat::end_kind, {});
  if (::close(std::exchange(fd_, -1)) != 0 && error_ == 0 && errno != EINTR) {
    error_ = errno;
  }
  if (error_ != 0) {
    throw Error(fmt::format("{}: the {} is incomplete: {}", path_, format_.what, std::strerror(error_)),
                remedy_for(error_));
  }
}

BlockFileReader::BlockFileReader(const std::string& path, const BlockFileFormat& format)
    : name_(path), format_(format) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) {
    throw Error(fmt::format("{}: cannot open the {}: {}", path, format.what, std::strerror(errno)),
                "check the path and its permissions");
  }
  try {
    read_header();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

BlockFileReader::BlockFileReader(std::span<const std::byte> bytes, std::string name, const BlockFileFormat& format,
                                 Checksums checksums)
    : name_(std::move(name)), format_(format), memory_(bytes), checksums_(checksums) {
  read_header();
}

BlockFileReader::BlockFileReader(BlockFileReader&& other) noexcept
    : name_(std::move(other.name_)),
      format_(other.format_),
      fd_(std::exchange(other.fd_, -1)),
      memory_(other.memory_),
      checksums_(other.checksums_),
      offset_(other.offset_),
      payload_(std::move(other.payload_)),
      ended_(other.ended_),
      truncated_(other.truncated_) {}

BlockFileReader::~BlockFileReader() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void BlockFileReader::fail(std::uint64_t offset, std::string_view what) const {
  throw Error(fmt::format("{}: {} at byte {}", name_, what, offset),
              fmt::format("the {} is damaged: make it anew", format_.what));
}

std::size_t BlockFileReader::read(std::span<std::byte> into) {
  std::size_t done = 0;
  if (fd_ < 0) {
    done = std::min<std::size_t>(into.size(), memory_.size() - std::min<std::uint64_t>(offset_, memory_.size()));
    if (done != 0) {
      std::memcpy(into.data(), memory_.data() + offset_, done);
    }
  } else {
    while (done < into.size()) {
      const ssize_t got = ::read(fd_, into.data() + done, into.size() - done);
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got < 0) {
        throw Error(fmt::format("{}: cannot read the {}: {}", name_, format_.what, std::strerror(errno)),
                    "check that it is a file on a working file system");
      }
      if (got == 0) {
        break;
      }
      done += static_cast<std::size_t>(got);
    }
  }
  offset_ += done;
  return done;
}

void BlockFileReader::read_header() {
  std::array<std::byte, header_bytes> header{};
  if (read(header) != header.size() || std::memcmp(header.data(), format_.magic.data(), format_.magic.size()) != 0) {
    const std::string_view magic(reinterpret_cast<const char*>(header.data()), format_.magic.size());
    const char* other = magic == "ORRTRACE"   ? "; it is a trace: see `orrery trace`"
                        : magic == "ORRRECRD" ? "; it is a recording: see `orrery replay`"
                                              : "";
    throw Error(fmt::format("{}: not an Orrery {}{}", name_, format_.what, other),
                fmt::format("give a file that Orrery wrote as a {}", format_.what));
  }
  ByteReader rest(std::span<const std::byte>(header).subspan(format_.magic.size()));
  const std::uint32_t version = rest.get<std::uint32_t>();
  if (version != format_.version) {
    throw Error(fmt::format("{}: {} format version {}, this program reads version {}", name_, format_.what, version,
                            format_.version),
                "use the Orrery that wrote it, or make it anew");
  }
}

std::optional<BlockFileReader::Block> BlockFileReader::next() {
  if (ended_) {
    return std::nullopt;
  }
  const std::uint64_t start = offset_;
  std::array<std::byte, block_header_bytes> raw{};
  if (read(raw) != raw.size()) {
    ended_ = truncated_ = true;
    return std::nullopt;
  }
  BlockHeader header{};
  std::memcpy(&header, raw.data(), sizeof(header));
  if (header.kind == BlockFileFormat::end_kind) {
    ended_ = true;
    std::array<std::byte, 1> more{};
    if (header.bytes != 0 || read(more) != 0) {
      fail(start, "data behind the end block");
    }
    return std::nullopt;
  }
  if (header.bytes > format_.maximum_block) {
    fail(start, fmt::format("a block of {} bytes, more than {},", header.bytes, format_.maximum_block));
  }
  payload_.resize(header.bytes);
  if (read(payload_) != header.bytes) {
    ended_ = truncated_ = true;
    return std::nullopt;
  }
  if (checksums_ == Checksums::verify && header.checksum != checksum(header.kind, payload_)) {
    fail(start, "a block with a wrong checksum");
  }
  return Block{header.kind, payload_, start};
}

}  // namespace orrery
