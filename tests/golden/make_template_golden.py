#!/usr/bin/env python3
"""Writes tests/golden/templates.jsonl: small templates that use every construct, and what jinja2 makes of
them as transformers calls it: tests/golden/make_template_golden.py >tests/golden/templates.jsonl

The first line has the variables; then {"template", "out", "spans"}, or "error" for an exception with what
raise_exception said, or "refused" for what does not compile. Needs transformers and jinja2."""
import json
import sys

from check_templates import compile_template, render

VARIABLES = {
    "a": [1, 2, 3], "s": "Hello w\u00f6rld", "d": {"b": 1, "A": [1, {"x": None}], "c": "q"}, "n": 7, "f": 2.5,
    "t": True, "z": None, "e": "", "big": 1e22, "sm": 1.5e-7, "neg": -7, "lst": ["b", "A", "c", "a"],
    "msgs": [{"role": "user", "content": "x"}, {"role": "Bot", "content": "y", "n": 3}],
    "items": [[1, 2], [3, 4]],
}

EXPRESSIONS = r"""
1 ~ 2 ~ none
-7 // 2
-7 % 3
7 / 2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
1 < 2 < 3
1 < 3 < 2
1 == 1.0
true + 1
1 if false
1 if false else 2
a[-1]
a[5]
a[::-1]
a[1:]
a[:-1]
a[-2:10]
a[3:1:-1]
s[::-1]
s[1:4]
s[-3:]
s[::2]
s[7]
s[20]
s[-5:-2]
d
d.A
d['A'][1].x
d.items()
d.keys()
d.values()
d.items() | list
d | list
d | items | list
d | dictsort
d | dictsort(true)
d | dictsort(by='value')
d | dictsort(false, 'key', true)
d | length
d.get('b')
d.get('zz')
d.get('zz', 4)
d.b is defined
d.zz is defined
d.zz.y
zz
zz is undefined
zz | default('x')
e | default('x')
e | default('x', true)
z | default('x')
z | d('x', boolean=true)
[zz, 1]
{'a': zz}
'a' in d
'a' in s
1 in a
4 not in a
not 1 in a
none in [none]
zz in a
'a' in zz
1 in s
'' in s
s.upper()
s | upper
s | title
'foo bar-baz (qux) [a {b <c ' | title
"they're bill's" | title
"they're bill's".title()
s | capitalize
'ǆ ß ŉ'.capitalize()
'ß ŉ ﬁ ΑΣ ΑΣΑ ' | upper
'ΑΣ ΑΣΑ Σ. ΑΣ. İ' | lower
'ΑΣ.Β ΑΣ:' | lower
s.split()
s.split('l')
s.split('l', 1)
s.rsplit('l', 1)
' a  b c '.split(none, 1)
' a  b c '.rsplit(none, 1)
' a  b '.split(' ')
'a\nb\r\nc\n'.splitlines()
'a\nb\r\nc\n'.splitlines(true)
'xxabcxx'.strip('x')
'xxabcxx'.lstrip('x')
'xxabcxx'.rstrip('xc')
'  a ' | trim
'xxax' | trim('x')
'  a ' | trim | length
s.startswith('Hello')
s.startswith(('a', 'Hello'))
s.startswith('ello', 1)
s.endswith('d')
s.find('ö')
s.find('zz')
s.find('l', 4)
s.rfind('l')
s.index('zz')
s.count('l')
s.replace('l', 'L')
s.replace('l', 'L', 1)
s.replace('', '-')
s | replace('l', 'L')
s | replace('l', 'L', 2)
s | replace('', '.', 3)
', '.join(['a', 'b'])
', '.join(a)
a | join(', ')
a | join
msgs | join(', ', attribute='role')
msgs | map(attribute='role') | list
msgs | map(attribute='n') | list
msgs | map(attribute='n', default=0) | list
a | map('string') | list
lst | map('upper') | join
lst | map('replace', 'a', 'z') | list
msgs | selectattr('role', 'equalto', 'user') | list
msgs | selectattr('n') | list
msgs | selectattr('n', 'defined') | list | length
msgs | rejectattr('n', 'undefined') | map(attribute='content') | first
a | select('odd') | list
a | reject('eq', 2) | list
a | select('>', 1) | list
[0, 1, '', 'x'] | select | list
a | map('zork') | list
a | select('zork') | list
a | first
a | last
[] | first
[] | last
s | first
s | last
d | first
a | reverse | list
s | reverse
lst | sort
lst | sort(reverse=true)
lst | sort(case_sensitive=true)
msgs | sort(attribute='content')
msgs | sort(attribute='role,content')
msgs | sort(attribute='n')
[3, 'a'] | sort
['a', 'A', 'b'] | unique | list
[1, 1.0, true, 2] | unique | list
a | sum
a | sum(start=10)
msgs | sum(attribute='n')
a | min
a | max
lst | min
[] | max
a | batch(2) | list
a | batch(2, 'x') | list
3.7 | int
'42' | int
'42.9' | int
'x' | int
'x' | int(5)
'0x1f' | int(base=16)
'ff' | int(0, 16)
' 12 ' | int
'1_000' | int
none | int
true | int
zz | int
'1e3' | int
'3.5' | float
'x' | float
'nan' | float
'inf' | float
1 | float
42.55 | round
42.55 | round(1)
42.55 | round(1, 'floor')
42.55 | round(1, 'ceil')
2.5 | round
3.5 | round | int
7 | round
-3 | abs
-3.5 | abs
'x' | abs
s | length
s | count
n | length
zz | length
s | wordcount
'a-b c_d é' | wordcount
s | center(21)
'ab' | center(5)
'abc' | center(6)
'foo bar baz qux' | truncate(9)
'foo bar baz qux' | truncate(9, true)
'foo bar baz qux' | truncate(11)
'foo bar baz qux' | truncate(9, true, '..', 0)
'a\nb\n\nc' | indent
'a\nb\n\nc' | indent(2, true)
'a\nb\n\nc' | indent(2, first=true, blank=true)
'a\nb' | indent('> ')
'a\n' | indent
d | tojson
d | tojson(indent=2)
d | tojson(ensure_ascii=true)
s | tojson(ensure_ascii=true)
s | tojson(true)
'😀\x7f\x01"\\/<>&' | tojson
'😀\x7f\x01"\\/<>&' | tojson(ensure_ascii=true)
d | tojson(separators=(',', ':'))
d | tojson(indent=4, separators=(',', ': '), sort_keys=true)
[] | tojson(indent=2)
{} | tojson(indent=2)
[[]] | tojson(indent='\t')
[1.0, 1e100, 1.5e-7, -0.0, 1e16, 123456789012345680.0, 0.1, 100000.0] | tojson
[1.0, 1e100, 1.5e-7, -0.0, 1e16, 1e15, 123456789012345680.0, 0.1, 0.0001, 0.00001]
{1: 2, 1.5: 3, true: 4, none: 5} | tojson
{(1, 2): 3} | tojson
{(1, 2): 3}
zz | tojson
(1, 2) | tojson
(1,)
()
(1, 2)
'it\'s'
["it's", 'say "hi"', 'both \' "', 'tab\t\n\\', 'é\u200d\xa0\x00😀']
big
sm
neg
f
t
z
1_000
0x1F
0b11
1.5e3
1e5
5 is number
5 is integer
5.0 is integer
true is number
true is integer
true is boolean
5.0 is float
s is string
s is iterable
s is sequence
d is mapping
d is iterable
d is sequence
d.items() is sequence
5 is iterable
zz is iterable
zz is sequence
none is none
none is defined
5 is odd
5 is even
6 is divisibleby 3
6 is divisibleby(4)
5 is not none
5 is eq 5
5 is in [5]
5 is sameas 5
true is sameas true
1 is true
true is true
false is false
0 is false
'abc' is lower
'ABC' is upper
'Abc' is lower
'123' is upper
range is callable
zz is callable
s is callable
5 is equalto(5) and true
not 5 is odd
5 > 'a'
none < 1
'a' < 'b'
[1, 2] < [1, 3]
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{'a': 1} == {'a': 1.0}
zz == zz
zz == none
zz + 1
zz ~ 1
zz or 'x'
'' or 0 or none
1 and 2
a + [4]
a + (4,)
(1,) + (2,)
a * 2
'ab' * 3
3 * 'ab'
'ab' * -1
'a' + 1
'a' * 1.5
1 // 0
1 % 0
1.0 / 0
7.5 // 2
-7.5 % 2
7 % -3
2 ** 0.5
-n
+n
-s
- -n
range(5)
range(5) | list
range(1, 10, 3) | list
range(5, 0, -2) | list
range(5)[1]
range(5)[1:3]
range(5) | length
3 in range(5)
range(100001)
range(100000) | length
range(0)
range(1, 5, 2)
range(0, 10, 3)
range(10, 0, -3)
range(5, 1)
range(0, 10, 3)[::2]
range(0, 10, 3)[1:]
range(0, 10, 3)[::-1]
range(0, 10, 2)[7:]
range(0, 10, 2)[:2][:1]
range(-9223372036854775807, 9223372036854775807, 4611686018427387904) | list
range(-9223372036854775807, 9223372036854775807, 4611686018427387904)[3]
2.5 ** 2
2.0 ** -1
(-8.0) ** 3
0.0 ** 0
0.0 ** 2.5
0.0 ** -1
0.0 ** (-1e308 * 10)
0 ** -1
1e200 ** 2
10.0 ** 400
2 ** -2000
(-8.0) ** -3
1e308 * 10
dict(a=1, b=2)
dict({'x': 1}, y=2)
dict([('a', 1)])
namespace(a=1)
namespace(a=1).a
namespace(_a=1)
raise_exception('bad ' ~ n)
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %H:%M')
'%s is %d' % ('x', 5)
'%s' % s
'100%% %s' % 1
'%s %s' % (1,)
'{} {}'.format(1, 'a')
'{0} {1} {0}'.format(1, 2)
'{a}'.format(a=5)
'a,b'.partition(',')
'a,b,c'.rpartition(',')
'ab'.zfill(5)
'-5'.zfill(5)
'ab'.ljust(5) ~ '|'
'ab'.rjust(5, '*')
'12'.isdigit()
'²'.isdigit()
'½'.isnumeric()
'ab1'.isalnum()
'é'.isalpha()
' '.isspace()
''.isspace()
'Ab'.isupper()
'AB1'.isupper()
'prefix-x'.removeprefix('prefix-')
'prefix-x'.removesuffix('-x')
'<b>' | e
'<b>' | escape ~ '<'
('<b>' | safe) + '<i>'
'<i>' + ('<b>' | safe)
('<b>' | safe) ~ '<i>'
('a<b' | safe).replace('a', '<')
('a b' | safe).split()
['x' | safe]
('x' | safe | upper) + '<'
(s | safe)[1:3] + '<'
a.append(4)
a.index(2)
a.count(2)
a.index(9)
d.pop('b')
d.update({})
a.append
d.__class__
s.__len__
s._x
msgs[0].role
msgs[0]['role']
msgs[0].get('role')
msgs[0]['zz']
msgs['x']
msgs.0.role
none.x
none['x']
none.x.y
d[1:]
zz[0]
zz.x
zz()
n()
s()
d[[1]]
'a' 'b'
'\x41\u00e9\U0001F600\101\q\''
[1, 2,]
{'a': 1,}
(1, 2,)
a | join(', ') | upper
(a | join(', ')).split(', ') | map('int') | list
items | map('first') | list
items | map(attribute=1) | list
items | map(attribute='0') | list
a is iterable and d is mapping or z
not a
(a | select('odd')) | list | length
d | attr('b')
[1, 2, 3] | string
d | string | length
none | string
[none, true] | string
a | map('float') | sum
1 in d
a | list is sequence
a | map('abs') is sequence
lst | join | lower
"a" < 1
1.0 == true
{1: 'a', 1.0: 'b', true: 'c'}
123456789 * 1000
1.1 + 2.2
1e308 * 10
-0.0
0.1 + 0.2
100 / 3
5 // 2.0
s is in 'Hello wörld!'
'a' ~ 'b' + 'c'
'a' + 'b' ~ 'c'
1 + 2 ~ 3
1 ~ 2 * 3
-1 | abs
-1.5 | abs | int
not none is none
a[n - 5]
a['x']
a[1.0]
a[true]
s[true]
{'true': 1}[true]
'%5d|%-5d|%05.1f' % (3, 4, 2.25)
"\é"
{'a': {'b': 1}}
{'a': {'b': 1}}.a.b
n | zork
1 is zork

1 +
(1
1)
'x
a b
1 = 2
f(a=1, 2)
m(**d, 1)
'a' if n else 'b' if t else 'c'
('a' if z) is defined
a | map('default', 'x') | list
a|join('-')|length
1.5.x
1.0
5.0|int
a is not string and a is not mapping
n is not defined or n
msgs | selectattr('role', 'in', ['user', 'x']) | list | length
namespace(a=1) == namespace(a=1)
[1] in [[1]]
d.A[1].x is none
5 is ne 5
5 is lt 6
5 is lessthan(4)
5 is le 5
5 is gt 4
5 is greaterthan 'x'
5 is ge 6
a | select('==', 2) | list
a | select('!=', 2) | list
a | select('<=', 2) | list
a | select('>=', 2) | list
'ÀB'.lower()
'abcabc'.rindex('b')
'abc'.rindex('z')
'٣'.isdecimal()
'²'.isdecimal()
'ab1'.islower()
'ǅ'.islower()
d.copy()
a.copy()
a | batch(0) | list
'a b c'.split(none, 0)
'a b c'.rsplit(none, 0)
'a,b'.split('')
'abc'[::-2]
'aéb'[1]
'aéb'[-2:]
'aéb'.find('b')
'😀é'[::-1]
a[::0]
a['1':]
a[none:2]
a[-100:100]
a[100:-100:-1]
s | replace('ö', 'oe') | title
'%d' % 'x'
'%q' % 1
'a' if a else b
a | sort(attribute=0)
(a | map('string') | list)[0] is string
{'x': a}['x'][0]
msgs | map(attribute='content') | join('|')
[1, 'x', none, 2.5, true] | map('string') | join(',')
'true' == true | string | lower
1 if not z else 2
'\a\b\f\v\r' | tojson
[1e16, 1e-5, 123456789.123, 5e-324, 1.7976931348623157e308]
(0.1 + 0.2) | round(2)
1e15 + 0.5
-1 // 3 ~ -1 % 3
7.0 // 2 ~ '|' ~ 7.0 % -2
d | items | first
d.items() | first
a is sequence and d is not sequence
zz is none
z is none
'a' in {'a': 1}.keys()
1 in {'a': 1}.values()
('a', 1) in {'a': 1}.items()
d.keys() | list | sort
'x' in zz.y
dict(a=1).a + dict(a=2)['a']
'abc' | first ~ ('abc' | last)
s | trim('Hd') | upper
"""

