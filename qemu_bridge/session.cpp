#include "qemu_bridge/session.h"

#include <algorithm>
#include <cerrno>
#include <optional>

namespace orrery::bridge {
namespace {

constexpr ServerLimits limits_for(const SessionOptions& options) {
  return {16, std::min<std::uint64_t>(options.max_dma_maps, wire::default_max_dma_maps)};
}

int errno_of(pcie::MapResult result) {
  switch (result) {
    case pcie::MapResult::ok:
      return 0;
    case pcie::MapResult::invalid:
      return EINVAL;
    case pcie::MapResult::overlap:
      return EEXIST;
    case pcie::MapResult::not_found:
      return ENOENT;
    case pcie::MapResult::no_peer:
      return ENXIO;
    case pcie::MapResult::io_error:
      return EIO;
  }
  return EINVAL;
}

}  // namespace

Session::Session(pcie::FunctionAccess& function, SessionOutput& output, SessionObserver& observer,
                 const SessionOptions& options)
    : function_(function),
      output_(output),
      observer_(observer),
      options_(options),
      interrupts_(function.msix_vectors()),
      dma_(*this, observer, counters_),
      reply_(std::size_t{4096}) {
  constexpr std::uint32_t both = wire::region_flag_read | wire::region_flag_write;
  const std::array<pcie::BarDescription, pcie::bar_count> bars = function.bars();
  for (std::size_t i = 0; i < bars.size(); ++i) {
    if (bars[i].size != 0) {
      regions_[i].size = bars[i].size;
      regions_[i].flags = both;
      if (options.allow_bar_mapping && bars[i].memory_fd >= 0) {
        regions_[i].flags |= wire::region_flag_mmap;
        regions_[i].memory_fd = bars[i].memory_fd;
      }
    }
  }
  regions_[wire::region_config].size = function.config_size();
  regions_[wire::region_config].flags = both;
}

Session::~Session() {
  close("the server stopped");
}

void Session::received(Channel channel, std::size_t bytes, std::span<FileDescriptor> descriptors,
                       bool descriptors_lost) {
  MessageBuffer& in = buffer(channel);
  in.commit(bytes);
  counters_.received_bytes += bytes;
  if (channel == Channel::main && (!descriptors.empty() || descriptors_lost)) {
    keep_descriptors(in.received() - 1, descriptors, descriptors_lost);
  }
  processing_ = true;
  bool more = true;
  while (more && state_ != State::closed && !giving_up_) {
    switch (in.next()) {
      case MessageBuffer::Next::message: {
        std::array<FileDescriptor, Inbox::capacity> own;
        Message message{in.header(), in.payload(), {}, false};
        if (channel == Channel::main && inbox_holds_any()) {
          take_descriptors(in, own, message);
        }
        process(channel, message);
        break;
      }
      case MessageBuffer::Next::incomplete:
        more = false;
        break;
      case MessageBuffer::Next::broken:
        if ((in.header().flags & wire::type_mask) == wire::type_command && channel == Channel::main) {
          answer(in.header(), EMSGSIZE);
        }
        give_up("the client sent a message of impossible size");
        break;
    }
  }
  settle_descriptors();
  end_processing();
}

void Session::run_deferred() {
  processing_ = true;
  dma_.run_deferred();
  end_processing();
}

void Session::end_processing() {
  processing_ = false;
  if (giving_up_) {
    close(std::string(close_reason_));
  }
}

void Session::close(std::string_view reason) {
  if (state_ == State::closed) {
    return;
  }
  if (processing_) {
    give_up(reason);
    return;
  }
  const bool connected = state_ == State::ready;
  state_ = State::closed;
  close_reason_ = reason;
  for (Inbox& inbox : inboxes_) {
    inbox = Inbox();
  }
  interrupts_.clear();
  if (connected) {
    observer_.on_disconnect(reason);
    function_.set_interrupt_sink(nullptr);
    dma_.close();
    function_.disconnect();
    mappings_.clear();
  }
  dma_.close();
}

void Session::give_up(std::string_view reason) {
  if (!giving_up_) {
    giving_up_ = true;
    close_reason_ = reason;
  }
}

void Session::keep_descriptors(std::uint64_t position, std::span<FileDescriptor> descriptors, bool lost) {
  Inbox& inbox = inboxes_[1];
  inbox.used = true;
  inbox.position = position;
  inbox.surplus = lost || descriptors.size() > Inbox::capacity;
  for (FileDescriptor& descriptor : descriptors) {
    if (inbox.count < Inbox::capacity) {
      inbox.descriptors[inbox.count++] = std::move(descriptor);
    } else {
      descriptor.reset();
    }
  }
}

void Session::take_descriptors(const MessageBuffer& in, std::array<FileDescriptor, Inbox::capacity>& into,
                               Message& message) {
  std::size_t count = 0;
  for (Inbox& inbox : inboxes_) {
    if (inbox.used && inbox.position >= in.message_begin() && inbox.position < in.message_end()) {
      message.surplus_descriptors |= inbox.surplus || count + inbox.count > Inbox::capacity;
      for (std::size_t i = 0; i < inbox.count && count < Inbox::capacity; ++i) {
        into[count++] = std::move(inbox.descriptors[i]);
      }
      inbox = Inbox();
    }
  }
  message.descriptors = std::span(into).first(count);
}

void Session::settle_descriptors() {
  // What came with these bytes and is still here belongs to the message at the head of the buffer, as
  // does all that was here before.
  Inbox& fresh = inboxes_[1];
  if (!fresh.used) {
    return;
  }
  Inbox& head = inboxes_[0];
  head.used = true;
  head.position = fresh.position;
  head.surplus |= fresh.surplus;
  for (std::size_t i = 0; i < fresh.count; ++i) {
    if (head.count < Inbox::capacity) {
      head.descriptors[head.count++] = std::move(fresh.descriptors[i]);
    } else {
      head.surplus = true;
    }
  }
  fresh = Inbox();
}

void Session::process(Channel channel, const Message& message) {
  switch (message.header.flags & wire::type_mask) {
    case wire::type_reply: {
      const Channel expected = twin_socket_ ? Channel::command : Channel::main;
      if (channel != expected || !dma_.take_reply(message.header, message.payload)) {
        ++counters_.unsolicited_replies;
      }
      break;
    }
    case wire::type_command:
      if (channel == Channel::main) {
        process_command(message);
      } else {
        give_up("the client sent a command on the channel for the server's commands");
      }
      break;
    default:
      if (channel == Channel::main) {
        answer(message.header, EINVAL);
      } else {
        give_up("the client sent a message that is neither command nor reply");
      }
      break;
  }
}

void Session::process_command(const Message& message) {
  const std::uint16_t command = message.header.command;
  ++counters_.commands[command < wire::command_count ? command : 0];
  const bool handshake = state_ == State::awaiting_version;
  int error = EINVAL;
  reply_size_ = 0;
  if ((message.header.flags & ~wire::flag_no_reply) == wire::type_command && !message.surplus_descriptors &&
      (!handshake || command == static_cast<std::uint16_t>(wire::Command::version))) {
    error = dispatch(message);
  }
  if (error != 0) {
    observer_.on_refused(command, error);
  }
  answer(message.header, error);
  if (handshake && error != 0) {
    give_up(command == static_cast<std::uint16_t>(wire::Command::version)
                ? "the client's version or capabilities are not acceptable"
                : "the client did not begin with VFIO_USER_VERSION");
  }
}

int Session::dispatch(const Message& message) {
  const auto command = static_cast<wire::Command>(message.header.command);
  if (!message.descriptors.empty() && command != wire::Command::dma_map && command != wire::Command::device_set_irqs) {
    return EINVAL;
  }
  switch (command) {
    case wire::Command::region_read:
      return region_read(message);
    case wire::Command::region_write:
      return region_write(message);
    case wire::Command::region_write_multi:
      return region_write_multi(message);
    case wire::Command::version:
      return version(message);
    case wire::Command::dma_map:
      return dma_map(message);
    case wire::Command::dma_unmap:
      return dma_unmap(message);
    case wire::Command::device_get_info:
      return device_get_info(message);
    case wire::Command::device_get_region_info:
      return device_get_region_info(message);
    case wire::Command::device_get_region_io_fds:
      return device_get_region_io_fds(message);
    case wire::Command::device_get_irq_info:
      return device_get_irq_info(message);
    case wire::Command::device_set_irqs:
      return device_set_irqs(message);
    case wire::Command::device_reset:
      return device_reset(message);
    case wire::Command::device_feature:
      return device_feature(message);
    case wire::Command::mig_data_read:
    case wire::Command::mig_data_write:
      return migration_data(message);
    case wire::Command::dma_read:
    case wire::Command::dma_write:
      return EINVAL;  // the server's to send
    case wire::Command::dirty_pages:
      return EOPNOTSUPP;  // belongs to the migration protocol of older drafts
  }
  return ENOSYS;
}

void Session::answer(const wire::Header& command, int error) {
  if ((command.flags & wire::flag_no_reply) != 0) {
    counters_.refused_posted += error != 0 ? 1U : 0U;
    return;
  }
  const std::size_t size = error != 0 ? 0 : reply_size_;
  const bool with_descriptor = error == 0 && reply_descriptor_ >= 0;
  store(std::span(reply_), error != 0 ? error_header(command, error) : reply_header(command, size));
  ++(error != 0 ? counters_.error_replies : counters_.replies);
  if (!output_.send(Channel::main, std::span(reply_).first(sizeof(wire::Header) + size), {},
                    {&reply_descriptor_, with_descriptor ? 1U : 0U})) {
    give_up("the client does not read its replies");
  }
  reply_descriptor_ = -1;
  reply_owned_.reset();
}

std::span<std::byte> Session::reply_payload(std::size_t size) {
  if (reply_.size() < sizeof(wire::Header) + size) {
    reply_.resize(sizeof(wire::Header) + size);
  }
  reply_size_ = size;
  return std::span(reply_).subspan(sizeof(wire::Header), size);
}

bool Session::send_command(std::span<const std::byte> head, std::span<const std::byte> body) {
  if (giving_up_ || state_ != State::ready) {
    return false;
  }
  if (!output_.send(twin_socket_ ? Channel::command : Channel::main, head, body, {})) {
    give_up("the client does not read the server's commands");
    output_.call_soon();
    return false;
  }
  return true;
}

// --- Negotiation and device information --------------------------------------------------------------

int Session::version(const Message& message) {
  if (state_ != State::awaiting_version) {
    return EINVAL;
  }
  const Decoded<ClientProposal> proposal = decode_version(message.payload);
  if (!proposal) {
    return proposal.error;
  }
  client_ = proposal.value;
  const bool posted = (message.header.flags & wire::flag_no_reply) != 0;
  if (client_.twin_socket && options_.allow_twin_socket && client_.max_msg_fds > 0 && !posted) {
    reply_owned_ = output_.open_command_channel();
    reply_descriptor_ = reply_owned_.get();
    twin_socket_ = static_cast<bool>(reply_owned_);
  }
  const std::string json = reply_capabilities(client_, limits_for(options_), twin_socket_ ? 0 : -1);
  const std::span<std::byte> payload = reply_payload(sizeof(wire::Version) + json.size() + 1);
  store(payload, wire::Version{protocol_major, std::min(client_.minor, protocol_minor)});
  std::memcpy(payload.data() + sizeof(wire::Version), json.c_str(), json.size() + 1);
  state_ = State::ready;
  dma_.open(client_.max_data_xfer_size);
  observer_.on_connect();
  function_.set_interrupt_sink(&interrupts_);
  return 0;
}

int Session::device_get_info(const Message& message) {
  if (const auto query = decode_device_info(message.payload); !query) {
    return query.error;
  }
  store(reply_payload(sizeof(wire::DeviceInfo)),
        wire::DeviceInfo{sizeof(wire::DeviceInfo), wire::device_flag_reset | wire::device_flag_pci, wire::region_count,
                         wire::irq_index_count});
  return 0;
}

int Session::device_get_region_info(const Message& message) {
  const auto query = decode_region_info(message.payload);
  if (!query) {
    return query.error;
  }
  const Region& region = regions_[query.value.index];
  const bool mappable = region.memory_fd >= 0;
  wire::RegionInfo info{sizeof(wire::RegionInfo), region.flags, query.value.index, 0, region.size, 0};
  if (mappable) {
    info.argsz += sizeof(wire::SparseMmapCapability);
    reply_descriptor_ = region.memory_fd;
  }
  if (!mappable || query.value.argsz < info.argsz) {
    // Without room for the capability argsz says how much to bring; the CAPS flag would promise it here.
    store(reply_payload(sizeof(info)), info);
    return 0;
  }
  info.flags |= wire::region_flag_caps;
  info.cap_offset = sizeof(info);
  const std::span<std::byte> payload = reply_payload(sizeof(info) + sizeof(wire::SparseMmapCapability));
  store(payload, info);
  store(payload.subspan(sizeof(info)),
        wire::SparseMmapCapability{wire::capability_sparse_mmap, wire::capability_sparse_mmap_version, 0, 1, 0, 0,
                                   region.size});
  return 0;
}

int Session::device_get_region_io_fds(const Message& message) {
  const auto query = decode_region_io_fds(message.payload);
  if (!query) {
    return query.error;
  }
  // No sub-region is offered: a doorbell's value matters, and it must pass the modelled links.
  store(reply_payload(sizeof(wire::RegionIoFds)),
        wire::RegionIoFds{sizeof(wire::RegionIoFds), 0, query.value.index, 0});
  return 0;
}

int Session::device_get_irq_info(const Message& message) {
  const auto query = decode_irq_info(message.payload);
  if (!query) {
    return query.error;
  }
  const std::uint32_t index = query.value.index;
  store(reply_payload(sizeof(wire::IrqInfo)),
        wire::IrqInfo{sizeof(wire::IrqInfo), interrupts_.flags(index), index, interrupts_.count(index)});
  return 0;
}

int Session::device_set_irqs(const Message& message) {
  const auto request = decode_irq_set(message.payload);
  if (!request) {
    return request.error;
  }
  const std::size_t descriptors = message.descriptors.size();
  const int error = interrupts_.set(request.value, message.descriptors);
  if (error == 0) {
    observer_.on_set_irqs(request.value.set, request.value.booleans, descriptors);
  }
  return error;
}

int Session::device_reset(const Message& message) {
  if (!message.payload.empty()) {
    return EINVAL;
  }
  observer_.on_reset();
  interrupts_.reset();
  function_.reset();
  return 0;
}

int Session::device_feature(const Message& message) {
  const auto feature = decode_device_feature(message.payload);
  // All features of the text concern migration, which this server doesn't do; ENOTTY is what the kernel's
  // VFIO_DEVICE_FEATURE answers for a feature that a device lacks.
  return feature ? ENOTTY : feature.error;
}

int Session::migration_data(const Message& message) {
  const auto data = message.header.command == static_cast<std::uint16_t>(wire::Command::mig_data_read)
                        ? decode_mig_data_read(message.payload)
                        : decode_mig_data_write(message.payload);
  return data ? EOPNOTSUPP : data.error;
}

// --- Regions -----------------------------------------------------------------------------------------

bool Session::in_region(std::uint32_t region, std::uint64_t offset, std::uint64_t size) const {
  return region < wire::region_count && regions_[region].size != 0 && offset <= regions_[region].size &&
         size <= regions_[region].size - offset;
}

namespace {

// Calls access(offset, position, size) for the aligned accesses of 1, 2 and 4 bytes that make up a range of
// configuration space: there is no other kind of configuration request on PCIe. (QEMU reads all 4096
// bytes in one message.)
template <class Access>
void for_each_config_access(std::uint64_t offset, std::size_t size, Access access) {
  for (std::size_t position = 0; position < size;) {
    const std::uint64_t at = offset + position;
    std::size_t piece = 4;
    while (at % piece != 0 || piece > size - position) {
      piece /= 2;
    }
    access(static_cast<std::uint32_t>(at), position, piece);
    position += piece;
  }
}

}  // namespace

void Session::read_function(std::uint32_t region, std::uint64_t offset, std::span<std::byte> into) {
  observer_.on_region_read(region, offset, into.size());
  if (region == wire::region_config) {
    for_each_config_access(offset, into.size(), [&](std::uint32_t at, std::size_t position, std::size_t size) {
      function_.config_read(at, into.subspan(position, size));
    });
  } else {
    function_.bar_read(region, offset, into);
  }
  observer_.on_region_read_done(region, offset, into);
}

void Session::write_function(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> from) {
  observer_.on_region_write(region, offset, from);
  if (region == wire::region_config) {
    for_each_config_access(offset, from.size(), [&](std::uint32_t at, std::size_t position, std::size_t size) {
      function_.config_write(at, from.subspan(position, size));
    });
  } else {
    function_.bar_write(region, offset, from);
  }
}

int Session::region_read(const Message& message) {
  const auto access = decode_region_read(message.payload);
  if (!access || !in_region(access.value.region, access.value.offset, access.value.count)) {
    return EINVAL;
  }
  const std::span<std::byte> payload = reply_payload(sizeof(wire::RegionAccess) + access.value.count);
  store(payload, access.value);
  if (access.value.count != 0) {
    read_function(access.value.region, access.value.offset, payload.subspan(sizeof(wire::RegionAccess)));
  }
  return 0;
}

int Session::region_write(const Message& message) {
  const auto write = decode_region_write(message.payload);
  if (!write || !in_region(write.value.access.region, write.value.access.offset, write.value.access.count)) {
    return EINVAL;
  }
  if (write.value.access.count != 0) {
    write_function(write.value.access.region, write.value.access.offset, write.value.data);
  }
  counters_.posted_writes += (message.header.flags & wire::flag_no_reply) != 0 ? 1U : 0U;
  store(reply_payload(sizeof(wire::RegionAccess)), write.value.access);
  return 0;
}

int Session::region_write_multi(const Message& message) {
  if (!client_.write_multiple) {
    return EOPNOTSUPP;
  }
  const auto multi = decode_write_multi(message.payload);
  if (!multi) {
    return multi.error;
  }
  // All or nothing: an error reply can't say how many were done.
  for (std::uint64_t i = 0; i < multi.value.count; ++i) {
    const wire::WriteMultiEntry entry = multi.value.entry(i);
    if (entry.count == 0 || entry.count > sizeof(entry.data) || !in_region(entry.region, entry.offset, entry.count)) {
      return EINVAL;
    }
  }
  for (std::uint64_t i = 0; i < multi.value.count; ++i) {
    const wire::WriteMultiEntry entry = multi.value.entry(i);
    write_function(entry.region, entry.offset, std::as_bytes(std::span(entry.data)).first(entry.count));
  }
  counters_.posted_writes += (message.header.flags & wire::flag_no_reply) != 0 ? multi.value.count : 0;
  store(reply_payload(sizeof(std::uint64_t)), multi.value.count);
  return 0;
}

// --- DMA mappings ------------------------------------------------------------------------------------

int Session::dma_map(const Message& message) {
  const auto decoded = decode_dma_map(message.payload);
  if (!decoded) {
    return decoded.error;
  }
  const wire::DmaMap& map = decoded.value;
  const bool has_descriptor = !message.descriptors.empty();
  if (message.descriptors.size() > 1 || (!has_descriptor && map.offset != 0)) {
    return EINVAL;
  }
  if (mappings_.size() >= limits_for(options_).max_dma_maps) {
    return ENOSPC;
  }
  const auto after = mappings_.upper_bound(map.address + (map.size - 1));
  if (after != mappings_.begin()) {
    const auto& [start, last] = *std::prev(after);
    if (start + (last.size - 1) >= map.address) {
      return EEXIST;
    }
  }
  const pcie::DmaAccess access{(map.flags & wire::dma_map_readable) != 0, (map.flags & wire::dma_map_writeable) != 0};
  std::optional<pcie::FileWindow> window;
  std::optional<std::uint64_t> file_offset;
  if (has_descriptor) {
    window = pcie::FileWindow{message.descriptors.front().get(), map.offset};
    file_offset = map.offset;
  }
  const pcie::MapResult result =
      function_.dma_map(Iova{map.address}, map.size, access, window, has_descriptor ? nullptr : &dma_);
  observer_.on_dma_map(Iova{map.address}, map.size, access, file_offset, result);
  if (result == pcie::MapResult::ok) {
    mappings_.emplace_hint(after, map.address, Mapping{map.size, access, has_descriptor});
  }
  return errno_of(result);
}

int Session::dma_unmap(const Message& message) {
  const auto decoded = decode_dma_unmap(message.payload);
  if (!decoded) {
    return decoded.error;
  }
  const wire::DmaUnmap& request = decoded.value;
  if ((request.flags & wire::dma_unmap_all) != 0) {
    unmap_all();
  } else if (const int error = unmap(request.address, request.size); error != 0) {
    return error;
  }
  wire::DmaUnmap entry = request;
  entry.argsz = sizeof(entry);
  store(reply_payload(sizeof(entry)), entry);
  return 0;
}

// The text wants an exact match. QEMU also sweeps a range that holds several mappings when a virtual IOMMU
// changes domains, so any range is taken that cuts no mapping in two.
int Session::unmap(std::uint64_t address, std::uint64_t size) {
  const std::uint64_t last = address + (size - 1);
  const auto first = mappings_.lower_bound(address);
  if (first != mappings_.begin()) {
    const auto& [start, before] = *std::prev(first);
    if (start + (before.size - 1) >= address) {
      return EINVAL;
    }
  }
  const auto end = mappings_.upper_bound(last);
  if (first == end) {
    // Nothing there is no error: a VMM that moves a device between address spaces (QEMU, when a guest's
    // vIOMMU attaches a domain) unmaps whole spans without knowing what they hold, as VFIO allows.
    return 0;
  }
  if (const auto& [start, final] = *std::prev(end); start + (final.size - 1) > last) {
    return EINVAL;
  }
  for (auto it = first; it != end;) {
    observer_.on_dma_unmap(Iova{it->first}, it->second.size);
    const pcie::MapResult result = function_.dma_unmap(Iova{it->first}, it->second.size);
    it = mappings_.erase(it);
    if (result != pcie::MapResult::ok) {
      return errno_of(result);
    }
  }
  return 0;
}

void Session::unmap_all() {
  for (const auto& [start, mapping] : mappings_) {
    observer_.on_dma_unmap(Iova{start}, mapping.size);
  }
  function_.dma_unmap_all();
  mappings_.clear();
}

bool Session::may_access(Iova address, std::uint64_t size, bool write) const {
  auto it = mappings_.upper_bound(address.value);
  if (it == mappings_.begin()) {
    return false;
  }
  --it;
  std::uint64_t next = address.value;
  const std::uint64_t last = address.value + (size - 1);
  for (; it != mappings_.end() && it->first <= next; ++it) {
    const std::uint64_t mapping_last = it->first + (it->second.size - 1);
    const bool allowed = write ? it->second.access.write : it->second.access.read;
    if (it->second.has_descriptor || !allowed || mapping_last < next) {
      return false;
    }
    if (mapping_last >= last) {
      return true;
    }
    next = mapping_last + 1;
  }
  return false;
}

}  // namespace orrery::bridge
