/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned counts[3];
static const char* const verdict_names[] = {"pass", "fail", "skip"};
static const char* current_test = "";
static const char* current_name = "";

void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  putchar('\n');
  fflush(stdout);
}

static void add(struct json* json, const char* format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct json* json, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(json->text + json->used, sizeof(json->text) - json->used, format, arguments);
  va_end(arguments);
  if (length < 0 || (size_t)length >= sizeof(json->text) - json->used) {
    fprintf(stderr, "orrery-guest-demo: a result is too long for one line\n");
    exit(2);
  }
  json->used += (size_t)length;
}

static void add_quoted(struct json* json, const char* value) {
  add(json, "\"");
  for (const unsigned char* c = (const unsigned char*)value; *c != 0; ++c) {
    if (*c == '"' || *c == '\\') {
      add(json, "\\%c", *c);
    } else if (*c < 0x20 || *c > 0x7e) {
      add(json, "\\u%04x", *c);
    } else {
      add(json, "%c", *c);
    }
  }
  add(json, "\"");
}

/* Separator and key before a value. */
static void add_key(struct json* json, const char* key) {
  const char last = json->used == 0 ? '{' : json->text[json->used - 1];
  if (last != '{' && last != '[') {
    add(json, ",");
  }
  if (key != NULL) {
    add_quoted(json, key);
    add(json, ":");
  }
}

void json_begin(struct json* json, const char* test, const char* name) {
  json->used = 0;
  add(json, "{");
  current_test = test;
  current_name = name;
  json_string(json, "test", test);
  json_string(json, "name", name);
}

void json_string(struct json* json, const char* key, const char* value) {
  add_key(json, key);
  add_quoted(json, value);
}

void json_number(struct json* json, const char* key, uint64_t value) {
  add_key(json, key);
  add(json, "%" PRIu64, value);
}

void json_signed(struct json* json, const char* key, int64_t value) {
  add_key(json, key);
  add(json, "%" PRId64, value);
}

void json_bool(struct json* json, const char* key, bool value) {
  add_key(json, key);
  add(json, value ? "true" : "false");
}

void json_open(struct json* json, const char* key, char bracket) {
  add_key(json, key);
  add(json, "%c", bracket);
}

void json_close(struct json* json, char bracket) {
  add(json, "%c", bracket);
}

void report(struct json* json, enum verdict verdict, const char* format, ...) {
  char detail[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(detail, sizeof(detail), format, arguments);
  va_end(arguments);
  ++counts[verdict];
  json_string(json, "status", verdict_names[verdict]);
  json_string(json, "detail", detail);
  add(json, "}");
  say("%s %s: %s, %s", current_test, current_name, verdict_names[verdict], detail);
  printf("ORRERY-JSON %s\n", json->text);
  fflush(stdout);
}

void report_failure(const char* test, const char* name, const char* format, ...) {
  static struct json json;
  char detail[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(detail, sizeof(detail), format, arguments);
  va_end(arguments);
  json_begin(&json, test, name);
  report(&json, FAIL, "%s", detail);
}

unsigned report_count(enum verdict verdict) {
  return counts[verdict];
}
