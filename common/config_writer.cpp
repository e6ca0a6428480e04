#include "common/config_writer.h"

#include <fmt/format.h>

#include "common/text.h"

namespace orrery {
namespace {

std::string quoted(std::string_view text) {
  return fmt::format("\"{}\"", escape_json(text));
}

// A bare key if it can be one.
std::string key_text(std::string_view key) {
  bool bare = !key.empty();
  for (const char c : key) {
    bare = bare && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_');
  }
  return bare ? std::string(key) : quoted(key);
}

std::string integer_text(std::uint64_t value, const IntegerRule& rule) {
  return rule.hexadecimal ? fmt::format("{:#x}", value) : fmt::format("{}", value);
}

std::string rule_text(const IntegerRule& rule) {
  if (!rule.one_of.empty()) {
    std::vector<std::string> words;
    for (const std::uint64_t value : rule.one_of) {
      words.push_back(integer_text(value, rule));
    }
    return join_alternatives(words);
  }
  const std::string power = rule.power_of_two ? ", a power of two" : "";
  if (rule.maximum >= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return fmt::format("at least {}{}", integer_text(rule.minimum, rule), power);
  }
  return fmt::format("{} to {}{}", integer_text(rule.minimum, rule), integer_text(rule.maximum, rule), power);
}

// Shortest text that reads back as the same double, and as a TOML float.
std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) {
    text += ".0";
  }
  return text;
}

std::string time_number(Picoseconds value, TimeUnit unit) {
  if (unit == TimeUnit::picoseconds) {
    return fmt::format("{}", value.count);
  }
  const std::uint64_t fraction = value.count % 1000;
  return fraction == 0 ? fmt::format("{}", value.count / 1000) : fmt::format("{}.{:03}", value.count / 1000, fraction);
}

}  // namespace

void ConfigWriter::push(std::string_view key, const char* meaning) {
  Frame frame;
  if (frames_.empty()) {
    frame.path = key;
    frame.header = key_text(key);
  } else {
    frame.path = fmt::format("{}.{}", frames_.back().path, key);
    frame.header = fmt::format("{}.{}", frames_.back().header, key_text(key));
  }
  frame.meaning = meaning == nullptr ? "" : meaning;
  frames_.push_back(std::move(frame));
}

void ConfigWriter::pop() {
  if (frames_.back().is_example) {
    --example_depth_;
  }
  frames_.pop_back();
}

void ConfigWriter::emit(std::string_view key, std::string value, std::string rule, ConfigNote note) {
  ConfigItem item;
  item.path = frames_.empty() ? std::string(key) : fmt::format("{}.{}", frames_.back().path, key);
  item.value = std::move(value);
  item.rule = std::move(rule);
  item.meaning = note.meaning;
  item.source = note.source;
  item.origin = "default";
  if (origins_ != nullptr) {
    if (const auto found = origins_->find(item.path); found != origins_->end()) {
      item.origin = found->second.text();
    }
  }
  if (!frames_.empty() && !frames_.back().header_written) {
    Frame& frame = frames_.back();
    frame.header_written = true;
    write_header(frame.is_element ? "[[" + frame.header + "]]" : "[" + frame.header + "]", frame.meaning);
  }
  write_item(key_text(key), item);
}

void ConfigWriter::begin_table(std::string_view key, const char* meaning) {
  push(key, meaning);
}
void ConfigWriter::end_table() {
  pop();
}

void ConfigWriter::boolean(std::string_view key, bool& value, ConfigNote note) {
  emit(key, value ? "true" : "false", "true or false", note);
}

void ConfigWriter::integer64(std::string_view key, std::optional<std::uint64_t>& value, bool /*required*/,
                             const IntegerRule& rule, ConfigNote note) {
  emit(key, value ? integer_text(*value, rule) : "", rule_text(rule), note);
}

void ConfigWriter::number(std::string_view key, double& value, const NumberRule& rule, ConfigNote note) {
  emit(key, number_text(value),
       fmt::format("{} {:g}, at most {:g}", rule.above_minimum ? "above" : "at least", rule.minimum, rule.maximum),
       note);
}

void ConfigWriter::text(std::string_view key, std::string& value, const TextRule& rule, ConfigNote note) {
  emit(key, quoted(value),
       rule.identifier || rule.device_id ? "a name" : (rule.may_be_empty ? "text, may be empty" : "text"), note);
}

