#include "cli/replayer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "cli/platform_trace.h"
#include "common/error.h"

namespace orrery::cli {

Replayer::Replayer(const std::string& path) : reader_(path) {
  config_ = models::parse_server_config(reader_.header().config, path + " (its configuration)");
  config_.trace_file.clear();
  config_.record_file.clear();
  platform_ = std::make_unique<models::Platform>(config_);
  trace_ = make_platform_trace(*platform_);
  platform_->dram().set_observer(this);
  const models::Topology& topology = platform_->topology();
  guest_of_.resize(platform_->functions());
  for (const models::GuestConfig& guest : models::guests_of(config_, topology)) {
    for (const std::string& device : guest.devices) {
      const auto index = static_cast<std::size_t>(topology.find(device) - topology.endpoints.data());
      platform_->assign(index, guest.name);
      guest_of_.at(index) = guest.name;
    }
  }
  platform_->settle();
}

Replayer::~Replayer() {
  platform_->dram().set_observer(nullptr);
  platform_->simulation().observer = nullptr;
}

void Replayer::write_trace(const std::string& path) {
  trace_->open(path);
}

void Replayer::diverged(const std::string& what) const {
  throw Error(fmt::format("{}: the replay has left the recorded course at {} ps, after {} stimuli: {}", reader_.name(),
                          platform_->now().count, stimuli_, what),
              "replay with the program version that recorded: " + reader_.header().program_version);
}

void Replayer::advance() {
  more_ = reader_.next(current_);
  if (more_) {
    ++stimuli_;
  }
}

ReplayResult Replayer::run() {
  for (advance(); more_;) {
    if (current_.kind == StimulusKind::memory_contents) {
      // Taken by before_device_read() when a device gets there.
      const Picoseconds next = platform_->next_activity();
      if (next > current_.time || platform_->now() > current_.time) {
        diverged("no device reads the guest memory that one read when it was recorded");
      }
      platform_->advance(next, 0);
      continue;
    }
    while (platform_->now() < current_.time && more_ && current_.kind != StimulusKind::memory_contents) {
      platform_->advance(current_.time, 0);
    }
    platform_->settle();
    if (current_.kind == StimulusKind::memory_contents || platform_->now() != current_.time ||
        platform_->simulation().events.dispatched() != current_.position) {
      diverged(fmt::format("the next stimulus ({}) was recorded at {} ps after {} events, and {} have been handled now",
                           name(current_.kind), current_.time.count, current_.position,
                           platform_->simulation().events.dispatched()));
    }
    // The reader's bytes are gone once it is asked again, which a device's read may do meanwhile.
    Stimulus stimulus = current_;
    const std::vector<std::byte> bytes(current_.bytes.begin(), current_.bytes.end());
    stimulus.bytes = bytes;
    advance();
    inject(stimulus);
    platform_->settle();
  }
  if (failure_ != nullptr) {
    std::rethrow_exception(failure_);
  }
  ReplayResult result;
  result.recorded_complete = reader_.complete();
  if (reader_.complete()) {
    while (platform_->now() < reader_.result().time) {
      platform_->advance(reader_.result().time, 0);
    }
    result.recorded_hash = reader_.result().trace_hash;
  }
  platform_->settle();
  result.stimuli = stimuli_;
  result.time = platform_->now();
  result.trace_records = trace_->count();
  result.trace_hash = trace_->hash();
  trace_->close();
  return result;
}

void Replayer::inject(const Stimulus& s) {
  if (s.function >= platform_->functions()) {
    throw Error(fmt::format("{}: stimulus {} is for function {}, and there are {}", reader_.name(), stimuli_,
                            s.function, platform_->functions()));
  }
  pcie::FunctionAccess& function = platform_->function(s.function);
  const auto in_bar = [&] {
    if (s.region >= pcie::bar_count || s.size > function.bars()[s.region].size ||
        s.address > function.bars()[s.region].size - s.size) {
      throw Error(
          fmt::format("{}: stimulus {} lies outside BAR{} of {}", reader_.name(), stimuli_, s.region, function.name()));
    }
  };
  const auto in_config = [&] {
    if (s.size > function.config_size() || s.address > function.config_size() - s.size) {
      throw Error(fmt::format("{}: stimulus {} lies outside the configuration space", reader_.name(), stimuli_));
    }
  };
  std::vector<std::byte> answer;
  switch (s.kind) {
    case StimulusKind::config_read:
      in_config();
      answer.resize(s.size);
      function.config_read(static_cast<std::uint32_t>(s.address), answer);
      break;
    case StimulusKind::config_write:
      in_config();
      function.config_write(static_cast<std::uint32_t>(s.address), s.bytes);
      break;
    case StimulusKind::bar_read:
      in_bar();
      answer.resize(std::min<std::uint64_t>(s.size, Stimulus::maximum_bytes));
      function.bar_read(s.region, s.address, answer);
      break;
    case StimulusKind::bar_write:
      in_bar();
      function.bar_write(s.region, s.address, s.bytes);
      break;
    case StimulusKind::memory_file: {
      FileDescriptor file(memfd_create("orrery-replay", MFD_CLOEXEC));
      if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(s.size)) != 0) {
        throw Error(fmt::format("can't have {} bytes of memory for the guest's file {}: {}", s.size, s.file,
                                std::strerror(errno)));
      }
      if (files_.size() <= s.file) {
        files_.resize(s.file + std::size_t{1});
      }
      files_[s.file] = std::move(file);
      // A file that was let go and mapped again has a new number, and is a new file here: the platform couldn't know
      // that its node is that of the first time.
      platform_->place_file(guest_of_.at(s.function), files_[s.file].get(), s.region);
      break;
    }
    case StimulusKind::dma_map: {
      std::optional<pcie::FileWindow> window;
      if (s.file != Stimulus::no_file) {
        window = pcie::FileWindow{files_[s.file].get(), s.file_offset};
      }
      const pcie::DmaAccess access{(s.flags & Stimulus::access_read) != 0, (s.flags & Stimulus::access_write) != 0};
      if (function.dma_map(Iova{s.address}, s.size, access, window, nullptr) != pcie::MapResult::ok) {
        // Memory without a descriptor and outside every BAR: served by messages then, by nobody now. No device
        // has used it, or the recording would have been refused.
        if (s.file != Stimulus::no_file) {
          diverged(fmt::format("{} refuses the mapping of {:#x} bytes at {:#x}", function.name(), s.size, s.address));
        }
      }
      break;
    }
    case StimulusKind::dma_unmap:
      function.dma_unmap(Iova{s.address}, s.size);
      break;
    case StimulusKind::dma_unmap_all:
      function.dma_unmap_all();
      break;
    case StimulusKind::interrupts_attached:
    case StimulusKind::interrupts_detached:
      break;  // nobody is there to be interrupted
    case StimulusKind::reset:
      function.reset();
      break;
    case StimulusKind::disconnect:
      function.disconnect();
      break;
    case StimulusKind::memory_contents:
      break;  // see run()
  }
}

void Replayer::before_device_read(unsigned file, std::uint64_t offset, std::span<std::byte> bytes) {
  while (more_ && current_.kind == StimulusKind::memory_contents && current_.file == file &&
         current_.position == platform_->simulation().events.dispatched() && current_.file_offset >= offset &&
         current_.bytes.size() <= bytes.size() &&
         current_.file_offset - offset <= bytes.size() - current_.bytes.size()) {
    std::memcpy(bytes.data() + (current_.file_offset - offset), current_.bytes.data(), current_.bytes.size());
    try {
      advance();
    } catch (const Error&) {
      failure_ = std::current_exception();
      more_ = false;
    }
  }
}

void Replayer::after_device_write(unsigned /*file*/, std::uint64_t /*offset*/, std::span<const std::byte> /*bytes*/) {}

}  // namespace orrery::cli
