/* SPDX-License-Identifier: Apache-2.0
 *
 * What the program prints: lines for people, and for the host one line of JSON per result, which begins with
 * "ORRERY-JSON ". Every result has "test" (the sub-command), "name", "status" ("pass", "fail" or "skip") and facts.
 */
#ifndef ORRERY_GUESTS_PROGRAMS_REPORT_H
#define ORRERY_GUESTS_PROGRAMS_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One line for people. */
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* A JSON object under construction. Too long a line ends the program with a message. */
struct json {
  char text[65536];
  size_t used;
};

void json_begin(struct json* json, const char* test, const char* name);
void json_string(struct json* json, const char* key, const char* value); /* key null: an element of an array */
void json_number(struct json* json, const char* key, uint64_t value);
void json_signed(struct json* json, const char* key, int64_t value);
void json_bool(struct json* json, const char* key, bool value);
void json_open(struct json* json, const char* key, char bracket); /* '[' or '{' */
void json_close(struct json* json, char bracket);                 /* ']' or '}' */

enum verdict { PASS, FAIL, SKIP };

/* Ends the object, prints it, and counts the verdict; says "test name: verdict, detail" too. */
void report(struct json* json, enum verdict verdict, const char* format, ...) __attribute__((format(printf, 3, 4)));

/* A failure without further facts. */
void report_failure(const char* test, const char* name, const char* format, ...) __attribute__((format(printf, 3, 4)));

unsigned report_count(enum verdict verdict);

#endif
