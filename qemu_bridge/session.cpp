#include "qemu_bridge/session.h"

#include <algorithm>
#include <cerrno>

namespace orrery::bridge {

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
    inbox_.keep(in.received() - 1, descriptors, descriptors_lost);
  }
  processing_ = true;
  bool more = true;
  while (more && state_ != State::closed && !giving_up_) {
    switch (in.next()) {
      case MessageBuffer::Next::message: {
        DescriptorInbox::Descriptors own;
        Message message{in.header(), in.payload(), {}, false};
        if (channel == Channel::main && !inbox_.empty()) {
          const DescriptorInbox::Taken taken = inbox_.take(in.message_begin(), in.message_end(), own);
          message.descriptors = std::span(own).first(taken.count);
          message.surplus_descriptors = taken.surplus;
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
  inbox_.settle();
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
  inbox_.clear();
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

}  // namespace orrery::bridge
