// Observes every TLP of a platform: keeps the running trace hash and, if asked, writes a trace file.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "pcie/link.h"
#include "pcie/simulation.h"
#include "pcie/trace_format.h"

namespace orrery::pcie {

// What a trace tells of its run besides the TLPs.
struct TraceInfo {
  std::string title;  // the server's name
  bool timed = false;
  std::vector<std::string> components;             // by ComponentId
  std::map<ComponentId, LinkSettings> links;       // link directions whose rate is known
  std::map<std::uint16_t, std::string> functions;  // names by Bdf::value
};

// One thread. Costs some ten nanoseconds a TLP (bench/trace_bench.cpp); nothing is allocated after the
// construction. Errors of the file are kept until close(), and never disturb the run or the hash.
class TlpTrace final : public TlpObserver {
 public:
  // `simulation` outlives the trace.
  explicit TlpTrace(const Simulation& simulation, std::string title = {});
  ~TlpTrace();

  // For utilisation and occupancy in reports; before the first TLP.
  void set_link(ComponentId direction, const LinkSettings& settings) { info_.links[direction] = settings; }
  void set_function(Bdf bdf, const std::string& name) { info_.functions[bdf.value] = name; }

  // Begins to write; call it before the first TLP. Throws Error.
  void open(const std::string& path);
  void on_link(ComponentId link_direction, const Tlp& tlp, Picoseconds start, Picoseconds end) override;

  // Of all TLPs so far, in order.
  [[nodiscard]] std::uint64_t hash();
  [[nodiscard]] std::uint64_t count() const { return count_; }
  // True once writing has failed; the run may go on, close() will throw.
  [[nodiscard]] bool file_failed() const { return file_ != nullptr && file_->failed(); }
  // Completes the file. Throws Error if anything of it could not be written. Without a file: nothing.
  void close();

 private:
  struct HashState;
  static constexpr std::size_t buffered = 512;  // records: half of the first-level cache
  void flush();
  void write_info();

  const Simulation& simulation_;
  TraceInfo info_;
  std::array<TraceRecord, buffered> records_;
  std::size_t used_ = 0;
  std::uint64_t count_ = 0;
  std::unique_ptr<HashState> hash_;
  std::unique_ptr<BlockFileWriter> file_;
};

// The record of a TLP on a link.
TraceRecord trace_record(ComponentId link_direction, const Tlp& tlp, Picoseconds start, Picoseconds end);

}  // namespace orrery::pcie
