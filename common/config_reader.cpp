#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "common/config.h"
#include "common/config_state.h"
#include "common/text.h"

namespace orrery {
namespace {

std::string number_text(std::uint64_t value, const IntegerRule& rule) {
  return rule.hexadecimal ? fmt::format("{:#x}", value) : fmt::format("{}", value);
}

std::string expectation(const IntegerRule& rule) {
  if (!rule.one_of.empty()) {
    std::vector<std::string> words;
    for (const std::uint64_t value : rule.one_of) {
      words.push_back(number_text(value, rule));
    }
    return join_alternatives(words);
  }
  const char* kind = rule.power_of_two ? "a power of two" : "a whole number";
  if (rule.maximum >= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return fmt::format("{}, at least {}", kind, number_text(rule.minimum, rule));
  }
  return fmt::format("{} from {} to {}", kind, number_text(rule.minimum, rule), number_text(rule.maximum, rule));
}

bool satisfies(std::int64_t value, const IntegerRule& rule) {
  if (value < 0) {
    return false;
  }
  const auto v = static_cast<std::uint64_t>(value);
  if (!rule.one_of.empty()) {
    for (const std::uint64_t allowed : rule.one_of) {
      if (v == allowed) {
        return true;
      }
    }
    return false;
  }
  return v >= rule.minimum && v <= rule.maximum && (!rule.power_of_two || (v != 0 && (v & (v - 1)) == 0));
}

// Why `text` may not stand for this key; empty if it may.
std::string objection(const std::string& text, const TextRule& rule) {
  if (text.empty() && (!rule.may_be_empty || rule.identifier || rule.device_id)) {
    return "a text that is not empty";
  }
  if (text.size() > rule.maximum_bytes) {
    return fmt::format("at most {} bytes", rule.maximum_bytes);
  }
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return "a text without control characters";
    }
  }
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto alphanumeric = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  if (rule.device_id) {
    bool good = text.size() <= 32 && letter(text[0]);
    for (const char c : text) {
      good = good && (alphanumeric(c) || c == '-' || c == '_');
    }
    return good ? "" : "a name of at most 32 letters, digits, '-' or '_', that starts with a letter";
  }
  if (rule.identifier) {
    bool good = text.size() <= 64 && alphanumeric(text[0]);
    for (const char c : text) {
      good = good && (alphanumeric(c) || c == '-' || c == '_' || c == '.');
    }
    if (!good) {
      return "a name of at most 64 letters, digits, '-', '_' or '.', that starts with a letter or digit";
    }
  }
  return {};
}

std::string time_text(Picoseconds value, TimeUnit unit) {
  return unit == TimeUnit::picoseconds ? fmt::format("{} ps", value.count)
                                       : fmt::format("{} ns", static_cast<double>(value.count) / 1e3);
}

}  // namespace

struct ConfigReader::State {
  struct Frame {
    std::string path;                    // "" at the top
    const toml::table* table = nullptr;  // null: not in the document
    const toml::array* array = nullptr;  // a list
    std::vector<std::string> known;      // keys that the description asked for
  };

  State(const ConfigDocument& d, ConfigProblems& p) : document(d), problems(p) {
    frames.push_back({"", &d.state_->root, nullptr, {}});
  }

  [[nodiscard]] std::string path_of(std::string_view key) const {
    const std::string& path = frames.back().path;
    return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
  }

  [[nodiscard]] ConfigOrigin origin(const std::string& path, const toml::node& node) const {
    for (auto o = document.state_->overrides.rbegin(); o != document.state_->overrides.rend(); ++o) {
      if (path == o->path || path.starts_with(o->path + ".")) {
        return {ConfigOrigin::Kind::override_option, {}, 0, o->assignment};
      }
    }
    if (node.source().begin.line == 0) {
      // A table that only exists because an override needed it.
      for (const auto& o : document.state_->overrides) {
        if (o.path.starts_with(path + ".")) {
          return {ConfigOrigin::Kind::override_option, {}, 0, o.assignment};
        }
      }
    }
    return {ConfigOrigin::Kind::file, document.name(), node.source().begin.line, {}};
  }

  void problem(const std::string& path, const toml::node& node, std::string what, std::string remedy) {
    problems.add_at(origin(path, node).text(), path, std::move(what), std::move(remedy));
  }

  void wrong_type(const std::string& path, const toml::node& node, const std::string& expected) {
    problem(path, node, fmt::format("found {}", describe_node(node)), fmt::format("give {}", expected));
  }

