#include "fabric/instance_link/proof.h"

#include <sodium.h>

#include <string_view>

#include "common/error.h"

namespace orrery::instance_link {

namespace {

constexpr std::string_view purpose = "orrery instance link 1";

const unsigned char* data_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

Proof keyed_hash(std::span<const std::byte> key, std::span<const std::byte> message) {
  Proof proof;
  static_assert(sizeof(Proof) == crypto_auth_hmacsha256_BYTES);
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, data_of(key), key.size());
  crypto_auth_hmacsha256_update(&state, data_of(message), message.size());
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(proof.data()));
  sodium_memzero(&state, sizeof(state));
  return proof;
}

Proof make_proof(std::span<const std::byte> token, Role role, std::span<const std::byte> connector_hello,
                 std::span<const std::byte> listener_hello) {
  ByteWriter message;
  message.put_text(purpose);
  message.put(static_cast<std::uint8_t>(role));
  // With their lengths: no other pair of hellos gives the same bytes.
  message.put(static_cast<std::uint32_t>(connector_hello.size()));
  message.put(connector_hello);
  message.put(static_cast<std::uint32_t>(listener_hello.size()));
  message.put(listener_hello);
  return keyed_hash(token, message.bytes());
}

bool equal(const Proof& a, const Proof& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Nonce make_nonce() {
  if (sodium_init() < 0) {
    throw Error("the system has no source of random numbers", "mount /dev, or allow getrandom()");
  }
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

}  // namespace orrery::instance_link
