#include "common/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "common/config_writer.h"

namespace orrery::config_test {
namespace {

using ::testing::HasSubstr;

struct Inner {
  std::string name = "inner";
  std::uint64_t size = 4;
};

struct Sample {
  bool flag = false;
  unsigned count = 3;
  std::optional<std::uint16_t> mask;
  double ratio = 0.5;
  std::string word = "x";
  unsigned mode = 0;
  Picoseconds latency{1500};
  std::vector<std::string> names;
  std::vector<std::uint64_t> numbers;
  std::map<std::string, std::string> params;
  std::vector<Inner> inners;
  std::map<unsigned, Inner> numbered;
};

const std::array<std::string, 2> modes{"slow", "fast"};

void describe(ConfigVisitor& v, Sample& s) {
  const ConfigNote note{"meaning", "choice"};
  v.begin_table("main", "Main table");
  v.boolean("flag", s.flag, note);
  v.integer("count", s.count, {.minimum = 1, .maximum = 8}, note);
  v.optional_integer("mask", s.mask, {.maximum = 0xff, .hexadecimal = true}, note);
  v.number("ratio", s.ratio, {.minimum = 0, .maximum = 10, .above_minimum = true}, note);
  v.text("word", s.word, {.identifier = true}, note);
  v.choice("mode", s.mode, modes, note);
  v.time("latency_ns", s.latency, TimeUnit::nanoseconds, {{0}, {1'000'000}}, note);
  v.texts("names", s.names, {}, note);
  v.integers("numbers", s.numbers, {.maximum = 9}, 3, note);
  v.free_table("params", s.params, note);
  const auto inner = [&](ConfigVisitor& i, Inner& e) {
    i.text("name", e.name, {}, note);
    i.integer("size", e.size, {.minimum = 1, .maximum = 1024, .power_of_two = true}, note);
  };
  v.numbered("port", s.numbered, 7, "Ports", inner);
  v.end_table();
  v.list("inner", s.inners, 3, "Inner things", inner);
}

struct Outcome {
  Sample sample;
  std::string error;
  std::string remedy;
  ConfigOrigins origins;
};

Outcome read(std::string_view text, const std::vector<std::string>& sets = {}) {
  Outcome outcome;
  try {
    ConfigDocument document = ConfigDocument::parse(text, "a.toml");
    for (const std::string& set : sets) {
      document.set(set);
    }
    ConfigProblems problems("a.toml");
    ConfigReader reader(document, problems);
    describe(reader, outcome.sample);
    reader.finish();
    outcome.origins = problems.origins();
    problems.throw_if_any();
  } catch (const Error& error) {
    outcome.error = error.what();
    outcome.remedy = error.remedy();
  }
  return outcome;
}

void expect_error(std::string_view text, const std::string& error, const std::string& remedy) {
  const Outcome outcome = read(text);
  EXPECT_EQ(outcome.error, error) << text;
  EXPECT_EQ(outcome.remedy, remedy) << text;
}

TEST(ConfigReader, ReadsEveryKind) {
  const Outcome o = read(R"(
[main]
flag = true
count = 0x8
mask = 0x1d
ratio = 2
word = "a-b.c_1"
mode = "fast"
latency_ns = 18.345
names = ["a", "µ"]
numbers = [1, 9]
params = { depth = 16, on = true, x = "y", f = 0.25 }
[main.port.3]
size = 64
[[inner]]
name = ""
[[inner]]
size = 1
)");
  EXPECT_EQ(o.error, "");
  EXPECT_TRUE(o.sample.flag);
  EXPECT_EQ(o.sample.count, 8U);
  EXPECT_EQ(o.sample.mask, 0x1d);
  EXPECT_EQ(o.sample.ratio, 2.0);
  EXPECT_EQ(o.sample.word, "a-b.c_1");
  EXPECT_EQ(o.sample.mode, 1U);
  EXPECT_EQ(o.sample.latency.count, 18'345U);
  EXPECT_EQ(o.sample.names, (std::vector<std::string>{"a", "µ"}));
  EXPECT_EQ(o.sample.numbers, (std::vector<std::uint64_t>{1, 9}));
  EXPECT_EQ(o.sample.params,
            (std::map<std::string, std::string>{{"depth", "16"}, {"f", "0.25"}, {"on", "true"}, {"x", "y"}}));
  ASSERT_EQ(o.sample.numbered.size(), 1U);
  EXPECT_EQ(o.sample.numbered.at(3).size, 64U);
  ASSERT_EQ(o.sample.inners.size(), 2U);
  EXPECT_EQ(o.sample.inners[0].name, "");
  EXPECT_EQ(o.sample.inners[1].name, "inner");
}

TEST(ConfigReader, EmptyFileIsAllDefaults) {
  const Outcome o = read("");
  EXPECT_EQ(o.error, "");
  EXPECT_EQ(o.sample.count, 3U);
  EXPECT_FALSE(o.sample.mask.has_value());
  EXPECT_TRUE(o.origins.empty());
}

TEST(ConfigReader, ErrorsNamePlaceFindingAndRemedy) {
  expect_error("[main]\n\ncount = \"3\"", "a.toml:3: main.count: found the text \"3\"",
               "give a whole number from 1 to 8");
  expect_error("[main]\ncount = 9", "a.toml:2: main.count: found 9", "give a whole number from 1 to 8");
  expect_error("[main]\ncount = -1", "a.toml:2: main.count: found -1", "give a whole number from 1 to 8");
  expect_error("[main]\ncount = 3.0", "a.toml:2: main.count: found 3", "give a whole number from 1 to 8");
  expect_error("[main]\nflag = 1", "a.toml:2: main.flag: found 1", "give true or false");
  expect_error("[main]\nmask = 0x100", "a.toml:2: main.mask: found 256", "give a whole number from 0x0 to 0xff");
  expect_error("[main]\nmode = \"fas\"", "a.toml:2: main.mode: found the text \"fas\"", "give \"slow\" or \"fast\"");
  expect_error("[main]\nword = \"a b\"", "a.toml:2: main.word: found the text \"a b\"",
               "give a name of at most 64 letters, digits, '-', '_' or '.', that starts with a letter or digit");
  expect_error("[main]\nword = \"a\\u0000b\"", "a.toml:2: main.word: found the text \"a\\x00b\"",
               "give a text without control characters");
  expect_error("[main]\nnames = \"a\"", "a.toml:2: main.names: found the text \"a\"",
               "give an array of texts, e.g. [\"a\", \"b\"]");
  expect_error("[main]\nnames = [\"a\", 7]", "a.toml:2: main.names.1: found 7", "give a text in quotes");
  expect_error("[main]\nnumbers = [1,2,3,4]", "a.toml:2: main.numbers: found 4 elements", "give at most 3");
  expect_error("[main]\nnumbers = [10]", "a.toml:2: main.numbers.0: found 10", "give a whole number from 0 to 9");
  expect_error("[main]\nparams = { a = [1] }", "a.toml:2: main.params.a: found an array",
               "give a text, a number, true or false");
  expect_error("[main]\nflag = 2020-01-01", "a.toml:2: main.flag: found a date or time", "give true or false");
  expect_error("main = 3", "a.toml:1: main: found 3", "give a table: a line [main], and its keys below");
  expect_error("inner = 3", "a.toml:1: inner: found 3", "give a list: a line [[inner]] for each element");
  expect_error("inner = [3]", "a.toml:1: inner.0: found 3", "give a table: a line [[inner]], and its keys below");
  expect_error("[[inner]]\nsize = 3", "a.toml:2: inner.0.size: found 3", "give a power of two from 1 to 1024");
  expect_error("[[inner]]\nsize = 0", "a.toml:2: inner.0.size: found 0", "give a power of two from 1 to 1024");
  expect_error("[[inner]]\n[[inner]]\n[[inner]]\n[[inner]]", "a.toml:1: inner: found 4 elements", "give at most 3");
}

TEST(ConfigReader, NumbersOutOfRange) {
  for (const char* bad : {"0", "0.0", "-1.0", "10.1", "nan", "inf", "-inf", "\"1\""}) {
    EXPECT_THAT(read(std::string("[main]\nratio = ") + bad).remedy, HasSubstr("a number above 0 and at most 10"))
        << bad;
  }
  EXPECT_EQ(read("[main]\nratio = 1e-9").error, "");
}

TEST(ConfigReader, TimesAreWholePicoseconds) {
  EXPECT_EQ(read("[main]\nlatency_ns = 0.001").sample.latency.count, 1U);
  EXPECT_EQ(read("[main]\nlatency_ns = 1000").sample.latency.count, 1'000'000U);
  for (const char* bad : {"0.0005", "-1", "-0.5", "1000.001", "9223372036854775807", "nan", "1e300", "\"5\"", "true"}) {
    EXPECT_THAT(read(std::string("[main]\nlatency_ns = ") + bad).remedy, HasSubstr("a time from 0 ns to 1000 ns"))
        << bad;
  }
}

TEST(ConfigReader, UnknownKeysAreErrorsWithASuggestion) {
  expect_error("[main]\ncuont = 3", "a.toml:2: main.cuont: unknown key", "did you mean \"count\"?");
  expect_error("[mian]\ncount = 3", "a.toml:1: mian: unknown table", "did you mean \"main\"?");
  expect_error("zebra = 3", "a.toml:1: zebra: unknown key", "known here: main or inner");
  expect_error("[[inner]]\nnmae = \"x\"", "a.toml:2: inner.0.nmae: unknown key", "did you mean \"name\"?");
}

TEST(ConfigReader, NumberedTablesTakeOnlyTheirNumbers) {
  for (const char* bad : {"8", "01", "0x1", "-1", "\"\"", "a"}) {
    const Outcome o = read(std::string("[main.port.") + bad + "]\nsize = 2");
    EXPECT_THAT(o.error, HasSubstr("not a number that exists here")) << bad;
    EXPECT_EQ(o.remedy, "use [main.port.N] with N from 0 to 7") << bad;
  }
  EXPECT_THAT(read("[main]\nport = { 2 = 5 }").remedy, HasSubstr("a table"));
}

TEST(ConfigReader, ReportsEverythingAtOnce) {
  const Outcome o = read("[main]\ncount = 0\nflag = 1\nx = 1");
  EXPECT_THAT(o.error, HasSubstr("3 problems"));
  EXPECT_THAT(o.error, HasSubstr("a.toml:2: main.count"));
  EXPECT_THAT(o.error, HasSubstr("a.toml:3: main.flag"));
  EXPECT_THAT(o.error, HasSubstr("a.toml:4: main.x"));
}

TEST(ConfigReader, ManyProblemsAreCut) {
  std::string text = "[main]\n";
  for (int i = 0; i < 100; ++i) {
    text += "unknown_key_" + std::to_string(i) + " = 1\n";
  }
  EXPECT_THAT(read(text).error, HasSubstr("100 problems"));
  EXPECT_THAT(read(text).error, HasSubstr("and 80 more"));
}

TEST(ConfigDocument, SyntaxErrorsNameTheLine) {
  const Outcome o = read("[main]\ncount = \n");
  EXPECT_THAT(o.error, HasSubstr("a.toml:2: not valid TOML"));
  EXPECT_THAT(read("[main]\ncount = 1\ncount = 2").error, HasSubstr("a.toml:3: not valid TOML"));
  EXPECT_THAT(read("\xff = 1").error, HasSubstr("not valid TOML"));
}

TEST(ConfigDocument, RefusesWhatIsTooLargeOrTooDeep) {
  EXPECT_THAT(read(std::string(ConfigDocument::maximum_bytes + 1, ' ')).error, HasSubstr("larger than"));
  std::string deep = "a";
  for (int i = 0; i < 100'000; ++i) {
    deep += ".a";
  }
  EXPECT_THAT(read(deep + " = 1").error, HasSubstr("dots in one line"));
  EXPECT_THAT(read("a = " + std::string(100'000, '[')).error, HasSubstr("not valid TOML"));
}

TEST(ConfigDocument, FilesThatCannotBeRead) {
  EXPECT_THROW(ConfigDocument::load("/nonexistent/a.toml"), Error);
  EXPECT_THROW(ConfigDocument::load("/"), Error);
  try {
    ConfigDocument::load("/nonexistent/a.toml");
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent/a.toml: cannot open the configuration: No such file"));
  }
}

TEST(ConfigOverrides, ReplaceAddAndAreNamed) {
  const Outcome o = read("[main]\ncount = 4\nflag = true\n",
                         {"main.count=5", "main.word=bare", "main.port.2.size=8", "inner.0.name=\"q\"",
                          "inner.1.size=2", "main.numbers=[1, 2]", "main.params.depth=7"});
  EXPECT_EQ(o.error, "");
  EXPECT_EQ(o.sample.count, 5U);
  EXPECT_EQ(o.sample.word, "bare");
  EXPECT_EQ(o.sample.numbered.at(2).size, 8U);
  ASSERT_EQ(o.sample.inners.size(), 2U);
  EXPECT_EQ(o.sample.inners[0].name, "q");
  EXPECT_EQ(o.sample.params.at("depth"), "7");
  EXPECT_EQ(o.origins.at("main.count").text(), "--set main.count=5");
  EXPECT_EQ(o.origins.at("main.flag").text(), "a.toml:3");
  EXPECT_FALSE(o.origins.contains("main.ratio"));
  EXPECT_EQ(o.origins.at("inner.1.size").text(), "--set inner.1.size=2");
}

TEST(ConfigOverrides, LaterOnesWin) {
  EXPECT_EQ(read("", {"main.count=5", "main.count=6"}).sample.count, 6U);
}

TEST(ConfigOverrides, ErrorsNameTheOption) {
  EXPECT_EQ(read("", {"main.count=99"}).error, "--set main.count=99: main.count: found 99");
  EXPECT_THAT(read("", {"main.count"}).error, HasSubstr("no value given"));
  EXPECT_THAT(read("", {"=3"}).error, HasSubstr("\"\" is not a key path"));
  EXPECT_EQ(read("", {" main.count = 99"}).error, "--set  main.count = 99: main.count: found 99");
  EXPECT_THAT(read("", {"main..count=3"}).error, HasSubstr("is not a key path"));
  EXPECT_THAT(read("", {".=3"}).error, HasSubstr("is not a key path"));
  EXPECT_THAT(read("[main]\ncount = 3", {"main.count.x=3"}).error, HasSubstr("it has no key \"x\""));
  EXPECT_THAT(read("", {"inner.0.size=2", "inner.5.size=2"}).error, HasSubstr("inner.5: no element of the list"));
  EXPECT_THAT(read("", {"inner.a.size=2"}).error, HasSubstr("inner.a: no element of the list"));
  EXPECT_THAT(read("[[inner]]\nsize = 2", {"inner.5.size=2"}).error, HasSubstr("is no element of a list of 1"));
  EXPECT_EQ(read("[[inner]]\nsize = 2", {"inner.1.size=4"}).sample.inners.at(1).size, 4U);
  EXPECT_EQ(read("", {"main.port.0.size=8"}).sample.numbered.at(0).size, 8U);
  EXPECT_THAT(read("", {"main.count=3\nflag = true"}).error, HasSubstr("more than one value"));
  EXPECT_THAT(read("", {"mian.count=3"}).remedy, HasSubstr("did you mean \"main\"?"));
  EXPECT_THAT(read("", {"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q=1"}).error, HasSubstr("is not a key path"));
}

TEST(ConfigWriter, WritesWhatReadsBack) {
  Sample s;
  s.flag = true;
  s.mask = 0x7f;
  s.ratio = 0.1;
  s.latency = {18'345};
  s.names = {"a\"b", "µ\\"};
  s.numbers = {1, 2};
  s.params = {{"key with space", "v"}};
  s.inners.resize(2);
  s.inners[1].name = "line\ttab";
  s.numbered[4].size = 512;
  for (const TomlWriter::Remarks remarks : {TomlWriter::Remarks::none, TomlWriter::Remarks::meaning}) {
    TomlWriter writer(remarks);
    Sample copy = s;
    copy.inners[1].name = "plain";
    describe(writer, copy);
    const Outcome o = read(writer.take());
    EXPECT_EQ(o.error, "");
    EXPECT_EQ(o.sample.mask, s.mask);
    EXPECT_EQ(o.sample.ratio, s.ratio);
    EXPECT_EQ(o.sample.latency, s.latency);
    EXPECT_EQ(o.sample.names, s.names);
    EXPECT_EQ(o.sample.numbers, s.numbers);
    EXPECT_EQ(o.sample.params, s.params);
    EXPECT_EQ(o.sample.inners.size(), 2U);
    EXPECT_EQ(o.sample.numbered.at(4).size, 512U);
  }
}

TEST(ConfigWriter, ExamplesAreComments) {
  TomlWriter writer(TomlWriter::Remarks::meaning);
  Sample s;
  describe(writer, s);
  const std::string text = writer.take();
  EXPECT_THAT(text, HasSubstr("#[[inner]]\n"));
  EXPECT_THAT(text, HasSubstr("#[main.port.0]\n"));
  EXPECT_THAT(text, HasSubstr("# mask is not set\n"));
  EXPECT_TRUE(read(text).sample.inners.empty());
}

TEST(ConfigWriter, ShowsOrigins) {
  Outcome o = read("[main]\ncount = 4", {"main.flag=true"});
  TomlWriter writer(TomlWriter::Remarks::origin, &o.origins);
  describe(writer, o.sample);
  const std::string text = writer.take();
  EXPECT_THAT(text, HasSubstr("count = 4  # a.toml:2\n"));
  EXPECT_THAT(text, HasSubstr("flag = true  # --set main.flag=true\n"));
  EXPECT_THAT(text, HasSubstr("ratio = 0.5  # default\n"));
}

}  // namespace
}  // namespace orrery::config_test