void ConfigWriter::choice_index(std::string_view key, std::size_t& value, std::span<const std::string> names,
                                ConfigNote note) {
  std::vector<std::string> all;
  for (const std::string& name : names) {
    all.push_back(quoted(name));
  }
  emit(key, quoted(names[value]), join_alternatives(all), note);
}

void ConfigWriter::duration(std::string_view key, std::optional<Picoseconds>& value, TimeUnit unit,
                            const TimeRule& rule, ConfigNote note) {
  emit(key, value ? time_number(*value, unit) : "",
       fmt::format("{} to {}", time_number(rule.minimum, unit), time_number(rule.maximum, unit)), note);
}

void ConfigWriter::texts(std::string_view key, std::vector<std::string>& value, const TextRule& /*rule*/,
                         ConfigNote note) {
  std::string list;
  for (const std::string& item : value) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", quoted(item));
  }
  emit(key, "[" + list + "]", "list of texts", note);
}

void ConfigWriter::integers(std::string_view key, std::vector<std::uint64_t>& value, const IntegerRule& rule,
                            std::size_t maximum_count, ConfigNote note) {
  std::string list;
  for (const std::uint64_t item : value) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", integer_text(item, rule));
  }
  emit(key, "[" + list + "]", fmt::format("list of at most {} numbers, {}", maximum_count, rule_text(rule)), note);
}

void ConfigWriter::free_table(std::string_view key, std::map<std::string, std::string>& value, ConfigNote note) {
  std::string table;
  for (const auto& [name, item] : value) {
    table += fmt::format("{}{} = {}", table.empty() ? " " : ", ", key_text(name), quoted(item));
  }
  emit(key, table.empty() ? "{}" : "{" + table + " }", "table of texts, numbers, true and false", note);
}

std::size_t ConfigWriter::begin_list(std::string_view key, std::size_t size, std::size_t /*maximum*/,
                                     const char* meaning) {
  push(key, meaning);
  frames_.back().is_list = true;
  if (size == 0 && wants_examples()) {
    frames_.back().is_example = true;
    ++example_depth_;
    return 1;
  }
  return size;
}

void ConfigWriter::begin_element(std::size_t index) {
  Frame frame;
  const Frame& list = frames_.back();
  frame.path = fmt::format("{}.{}", list.path, index);
  frame.header = list.header;
  frame.meaning = index == 0 ? list.meaning : "";
  frame.is_element = true;
  frames_.push_back(std::move(frame));
}

void ConfigWriter::end_element() {
  pop();
}
void ConfigWriter::end_list() {
  pop();
}

std::vector<unsigned> ConfigWriter::begin_numbered(std::string_view key, const std::vector<unsigned>& present,
                                                   unsigned /*maximum*/, const char* meaning) {
  push(key, meaning);
  if (present.empty() && wants_examples()) {
    frames_.back().is_example = true;
    ++example_depth_;
    return {0};
  }
  return present;
}

void ConfigWriter::begin_number(unsigned number) {
  const std::string meaning = frames_.back().meaning;
  push(fmt::format("{}", number), meaning.c_str());
}

void ConfigWriter::end_number() {
  pop();
}
void ConfigWriter::end_numbered() {
  pop();
}

void TomlWriter::write_header(const std::string& header, const std::string& meaning) {
  if (!text_.empty()) {
    text_ += '\n';
  }
  if (remarks_ == Remarks::meaning && !meaning.empty()) {
    text_ += fmt::format("# {}\n", meaning);
  }
  text_ += fmt::format("{}{}\n", in_example() ? "#" : "", header);
}

void TomlWriter::write_item(const std::string& key, const ConfigItem& item) {
  if (remarks_ == Remarks::meaning) {
    text_ += fmt::format("# {} ({}) [{}]\n", item.meaning, item.rule, item.source);
  }
  if (item.value.empty()) {
    if (remarks_ == Remarks::meaning) {
      text_ += fmt::format("# {} is not set\n", key);
    }
    return;
  }
  text_ += fmt::format("{}{} = {}", in_example() ? "#" : "", key, item.value);
  if (remarks_ == Remarks::origin) {
    text_ += fmt::format("  # {}", printable(item.origin, 200));
  }
  text_ += '\n';
}

}  // namespace orrery
