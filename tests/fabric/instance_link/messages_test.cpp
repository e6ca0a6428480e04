// The bytes of messages, the keyed hash, and addresses as a user writes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.h"
#include "fabric/instance_link/endpoint.h"
#include "fabric/instance_link/messages.h"
#include "fabric/instance_link/proof.h"
#include "tests/fabric/instance_link/link_rig.h"

namespace orrery::messages_test {
namespace {

using namespace orrery::instance_link;
using testing::bytes_of;
using ::testing::HasSubstr;

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[std::to_integer<unsigned>(byte) >> 4];
    text += digits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

// RFC 4231 §4.2 to 4.8, HMAC-SHA-256.
TEST(LinkProof, KeyedHashIsHmacSha256) {
  EXPECT_EQ(hex(keyed_hash(std::vector<std::byte>(20, std::byte{0x0b}), bytes_of("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(keyed_hash(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(keyed_hash(std::vector<std::byte>(20, std::byte{0xaa}), std::vector<std::byte>(50, std::byte{0xdd}))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(hex(keyed_hash(std::vector<std::byte>(131, std::byte{0xaa}),
                           bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(LinkProof, DependsOnTokenRoleAndWhereOneHelloEnds) {
  const auto token = bytes_of("0123456789abcdef");
  const Proof proof = make_proof(token, Role::connector, bytes_of("ab"), bytes_of("c"));
  EXPECT_TRUE(equal(proof, make_proof(token, Role::connector, bytes_of("ab"), bytes_of("c"))));
  EXPECT_FALSE(equal(proof, make_proof(token, Role::listener, bytes_of("ab"), bytes_of("c"))));
  EXPECT_FALSE(equal(proof, make_proof(token, Role::connector, bytes_of("a"), bytes_of("bc"))));
  EXPECT_FALSE(equal(proof, make_proof(bytes_of("0123456789abcdeF"), Role::connector, bytes_of("ab"), bytes_of("c"))));
}

Hello some_hello() {
  Hello hello;
  hello.role = Role::connector;
  hello.planes = 3;
  hello.nonce.fill(std::byte{7});
  hello.name = "left";
  hello.addresses = {{0x024f'5200'0000, 0x024f'5200'0000}, {0x024f'5200'0100, 0x024f'5200'01ff}};
  return hello;
}

TEST(LinkMessages, AHelloComesBackAsItWas) {
  const Hello hello = some_hello();
  const std::vector<std::byte> body = encode_hello(hello);
  EXPECT_EQ(hex(std::span(body).first(16)), "4f5252594c494e4b0100010001000302");  // docs/fabric.md
  Hello read;
  EXPECT_EQ(decode_hello(body, read), Refusal::none);
  EXPECT_EQ(read, hello);
}

TEST(LinkMessages, AHelloOfAnyOtherLengthIsRefused) {
  const std::vector<std::byte> body = encode_hello(some_hello());
  for (std::size_t size = 0; size < body.size(); ++size) {
    Hello read;
    EXPECT_NE(decode_hello(std::span(body).first(size), read), Refusal::none) << size;
  }
  std::vector<std::byte> longer = body;
  longer.push_back(std::byte{0});
  Hello read;
  EXPECT_EQ(decode_hello(longer, read), Refusal::protocol);
}

TEST(LinkMessages, AHelloWithAFieldOutOfRangeIsRefused) {
  const auto refusal = [](auto change) {
    Hello hello = some_hello();
    change(hello);
    Hello read;
    return decode_hello(encode_hello(hello), read);
  };
  EXPECT_EQ(refusal([](Hello&) {}), Refusal::none);
  EXPECT_EQ(refusal([](Hello& h) { h.oldest = h.newest = newest_version + 1; }), Refusal::version);
  EXPECT_EQ(refusal([](Hello& h) { h.oldest = h.newest = 0; }), Refusal::version);
  EXPECT_EQ(refusal([](Hello& h) { h.newest = 99; }), Refusal::none);  // a newer program that still speaks ours
  EXPECT_EQ(refusal([](Hello& h) { h.oldest = 2, h.newest = 1; }), Refusal::protocol);
  EXPECT_EQ(refusal([](Hello& h) { h.name.clear(); }), Refusal::protocol);
  EXPECT_EQ(refusal([](Hello& h) { h.name = std::string(max_name_bytes + 1, 'x'); }), Refusal::protocol);
  EXPECT_EQ(refusal([](Hello& h) { h.name = "new\nline"; }), Refusal::protocol);
  EXPECT_EQ(refusal([](Hello& h) { h.addresses = {{2, 1}}; }), Refusal::protocol);
  EXPECT_EQ(refusal([](Hello& h) { h.addresses = {{0, 1}}; }), Refusal::protocol);
  EXPECT_EQ(refusal([](Hello& h) { h.addresses = {{1, std::uint64_t{1} << 48}}; }), Refusal::protocol);
  EXPECT_EQ(refusal([](Hello& h) { h.addresses = {{0x0100'0000'0001, 0x0100'0000'0002}}; }), Refusal::protocol);
  EXPECT_EQ(refusal([](Hello& h) { h.addresses.assign(max_ranges + 1, {1, 1}); }), Refusal::protocol);
}

TEST(LinkMessages, AFrameKnowsItsBounds) {
  std::vector<std::byte> body(frame_prefix_bytes + 14);
  encode_frame_prefix({{0x1122'3344}, 1, 2, {}}, body);
  const auto frame = decode_frame_body(body);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->time, Picoseconds{0x1122'3344});
  EXPECT_EQ(frame->plane, 1);
  EXPECT_EQ(frame->flags, 2);
  EXPECT_EQ(frame->bytes.size(), 14U);
  EXPECT_FALSE(decode_frame_body(std::span(body).first(body.size() - 1)));
  EXPECT_TRUE(decode_frame_body(std::vector<std::byte>(frame_prefix_bytes + fabric::max_frame_bytes)));
  EXPECT_FALSE(decode_frame_body(std::vector<std::byte>(frame_prefix_bytes + fabric::max_frame_bytes + 1)));
  body[8] = std::byte{max_planes};
  EXPECT_FALSE(decode_frame_body(body));
  body[8] = std::byte{0};
  body[9] = std::byte{4};
  EXPECT_FALSE(decode_frame_body(body));
  body[9] = std::byte{0};
  body[11] = std::byte{1};
  EXPECT_FALSE(decode_frame_body(body));
}

TEST(LinkMessages, EveryRefusalHasWords) {
  for (unsigned i = 0; i <= 12; ++i) {
    EXPECT_STRNE(describe(static_cast<Refusal>(i)), "an unknown reason") << i;
  }
  EXPECT_STREQ(describe(static_cast<Refusal>(13)), "an unknown reason");
}

TEST(LinkEndpoint, IsReadAsItIsWritten) {
  EXPECT_EQ(parse_endpoint("unix:/tmp/a b").path, "/tmp/a b");
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"unix:x", "unix:x"},
      {"tcp:4000", "tcp:127.0.0.1:4000"},
      {"tcp:0", "tcp:127.0.0.1:0"},
      {"tcp:10.0.0.1:65535", "tcp:10.0.0.1:65535"},
      {"tcp:[::1]:80", "tcp:[::1]:80"},
  };
  for (const auto& [text, again] : rows) {
    EXPECT_EQ(parse_endpoint(text).text(), again);
    EXPECT_EQ(parse_endpoint(again).text(), again);
  }
  EXPECT_TRUE(parse_endpoint("tcp:1").is_local());
  EXPECT_TRUE(parse_endpoint("tcp:[::1]:1").is_local());
  EXPECT_FALSE(parse_endpoint("tcp:0.0.0.0:1").is_local());
  for (const char* text : {"", "unix:", "/tmp/x", "tcp:", "tcp:x", "tcp:65536", "tcp:-1", "tcp:1 ", "tcp:localhost:1",
                           "tcp:1.2.3:4", "tcp:::1:80", "tcp:[1.2.3.4]:80", "tcp:[]:80", "udp:1"}) {
    try {
      static_cast<void>(parse_endpoint(text));
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("'") + text + "'"));
      EXPECT_THAT(error.remedy(), HasSubstr("unix:PATH"));
    }
  }
  EXPECT_THROW(static_cast<void>(parse_endpoint("unix:" + std::string(108, 'x'))), Error);
}

}  // namespace
}  // namespace orrery::messages_test
