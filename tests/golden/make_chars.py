#!/usr/bin/env python3
"""Writes worker/jinja/chars_table.c, the characters of Python's str as this Python has them (Python 3.11:
Unicode 14.0): tests/golden/make_chars.py >worker/jinja/chars_table.c"""
import sys
import unicodedata

ALL = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
SIGMA = "\u03a3"


def runs(items):
    """(first, last, stride, value) of [(code point, value)] with equal values, stride 1 or 2."""
    out = []
    for c, value in items:
        last = out[-1] if out else None
        if last and last[3] == value and c - last[1] in (1, 2) and last[2] in (0, c - last[1]):
            last[1], last[2] = c, c - last[1]
        else:
            out.append([c, c, 0, value])
    return [(a, b, s or 1, v) for a, b, s, v in out]


def final(text):
    return text.lower()[-1] == "\u03c2"


def write(name, kind, rows):
    print(f"\nconst struct {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        cell = "{" + ", ".join(str(x) for x in row) + "},"
        if len(line) + len(cell) > 99:
            print(line)
            line = "   "
        line += " " + cell
    print(line + "\n};")
    print(f"const int {name}_n = {len(rows)};")


def main():
    properties = {
        "jinja_chars_table_printable": str.isprintable,
        "jinja_chars_table_alpha": str.isalpha,
        "jinja_chars_table_decimal": str.isdecimal,
        "jinja_chars_table_digit": str.isdigit,
        "jinja_chars_table_numeric": str.isnumeric,
        "jinja_chars_table_upper": str.isupper,
        "jinja_chars_table_lower": str.islower,
        "jinja_chars_table_cased": lambda c: final(c + SIGMA),
        "jinja_chars_table_ignorable": lambda c: not final(c + SIGMA) and final("A" + c + SIGMA),
    }
    print("/* chars_table.c: written by tests/golden/make_chars.py from Unicode "
          f"{unicodedata.unidata_version}. */")
    print('#include "worker/jinja/chars_table.h"\n')
    print("// clang-format off")
    for name, has in properties.items():
        rows = runs([(ord(c), 0) for c in ALL if has(c)])
        write(name, "chars_run", [r[:3] for r in rows])
    several = []
    for name, to in (("upper", str.upper), ("lower", str.lower), ("title", str.title)):
        one = [(ord(c), ord(to(c)) - ord(c)) for c in ALL if len(to(c)) == 1 and to(c) != c]
        write(f"chars_table_to_{name}", "chars_shift", runs(one))
        for c in ALL:
            if len(to(c)) > 1:
                cells = [ord(x) for x in to(c)] + [0] * (3 - len(to(c)))
                several.append((ord(c), "CASE_" + name.upper(), "{" + ", ".join(map(str, cells)) + "}"))
    write("jinja_chars_table_several", "chars_several", sorted(several))


sys.exit(main())
