#include "cli/recorder.h"

#include <array>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::cli {

// The platform's function, with every call written down.
class Recorder::Function final : public pcie::FunctionAccess, private pcie::MessageMemory {
 public:
  Function(Recorder& recorder, std::size_t index)
      : recorder_(recorder), index_(index), inner_(recorder.platform_.function(index)) {}

  std::string name() const override { return inner_.name(); }
  std::array<pcie::BarDescription, pcie::bar_count> bars() const override { return inner_.bars(); }
  std::uint32_t config_size() const override { return inner_.config_size(); }
  unsigned msix_vectors() const override { return inner_.msix_vectors(); }

  // Reads are noted before they are made: they take simulated time, and what devices do meanwhile follows.
  void config_read(std::uint32_t offset, std::span<std::byte> into) override {
    add(StimulusKind::config_read, 0, offset, into.size(), {});
    inner_.config_read(offset, into);
    recorder_.platform_.settle();
  }
  void config_write(std::uint32_t offset, std::span<const std::byte> from) override {
    add(StimulusKind::config_write, 0, offset, from.size(), from);
    inner_.config_write(offset, from);
    recorder_.platform_.settle();
  }
  void bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) override {
    add(StimulusKind::bar_read, bar, offset, into.size(), {});
    inner_.bar_read(bar, offset, into);
    recorder_.platform_.settle();
  }
  void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) override {
    add(StimulusKind::bar_write, bar, offset, from.size(), from);
    inner_.bar_write(bar, offset, from);
    recorder_.platform_.settle();
  }
  void set_interrupt_sink(pcie::InterruptSink* sink) override {
    const unsigned vectors = inner_.msix_vectors();
    if (vectors != 0) {
      add(sink != nullptr ? StimulusKind::interrupts_attached : StimulusKind::interrupts_detached, 0, 0, vectors, {});
    }
    inner_.set_interrupt_sink(sink);
  }
  void reset() override {
    add(StimulusKind::reset, 0, 0, 0, {});
    inner_.reset();
    recorder_.platform_.settle();
  }
  pcie::MapResult dma_map(Iova iova, std::uint64_t size, pcie::DmaAccess access, std::optional<pcie::FileWindow> window,
                          pcie::MessageMemory* messages) override {
    Stimulus stimulus = recorder_.begin(StimulusKind::dma_map, index_);
    messages_ = messages != nullptr ? messages : messages_;
    const pcie::MapResult result = inner_.dma_map(iova, size, access, window, messages != nullptr ? this : nullptr);
    if (result != pcie::MapResult::ok) {
      return result;  // changed nothing
    }
    if (window) {
      const auto file = recorder_.platform_.dram().describe(window->fd);
      if (file->number >= recorder_.known_files_.size() || !recorder_.known_files_[file->number]) {
        recorder_.known_files_.resize(std::max<std::size_t>(recorder_.known_files_.size(), file->number + 1U));
        recorder_.known_files_[file->number] = true;
        Stimulus memory = stimulus;
        memory.kind = StimulusKind::memory_file;
        memory.file = file->number;
        memory.size = file->size;
        memory.region = file->node;
        recorder_.writer_.add(memory);
      }
      stimulus.file = file->number;
      stimulus.file_offset = window->offset;
    }
    stimulus.address = iova.value;
    stimulus.size = size;
    stimulus.flags = static_cast<std::uint8_t>((access.read ? Stimulus::access_read : 0) |
                                               (access.write ? Stimulus::access_write : 0));
    recorder_.writer_.add(stimulus);
    return result;
  }
  pcie::MapResult dma_unmap(Iova iova, std::uint64_t size) override {
    add(StimulusKind::dma_unmap, 0, iova.value, size, {});
    return inner_.dma_unmap(iova, size);
  }
  void dma_unmap_all() override {
    add(StimulusKind::dma_unmap_all, 0, 0, 0, {});
    inner_.dma_unmap_all();
  }
  void disconnect() override {
    add(StimulusKind::disconnect, 0, 0, 0, {});
    inner_.disconnect();
    recorder_.platform_.settle();
  }

 private:
  void add(StimulusKind kind, std::uint32_t region, std::uint64_t address, std::uint64_t size,
           std::span<const std::byte> bytes) {
    Stimulus stimulus = recorder_.begin(kind, index_);
    stimulus.region = region;
    stimulus.address = address;
    stimulus.size = size;
    stimulus.bytes = bytes;
    recorder_.writer_.add(stimulus);
  }
  void read(Iova address, std::span<std::byte> into, Done done, void* context) override {
    recorder_.used_messages_ = true;
    messages_->read(address, into, done, context);
  }
  void write(Iova address, std::span<const std::byte> from, Done done, void* context) override {
    recorder_.used_messages_ = true;
    messages_->write(address, from, done, context);
  }

  Recorder& recorder_;
  std::size_t index_;
  pcie::FunctionAccess& inner_;
  pcie::MessageMemory* messages_ = nullptr;
};

Recorder::Recorder(models::Platform& platform, const std::string& path)
    : platform_(platform),
      path_(path),
      writer_(path, RecordingHeader{ORRERY_VERSION, models::to_plain_toml(platform.config())}) {
  if (platform.config().time_mode != models::TimeMode::timed) {
    throw Error("record.file: only a timed run can be recorded", "add --set time.mode=timed");
  }
  for (std::size_t i = 0; i < platform.functions(); ++i) {
    functions_.push_back(std::make_unique<Function>(*this, i));
  }
  platform.dram().set_observer(this);
}

Recorder::~Recorder() {
  platform_.dram().set_observer(nullptr);
}

pcie::FunctionAccess& Recorder::function(std::size_t endpoint) {
  return *functions_.at(endpoint);
}

Stimulus Recorder::begin(StimulusKind kind, std::size_t function) {
  platform_.settle();
  Stimulus stimulus;
  stimulus.kind = kind;
  stimulus.function = static_cast<std::uint16_t>(function);
  stimulus.time = platform_.now();
  stimulus.position = platform_.simulation().events.dispatched();
  return stimulus;
}

void Recorder::before_device_read(unsigned file, std::uint64_t offset, std::span<std::byte> bytes) {
  shadow_.before_read(file, offset, bytes, *this);
}

void Recorder::after_device_write(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes) {
  shadow_.after_write(file, offset, bytes);
}

void Recorder::on_difference(unsigned file, std::uint64_t offset, std::span<const std::byte> bytes) {
  Stimulus stimulus;
  stimulus.kind = StimulusKind::memory_contents;
  stimulus.time = platform_.simulation().now();
  stimulus.position = platform_.simulation().events.dispatched();
  stimulus.file = file;
  stimulus.file_offset = offset;
  stimulus.size = bytes.size();
  stimulus.bytes = bytes;
  writer_.add(stimulus);
}

void Recorder::close(std::uint64_t trace_records, std::uint64_t trace_hash) {
  RecordingResult result;
  result.time = platform_.now();
  result.trace_records = trace_records;
  result.trace_hash = trace_hash;
  writer_.close(result);
  if (used_messages_) {
    throw Error(fmt::format("{}: a device used memory that the guest offered without a file descriptor; such a run "
                            "can't be replayed",
                            path_),
                "give the guest all of its memory as memory-backend-memfd,share=on, and don't let devices touch ROMs");
  }
}

}  // namespace orrery::cli