  // The node under `key` of the current table, noting its origin; null if it isn't there.
  const toml::node* take(std::string_view key) {
    Frame& frame = frames.back();
    frame.known.emplace_back(key);
    if (frame.table == nullptr) {
      return nullptr;
    }
    const toml::node* node = frame.table->get(key);
    if (node != nullptr) {
      const std::string path = path_of(key);
      problems.origins()[path] = origin(path, *node);
    }
    return node;
  }

  void report_unknown() {
    const Frame& frame = frames.back();
    if (frame.table == nullptr) {
      return;
    }
    for (const auto& [key, node] : *frame.table) {
      const std::string name(key.str());
      bool known = false;
      for (const std::string& k : frame.known) {
        known = known || k == name;
      }
      if (known) {
        continue;
      }
      const std::string suggestion = closest(name, frame.known);
      std::string remedy;
      if (!suggestion.empty()) {
        remedy = fmt::format("did you mean \"{}\"?", suggestion);
      } else {
        std::vector<std::string> all = frame.known;
        remedy = fmt::format("known here: {}", join_alternatives(all));
      }
      const std::string path = path_of(name);
      problem(path, node, node.is_table() ? "unknown table" : "unknown key", remedy);
    }
  }

  // A list that only --set options have made: a table with the keys 0, 1, …
  std::size_t begin_list_of_overrides(const std::string& path, const toml::table& table, std::size_t maximum) {
    std::size_t size = table.size();
    for (const auto& [key, node] : table) {
      const std::optional<std::uint64_t> number = parse_unsigned(key.str());
      if (!number || *number >= table.size() || fmt::format("{}", *number) != key.str() || table.size() > maximum) {
        problem(fmt::format("{}.{}", path, key.str()), node, "no element of the list",
                fmt::format("number the elements from 0 without a gap, at most {}", maximum));
        size = 0;
      }
    }
    frames.push_back({path, size == 0 ? nullptr : &table, nullptr, {}});
    return size;
  }

  const ConfigDocument& document;
  ConfigProblems& problems;
  std::vector<Frame> frames;
};

ConfigReader::ConfigReader(const ConfigDocument& document, ConfigProblems& problems)
    : state_(std::make_unique<State>(document, problems)) {}
ConfigReader::~ConfigReader() = default;

void ConfigReader::finish() {
  state_->report_unknown();
}

void ConfigReader::begin_table(std::string_view key, const char* /*meaning*/) {
  const toml::node* node = state_->take(key);
  const std::string path = state_->path_of(key);
  const toml::table* table = node == nullptr ? nullptr : node->as_table();
  if (node != nullptr && table == nullptr) {
    state_->wrong_type(path, *node, fmt::format("a table: a line [{}], and its keys below", path));
  }
  state_->frames.push_back({path, table, nullptr, {}});
}

void ConfigReader::end_table() {
  state_->report_unknown();
  state_->frames.pop_back();
}

void ConfigReader::boolean(std::string_view key, bool& value, ConfigNote /*note*/) {
  const toml::node* node = state_->take(key);
  if (node == nullptr) {
    return;
  }
  if (const auto* b = node->as_boolean()) {
    value = b->get();
  } else {
    state_->wrong_type(state_->path_of(key), *node, "true or false");
  }
}

void ConfigReader::integer64(std::string_view key, std::optional<std::uint64_t>& value, bool /*required*/,
                             const IntegerRule& rule, ConfigNote /*note*/) {
  const toml::node* node = state_->take(key);
  if (node == nullptr) {
    return;
  }
  const auto* i = node->as_integer();
  if (i == nullptr || !satisfies(i->get(), rule)) {
    state_->wrong_type(state_->path_of(key), *node, expectation(rule));
    return;
  }
  value = static_cast<std::uint64_t>(i->get());
}

void ConfigReader::number(std::string_view key, double& value, const NumberRule& rule, ConfigNote /*note*/) {
  const toml::node* node = state_->take(key);
  if (node == nullptr) {
    return;
  }
  double found = std::numeric_limits<double>::quiet_NaN();
  if (const auto* i = node->as_integer()) {
    found = static_cast<double>(i->get());
  } else if (const auto* f = node->as_floating_point()) {
    found = f->get();
  }
  // Written so that a NaN fails.
  if (!(found >= rule.minimum && found <= rule.maximum && (!rule.above_minimum || found > rule.minimum))) {
    state_->wrong_type(state_->path_of(key), *node,
                       fmt::format("a number {} {:g} and at most {:g}", rule.above_minimum ? "above" : "of at least",
                                   rule.minimum, rule.maximum));
    return;
  }
  value = found;
}

