#include "fabric/instance_link/endpoint.h"

#include <arpa/inet.h>

#include <charconv>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::instance_link {

namespace {

constexpr std::string_view unix_prefix = "unix:";
constexpr std::string_view tcp_prefix = "tcp:";
constexpr std::size_t longest_path = 107;  // sockaddr_un

[[noreturn]] void refuse_endpoint(std::string_view text) {
  throw Error(
      fmt::format("'{}' is no address of a link", text),
      fmt::format("give unix:PATH (at most {} bytes), tcp:PORT on this machine, tcp:ADDRESS:PORT with a numeric "
                  "address, or tcp:[IPV6-ADDRESS]:PORT",
                  longest_path));
}

bool is_numeric_host(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 || inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

}  // namespace

std::string Endpoint::text() const {
  if (kind == Kind::unix_socket) {
    return fmt::format("{}{}", unix_prefix, path);
  }
  return host.find(':') == std::string::npos ? fmt::format("{}{}:{}", tcp_prefix, host, port)
                                             : fmt::format("{}[{}]:{}", tcp_prefix, host, port);
}

bool Endpoint::is_local() const {
  return kind == Kind::unix_socket || host == "::1" || host.starts_with("127.");
}

Endpoint parse_endpoint(std::string_view text) {
  Endpoint endpoint;
  if (text.starts_with(unix_prefix)) {
    endpoint.path = text.substr(unix_prefix.size());
    if (endpoint.path.empty() || endpoint.path.size() > longest_path) {
      refuse_endpoint(text);
    }
    return endpoint;
  }
  if (!text.starts_with(tcp_prefix)) {
    refuse_endpoint(text);
  }
  endpoint.kind = Endpoint::Kind::tcp;
  const std::string_view rest = text.substr(tcp_prefix.size());
  const std::size_t colon = rest.rfind(':');
  const std::string_view port = colon == std::string_view::npos ? rest : rest.substr(colon + 1);
  std::string_view host = colon == std::string_view::npos ? std::string_view("127.0.0.1") : rest.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
  }
  endpoint.host = host;
  const auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (failed != std::errc{} || end != port.data() + port.size() || !is_numeric_host(endpoint.host) ||
      bracketed != (host.find(':') != std::string_view::npos)) {
    refuse_endpoint(text);
  }
  return endpoint;
}

}  // namespace orrery::instance_link
