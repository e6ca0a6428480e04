// Fuzz target: a recording. Checksums are not looked at, so that damage behind them is reached.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/address.h"
#include "common/error.h"
#include "common/recording.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orrery;
  using fuzz::require;
  try {
    RecordingReader reader(std::as_bytes(std::span(data, size)), "fuzz", BlockFileReader::Checksums::ignore);
    Stimulus s;
    Picoseconds time;
    std::uint64_t count = 0;
    std::vector<std::uint64_t> files;
    while (reader.next(s)) {
      require(s.time >= time, "time goes forward");
      time = s.time;
      ++count;
      require(s.bytes.size() <= size, "bytes come from the file");
      if (s.kind == StimulusKind::memory_file) {
        files.push_back(s.size);
      }
      if (s.kind == StimulusKind::memory_contents || (s.kind == StimulusKind::dma_map && s.file != Stimulus::no_file)) {
        const std::uint64_t length = s.kind == StimulusKind::dma_map ? s.size : s.bytes.size();
        require(
            s.file < files.size() && range_is_valid(s.file_offset, length) && s.file_offset + length <= files[s.file],
            "memory lies within a file that was announced");
      }
    }
    require(!reader.complete() || reader.result().stimuli == count, "a result counts its stimuli");
  } catch (const Error& error) {
    require(error.what()[0] != '\0' && !error.remedy().empty(), "an error says what and what to do");
  }
  return 0;
}
