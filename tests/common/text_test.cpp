#include "common/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace orrery::text_test {
namespace {

TEST(EditDistance, CountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);  // the textbook's example
  EXPECT_EQ(edit_distance("switches", "swiches"), 1U);
  EXPECT_EQ(edit_distance("gpus", "gups"), 1U);  // neighbours swapped: one edit
  EXPECT_EQ(edit_distance("ca", "abc"), 3U);     // optimal string alignment, not full Damerau (2)
}

TEST(EditDistance, LongTextsAreFar) {
  const std::string long_text(65, 'a');
  EXPECT_EQ(edit_distance(long_text, long_text), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(edit_distance(std::string(64, 'a'), std::string(64, 'a')), 0U);
}

TEST(Closest, OnlySuggestsNearWords) {
  const std::vector<std::string> words{"switches", "sockets", "rnics"};
  EXPECT_EQ(closest("swiches", words), "switches");
  EXPECT_EQ(closest("rnic", words), "rnics");
  EXPECT_EQ(closest("banana", words), "");
  EXPECT_EQ(closest("", words), "");
  EXPECT_EQ(closest("x", {}), "");
}

TEST(JoinAlternatives, ReadsLikeASentence) {
  EXPECT_EQ(join_alternatives(std::vector<std::string>{}), "");
  EXPECT_EQ(join_alternatives(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(join_alternatives(std::vector<std::string>{"a", "b", "c"}), "a, b or c");
}

TEST(EscapeJson, EscapesAndRepairs) {
  EXPECT_EQ(escape_json("a\"b\\c\n\t"), "a\\\"b\\\\c\\n\\t");
  EXPECT_EQ(escape_json(std::string_view("\0\x1f\x7f", 3)), "\\u0000\\u001f\\u007f");
  EXPECT_EQ(escape_json("µ€😀"), "µ€😀");
  EXPECT_EQ(escape_json("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(escape_json("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");  // overlong '/'
  EXPECT_EQ(escape_json("\xed\xa0\x80").size(), 9U);               // a surrogate: three bad bytes
  EXPECT_EQ(escape_json("\xe2\x82"), "\xef\xbf\xbd\xef\xbf\xbd");  // cut off
}

TEST(EscapeXml, EscapesMarkup) {
  EXPECT_EQ(escape_xml("<a b=\"c\">&'"), "&lt;a b=&quot;c&quot;&gt;&amp;&#39;");
  EXPECT_EQ(escape_xml(std::string_view("\x01", 1)), "\xef\xbf\xbd");
}

TEST(Printable, StaysOnOneLineAndShort) {
  EXPECT_EQ(printable("a\nb\x1b[0m"), "a\\x0ab\\x1b[0m");
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("abcdef", 3), "abc…");
  EXPECT_EQ(printable("abc", 3), "abc");
}

TEST(ParseUnsigned, IsStrict) {
  EXPECT_EQ(parse_unsigned("0"), 0U);
  EXPECT_EQ(parse_unsigned("0x1D"), 29U);
  EXPECT_EQ(parse_unsigned("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  for (const char* bad :
       {"", "0x", "-1", "+1", " 1", "1 ", "1a", "18446744073709551616", "0x10000000000000000", "1.0"}) {
    EXPECT_FALSE(parse_unsigned(bad).has_value()) << bad;
  }
}

TEST(Trimmed, TakesBlanksOffTheEnds) {
  EXPECT_EQ(trimmed(" \ta b\t "), "a b");
  EXPECT_EQ(trimmed("a"), "a");
  EXPECT_EQ(trimmed(" \t"), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(Counted, HasTheRightNumber) {
  EXPECT_EQ(counted(1, "switch"), "1 switch");
  EXPECT_EQ(counted(0, "switch"), "0 switches");
  EXPECT_EQ(counted(2, "GPU"), "2 GPUs");
}

TEST(Split, KeepsEmptyPieces) {
  EXPECT_EQ(split("", '.').size(), 1U);
  EXPECT_EQ(split("a..b", '.'), (std::vector<std::string_view>{"a", "", "b"}));
  EXPECT_EQ(split("a.", '.').size(), 2U);
}

}  // namespace
}  // namespace orrery::text_test