TEMPLATES = [
    "{{ '{{}}'.format() }}",
    '{% for x in a %}{{ loop.index0 }}{{ loop.index }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}',
    '{% for x in a if x != 2 %}{{ loop.index }}/{{ loop.length }} {{ x }} {{ loop.last }}{% else %}none{% endfor %}',
    '{% for x in a if x != 2 %}{{ loop.index }} {{ x }} {{ loop.last }} {{ loop.nextitem }} {{ loop.previtem }} {{ loop.length }},{% endfor %}',
    '{% for x in [] %}x{% else %}none{% endfor %}',
    '{% for x in a %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% else %}none{% endfor %}',
    '{% for x in a %}{% break %}{% else %}none{% endfor %}',
    '{% for x in a %}{% continue %}{% else %}none{% endfor %}',
    '{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}',
    '{% for k, v in d | items %}{{ k }}={{ v }};{{ loop.last }}{% endfor %}',
    '{% for (k, v) in items %}{{ k }}={{ v }};{% endfor %}',
    '{% for k, v in a %}{% endfor %}',
    '{% for c in s %}{{ c }},{% endfor %}',
    '{% for k in d %}{{ k }},{% endfor %}',
    '{% for x in zz %}x{% endfor %}',
    '{% for x in n %}x{% endfor %}',
    '{% for x in none %}x{% endfor %}',
    "{% for x in a %}{{ loop.cycle('odd', 'even') }}{{ loop.changed(x // 2) }}{% endfor %}",
    '{% for x in [1,[2,[3]]] recursive %}{% if x is iterable %}[{{ loop(x) }}]{% else %}{{ x }}@{{ loop.depth }}{{ loop.depth0 }}{% endif %}{% endfor %}',
    '{% for x in a %}{{ loop(x) }}{% endfor %}',
    '{% set x = 1 %}{% for i in a %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}',
    '{% set ns = namespace(x=0) %}{% for i in a %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}',
    '{% set ns.x = 1 %}',
    '{% set d.x = 1 %}',
    '{% set ns = namespace() %}{% set ns._x = 1 %}',
    '{% set a, b = 1, 2 %}{{ b }}{{ a }}',
    '{% set a, b = [1,2,3] %}',
    '{% set ns=namespace(a=1) %}{% set ns.a, q = 5, 6 %}{{ ns.a }}{{ q }}{{ ns }}',
    '{% set x %}a {{ n }} b{% endset %}[{{ x }}]',
    '{% set x | upper | trim %} a {{ n }} b {% endset %}[{{ x }}]',
    '{% set x %}{% set y = 3 %}{% endset %}{{ y }}',
    '{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}',
    '{% if zz %}a{% else %}b{% endif %}',
    '{% if n > 9 %}a{% elif n > 3 %}b{% else %}c{% endif %}',
    '{% if n %}{% set q = 1 %}{% endif %}{{ q }}',
    '{% macro m(a, b=2, c=a) %}{{ a }},{{ b }},{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=5) }}{{ m(b=1) }}{{ m(c=1, a=2) }}',
    '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}',
    '{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q=2) }}',
    '{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m() }}',
    '{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body {{ n }}{% endcall %}',
    '{% macro m() %}<{{ caller(5) }}>{% endmacro %}{% call(x) m() %}body {{ x }}{% endcall %}{{ m() }}',
    '{% macro m(x) %}{{ x }}{{ n }}{{ q }}{% endmacro %}{% set q = 3 %}{{ m(1) }}',
    '{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}',
    '{% macro m(x) %}{% set n = x %}{{ n }}{% endmacro %}{{ m(1) }}{{ n }}',
    '{{ m(1) }}{% macro m(x) %}{{ x }}{% endmacro %}',
    "{% macro m(x='d') %}{{ x }}{% endmacro %}{{ m(none) }}{{ m(zz) }}{{ m.name }}{{ m.arguments }}",
    '{% for x in a %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}',
    "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'x': 2}) }}",
    '{% with q = 1, r = n %}{{ q }}{{ r }}{% endwith %}{{ q }}',
    '{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}',
    '{% filter upper %}a{{ n }}b{% endfilter %}',
    "{% filter replace('a', 'b') | upper %}aa{% endfilter %}",
    '{% print n, s %}',
    '{% raw %}{{ x }}{% endraw %}',
    'a {%- raw -%} {{ x }} {%- endraw -%} b',
    '  {% raw %}\n x\n  {% endraw %}\ny',
    '{# comment #}a{#- c -#} b',
    'a\n  {# c #}\nb',
    'a\n  {% if n %}\n  b\n  {% endif %}\nc\n',
    'a\n  {%+ if n %}\n  b{% endif +%}\nc',
    'a  {%- if n -%}  b  {%- endif -%}  c',
    '{{ n -}}   x',
    'x   {{- n }}',
    'x \n {{ n }} \n y',
    '\n\n{{ n }}\n\n',
    '{% if n %}\n\na{% endif %}\n\n',
    '  {% if n %}x{% endif %}',
    'q  {% if n %}x{% endif %}',
    '{{ n }}\n  {% if n %}x{% endif %}',
    '{{ n }}  {% if n %}x{% endif %}\n',
    '{% if n %}a{% endif %}  {% if n %}b{% endif %}',
    'a\r\nb\rc\n',
    "{{ '}}' }}{{ '{%' }}",
    '{% generation %}x{% endgeneration %}',
    'ab{% for m in msgs %}é{% generation %}{{ m.content }}ü{% endgeneration %}{% endfor %}z',
    '{% for m in msgs %}{% generation %}{% set q = 1 %}{% endgeneration %}{{ q }}{% endfor %}',
    '{% generation %}{{ loop }}{% endgeneration %}',
    '{%- generation -%} x {%- endgeneration -%}',
    '{% zork %}',
    '{% if n == 0 %}{{ n | zork }}{% endif %}ok',
    '{% if n %}{{ n | zork }}{% endif %}',
    '{% if n %}',
    '{% endif %}',
    '{{ n',
    '{% for %}',
    '{% break %}',
    '{% for x in a %}{% endif %}{% endfor %}',
    '{# x',
    '{% set 1 = 2 %}',
    '{% raw %}x',
    '{% macro m(a=1, b) %}{% endmacro %}',
    '{% set loop = 5 %}{{ loop }}',
    '{% for loop in a %}{{ loop }}{% endfor %}',
    '{% for x in a %}{% for y in a %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}',
    "{% set g = a | map('string') %}{{ g | list }}{{ g | list }}",
    '{% set g = a | reverse %}{% for x in g %}{{ x }}{{ loop.length }}{% endfor %}{% for x in g %}{{ x }}{% endfor %}',
    '{% set x = zz %}{{ x is defined }}{{ x }}',
    '{% set messages = msgs[1:] %}{{ messages | length }}',
    '{% if a is defined and a | length > 2 %}yes{% endif %}',
    "{{ 'x' if z }}y",
    '{% set x = d.items() %}{{ x | list | length }}{{ x | length }}{{ x[0] }}',
    '{% for x in a -%}\n  {{ x }}\n{%- endfor %}\n',
    "{{- '' -}}  a",
    '{%- set x = 1 -%}\n\n{{ x }}\n',
    '{% if true %}\n{% if true %}\n  x\n{% endif %}\n{% endif %}\n',
    '\xa0 {%- if n %}x{% endif %}',
    'a\u2003\n {% if n %}x{% endif -%} \u2003 b',
    '{{ s }}{% if n %}\t{% endif %}',
    '{%if n%}x{%endif%}',
    '{% if n: %}x{% endif %}',
    '{% for x in a: %}{{x}}{% endfor %}',
    '{{a.0}}{{ items.1.0 }}',
    '{% set ns = namespace(l=[]) %}{% for x in a %}{% set ns.l = ns.l + [x * 2] %}{% endfor %}{{ ns.l }}',
    '{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}',
    '{% set x = 5 if n > 100 %}{{ x is defined }}',
    '{{ not t }}{{ not not t }}',
    "{% for m in msgs if m.role == 'user' %}{{ loop.index0 }}{{ m.content }}{% endfor %}",
    '{% set a = [1, 2] %}{% set _ = a.append(3) %}{{ a }}',
    '{% do a.append(1) %}',
    '{{ "x\\\ny" }}',
]


def main():
    print(json.dumps(VARIABLES))
    for source in ["{{ " + x + " }}" for x in EXPRESSIONS.split("\n")[1:-1]] + TEMPLATES:
        row = {"template": source}
        try:
            t = compile_template(source)
        except Exception as e:
            t = None
            row["refused"] = type(e).__name__
        if t:
            out, spans, error, raised = render(t, VARIABLES)
            if error is None:
                row["out"] = out.decode()
                if spans:
                    row["spans"] = spans
            else:
                row["error"] = raised or ""
        print(json.dumps(row))


sys.exit(main())
