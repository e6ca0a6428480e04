// A trace as Chrome's JSON trace events, which Perfetto opens (https://ui.perfetto.dev).
#pragma once

#include <cstdint>
#include <string_view>

#include "pcie/trace_reader.h"

namespace orrery::pcie {

// Takes the text piece by piece.
class TextSink {
 public:
  virtual void write(std::string_view piece) = 0;

 protected:
  ~TextSink() = default;
};

// One process with a track for each link direction: a slice is the time a TLP occupies the link (its arrival, after
// the flight, is an argument). One process for each requester: its transactions, from request to last completion, as
// asynchronous slices. Times are microseconds with six decimals, hence exact picoseconds. Returns the number
// of records; a truncated trace (reader.truncated()) gives valid JSON of what there is.
std::uint64_t export_chrome_json(TraceReader& reader, TextSink& sink);

// One record in one line, as `orrery trace show` prints it; without newline.
std::string record_text(const TraceReader& reader, const TraceRecord& record);
// "0.001234": microseconds, exact.
std::string microseconds(std::uint64_t ps);
// "00b", "01b", "10b".
const char* at_text(AddressType at);

}  // namespace orrery::pcie