void ConfigReader::text(std::string_view key, std::string& value, const TextRule& rule, ConfigNote /*note*/) {
  const toml::node* node = state_->take(key);
  if (node == nullptr) {
    return;
  }
  const auto* s = node->as_string();
  if (s == nullptr) {
    state_->wrong_type(state_->path_of(key), *node, "a text in quotes");
    return;
  }
  const std::string bad = objection(s->get(), rule);
  if (!bad.empty()) {
    state_->wrong_type(state_->path_of(key), *node, bad);
    return;
  }
  value = s->get();
}

void ConfigReader::choice_index(std::string_view key, std::size_t& value, std::span<const std::string> names,
                                ConfigNote /*note*/) {
  const toml::node* node = state_->take(key);
  if (node == nullptr) {
    return;
  }
  std::vector<std::string> quoted;
  const auto* s = node->as_string();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (s != nullptr && s->get() == names[i]) {
      value = i;
      return;
    }
    quoted.push_back("\"" + names[i] + "\"");
  }
  state_->wrong_type(state_->path_of(key), *node, join_alternatives(quoted));
}

void ConfigReader::duration(std::string_view key, std::optional<Picoseconds>& value, TimeUnit unit,
                            const TimeRule& rule, ConfigNote /*note*/) {
  const toml::node* node = state_->take(key);
  if (node == nullptr) {
    return;
  }
  const std::uint64_t scale = unit == TimeUnit::picoseconds ? 1 : 1000;
  std::optional<std::uint64_t> found;  // ps
  if (const auto* i = node->as_integer()) {
    if (i->get() >= 0 && static_cast<std::uint64_t>(i->get()) <= rule.maximum.count) {
      found = static_cast<std::uint64_t>(i->get()) * scale;
    }
  } else if (const auto* f = node->as_floating_point(); f != nullptr && unit == TimeUnit::nanoseconds) {
    // Fractions of a nanosecond are fine as long as they are whole picoseconds.
    const double ps = f->get() * 1e3;
    if (ps >= 0 && ps <= static_cast<double>(rule.maximum.count) && std::abs(ps - std::round(ps)) < 1e-6) {
      found = static_cast<std::uint64_t>(std::llround(ps));
    }
  }
  if (!found || *found < rule.minimum.count || *found > rule.maximum.count) {
    state_->wrong_type(state_->path_of(key), *node,
                       fmt::format("a time from {} to {}, in whole picoseconds", time_text(rule.minimum, unit),
                                   time_text(rule.maximum, unit)));
    return;
  }
  value = Picoseconds{*found};
}

void ConfigReader::texts(std::string_view key, std::vector<std::string>& value, const TextRule& rule,
                         ConfigNote /*note*/) {
  const toml::node* node = state_->take(key);
  if (node == nullptr) {
    return;
  }
  const std::string path = state_->path_of(key);
  const auto* array = node->as_array();
  if (array == nullptr) {
    state_->wrong_type(path, *node, "an array of texts, e.g. [\"a\", \"b\"]");
    return;
  }
  value.clear();
  for (std::size_t i = 0; i < array->size(); ++i) {
    const toml::node& item = *array->get(i);
    const auto* s = item.as_string();
    const std::string bad = s == nullptr ? "a text in quotes" : objection(s->get(), rule);
    if (!bad.empty()) {
      state_->wrong_type(fmt::format("{}.{}", path, i), item, bad);
      continue;
    }
    value.push_back(s->get());
  }
}

void ConfigReader::integers(std::string_view key, std::vector<std::uint64_t>& value, const IntegerRule& rule,
                            std::size_t maximum_count, ConfigNote /*note*/) {
  const toml::node* node = state_->take(key);
  if (node == nullptr) {
    return;
  }
  const std::string path = state_->path_of(key);
  const auto* array = node->as_array();
  if (array == nullptr) {
    state_->wrong_type(path, *node, "an array of numbers, e.g. [0, 0x6]");
    return;
  }
  if (array->size() > maximum_count) {
    state_->problem(path, *node, fmt::format("found {} elements", array->size()),
                    fmt::format("give at most {}", maximum_count));
    return;
  }
  value.clear();
  for (std::size_t i = 0; i < array->size(); ++i) {
    const toml::node& item = *array->get(i);
    const auto* n = item.as_integer();
    if (n == nullptr || !satisfies(n->get(), rule)) {
      state_->wrong_type(fmt::format("{}.{}", path, i), item, expectation(rule));
      continue;
    }
    value.push_back(static_cast<std::uint64_t>(n->get()));
  }
}

