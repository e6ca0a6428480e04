// An append-only file of checksummed blocks: what traces and recordings are kept in.
//
//   header   8 bytes magic, u32 version, u32 0
//   blocks   u32 kind, u32 payload bytes, u64 XXH3-64 of the payload (seed: kind), payload
//   end      a block of kind end_kind without payload, then the end of the file
// All numbers little-endian. A writer that dies leaves a file that reads up to its last whole block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

struct BlockFileFormat {
  std::array<char, 8> magic;
  std::uint32_t version;
  const char* what;             // "trace", "recording": for messages
  std::uint32_t maximum_block;  // bytes of payload; a reader refuses more
  static constexpr std::uint32_t end_kind = 0xffff'ffff;
};

// One thread. Nothing throws between construction and close(): the first error is kept, and later blocks
// are dropped.
class BlockFileWriter {
 public:
  // Creates or empties the file, mode 0600. Throws Error.
  BlockFileWriter(const std::string& path, const BlockFileFormat& format);
  // Closes; an error that close() would have thrown is lost.
  ~BlockFileWriter();
  BlockFileWriter(const BlockFileWriter&) = delete;
  BlockFileWriter& operator=(const BlockFileWriter&) = delete;

  // payload.size() <= maximum_block.
  void write(std::uint32_t kind, std::span<const std::byte> payload);
  [[nodiscard]] bool failed() const { return error_ != 0; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Writes the end block. Throws Error for the first error since construction.
  void close();

 private:
  void write_all(std::span<const std::byte> first, std::span<const std::byte> second);

  std::string path_;
  BlockFileFormat format_;
  int fd_ = -1;
  int error_ = 0;
};

// One thread. The input is untrusted: every error is an Error that names file and offset.
class BlockFileReader {
 public:
  struct Block {
    std::uint32_t kind;
    std::span<const std::byte> payload;  // valid until the next call
    std::uint64_t offset;                // of the block in the file
  };
  enum class Checksums : std::uint8_t { verify, ignore };  // ignore: for fuzzing what lies behind them

  // Throws Error if the file can't be opened or isn't of this format and version.
  BlockFileReader(const std::string& path, const BlockFileFormat& format);
  // The same over bytes that outlive the reader.
  BlockFileReader(std::span<const std::byte> bytes, std::string name, const BlockFileFormat& format,
                  Checksums checksums = Checksums::verify);
  ~BlockFileReader();
  BlockFileReader(BlockFileReader&&) noexcept;
  BlockFileReader& operator=(BlockFileReader&&) = delete;

  // The next block; nullopt at the end, be it proper or not (truncated()).
  std::optional<Block> next();
  // The file stops before its end block: its writer was killed, or the disk was full.
  [[nodiscard]] bool truncated() const { return truncated_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // An Error about this file: "<name>: <what> at byte <offset>".
  [[noreturn]] void fail(std::uint64_t offset, std::string_view what) const;

 private:
  void read_header();
  // Fills `into` as far as the input goes; returns the bytes read.
  std::size_t read(std::span<std::byte> into);

  std::string name_;
  BlockFileFormat format_;
  int fd_ = -1;
  std::span<const std::byte> memory_;
  Checksums checksums_ = Checksums::verify;
  std::uint64_t offset_ = 0;
  std::vector<std::byte> payload_;
  bool ended_ = false;
  bool truncated_ = false;
};

}  // namespace orrery
