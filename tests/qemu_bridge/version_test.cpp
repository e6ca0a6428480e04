#include <gtest/gtest.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "tests/qemu_bridge/session_harness.h"

namespace orrery::bridge::test::version_test {
namespace {

using nlohmann::json;

json capabilities_of(const Reply& reply) {
  const auto* text = reinterpret_cast<const char*>(reply.payload.data()) + sizeof(wire::Version);
  return json::parse(std::string(text)).at("capabilities");
}

// The errno that refuses a VERSION payload on a fresh session, which must be over then; 0 if it is taken.
int refused(std::span<const std::byte> payload, std::span<const int> descriptors = {}) {
  Harness harness({}, false);
  const int error = harness.error_of(wire::Command::version, payload, descriptors);
  EXPECT_EQ(harness.session.state(), error == 0 ? Session::State::ready : Session::State::closed);
  EXPECT_EQ(harness.function.disconnects, 0U) << "the function never had a client";
  return error;
}
int refused_json(std::string_view text) {
  return refused(version_payload(0, 0, text));
}

TEST(Version, GrantsWhatQemuProposes) {
  Harness harness({}, false);
  const Reply reply = harness.call(wire::Command::version, version_payload(0, 0, qemu_capabilities));
  const json expected = {{"max_msg_fds", 16},
                         {"max_data_xfer_size", 1048576},
                         {"max_dma_maps", 65535},
                         {"pgsizes", 4096},
                         {"write_multiple", true}};
  EXPECT_EQ(capabilities_of(reply), expected);
  EXPECT_EQ(reply.payload.back(), std::byte{0});
  EXPECT_NE(harness.function.sink, nullptr);
  EXPECT_EQ(harness.observer.notes, std::vector<std::string>{"connect"});
}

TEST(Version, RepliesWithNoCapabilityThatWasNotProposed) {
  Harness bare({}, false);
  EXPECT_EQ(capabilities_of(bare.call(wire::Command::version, version_payload(0, 0, ""))), json::object());
  Harness one({}, false);
  const Reply reply = one.call(wire::Command::version,
                               version_payload(0, 0, R"({"capabilities":{"pgsizes":2101248,"write_multiple":false}})"));
  EXPECT_EQ(capabilities_of(reply), json({{"pgsizes", 4096}}));
}

TEST(Version, LowersTheNumberOfMappings) {
  SessionOptions options;
  options.max_dma_maps = 10;
  Harness harness(options, false);
  const Reply reply = harness.call(wire::Command::version, version_payload(0, 0, qemu_capabilities));
  EXPECT_EQ(capabilities_of(reply).at("max_dma_maps"), 10);
  Harness modest(options, false);
  const Reply fewer =
      modest.call(wire::Command::version, version_payload(0, 0, R"({"capabilities":{"max_dma_maps":3}})"));
  EXPECT_EQ(capabilities_of(fewer).at("max_dma_maps"), 3);
}

TEST(Version, MinorIsNeverAboveTheProposed) {
  Harness harness({}, false);
  const Reply reply = harness.call(wire::Command::version, version_payload(0, 7, ""));
  ASSERT_EQ(reply.error(), 0);
  EXPECT_LE(value_of<wire::Version>(reply.payload).minor, 7);
}

TEST(Version, AnotherMajorVersionEndsTheSession) {
  EXPECT_EQ(refused(version_payload(1, 0, "")), EINVAL);
  EXPECT_EQ(refused(version_payload(65535, 0, qemu_capabilities)), EINVAL);
}

TEST(Version, MalformedDataEndsTheSession) {
  EXPECT_EQ(refused({}), EINVAL);
  EXPECT_EQ(refused(bytes_of(std::uint16_t{0})), EINVAL);  // truncated structure
  std::vector<std::byte> unterminated = version_payload(0, 0, qemu_capabilities);
  unterminated.back() = std::byte{'}'};
  EXPECT_EQ(refused(unterminated), EINVAL);
  std::vector<std::byte> embedded = version_payload(0, 0, R"({"capabilities":{}}  )");
  embedded[embedded.size() - 3] = std::byte{0};
  EXPECT_EQ(refused(embedded), EINVAL);
  EXPECT_EQ(refused_json("null"), EINVAL);
  EXPECT_EQ(refused_json("[]"), EINVAL);
  EXPECT_EQ(refused_json("{"), EINVAL);
  EXPECT_EQ(refused_json("\xff\xfe"), EINVAL);
  EXPECT_EQ(refused_json(R"({"capabilities":[]})"), EINVAL);
  EXPECT_EQ(refused_json(std::string(3000, '[')), EINVAL);
  EXPECT_EQ(refused_json(R"({"x":")" + std::string(max_version_data, 'y') + R"("})"), EINVAL);
}

TEST(Version, WrongTypesEndTheSession) {
  for (const char* value : {"\"16\"", "-1", "1.5", "null", "true", "1e3", "[16]"}) {
    for (const char* key : {"max_msg_fds", "max_data_xfer_size", "max_dma_maps", "pgsizes"}) {
      EXPECT_EQ(refused_json(std::string(R"({"capabilities":{")") + key + "\":" + value + "}}"), EINVAL)
          << key << " " << value;
    }
  }
  EXPECT_EQ(refused_json(R"({"capabilities":{"write_multiple":1}})"), EINVAL);
  EXPECT_EQ(refused_json(R"({"capabilities":{"twin_socket":true}})"), EINVAL);
  EXPECT_EQ(refused_json(R"({"capabilities":{"twin_socket":{"supported":"yes"}}})"), EINVAL);
}

TEST(Version, ImpossibleValuesEndTheSession) {
  EXPECT_EQ(refused_json(R"({"capabilities":{"max_data_xfer_size":0}})"), EINVAL);
  EXPECT_EQ(refused_json(R"({"capabilities":{"pgsizes":2097152}})"), EINVAL);  // 4 KiB is required
}

TEST(Version, UnknownCapabilitiesAreIgnored) {
  EXPECT_EQ(refused_json(R"({"later":1,"capabilities":{"migration":{"pgsize":4096},"shiny":[1,{}]}})"), 0);
}

TEST(Version, DescriptorsEndTheSession) {
  const FileDescriptor event = make_eventfd();
  const int fd = event.get();
  EXPECT_EQ(refused(version_payload(0, 0, ""), {&fd, 1}), EINVAL);
}

TEST(Version, MustComeFirst) {
  for (const auto command : {wire::Command::device_get_info, wire::Command::dma_map, wire::Command::region_read,
                             wire::Command::device_reset, wire::Command{99}}) {
    Harness harness({}, false);
    EXPECT_EQ(harness.error_of(command), EINVAL);
    EXPECT_EQ(harness.session.state(), Session::State::closed);
    EXPECT_EQ(harness.function.resets, 0U);
  }
}

TEST(Version, MustNotComeTwice) {
  Harness harness;
  EXPECT_EQ(harness.error_of(wire::Command::version, version_payload(0, 0, qemu_capabilities)), EINVAL);
  EXPECT_EQ(harness.session.state(), Session::State::ready) << "the session goes on";
}

TEST(Version, TwinSocket) {
  Harness harness({}, false);
  Reply reply = harness.call(wire::Command::version,
                             version_payload(0, 0, R"({"capabilities":{"twin_socket":{"supported":true}}})"));
  ASSERT_EQ(reply.descriptors.size(), 1U);
  EXPECT_EQ(capabilities_of(reply), json({{"twin_socket", {{"supported", true}, {"fd_index", 0}}}}));
  // The descriptor is the other end of the server's command channel.
  ASSERT_EQ(::write(harness.twin.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(reply.descriptors[0].get(), &byte, 1), 1);
}

TEST(Version, TwinSocketOnlyForThoseWhoAskAndIfPossible) {
  for (const char* text :
       {R"({"capabilities":{"twin_socket":{}}})", R"({"capabilities":{"twin_socket":{"supported":false}}})"}) {
    Harness harness({}, false);
    const Reply reply = harness.call(wire::Command::version, version_payload(0, 0, text));
    EXPECT_TRUE(reply.descriptors.empty());
    EXPECT_EQ(capabilities_of(reply), json::object());
  }
  Harness unable({}, false);
  unable.twin_socket = false;
  const Reply reply = unable.call(wire::Command::version,
                                  version_payload(0, 0, R"({"capabilities":{"twin_socket":{"supported":true}}})"));
  EXPECT_EQ(reply.error(), 0);
  EXPECT_EQ(capabilities_of(reply), json::object());
}

}  // namespace
}  // namespace orrery::bridge::test::version_test