void ConfigReader::free_table(std::string_view key, std::map<std::string, std::string>& value, ConfigNote /*note*/) {
  const toml::node* node = state_->take(key);
  if (node == nullptr) {
    return;
  }
  const std::string path = state_->path_of(key);
  const auto* table = node->as_table();
  if (table == nullptr) {
    state_->wrong_type(path, *node, "a table, e.g. { depth = 16, mode = \"fast\" }");
    return;
  }
  value.clear();
  for (const auto& [name, item] : *table) {
    const std::string item_path = fmt::format("{}.{}", path, name.str());
    if (item.is_table() || item.is_array() || !(item.is_string() || item.is_number() || item.is_boolean())) {
      state_->wrong_type(item_path, item, "a text, a number, true or false");
      continue;
    }
    const auto* s = item.as_string();
    value[std::string(name.str())] = s != nullptr ? s->get() : describe_node(item);
  }
}

std::size_t ConfigReader::begin_list(std::string_view key, std::size_t size, std::size_t maximum,
                                     const char* /*meaning*/) {
  const toml::node* node = state_->take(key);
  const std::string path = state_->path_of(key);
  const toml::array* array = node == nullptr ? nullptr : node->as_array();
  const toml::table* numbers = node == nullptr ? nullptr : node->as_table();
  if (numbers != nullptr && node->source().begin.line == 0) {
    return state_->begin_list_of_overrides(path, *numbers, maximum);
  }
  if (node != nullptr && array == nullptr) {
    state_->wrong_type(path, *node, fmt::format("a list: a line [[{}]] for each element", path));
  }
  if (array != nullptr && array->size() > maximum) {
    state_->problem(path, *node, fmt::format("found {} elements", array->size()),
                    fmt::format("give at most {}", maximum));
    array = nullptr;
  }
  state_->frames.push_back({path, nullptr, array, {}});
  return array == nullptr ? (node == nullptr ? size : 0) : array->size();
}

void ConfigReader::begin_element(std::size_t index) {
  const State::Frame& list = state_->frames.back();
  const std::string path = fmt::format("{}.{}", list.path, index);
  const toml::table* table = nullptr;
  const toml::node* element = nullptr;
  if (list.array != nullptr && index < list.array->size()) {
    element = list.array->get(index);
  } else if (list.table != nullptr) {
    element = list.table->get(fmt::format("{}", index));
  }
  if (element != nullptr) {
    const toml::node& node = *element;
    table = node.as_table();
    if (table == nullptr) {
      state_->wrong_type(path, node, fmt::format("a table: a line [[{}]], and its keys below", list.path));
    }
    state_->problems.origins()[path] = state_->origin(path, node);
  }
  state_->frames.push_back({path, table, nullptr, {}});
}

void ConfigReader::end_element() {
  end_table();
}
void ConfigReader::end_list() {
  state_->frames.pop_back();
}

std::vector<unsigned> ConfigReader::begin_numbered(std::string_view key, const std::vector<unsigned>& present,
                                                   unsigned maximum, const char* meaning) {
  begin_table(key, meaning);
  std::vector<unsigned> numbers = present;
  State::Frame& frame = state_->frames.back();
  if (frame.table == nullptr) {
    return numbers;
  }
  for (const auto& [name, node] : *frame.table) {
    const std::optional<std::uint64_t> number = parse_unsigned(name.str());
    // Only the plain decimal form: "1" and "01" must not be two names of one thing.
    if (!number || *number > maximum || fmt::format("{}", *number) != name.str()) {
      frame.known.emplace_back(name.str());
      state_->problem(state_->path_of(name.str()), node, "not a number that exists here",
                      fmt::format("use [{}.N] with N from 0 to {}", frame.path, maximum));
      continue;
    }
    bool there = false;
    for (const unsigned n : numbers) {
      there = there || n == *number;
    }
    if (!there) {
      numbers.push_back(static_cast<unsigned>(*number));
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

void ConfigReader::begin_number(unsigned number) {
  begin_table(fmt::format("{}", number), nullptr);
}
void ConfigReader::end_number() {
  end_table();
}
void ConfigReader::end_numbered() {
  end_table();
}

}  // namespace orrery
