#include "qemu_bridge/output_queue.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace orrery::bridge {
namespace {

constexpr std::size_t max_descriptors = 16;  // of one message

}  // namespace

bool OutputQueue::append(std::span<const std::byte> head, std::span<const std::byte> body,
                         std::span<const int> descriptors) {
  const std::size_t size = head.size() + body.size();
  if (bytes_.size() - begin_ + size > limit_ || descriptors.size() > max_descriptors) {
    return false;
  }
  if (!descriptors.empty()) {
    Attachment attachment{sent_ + (bytes_.size() - begin_), size, {}};
    for (const int descriptor : descriptors) {
      attachment.descriptors.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
      if (!attachment.descriptors.back()) {
        return false;
      }
    }
    attachments_.push_back(std::move(attachment));
  }
  if (begin_ > 0 && bytes_.size() + size > bytes_.capacity()) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }
  bytes_.insert(bytes_.end(), head.begin(), head.end());
  bytes_.insert(bytes_.end(), body.begin(), body.end());
  return true;
}

OutputQueue::Flush OutputQueue::flush(int socket) {
  while (!empty()) {
    std::size_t count = bytes_.size() - begin_;
    iovec part{bytes_.data() + begin_, 0};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(max_descriptors * sizeof(int))> control;
    const bool attached = !attachments_.empty() && attachments_.front().position == sent_;
    if (attached) {
      const Attachment& attachment = attachments_.front();
      count = attachment.size;
      std::array<int, max_descriptors> numbers{};
      for (std::size_t i = 0; i < attachment.descriptors.size(); ++i) {
        numbers[i] = attachment.descriptors[i].get();
      }
      const std::size_t bytes = attachment.descriptors.size() * sizeof(int);
      control.fill(0);
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(bytes);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(bytes);
      std::memcpy(CMSG_DATA(header), numbers.data(), bytes);
    } else if (!attachments_.empty()) {
      count = std::min<std::size_t>(count, attachments_.front().position - sent_);
    }
    part.iov_len = count;
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno == EAGAIN || errno == EWOULDBLOCK ? Flush::blocked : Flush::failed;
    }
    if (attached) {
      attachments_.pop_front();  // with its first byte the descriptors are gone
    }
    begin_ += static_cast<std::size_t>(sent);
    sent_ += static_cast<std::uint64_t>(sent);
  }
  bytes_.clear();
  begin_ = 0;
  return Flush::done;
}

}  // namespace orrery::bridge
