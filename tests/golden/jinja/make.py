"""Makes expressions.jsonl, rendered.jsonl and contexts.jsonl beside this file: what Jinja2 (with transformers' and lm-evaluation-harness's settings) prints for the templates in templates/ with the chats in chats.json, and for the small templates listed here. Run: python make.py (needs transformers 5.24.0 and jinja2 3.1.6)."""

import json
import os
import platform
import re
from datetime import datetime as real_datetime
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import jinja2
import transformers
from transformers.utils import chat_template_utils as ctu

HERE = Path(__file__).resolve().parent
NOW = "2026-03-05T07:08:09"


class FixedDatetime(real_datetime):
    @classmethod
    def now(cls, tz=None):
        return real_datetime.fromisoformat(NOW)


ctu.datetime = FixedDatetime

# The values that the small templates may name; each case gets only those whose name occurs in it.
VALUES = {
    "s": "Hello World",
    "t": "  a \"b\" 'c'\n",
    "uni": "Straße ﬁn İi ǆ éé 日本 🙂",
    "ctl": "\x00\x07\x1b\x7f\x85\xa0\xad\u200b\u2028\ufeff\U000e0001\\",
    "html": "<a href='x'>&\"</a>",
    "ws": "\x1c a\x0bb\x0cc\rd\r\ne\x85f\u2028g\u2029h\u3000\x1f",
    "empty": "",
    "n": 7,
    "neg": -7,
    "big": 123456789012345678901234567890,
    "f": 2.5,
    "z": 0,
    "yes": True,
    "no": False,
    "nil": None,
    "li": [3, 1, 2],
    "ls": ["b", "A", "c", "a", "B"],
    "mixed": [1, "1", 1.0, True, None, [], {}],
    "nest": [[1, 2], [3, [4, "x"]], []],
    "d": {"b": 1, "a": "x", "items": [1], "keys": None, "A": 2.5},
    "dn": {"x": {"y": {"z": [10, 20]}}, "1": "one", "it's": "q\"q"},
    "ppl": [{"name": "Bob", "age": 30, "city": "x"}, {"name": "ann", "age": 25, "city": "Y"}, {"name": "Cid", "age": 30, "city": "X"}, {"name": "dee"}],
    "gr": [{"k": "b", "v": 1}, {"k": "a", "v": 2}, {"k": "B", "v": 3}, {"k": "b", "v": 4}],
    "deep": {"a": [1, 2.0, None, True, {"ü": "é\u2028<&>'\"/", "e": [], "o": {}}], "b": 1e100, "c": -0.0},
    "long": "The quick brown fox jumps over the lazy dog, and-then-some-hyphenated words follow.",
    "url": "See https://pytorch.org/a?b=c&d=e, or www.example.org and me@example.com (http://localhost).",
    "i64": 9223372036854775807,
}

# One template a line.
LINES = {}
LINES["printing"] = r"""
{{ true }} {{ false }} {{ none }} {{ True }} {{ False }} {{ None }}
{{ 1e16 }} {{ 1e15 }} {{ 123456789012345680.0 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1e-4 }}
{{ 0.1 + 0.2 }} {{ -0.0 }} {{ 1.0 }} {{ 100.0 }} {{ 1e22 }} {{ 1.5e300 }} {{ 5e-324 }}
{{ 1e308 * 10 }} {{ -1e308 * 10 }} {{ (1e308 * 10) - (1e308 * 10) }}
{{ [1e308 * 10, -(1e308 * 10)] }}
{{ 'inf' | float }} {{ '-inf' | float }} {{ 'nan' | float }} {{ 'Infinity' | float }}
{{ 3.14159265358979 }} {{ 2.675 }} {{ 1/3 }} {{ 2/3 }} {{ 1e3 }} {{ 1E3 }} {{ 1.5e+3 }}
{{ [] }} {{ {} }} {{ () }} {{ (1,) }} {{ (1, 2) }} {{ [[]] }} {{ [()] }}
{{ [1, 2.0, 'a', true, none, [1], {'k': 'v'}, (1, 'x')] }}
{{ ['a\'b', 'a"b', 'a\'b"c', "it's"] }}
{{ {'a': 'it\'s', "q\"": none, 1: 2.5, (1, 2): [3]} }}
{{ {true: 1, none: 2, 1.5: 3} }}
{{ ['\n\t\r\\', '\x00\x1f\x7f', 'é', '日', '\u200b', '\xa0', '\xad', '\u2028', '\ufeff'] }}
{{ [ctl] }}
{{ ctl }}
{{ [uni] }} {{ uni }}
{{ t }}|{{ [t] }}
{{ mixed }}
{{ nest }}
{{ d }}
{{ dn }}
{{ deep }}
{{ big }} {{ -big }} {{ [big] }}
{{ nil }}|{{ yes }}|{{ no }}
{{ [nil, yes, no] }}
{{ missing }}|{{ [missing] }}|{{ {'a': missing} }}
{{ [missing.__class__] }}
{{ d.items() }}
{{ d.keys }}|{{ {'a': 1}.keys() }}
{{ {'a': 1, 'b': [2]}.items() }} {{ {'a': 1}.values() }}
{{ range(5) }} {{ range(1, 9, 2) }} {{ [range(3)] }} {{ range(0) }}
{{ range(1, 9, 1) }} {{ range(5, 0, -2) | list }}
{{ '🙂' }}{{ ['🙂\U0001F600'] }}
{{ ['\ud83d'] }}
{{ ['\U000e0001', '\u0378', '\ue000', '\u0301', '\u3000'] }}
{{ 'a' 'b' "c" }}
{{ namespace(a=1, b='x') }}
{{ namespace({'a': [1]}, b=none) }}
{{ dict(a=1, b='x') }} {{ dict({'z': 1}, y=2) }} {{ dict([('a', 1), ['b', 2]]) }} {{ dict() }}
{{ dict.fromkeys(['a', 'b'], 0) }} {{ dict.fromkeys('ab') }}
{{ dict }}
{{ namespace }}
{{ range }}
{{ cycler }}
{{ lipsum }}
{{ joiner }}
{{ loop }}
{{ self }}
{{ caller }}
{{ s.upper }}
{{ [1, 2] | map('string') }}
{{ true ~ none ~ 1.0 ~ [1, 'a'] ~ {'b': none} ~ (1,) }}
{{ 'x' ~ missing ~ 'y' }}
{{ (none,) }} {{ ('a', 'b') }} {{ ((),) }}
{{ 1,2 }}
{{ 1, }}
{{ 'abc' | list }} {{ 'é' | list }}
{{ 'tab\tx' }}|{{ 'nl\nx' }}|{{ 'bs\\x' }}|{{ 'q\'x' }}|{{ "q\"x" }}
{{ '\x41\u00e9\U0001F642\101\0' | list }}
{{ '\a\b\f\v' | list }}
{{ '\d\q\{' }}
{{ '\N{BULLET}' }}
{{ '\u12' }}
{{ 'é\u00e9\xe9' }}
{{ "a\
b" }}
{{ 1_000 }} {{ 1_0.0_1 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 0X1f }} {{ 0x_ff }} {{ 1_0e1_0 }}
{{ 007 }}
{{ 1__0 }}
{{ 1_ }}
{{ .5 }}
{{ 5. }}
{{ 1.e3 }}
{{ 1e }}
{{ 3.real }}
{{ (3).real }}|{{ n.real }}|{{ n.imag }}|{{ n.numerator }}
{{ f.is_integer() }} {{ (4.0).is_integer() }} {{ n.bit_length() }} {{ f.as_integer_ratio() }} {{ f.hex() }}
{{ 9223372036854775808 }} {{ -9223372036854775808 }} {{ 18446744073709551616 }}
{{ 340282366920938463463374607431768211456 }}
"""
LINES["operators"] = r"""
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ -7 // -2 }} {{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ neg // 2 }}
{{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ -7 % -3 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }} {{ neg % 3 }} {{ 5.5 % -2 }}
{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ (-2) ** 2 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 0 ** 0 }} {{ 2.0 ** 3 }}
{{ (-8) ** 0.5 }}
{{ 0 ** -1 }}
{{ 2 ** 100 }} {{ 2 ** 64 - 1 }} {{ 3 ** 50 // 7 }} {{ -(2 ** 70) % 1000 }}
{{ 10 ** 5000 }}
{{ 2.0 ** 5000 }}
{{ 7 / 2 }} {{ 6 / 2 }} {{ 1 / 3 }} {{ -1 / 2 }} {{ 10 / 5.0 }} {{ big / 10 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 / 0 }}
{{ 1.0 // 0 }}
{{ 1.5 % 0 }}
{{ z and 1 / z }}
{{ n / z }}
{{ 1 + 2 }} {{ 1 + 2.0 }} {{ true + 1 }} {{ true + true }} {{ 1 - true }} {{ 3 * true }} {{ false * 5.0 }}
{{ 'a' + 'b' }} {{ 'a' * 3 }} {{ 3 * 'ab' }} {{ 'a' * 0 }} {{ 'a' * -1 }} {{ 'a' * true }}
{{ [1] + [2] }} {{ [1, 2] * 2 }} {{ 2 * [0] }} {{ (1,) + (2,) }} {{ (1, 2) * 2 }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ [1] + (2,) }}
{{ [1] + 'a' }}
{{ none + 1 }}
{{ 1 + none }}
{{ 'a' + none }}
{{ 'a' + missing }}
{{ missing + 'a' }}
{{ d + d }}
{{ {} + [] }}
{{ 'a' * 1.5 }}
{{ 'a' * 'b' }}
{{ [1] - [1] }}
{{ 'a' - 'b' }}
{{ -'a' }}
{{ +n }} {{ -n }} {{ - -n }} {{ +true }} {{ -true }} {{ -f }}
{{ -none }}
{{ not 1 }} {{ not '' }} {{ not [] }} {{ not none }} {{ not not 'a' }} {{ not missing }}
{{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ none == false }} {{ [1] == [1.0] }} {{ (1,) == [1] }} {{ {'a': 1} == {'a': 1.0} }}
{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [] == false }} {{ '' == none }} {{ 0 == false }} {{ 0.0 == -0.0 }}
{{ 1 != 1.0 }} {{ 'a' != 'A' }} {{ none != missing }} {{ missing == missing }} {{ missing == none }} {{ missing == '' }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 3 > 2 > 1 }} {{ 1 == 1 == 1 }} {{ 1 < 2 == true }} {{ 1 == 1.0 != 2 in [2] }}
{{ 'a' < 'b' }} {{ 'B' < 'a' }} {{ 'a' < 'aa' }} {{ '' < 'a' }} {{ 'é' > 'z' }} {{ '10' < '9' }}
{{ [1, 2] < [1, 3] }} {{ [1] < [1, 0] }} {{ (1, 'a') < (1, 'b') }} {{ true < 2 }} {{ 1 <= 1.0 }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ [1] < (1,) }}
{{ d < d }}
{{ missing < 1 }}
{{ missing >= missing }}
{{ [1, 'a'] < [2, 1] }} {{ [1, 'a'] == [1, 1] }}
{{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740993 > 9007199254740992.0 }} {{ 2 ** 53 == 2.0 ** 53 }}
{{ 2 in [1, 2.0] }} {{ true in [1] }} {{ '1' in [1] }} {{ none in [none] }} {{ [1] in [[1]] }} {{ missing in [missing] }}
{{ 'a' in 'abc' }} {{ '' in 'abc' }} {{ 'ac' in 'abc' }} {{ 'a' not in 'abc' }} {{ not 'a' in 'abc' }}
{{ 'a' in d }} {{ 'x' in d }} {{ 1 in {1.0: 'a'} }} {{ 'a' in {'a': none} }} {{ 2 in (1, 2) }} {{ 3 in range(5) }} {{ 2.0 in range(5) }}
{{ 1 in 'abc' }}
{{ none in 'abc' }}
{{ missing in 'abc' }}
{{ 1 in 5 }}
{{ 1 in none }}
{{ 1 in missing }} {{ 1 not in missing }}
{{ [1] in d }}
{{ [1] in {'a': 1} }}
{{ d in [d] }}
{{ 0 or 'x' }} {{ '' or [] or 'y' }} {{ 1 and 2 }} {{ 0 and 1 }} {{ none or false }} {{ 'a' and '' }}|{{ missing or 'z' }}
{{ 1 or 1/0 }} {{ 0 and 1/0 }}
{{ 'a' if 1 else 'b' }} {{ 'a' if 0 else 'b' }} {{ 'a' if 0 }}| {{ ('a' if 0) is undefined }}
{{ 'a' if 0 else 'b' if 0 else 'c' }} {{ 1 if 2 if 0 else 3 else 4 }}
{{ ('a' if false).x }}
{{ 'x' ~ ('a' if false) }} {{ ('a' if false) + 'x' }}
{{ 1 + 2 * 3 ~ 'x' }} {{ 1 ~ 2 + 3 }} {{ 1 - 2 - 3 }} {{ 2 * 3 % 4 }} {{ 8 / 2 / 2 }} {{ -3 % 5 }} {{ -5 // 3 * 2 }}
{{ 1 ~ 2 == '12' }} {{ not 1 == 2 }} {{ not (1 and 0) }} {{ 1 or 0 and 0 }} {{ 1 < 2 and 2 < 1 or 3 }}
{{ -1 | abs }} {{ (-1) | abs }} {{ 2 - -1 | abs }} {{ 1 + 2 | string ~ 'x' }} {{ 'a' ~ 'b' | upper }} {{ not x | default(true) }}
{{ 2 ** 2 | string }}
{{ -2 | string ~ '!' }} {{ 3.7 | int * 2 }} {{ li | length > 2 }} {{ li | length == 3 and 'y' }}
{{ 5 is odd and 4 is even }} {{ not 5 is odd }} {{ 5 is not odd }} {{ 1 + 4 is odd }} {{ 2 is divisibleby 2 }} {{ 9 is divisibleby(3) and true }}
{{ 1 is number is true }} {{ 'a' is string == true }}
{{ 1 is eq 1 }} {{ 1 is not eq 1 }} {{ 1 is ne 2 }} {{ 3 is gt 2 }} {{ 3 is lt(2) }} {{ 'a' is in 'abc' }} {{ 2 is in [1, 2] }} {{ 5 is not in [1] }}
{{ 5 // 0.3 }} {{ 5 % 0.3 }} {{ 1e20 // 3 }} {{ -1e-20 // 1 }} {{ -1e-20 % 1 }}
{{ big + 1 }} {{ big * big }} {{ big - big }} {{ big % 97 }} {{ big // -97 }} {{ big == big + 0.0 }} {{ big > 1e29 }}
{{ i64 + 1 }} {{ i64 * 2 }} {{ -i64 - 2 }} {{ i64 + 1.0 }} {{ i64 // -1 }}
{{ 1e308 + 1e308 }} {{ big ** 2 / 3 }}
{{ n + 1e400 }}
{{ ('nan' | float) ~ s }}
{{ n < 1e300 * 1e300 }}
{{ (10 ** 400) / 3 }}
{{ 10 ** 400 * 1.0 }}
{{ 10 ** 400 > 1e300 }} {{ 10 ** 22 == 1e22 }} {{ 10 ** 23 == 1e23 }}
{{ 1 if nil else 2 }} {{ 1 if 0.0 else 2 }} {{ 1 if '0' else 2 }} {{ 1 if [0] else 2 }} {{ 1 if {} else 2 }} {{ 1 if () else 2 }} {{ 1 if range(0) else 2 }} {{ 1 if namespace() else 2 }}
{{ '%s' % 1 }} {{ '%d' % 2.9 }} {{ '%5.2f|' % 3.14159 }} {{ '%-5s|' % 'ab' }} {{ '%05d' % -42 }} {{ '%x %X %o' % (255, 255, 8) }} {{ '%r' % 'a\'b' }} {{ '%%' % () }}
{{ '%s %s' % ('a', none) }} {{ '%s' % [1, 'a'] }} {{ '%s' % {'a': 1} }} {{ '%s' % true }} {{ '%s' % (1,) }} {{ '%s' % ((1, 2),) }}
{{ '%(a)s %(b)05.1f %(a)r' % {'a': 'x', 'b': 2.25} }}
{{ '%+d % d %e %E %g %G' % (5, 5, 12345.678, 0.00012, 1e10, 1e-10) }}
{{ '%.3s|%10s|%-10.2s|%c|%c' % ('abcdef', 'r', 'left', 65, 'z') }}
{{ '%*d|%-*d|%.*f' % (5, 42, 5, 42, 2, 3.14159) }}
{{ '%#x %#o %i %u' % (255, 8, 3, 4) }} {{ '%a' % 'é' }}
{{ '%d' % true }} {{ '%s' % 1.0 }} {{ '%d' % big }} {{ '%f' % 1 }} {{ '%.0f %.0f %.0f' % (0.5, 1.5, 2.5) }}
{{ '%g %g %g %g' % (100000, 1000000, 0.0001, 0.00001) }} {{ '%f' % ('inf' | float) }} {{ '%05.1f' % ('nan' | float) }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
{{ '%s' % ('a', 'b') }}
{{ 'x' % 1 }}
{{ 'x' % [1] }} {{ 'x' % {} }}
{{ '%' % 1 }}
{{ '%y' % 1 }}
{{ '%(a)s' % 1 }}
{{ '%(zz)s' % {'a': 1} }}
{{ '%x' % 1.5 }}
{{ '%c' % 'ab' }}
{{ '%s' % missing }}|{{ '%r' % missing }}
{{ 1 <> 2 }}
{{ 1 === 1 }}
{{ 1 && 2 }}
{{ !1 }}
{{ 5 & 3 }}
{{ 1 | 2 }}
{{ a ? b : c }}
{{ x := 1 }}
{{ 1 +}}
{{ [1, 2 }}
{{ [i for i in li] }}
{{ lambda x: x }}
{{ 'a' is }}
{{ [*li] }}
{{ {**d} }}
{{ f'x' }}
{{ n is }}
{{ li. }}
{{ li[0 }}
{{ 'unterminated }}
{{ "a' }}
{{ @ }}
{{ $x }}
{{ a.b.c.1 }}
{{ true.x }} {{ none.x }} {{ 1.5.x }}
{{ True and TRUE }}
{{ not }}
{{ in }}
{{ }}
{{ 1 2 }}
{{ (1 }}
{{ é }}{{ 变量 }}
"""
LINES["strings"] = r"""
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.swapcase() }} {{ s.capitalize() }} {{ s.casefold() }}
{{ uni.upper() }}|{{ uni.lower() }}|{{ uni.title() }}|{{ uni.capitalize() }}|{{ uni.swapcase() }}|{{ uni.casefold() }}
{{ 'ß'.upper() }} {{ 'ﬁ'.upper() }} {{ 'İ'.lower() | length }} {{ 'ǆ'.title() }} {{ 'ΑΣ'.lower() }} {{ 'ŉ'.capitalize() }} {{ 'ı'.upper() }} {{ 'ß'.title() }} {{ 'ǆ'.upper() }} {{ 'ǅ'.lower() }}
{{ "they're bill's 3rd x-ray".title() }} {{ "they're bill's 3rd x-ray" | title }} {{ "HELLO wORLD" | capitalize }}
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ ' a  b '.split(' ') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ''.split() }} {{ ''.split(',') }}
{{ 'a b c'.split(none, 1) }} {{ 'a b  c '.split(maxsplit=1) }} {{ ' a b c '.rsplit(none, 1) }} {{ 'aXXbXXc'.split('XX') }} {{ 'abc'.split(sep='b') }} {{ 'a b'.split(' ', 0) }}
{{ 'abc'.split('') }}
{{ 'abc'.split(1) }}
{{ ws.split() }}
{{ ws.splitlines() }} {{ ws.splitlines(true) }} {{ 'a\n\nb\n'.splitlines() }} {{ ''.splitlines() }} {{ 'a\r\nb'.splitlines(keepends=true) }}
{{ [ws.strip(), ws.lstrip(), ws.rstrip()] }}
{{ ['\u200b a \ufeff'.strip(), '\xa0\u2003a\x85'.strip(), '\u180ea'.strip()] }}
{{ 'xxaxbxx'.strip('x') }} {{ 'abcxcba'.strip('abc') }} {{ 'xya'.lstrip('yx') }} {{ 'axy'.rstrip('yx') }} {{ ' a '.strip(none) }} {{ ' a '.strip('') }}|
{{ 'a' | trim }}|{{ t | trim }}|{{ 'xxaxx' | trim('x') }}|{{ ws | trim | length }}|{{ 5 | trim }}|{{ none | trim }}|{{ '--a-' | trim(chars='-') }}
{{ s.startswith('He') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('ld') }} {{ s.startswith('') }} {{ s.startswith('W', 6) }} {{ s.endswith('o', 0, 5) }} {{ s.startswith('') }}
{{ s.startswith(['H']) }}
{{ s.startswith(1) }}
{{ s.find('o') }} {{ s.find('o', 5) }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.index('W') }} {{ s.rindex('l') }} {{ s.count('l') }} {{ s.count('') }} {{ s.find('o', -3) }} {{ 'aaaa'.count('aa') }} {{ s.count('l', 0, 4) }}
{{ s.index('zz') }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.replace('', '-') }} {{ s.replace('l', '') }} {{ 'aaa'.replace('aa', 'b') }} {{ ''.replace('', 'x') }} {{ s.replace('l', 'L', -1) }} {{ s.replace('', '-', 2) }}
{{ s.replace('l') }}
{{ s.replace(1, 2) }}
{{ s.join(['a', 'b']) }} {{ ', '.join(ls) }} {{ ''.join('abc') }} {{ '-'.join({'a': 1, 'b': 2}) }} {{ ','.join(()) }}
{{ ','.join([1, 2]) }}
{{ ','.join(['a', missing]) }}
{{ 'abc'.center(9, '*') }} {{ 'abc'.center(8) }}| {{ 'ab'.center(5, '-') }} {{ 'abc'.ljust(6, '.') }} {{ 'abc'.rjust(6, '.') }} {{ '42'.zfill(5) }} {{ '-42'.zfill(5) }} {{ '+1'.zfill(4) }} {{ 'abc'.zfill(2) }}
{{ 'abc'.ljust(5, 'xy') }}
{{ 'a\tb\t'.expandtabs(4) }}| {{ 'a\tbcd\te'.expandtabs() }} {{ 'ab\ncd\te'.expandtabs(2) }}
{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }}
{{ 'abc'.partition('') }}
{{ 'TestCase'.removeprefix('Test') }} {{ 'TestCase'.removesuffix('Case') }} {{ 'abc'.removeprefix('x') }} {{ 'abc'.removesuffix('') }}
{{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ '12'.isdigit() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ '½'.isnumeric() }} {{ ' \t'.isspace() }} {{ ''.isalpha() }} {{ 'é'.isalpha() }} {{ 'é'.isascii() }} {{ ''.isascii() }} {{ '٣'.isdigit() }} {{ '\x1c'.isspace() }} {{ '\u200b'.isspace() }}
{{ 'Ab'.isupper() }} {{ 'AB1'.isupper() }} {{ 'ab!'.islower() }} {{ 'Ab Cd'.istitle() }} {{ 'aB'.istitle() }} {{ 'a_1'.isidentifier() }} {{ '1a'.isidentifier() }} {{ 'a\n'.isprintable() }} {{ ''.isprintable() }} {{ 'ǅ'.istitle() }} {{ '12'.isupper() }}
{{ 'é'.encode() }} {{ 'é'.encode('utf-8') | length }} {{ 'abc'.encode('utf-8')[0] }}
{{ 'é'.encode('ascii') }}
{{ 'é'.encode('utf-8').decode('utf-8') }} {{ 'aé'.encode('ascii', 'ignore') }} {{ 'aé'.encode('latin-1') }}
{{ 'abc'.translate({97: 'x', 98: none}) }} {{ 'abc'.maketrans('a', 'b') }} {{ 'abc'.translate('abc'.maketrans('ab', 'xy')) }}
{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format('a', 'b') }} {{ '{x}'.format(x=5) }} {{ '{0[0]} {0[k]}'.format({'k': 'v', 0: 'z'}) }} {{ '{{}}'.format() }} {{ '{!r} {!s}'.format('a', 'b') }}
{{ '{:5}|{:<5}|{:>5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd', 'e') }} {{ '{:5}|{:<5}|{:05}|{:+}|{: }'.format(42, 42, -42, 42, 42) }}
{{ '{:.2f} {:10.3f}| {:e} {:g} {:%} {:,} {:_}'.format(3.14159, 2.5, 12345.678, 1e10, 0.256, 1234567, 1234567) }} {{ '{:x} {:X} {:o} {:b} {:#x} {:c} {:08b}'.format(255, 255, 8, 5, 255, 65, 5) }}
{{ '{:.3}'.format('abcdef') }} {{ '{:,.2f}'.format(1234567.891) }} {{ '{:.3}'.format(3.14159) }} {{ '{}'.format(1e16) }} {{ '{:n}'.format(1234) }} {{ '{:=+6}'.format(5) }} {{ '{:g}'.format(5.0) }} {{ '{:.0%}'.format(0.5) }}
{{ '{} {} {} {} {}'.format(true, none, [1, 'a'], {'a': 1}, 1.0) }} {{ '{:{}}|'.format('a', 5) }} {{ '{:{w}.{p}f}|'.format(3.14159, w=8, p=2) }}
{{ '{a.real} {a}'.format(a=5) }} {{ '{0.upper}'.format(1) }}
{{ '{}'.format() }}
{{ '{x}'.format(y=1) }}
{{ '{0} {}'.format(1, 2) }}
{{ '{:d}'.format(1.5) }}
{{ '{:d}'.format('a') }}
{{ '{:5}'.format(none) }}
{{ '{:5}'.format([1]) }}
{{ '{'.format() }}
{{ '{0.__class__}'.format('a') }}
{{ '{a}'.format_map({'a': 1}) }} {{ '{x[y]}'.format_map({'x': {'y': 2}}) }}
{{ '{:>{}}'.format(1, 4) }} {{ '{!a}'.format('é') }} {{ '{:s}'.format('x') }} {{ '{:d}'.format(true) }} {{ '{}'.format(missing) }}|
{{ s[0] }} {{ s[-1] }} {{ s[1:4] }} {{ s[:3] }} {{ s[-3:] }} {{ s[::-1] }} {{ s[::2] }} {{ s[8:2:-2] }} {{ s[100:] }}| {{ s[-100:3] }} {{ s[:-100] }}| {{ s[5:1] }}| {{ s[:] }} {{ s[-1:-4:-1] }} {{ s[none:none:none] }}
{{ s[100] }}|{{ s[100] is undefined }}
{{ s['x'] }}|{{ s.x }}|{{ s.foo.bar }}
{{ s[0.0] }}|{{ s[true] }}|{{ s[none] }}
{{ s[::0] }}
{{ s['a':] }}
{{ s[1.0:] }}
{{ s[missing:] }}
{{ uni[0:7] }} {{ uni[-1] }} {{ uni | length }} {{ uni[::-1] }} {{ 'e\u0301' | length }} {{ '👨‍👩‍👧' | length }}
{{ 'abc' | first }} {{ 'abc' | last }} {{ '' | first }}| {{ 'abc' | random is string }} {{ 'abc' | reverse }} {{ 'abc' | length }} {{ 'abc' | sort }} {{ 'abc' | unique | list }} {{ 'abc' | max }} {{ 'bca' | min }}
{{ s.__class__ }}
{{ s.__len__() }}
{{ s.__class__.__mro__ }}
{{ s._private }}|{{ d._x }}|{{ d['__class__'] }}
{{ ''.__add__('x') }}
{{ s.upper(1) }}
{{ s.nomethod() }}
{{ s() }}
{{ s.upper.foo }}|
{{ s|attr('upper') is callable }} {{ (s|attr('lower'))() }} {{ s|attr('__class__') }}
{{ d|attr('get') is callable }} {{ d|attr('a') }}| {{ d|attr('items') is callable }} {{ d|attr('nope') is undefined }}
"""
LINES["containers"] = r"""
{{ li[0] }} {{ li[-1] }} {{ li.0 }} {{ li.1 }} {{ li[1:] }} {{ li[::-1] }} {{ li[:100] }} {{ li[-2:] }} {{ li[5:] }} {{ li[2:0:-1] }} {{ li[-1:0:-1] }} {{ li[:2:-1] }} {{ li[10::-1] }} {{ li[:-1] }} {{ li[::-2] }} {{ li[-100::2] }}
{{ li[3] }}|{{ li[-4] }}|{{ li[3] is defined }}|{{ li['0'] }}|{{ li['x'] }}|{{ li.foo }}|{{ li[none] }}|{{ li[true] }}|{{ li[1.0] }}
{{ li[3].x }}
{{ li.x.y }}
{{ li[::0] }}
{{ li['a':] }}
{{ li[0, 1] }}|
{{ li[0:1, 2] }}|
{{ li[n:] }} {{ li[:z] }} {{ li[big:] }} {{ li[-big:1] }} {{ li[:nil] }} {{ li[yes:] }}
{{ (1, 2, 3)[::-1] }} {{ (1, 2, 3)[0] }} {{ (1, 2, 3).index(2) }} {{ (1, 1).count(1) }} {{ range(10)[2:5] }} {{ range(10)[::-1] }} {{ range(10)[3] }} {{ range(10)[20] }}| {{ range(3) | length }}
{{ li.index(1) }} {{ li.count(3) }} {{ [1, true, 1.0].count(1) }} {{ li.copy() }} {{ li.index(2, 1) }}
{{ li.index(99) }}
{{ li.append(4) }}
{{ li.pop() }}
{{ li.sort() }}
{{ li.insert(0, 1) }}
{{ li.extend([1]) }}
{{ li.remove(1) }}
{{ li.reverse() }}
{{ li.clear() }}
{{ li.append }}|{{ li.append is defined }}
{% set _ = li.append(4) %}{{ li }}
{% do li.append(4) %}
{{ d.update({'z': 1}) }}
{{ d.pop('a') }}
{{ d.setdefault('z', 1) }}
{{ d.clear() }}
{{ d.popitem() }}
{{ d.update is defined }} {{ d.pop is defined }} {{ d.update }}
{{ d.a }} {{ d['a'] }} {{ d.items }} {{ d['items'] }} {{ d.keys }} {{ d['keys'] }} {{ d.A }}
{{ d.keys() }}
{{ {'a': 1}.keys }}
{{ d.values() | list }} {{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.get('keys', 5) }} {{ d.copy() }} {{ d.get }}
{{ d.get() }}
{{ d.get('a', default=1) }}
{{ d.zz }}|{{ d.zz is defined }}|{{ d['zz'] }}|{{ d.zz or 'alt' }}
{{ d.zz.y }}
{{ d['zz']['y'] }}
{{ d[1] }}|{{ d[none] }}|{{ d[[1]] }}|{{ d[d] }}
{{ dn.x.y.z[1] }} {{ dn['x'].y['z'][-1] }} {{ dn['1'] }} {{ dn[1] }}| {{ dn.1 }}| {{ dn["it's"] }}
{{ {1: 'a', '1': 'b'}[1] }} {{ {1: 'a'}['1'] }}| {{ {true: 'a'}[1] }} {{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ {'a': 1, 'a': 2} }} {{ {none: 1}[none] }} {{ {(1, 2): 'x'}[(1, 2)] }} {{ {(1, 2): 'x'}[1, 2] }}
{{ {[1]: 2} }}
{{ {'a': 1}.a }} {{ {'get': 1}.get }} {{ {'get': 1}['get'] }} {{ {'a': {'b': 2}}.a.b }} {{ {'if': 3}.if }}
{{ {'__class__': 1}['__class__'] }} {{ {'_x': 1}._x }} {{ {'__class__': 1}.__class__ }}
{{ {a: 1} }}
{{ {n: 1, s: 2, 'x' ~ n: 3} }}
{{ [1, 2,] }} {{ {'a': 1,} }} {{ (1,) }}
{{ [,] }}
{{ {'a'} }}
{{ d | length }} {{ d | list }} {{ d | first }} {{ d | last }} {{ d.items() | first }} {{ {} | length }} {{ () | length }}
{{ d | items | list }} {{ {} | items | list }} {{ missing | items | list }} {{ d | items }}
{{ li | items | list }}
{{ 'abc' | items | list }}
{{ none | items | list }}
{{ {'a': 1} == {'a': true} }} {{ {'a': 1}.items() == [('a', 1)] }} {{ {'a': 1}.keys() | list == ['a'] }} {{ ('a', 1) in {'a': 1}.items() }} {{ 'a' in {'a': 1}.keys() }} {{ 1 in {'a': 1}.values() }}
{{ {'a': 1}.items()[0] }}|
{{ {'a': 1}.keys() | length }} {{ {'b': 1, 'a': 2}.keys() | sort }} {{ {'b': 1, 'a': 2}.values() | sum }} {{ {'b': 1, 'a': 2}.items() | sort }} {{ {'b': 1}.items() | length }}
{{ {'a': 1, 'b': 2}.keys() - ['a'] }} {{ {'a': 1}.keys() | list }}
{{ {'a': 1} | string }} {{ {'a': 1} ~ '' }}
{{ {'a': 1}.fromkeys(['x']) }} {{ d.fromkeys('ab', 1) }}
{{ {'b': 1, 'a': 2}.items() | list }} {{ {'x': 1}.__len__() }}
{{ {'a': 1} | {'b': 2} }}
{{ 1.foo }}
{{ n.foo }}|{{ n[0] }}|{{ f.x }}|{{ yes.x }}|{{ nil.x }}|{{ nil[0] }}
{{ n.foo.bar }}
{{ nil.x.y }}
{{ nil.x is defined }} {{ nil['x'] is defined }} {{ n.real is defined }}
{{ n() }}
{{ nil() }}
{{ li() }}
{{ d() }}
{{ d.a() }}
{{ d.zz() }}
{{ missing() }}
{{ missing.x }}
{{ missing['x'] }}
{{ missing[0] }}
{{ missing.x is defined }}
{{ missing }}|{{ missing is defined }}|{{ missing is undefined }}|{{ missing is none }}|{{ missing | default('d') }}|{{ missing | length }}|{{ missing | list }}|{{ missing | string }}|{{ missing | upper }}|{{ missing | trim }}|{{ missing | join(',') }}
{{ missing | first }}|{{ missing | last }}|{{ missing | sum }}|{{ missing | sort }}|{{ missing | unique | list }}|{{ missing | reverse | list }}|{{ missing | map('upper') | list }}|{{ missing | select | list }}|{{ missing | batch(2) | list }}|{{ missing | max }}|{{ missing | replace('a', 'b') }}|{{ missing | wordcount }}
{{ missing | int }}
{{ missing | float }}
{{ missing | abs }}
{{ missing | round }}
{{ missing | tojson }}
{{ [missing] | tojson }}
{{ missing | dictsort }}
{{ missing | reverse }}
{{ missing | indent }}|{{ missing | center(3) }}|{{ missing | e }}|{{ missing | safe }}|{{ missing | capitalize }}|{{ missing | truncate(3) }}|{{ missing | urlencode }}|{{ missing | striptags }}|{{ missing | title }}|{{ missing | format }}
{{ missing | groupby('a') }}|{{ missing | selectattr('a') | list }}|{{ missing | slice(2) | list }}
{{ missing | wordwrap }}|{{ missing | filesizeformat }}
{% if missing %}a{% else %}b{% endif %}{% if not missing %}c{% endif %}{% if missing == none %}d{% endif %}{% if missing is none %}e{% endif %}{% if missing != 'x' %}f{% endif %}
{% for x in missing %}{{ x }}{% else %}none{% endfor %}
{% for x in missing.y %}{{ x }}{% endfor %}
{% for x in none %}{{ x }}{% endfor %}
{% for x in 5 %}{{ x }}{% endfor %}
{% if missing.x %}a{% endif %}
{% if missing.x is defined %}a{% endif %}
{% set x = missing %}{{ x is defined }}{{ x }}
{% set x = missing.y %}a
{{ missing == missing2 }} {{ missing in [none] }} {{ missing ~ 'a' }} {{ [missing] == [none] }} {{ missing and 1 }}|{{ missing or missing2 }}
{{ -missing }}
{{ missing * 2 }}
{{ missing ** 2 }}
{{ 2 // missing }}
{{ missing % 2 }}
{{ missing | nofilter }}
{{ missing is notest }}
{{ 'a' | nofilter if false }}x
{% if false %}{{ 'a' | nofilter }}{% endif %}x
{% if true %}{{ 'a' | nofilter }}{% endif %}x
{% if 'nofilter' is filter %}y{% else %}n{% endif %} {{ 'upper' is filter }} {{ 'odd' is test }} {{ 'zz' is test }} {{ 5 is filter }}
"""
LINES["filters"] = r"""
{{ -5 | abs }} {{ (-5.5) | abs }} {{ true | abs }} {{ big | abs }} {{ -0.0 | abs }}
{{ 'a' | abs }}
{{ none | abs }}
{{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 'x') | list }} {{ [] | batch(3) | list }} {{ li | batch(linecount=2, fill_with=0) | list }} {{ 'abcde' | batch(2) | list }} {{ [1] | batch(3, none) | list }}
{{ 'hELLO' | capitalize }} {{ 5 | capitalize }} {{ none | capitalize }} {{ 'ǆa' | capitalize }} {{ [1, 'A'] | capitalize }} {{ '' | capitalize }}|
{{ 'abc' | center(9) }}|{{ 'abc' | center }}|{{ 5 | center(4) }}|{{ 'abcd' | center(7) }}|{{ 'abc' | center(width=2) }}|{{ none | center(7) }}
{{ li | count }} {{ 'abc' | count }} {{ d | count }} {{ (1, 2) | length }} {{ range(7) | length }}
{{ 5 | length }}
{{ none | length }}
{{ true | count }}
{{ li | map('string') | length }}
{{ nil | default('x') }} {{ nil | default('x', true) }} {{ '' | d('x') }}| {{ '' | d('x', true) }} {{ 0 | d(5, boolean=true) }} {{ missing | d }}| {{ missing | d(default_value='q') }} {{ d.zz | default([]) }} {{ false | default('x', false) }}
{{ missing.x | default('y') }}
{{ (missing.x) | default('y') }}
{{ d.zz.yy | default('y') }}
{{ d | dictsort }} {{ d | dictsort(true) }}
{{ {'b': 2, 'A': 3, 'c': 1} | dictsort }} {{ {'b': 2, 'A': 3, 'c': 1} | dictsort(case_sensitive=true) }} {{ {'b': 2, 'A': 3, 'c': 1} | dictsort(false, 'value') }} {{ {'b': 2, 'A': 3, 'c': 1} | dictsort(by='value', reverse=true) }} {{ {2: 'a', 1: 'b'} | dictsort }}
{{ {'b': 2, 1: 3} | dictsort }}
{{ d | dictsort(by='value') }}
{{ d | dictsort(by='zz') }}
{{ li | dictsort }}
{{ html | e }} {{ html | escape }} {{ html | forceescape }} {{ 5 | e }} {{ none | e }} {{ ['<'] | e }} {{ html | e | e }} {{ html | safe | e }} {{ html | safe }} {{ (html | e) ~ '<' }} {{ (html | e) + '<' }} {{ '<' + ('>' | e) }} {{ '%s' % ('<' | e) }} {{ ('%s' | e) % '<' }} {{ ('<' | e).replace('&', '!') }} {{ ['<' | e] }} {{ ('a' | e) == 'a' }} {{ ('<' | e) | upper }} {{ ('<' | e) | length }} {{ ('<b>' | e) is string }} {{ ('<' | e) is escaped }} {{ ('{}' | safe).format('<') }} {{ ('<' | safe) * 2 ~ '>' }} {{ [('<' | safe), '<'] | join('>') }} {{ ('a' | safe)[0] ~ '<' }} {{ ('a<' | safe).split('<') }} {{ ('<' | safe) | tojson }} {{ ('<' | safe) | string ~ '<' }}
{{ 1024 | filesizeformat }} {{ 1 | filesizeformat }} {{ 1000 | filesizeformat }} {{ 1500000 | filesizeformat(true) }} {{ '2000' | filesizeformat }} {{ 0 | filesizeformat }} {{ 1e15 | filesizeformat(binary=true) }} {{ 999.9 | filesizeformat }} {{ 1e27 | filesizeformat }}
{{ li | first }} {{ [] | first }}| {{ d | first }} {{ 'x' | first }} {{ ([] | first) is undefined }} {{ (1, 2) | first }} {{ li | map('string') | first }}
{{ 5 | first }}
{{ li | last }} {{ [] | last }}| {{ (1, 2) | last }} {{ range(4) | last }} {{ d | last }} {{ ([] | last) is undefined }}
{{ li | map('string') | last }}
{{ '3.7' | float }} {{ 'abc' | float }} {{ 'abc' | float(1.5) }} {{ none | float }} {{ true | float }} {{ '1e3' | float }} {{ ' 2.5 ' | float }} {{ '1_0' | float }} {{ big | float }} {{ [] | float(default=-1) }} {{ '١' | float }} {{ '' | float }} {{ '0x10' | float }}
{{ '%s-%s' | format('a', 1) }} {{ '%d%%' | format(50) }} {{ '%(a)s' | format(a='x') }} {{ '%.2f' | format(2.675) }} {{ 'x' | format }} {{ '%s' | format([1, 'a']) }} {{ '%s' | format((1,)) }} {{ 5 | format }}
{{ '%s %s' | format('a') }}
{{ '%s' | format('a', b=1) }}
{{ '%s' | format('a', 'b') }}
{{ gr | groupby('k') }} {{ gr | groupby('k') | map(attribute='grouper') | list }} {{ gr | groupby('k', case_sensitive=true) | map('first') | list }} {{ gr | groupby(attribute='v') | length }}
{% for k, items in gr | groupby('k') %}{{ k }}={{ items | map(attribute='v') | join('+') }};{% endfor %}
{% for g in gr | groupby('k', case_sensitive=true) %}{{ g.grouper }}:{{ g.list | length }}:{{ g[0] }} {% endfor %}
{{ ppl | groupby('age', default=0) | map('first') | list }}
{{ ppl | groupby('age') | list }}
{{ ppl | groupby('city', default='?') | map('first') | list }}
{{ [[1, 'a'], [0, 'b']] | groupby(0) }} {{ [{'a': {'b': 1}}] | groupby('a.b') }}
{{ gr | groupby('nope') }}
{{ 'a\nb\n\nc' | indent }} {{ 'a\nb' | indent(2) }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb' | indent(2, blank=true) }} {{ 'a\nb' | indent('--') }} {{ 'a\nb' | indent(width=1, first=true) }} {{ '\na\n' | indent(1) }}| {{ 'a\r\nb' | indent(1) }} {{ '' | indent(3, true) }}| {{ 'a\n' | indent(2, true, true) }}| {{ 'a' | indent(0) }} {{ 'a\x0bb\x85c' | indent(2) }} {{ '\n' | indent(2, true) }}| {{ 'a\nb' | indent(true) }}
{{ 5 | indent }}
{{ none | indent }}
{{ '42' | int }} {{ '42.9' | int }} {{ 42.9 | int }} {{ -42.9 | int }} {{ 'abc' | int }} {{ 'abc' | int(7) }} {{ none | int }} {{ none | int(default=3) }} {{ true | int }} {{ '0x1F' | int(0, 16) }} {{ '1f' | int(base=16) }} {{ '0b11' | int(0, 2) }} {{ '077' | int(0, 8) }} {{ ' 5 ' | int }} {{ '1_000' | int }} {{ '1e3' | int }} {{ '' | int }} {{ [] | int(9) }} {{ '+5' | int }} {{ '-0' | int }} {{ '99999999999999999999' | int }} {{ 1e20 | int }} {{ '٣' | int }} {{ '0x10' | int }} {{ '10' | int(base=2) }} {{ 'inf' | int }}
{{ 'inf' | float | int }}
{{ 'nan' | float | int }}
{{ li | join }} {{ li | join(', ') }} {{ li | join(d=':') }} {{ [] | join(',') }}| {{ ['a'] | join(',') }} {{ 'abc' | join('-') }} {{ d | join(',') }} {{ [1, none, true, 2.0, 'x', [1]] | join('|') }} {{ ppl | join(', ', attribute='name') }} {{ ppl | join(',', 'age') }} {{ nest | join(';') }} {{ [[1, 'a'], [2, 'b']] | join(',', 1) }} {{ li | join(5) }} {{ li | join(none) }}
{{ 5 | join }}
{{ none | join(',') }}
{{ 'abc' | list }} {{ d | list }} {{ (1, 2) | list }} {{ range(3) | list }} {{ '' | list }} {{ li | map('string') | list }}
{{ 5 | list }}
{{ none | list }}
{{ 'ABC É İ' | lower }} {{ 5 | lower }} {{ none | lower }} {{ true | upper }} {{ [1, 'Ab'] | lower }} {{ uni | upper }} {{ 1.5 | lower }}
{{ ls | map('upper') | list }} {{ ppl | map(attribute='name') | list }} {{ ppl | map(attribute='age', default=0) | list }} {{ li | map('string') | join }} {{ ['1', 'x'] | map('int', 5) | list }} {{ ['a', 'b'] | map('replace', 'a', 'z') | list }} {{ [[3, 1], [2]] | map('sort') | list }} {{ [[3, 1], [2]] | map('sort', reverse=true) | list }} {{ ppl | map(attribute='age') | list }} {{ [{'a': {'b': 5}}] | map(attribute='a.b') | list }} {{ [[1, 2], [3]] | map('first') | list }} {{ [[1, 2], [3, 4]] | map(attribute=0) | list }} {{ [[1, 2], [3, 4]] | map(attribute='1') | list }} {{ d | map('upper') | list }} {{ [1.5, 2] | map('tojson') | list }}
{{ li | map | list }}
{{ li | map('nofilter') | list }}
{{ li | map(attribute='x', foo=1) | list }}
{{ [{'a': 1}] | map(attribute='x.y') | list }}
{{ li | map(attribute='x.y', default='dd') | list }}
{{ [3, 1.5, true] | max }} {{ ls | max }} {{ ls | max(true) }} {{ ls | min }} {{ ls | min(case_sensitive=true) }} {{ ppl[:3] | max(attribute='age') }} {{ ppl[:3] | min(attribute='name') }} {{ [] | max }}| {{ {'b': 1, 'a': 2} | max }} {{ [[1, 2], [1, 3]] | max }} {{ ([] | min) is undefined }} {{ 'bca' | max }}
{{ [1, 'a'] | max }}
{{ 5 | max }}
{{ ppl | max(attribute='age') }}
{{ {'a': 1, 'b': [1, 2]} | pprint }} {{ 'a' | pprint }} {{ [1.0, none] | pprint }}
{{ [0, 1, '', 'a', none, [], [0]] | reject | list }} {{ li | reject('odd') | list }} {{ li | reject('equalto', 3) | list }} {{ li | reject('in', [1, 2]) | list }} {{ ['a', 1, none] | reject('none') | list }} {{ li | reject('gt', 1) | list }}
{{ ppl | rejectattr('age') | map(attribute='name') | list }} {{ ppl | rejectattr('age', 'equalto', 30) | map(attribute='name') | list }} {{ ppl | rejectattr('age', 'undefined') | map(attribute='name') | list }} {{ ppl | rejectattr('name', 'in', ['Bob']) | list | length }}
{{ 'aXbX' | replace('X', '-') }} {{ 'aXbX' | replace('X', '-', 1) }} {{ 'abc' | replace('', '-') }} {{ 5 | replace(5, 6) }} {{ 'a1' | replace(1, 2) }} {{ 'aaa' | replace('a', 'b', count=2) }} {{ 'aaa' | replace(old='a', new='') }} {{ 'abc' | replace('b', none) }} {{ none | replace('N', 'n') }} {{ 'abc' | replace('b', '<' | safe) }} {{ '<a>' | replace('a', '<' | e) }}
{{ 'a' | replace('a') }}
{{ li | reverse | list }} {{ 'abc' | reverse }} {{ (1, 2) | reverse | list }} {{ range(3) | reverse | list }} {{ d | reverse | list }} {{ 'é日' | reverse }} {{ li | map('string') | reverse | list }}
{{ 5 | reverse }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 1234.5 | round(-2) }} {{ 5 | round }} {{ 15 | round(-1) }} {{ 25 | round(-1) }} {{ 2.1 | round(method='ceil') }} {{ 2.9 | round(0, 'floor') }} {{ -2.5 | round }} {{ (-2.5) | round }} {{ 2.123 | round(2, 'ceil') }} {{ 2.129 | round(2, 'floor') }} {{ true | round }} {{ 1e20 | round }} {{ 0.5 | round }} {{ 1.5 | round | int }} {{ -0.4 | round }} {{ 5 | round(2) }} {{ 5 | round(1, 'ceil') }} {{ 1.005 | round(2) }} {{ 1e300 | round(2) }} {{ 0.1 | round(20) }} {{ 12345.678 | round(-3, 'floor') }} {{ 2 | round(0, 'floor') }} {{ big | round }} {{ 1.25 | round(1) }} {{ 1.35 | round(1) }}
{{ 'a' | round }}
{{ 1.5 | round(0, 'up') }}
{{ none | round }}
{{ 'inf' | float | round }} {{ 'inf' | float | round(0, 'floor') }}
{{ [0, 1, '', 'a', none, [], [0]] | select | list }} {{ li | select('odd') | list }} {{ li | select('gt', 1) | list }} {{ li | select('>', 1) | list }} {{ ls | select('in', 'abc') | list }} {{ [1, 'a', none, 2.0, true] | select('number') | list }} {{ ['a', missing] | select('defined') | list }} {{ li | select('divisibleby', 3) | list }} {{ [1, 'a', 2.0, true] | select('integer') | list }} {{ ls | select('upper') | list }} {{ 'aBc' | select('lower') | list }} {{ d | select('string') | list }}
{{ li | select('notest') | list }}
{{ li | select('gt') | list }}
{{ li | selectattr | list }}
{{ ppl | selectattr('age') | map(attribute='name') | list }} {{ ppl | selectattr('age', 'defined') | list | length }} {{ ppl | selectattr('age', '==', 30) | map(attribute='name') | join }} {{ ppl | selectattr('city', 'in', ['x', 'Y']) | map(attribute='name') | list }} {{ ppl | selectattr('name', 'eq', 'Bob') | first }} {{ [{'a': {'b': 1}}, {'a': {'b': 0}}] | selectattr('a.b') | list }} {{ [[0, 1], [1, 0]] | selectattr(0) | list }} {{ ppl | selectattr('name', 'string') | list | length }} {{ ppl | selectattr('zz') | list }}
{{ ppl | selectattr('age', 'gt', 26) | list }}
{{ ppl | selectattr('age', 'number') | selectattr('age', 'gt', 26) | map(attribute='name') | list }}
{{ ppl | selectattr('name') }}
{{ ppl | selectattr('zz.y') | list }}
{{ [1, 2, 3, 4, 5, 6, 7] | slice(3) | list }} {{ [1, 2, 3, 4] | slice(3, 'x') | list }} {{ [] | slice(2) | list }} {{ [1] | slice(slices=3, fill_with=0) | list }} {{ range(5) | slice(2) | list }} {{ 'abcde' | slice(2) | list }}
{{ [3, 1, 2] | sort }} {{ ls | sort }} {{ ls | sort(case_sensitive=true) }} {{ ls | sort(true) }} {{ li | sort(reverse=true) }} {{ ppl | sort(attribute='name') | map(attribute='name') | list }} {{ ppl[:3] | sort(attribute='age') | map(attribute='name') | list }} {{ ppl[:3] | sort(attribute='age', reverse=true) | map(attribute='name') | list }} {{ ppl[:3] | sort(attribute='age,name') | map(attribute='name') | list }} {{ d | sort }} {{ 'cab' | sort }} {{ [[2, 'a'], [1, 'b']] | sort }} {{ [true, 0, 2.5] | sort }} {{ ['a', 'B', 'á', 'Z', '_'] | sort }} {{ [[1, 'b'], [1, 'A']] | sort(attribute='1') }} {{ [[1, 'b'], [0, 'c']] | sort(attribute=1) }}
{{ [1, 'a'] | sort }}
{{ [none, 1] | sort }}
{{ ppl | sort(attribute='age') }}
{{ ppl | sort }}
{{ [['b', 1], ['A', 2]] | sort }}
{{ 5 | string }} {{ none | string }} {{ 1.0 | string }} {{ [1, 'a'] | string }} {{ true | string ~ 'x' }} {{ 'a' | string is string }} {{ missing | string | length }}
{{ '<p>a  <b>b</b></p>\n<!-- c -->d &amp; e' | striptags }} {{ '<a' | striptags }} {{ 5 | striptags }}
{{ li | sum }} {{ [] | sum }} {{ [0.1, 0.2] | sum }} {{ [1, 2] | sum(start=10) }} {{ gr | sum(attribute='v') }} {{ gr | sum('v', 5) }} {{ [true, true] | sum }} {{ [[1], [2]] | sum(start=[]) }} {{ range(101) | sum }} {{ (1.5, 2) | sum }}
{{ ['a'] | sum }}
{{ ppl | sum(attribute='age') }}
{{ ['a', 'b'] | sum(start='') }}
{{ 'foo bar-baz (qux) {a [b <c' | title }} {{ "it's o'neil" | title }} {{ 'ÉCOLE élan' | title }} {{ 5 | title }} {{ none | title }} {{ 'a\tb\nc' | title }} {{ 'ǆ' | title }} {{ 'a.b/c_d' | title }}
{{ d | tojson }} {{ deep | tojson }} {{ mixed | tojson }} {{ uni | tojson }} {{ html | tojson }}
{{ ctl | tojson }} {{ ctl | tojson(ensure_ascii=true) }} {{ '🙂é' | tojson(ensure_ascii=true) }} {{ '\ud83d' | tojson }}
{{ deep | tojson(indent=2) }}
{{ deep | tojson(indent=0) }} {{ deep | tojson(indent='\t') }} {{ li | tojson(indent=-1) }}
{{ [[], {}, [[]], {'a': []}] | tojson(indent=4) }} {{ [] | tojson(indent=2) }} {{ {} | tojson(indent=2) }}
{{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ d | tojson(false, 2, none, true) }} {{ li | tojson(separators=('; ', '=')) }} {{ d | tojson(indent=1, separators=(',', ':'), sort_keys=true) }}
{{ 1.0 | tojson }} {{ 1e16 | tojson }} {{ 1e-7 | tojson }} {{ -0.0 | tojson }} {{ ('inf' | float) | tojson }} {{ ('nan' | float) | tojson }} {{ ('-inf' | float) | tojson }} {{ big | tojson }} {{ true | tojson }} {{ none | tojson }} {{ 'a' | tojson }} {{ '' | tojson }} {{ 0.1 | tojson }} {{ 1e22 | tojson }}
{{ (1, 2) | tojson }} {{ {1: 'a', none: 'b', true: 'c', 1.5: 'd'} | tojson }} {{ {'a': (1,)} | tojson }} {{ [true, false, none] | tojson }} {{ '\x7f\x1f\n\t\b\f\r"\\/' | tojson }} {{ '\u2028\u2029' | tojson }}
{{ {(1, 2): 3} | tojson }}
{{ range(3) | tojson }}
{{ d.items() | tojson }}
{{ li | map('string') | tojson }}
{{ namespace(a=1) | tojson }}
{{ {'b': 1, 1: 2} | tojson(sort_keys=true) }}
{{ li | tojson(nope=1) }}
{{ li | tojson(indent=2.5) }}
{{ li | tojson(indent=none) }} {{ li | tojson(indent=true) }} {{ li | tojson | length }} {{ (li | tojson) + 'x' }} {{ ('<' | tojson) ~ '<' }} {{ (d | tojson) is string }} {{ d | tojson | safe }} {{ li | list | tojson }} {{ ['a' | safe] | tojson }}
{{ long | truncate(20) }} {{ long | truncate(20, true) }} {{ long | truncate(20, false, '!') }} {{ long | truncate(20, end='') }} {{ long | truncate(length=10, killwords=true, end='…', leeway=0) }} {{ 'abcdefgh' | truncate(5) }} {{ 'abcdefghijkl' | truncate(5) }} {{ 'abc def ghi jkl' | truncate(9, leeway=0) }} {{ long | truncate(1000) }} {{ 'a b' | truncate(3, false, '') }} {{ 'abcdefghij' | truncate(4, true, '', 0) }}
{{ long | truncate(2, end='...') }}
{{ 5 | truncate(3) }}
{{ [1, 1.0, true, '1', 'a', 'A'] | unique | list }} {{ ls | unique | list }} {{ ls | unique(true) | list }} {{ ppl | unique(attribute='age') | map(attribute='name') | list }} {{ ls | unique(case_sensitive=true) | join }} {{ 'aAbB' | unique | join }} {{ [] | unique | list }}
{{ [[1], [1]] | unique | list }}
{{ li | unique }}
{{ 'abc' | upper }} {{ 'ßé' | upper }} {{ 5.5 | upper }} {{ none | upper }} {{ {'a': 1} | upper }}
{{ 'a b/c?d=é&f' | urlencode }} {{ {'a b': 1, 'c': 'é/'} | urlencode }} {{ [['x', 1], ('y', 'z w')] | urlencode }} {{ 5 | urlencode }} {{ none | urlencode }} {{ '~-_.!*()' | urlencode }} {{ '' | urlencode }}| {{ true | urlencode }} {{ {'a': none, 'b': true} | urlencode }} {{ '\n%+' | urlencode }}
{{ 'a bb  ccc' | wordcount }} {{ '' | wordcount }} {{ "it's a-b" | wordcount }} {{ 'é 日本' | wordcount }} {{ 5 | wordcount }} {{ '_ - .' | wordcount }}
{{ long | wordwrap(20) }}
{{ long | wordwrap(10, true) }}
{{ long | wordwrap(10, false, '|') }} {{ 'a\nb c' | wordwrap(2) }} {{ 'abcdefghij' | wordwrap(4) }} {{ 'abcdefghij' | wordwrap(4, break_long_words=false) }} {{ 'a-b-c-d' | wordwrap(3) }} {{ 'a-b-c-d' | wordwrap(3, break_on_hyphens=false) }} {{ 'a  b   c' | wordwrap(4) }} {{ 'x\n\ny' | wordwrap(5) }} {{ '' | wordwrap }}|
{{ {'a': 1, 'b': none, 'c': '<"', 'd': missing, 'e': true} | xmlattr }}| {{ {'a': 1} | xmlattr(false) }}| {{ {} | xmlattr }}|
{{ {'a b': 1} | xmlattr }}
{{ li | random in li }} {{ [] | random is undefined }}
{{ 'a' | upper | lower | title | length }} {{ li | sort | reverse | join('>') | upper }} {{ [3, 1] | sort | first }} {{ ' a ' | trim | upper ~ '!' }} {{ ls | map('upper') | unique | sort | join }}
{{ 'a' | upper() }} {{ 'a' | default('b', boolean=false) }} {{ li|join(', ')|upper }} {{ li | join ( ',' ) }}
{{ 'a' | upper(1) }}
{{ 'a' | upper(x=1) }}
{{ 'abc' | trim('a', 'b') }}
{{ 'abc' | batch }}
{{ 'abc' | center('x') }}
{{ 'a' | foo.bar }}
{{ li | join(',' }}
{{ s | attr }}
{{ 'abc' | truncate('x') }}
{{ li | sum('x') }}
"""
LINES["tests"] = r"""
{{ true is boolean }} {{ 1 is boolean }} {{ false is false }} {{ 0 is false }} {{ true is true }} {{ 1 is true }} {{ none is none }} {{ missing is none }} {{ '' is none }}
{{ s is string }} {{ 1 is string }} {{ ('a' | safe) is string }} {{ none is string }} {{ ['a'] is string }}
{{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ '1' is number }} {{ none is number }} {{ big is number }}
{{ 1 is integer }} {{ true is integer }} {{ 1.0 is integer }} {{ 1 is float }} {{ 1.0 is float }} {{ big is integer }} {{ 'nan' | float is float }}
{{ d is mapping }} {{ li is mapping }} {{ s is mapping }} {{ namespace() is mapping }} {{ missing is mapping }} {{ none is mapping }}
{{ li is sequence }} {{ s is sequence }} {{ d is sequence }} {{ (1,) is sequence }} {{ 5 is sequence }} {{ none is sequence }} {{ missing is sequence }} {{ range(3) is sequence }} {{ d.items() is sequence }} {{ (li | map('string')) is sequence }} {{ {'a': 1}.keys() is sequence }} {{ namespace(a=1) is sequence }}
{{ li is iterable }} {{ s is iterable }} {{ d is iterable }} {{ 5 is iterable }} {{ none is iterable }} {{ missing is iterable }} {{ (li | map('string')) is iterable }} {{ range(3) is iterable }} {{ true is iterable }} {{ namespace() is iterable }} {{ {'a': 1}.items() is iterable }}
{{ s.upper is callable }} {{ range is callable }} {{ s is callable }} {{ missing is callable }} {{ dict is callable }} {{ namespace is callable }} {{ raise_exception is callable }} {{ none is callable }} {{ cycler is callable }}
{{ s is defined }} {{ missing is defined }} {{ missing is not defined }} {{ not missing is defined }} {{ nil is defined }} {{ d.zz is defined }} {{ d.a is defined }} {{ li[9] is undefined }} {{ range is defined }} {{ strftime_now is defined }} {{ raise_exception is defined }} {{ loop is defined }} {{ tools is defined }} {{ self is defined }} {{ namespace is defined }} {{ dict is defined }} {{ lipsum is defined }} {{ true is defined }}
{{ 4 is even }} {{ 3 is odd }} {{ -3 is odd }} {{ 0 is even }} {{ true is odd }} {{ 2.0 is even }} {{ 2.5 is even }} {{ -1 is even }} {{ big is even }}
{{ 'a' is even }}
{{ none is odd }}
{{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 0 is divisibleby 5 }} {{ 9.0 is divisibleby 3 }} {{ -9 is divisibleby 4 }}
{{ 9 is divisibleby 0 }}
{{ 'abc' is lower }} {{ 'Abc' is lower }} {{ 'ABC' is upper }} {{ '' is lower }} {{ '1' is upper }} {{ 5 is lower }} {{ none is lower }} {{ 'é' is lower }} {{ 'ǅ' is upper }}
{{ 'a' is sameas 'a' }} {{ none is sameas none }} {{ true is sameas true }} {{ 1 is sameas true }} {{ li is sameas li }} {{ li is sameas [3, 1, 2] }} {{ nil is sameas none }} {{ yes is sameas true }} {{ 1 is sameas 1.0 }} {{ [] is sameas [] }}
{{ 1 is equalto 1.0 }} {{ 1 is eq 2 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is le 1 }} {{ 1 is gt 2 }} {{ 1 is ge 1 }} {{ 1 is greaterthan 0 }} {{ 1 is lessthan 0 }} {{ 'a' is eq 'a' }}
{{ 1 is == 1 }}
{{ 1 is in [1] }} {{ 'a' is in {'a': 1} }} {{ 1 is not in [1] }} {{ missing is in [1] }} {{ 'b' is in('abc') }}
{{ '<' is escaped }} {{ ('<' | safe) is escaped }} {{ ('<' | e) is escaped }} {{ 5 is escaped }}
{{ 'upper' is filter }} {{ 'tojson' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ '==' is test }} {{ 'equalto' is test }}
{{ 5 is odd is true }} {{ (5 is odd) is true }} {{ 5 is not none }} {{ not 5 is none }} {{ 5 is not not none }}
{{ 5 is foo }}
{{ 5 is divisibleby }}
{{ 5 is odd(1) }}
{{ 5 is defined and 4 is defined }} {{ n is number and n > 5 }} {{ n is defined or missing.x }} {{ n is number ~ 'x' }} {{ li is iterable and li is not string and li is not mapping }}
{{ n is gt 5 and n is lt 10 }} {{ 'x' is in ['x'] and 1 }} {{ n is divisibleby 7 or 0 }}
{{ s is string and s | length > 3 }} {{ s is string | string }} {{ s | upper is upper }} {{ -1 is lt 0 }} {{ 1 - 1 is eq 0 }} {{ n is none == false }} {{ n is eq n + 1 }}
"""
LINES["control"] = r"""
{% for x in li %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}
{% for x in li %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}
{% for x in li %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}
{% for x in li %}{{ loop.cycle('a', 'b') }}{% endfor %} {% for x in li %}{{ loop.cycle(*['p', 'q']) }}{% endfor %}
{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %} {% for x in [1, 1, 2] %}{{ loop.changed(x, 'k') }}{% endfor %}
{% for x in li %}{{ loop.cycle() }}{% endfor %}
{% for x in nest recursive %}{% if x is iterable and x is not string %}[{{ loop(x) }}]{% else %}{{ x }}@{{ loop.depth }}/{{ loop.depth0 }},{% endif %}{% endfor %}
{% for x in [] %}a{% else %}empty{% endfor %} {% for x in li if x > 5 %}a{% else %}none fits{% endfor %} {% for x in li %}{% break %}{% else %}not empty{% endfor %}
{% for x in li if x > 1 %}{{ x }}{{ loop.index }}{{ loop.length }}{{ loop.last }} {% endfor %}
{% for x in li if loop.first %}{{ x }}{% endfor %}
{% for x in li %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %} {% for x in range(10) %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in [1, 2] %}{% for y in [1, 2, 3] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}|{% endfor %}
{% break %}
{% continue %}
{% for x in li %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% for a, b in [[1, 2], (3, 4), 'xy'] %}{{ a }}-{{ b }} {% endfor %} {% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %} {% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %} {% for i, (a, b) in [(0, 'xy')] %}{{ i }}{{ a }}{{ b }}{% endfor %}
{% for k, v in d.items() %}{{ k }}{% endfor %}
{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %} {% for k in {'b': 1, 'a': 2} %}{{ k }}{% endfor %} {% for k, v in {'b': 1} | items %}{{ k }}{{ v }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
{% for a, b in [[1]] %}{{ a }}{% endfor %}
{% for a, b in [1] %}{{ a }}{% endfor %}
{% for a, b in d %}{{ a }}{% endfor %}
{% for a, b in {'xy': 1} %}{{ a }}{{ b }}{% endfor %}
{% for c in 'héy' %}{{ c }},{% endfor %} {% for c in '' %}x{% else %}none{% endfor %} {% for x in (1, 2) %}{{ x }}{% endfor %} {% for x in range(2) %}{{ x }}{% endfor %} {% for x in 1, 2 %}{{ x }}{% endfor %}
{% for x in true %}{% endfor %}
{% set x = 1 %}{% for i in li %}{% set x = i %}{{ x }}{% endfor %}{{ x }} {% set y = 1 %}{% if true %}{% set y = 2 %}{% endif %}{{ y }} {% set z2 = 1 %}{% with %}{% set z2 = 2 %}{{ z2 }}{% endwith %}{{ z2 }}
{% set x = 1 %}{% for i in li %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}
{% for i in li %}{% if loop.first %}{% set x = 'f' %}{% endif %}{{ x }}{% endfor %}
{% if false %}{% set q = 1 %}{% endif %}{{ q is defined }}{{ q }}
{% for s in li %}{{ s }}{% endfor %}{{ s }}
{% for i in li %}{% endfor %}{{ i is defined }} {{ loop is defined }}
{% set s = s + '!' %}{{ s }} {% set n = n + 1 %}{{ n }} {% for i in li %}{% set n = n + i %}{{ n }} {% endfor %}{{ n }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set (c, e) = 'xy' %}{{ c }}{{ e }} {% set a, b = b, a %}{{ a }}{{ b }} {% set t3 = 1, 2 %}{{ t3 }}
{% set a, b = 1 %}
{% set a, b = [1, 2, 3] %}
{% set x %}a{{ n }}b{% endset %}{{ x }}|{{ x | length }}|{{ x is string }} {% set y | upper %}abc{% endset %}{{ y }} {% set w | replace('a', 'x') | upper %}banana{% endset %}{{ w }} {% set v %}<{% endset %}{{ v | e }} {% set e2 %}{% endset %}{{ e2 == '' }}
{% set li[0] = 1 %}
{% set d.a = 1 %}
{% set d['a'] = 1 %}
{% set 1 = 2 %}
{% set true = 1 %}
{% set ns.x = 1 %}
{% set loop = 1 %}{{ loop }}
{% set ns = namespace(x=1, l=[]) %}{% for i in li %}{% set ns.x = ns.x + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.x }} {{ ns.l }} {{ ns.nope }}|{{ ns.nope is defined }} {{ ns['x'] }} {{ ns }}
{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b %}blk{{ ns.a }}{% endset %}{{ ns.a }}{{ ns.b }} {% set ns.a, ns.b = 5, 6 %}{{ ns.a }}{{ ns.b }}
{% set ns = namespace({'a': 1}, a=2) %}{{ ns.a }} {% set ns2 = ns %}{% set ns2.a = 3 %}{{ ns.a }} {{ ns == ns2 }} {{ ns == namespace(a=3) }}
{% set ns = namespace(a=1) %}{{ 'a' in ns }}
{% set ns = namespace(items=[1], keys=2) %}{{ ns.items }} {{ ns.keys }} {{ ns.get }}|{{ ns.update }}
{% set ns = namespace(_x=1) %}{{ ns._x }}
{% set ns = namespace() %}{% set ns._x = 1 %}
{% set ns = namespace(n=0) %}{% for a in [1, 2] %}{% for b in [1, 2] %}{% set ns.n = ns.n + 1 %}{% endfor %}{% endfor %}{{ ns.n }}
{% set ns = namespace() %}{% for k in ns %}{{ k }}{% endfor %}
{{ namespace(1) }}
{{ namespace([('a', 1)]).a }} {{ namespace(self=1) }}
{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='y') }}{{ m(a=0) }}{{ m() }}{{ m(b=1, a=none) }}{{ m(*[1, 2], **{'c': 3}) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }} {{ m() }}
{% macro m(a, b=a ~ '!') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }} {{ m.name }} {{ m.arguments }} {{ m.caller }} {{ m.catch_kwargs }} {{ m.catch_varargs }} {{ m.defaults }}
{% macro m() %}  <{{ n }}>  {% endmacro %}[{{ m() }}] {{ m() | trim }} {{ m() | length }} {{ m() is string }} {{ m() ~ '' == '  <7>  ' }} {{ m() + 'x' }}
{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}
{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}
{% set x = 0 %}{% macro m() %}{{ x }}{% endmacro %}{% for x in [1, 2] %}{{ m() }}{% endfor %}
{% macro fact(k) %}{% if k <= 1 %}1{% else %}{{ k * (fact(k - 1) | int) }}{% endif %}{% endmacro %}{{ fact(20) }} {{ fact(25) }}
{% macro deepm(k) %}{{ deepm(k + 1) }}{% endmacro %}{{ deepm(0) }}
{% macro a() %}a{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}
{{ m() }}{% macro m() %}x{% endmacro %}
{% for i in li %}{% macro mm() %}{{ i }}{% endmacro %}{{ mm() }}{% endfor %}
{% if true %}{% macro mm() %}in if{% endmacro %}{% endif %}{{ mm() }}
{% macro m(x) %}[{{ caller() }}{{ x }}]{% endmacro %}{% call m(1) %}body{{ n }}{% endcall %} {% macro l2(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i) l2(li) %}{{ i }}:{{ v }} {% endcall %}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}x{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m() %}{{ caller('a', b='b') }}{% endmacro %}{% call(a, b='d') m() %}{{ a }}{{ b }}{% endcall %}
{% macro m(caller=none) %}{{ caller() if caller else 'no' }}{% endmacro %}{{ m() }}{% call m() %}yes{% endcall %}
{% macro m(caller) %}x{% endmacro %}{{ m() }}
{% macro m(a, a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a=1, b) %}{{ a }}{{ b }}{% endmacro %}
{% macro upper2(x) %}{{ x | upper }}{% endmacro %}{{ ['a'] | map('upper') | first }}{{ upper2('b') }} {{ upper2 is callable }}
{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a', 'b') | upper %}aaa{% endfilter %} {% filter trim %}  x  {% endfilter %}| {% filter indent(2, true) %}a{% endfilter %}
{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% with x = n %}{% with n = 1 %}{{ x }}{{ n }}{% endwith %}{{ n }}{% endwith %} {% with a=1 %}{% with a=2, b=a %}{{ b }}{% endwith %}{% endwith %}
{% raw %}{{ x }}{% if %}{# c #}{% endraw %} {%- raw -%}  a  {%- endraw -%}  b
{# comment {{ x }} {% if %} #}a{# #}b{#- c -#} d
a{# unterminated
{% raw %}abc
{% if true %}abc
{% if true %}a{% else %}b{% elif false %}c{% endif %}
{% endif %}
{% for x in li %}a{% endif %}
{% unknown %}
{% if %}a{% endif %}
{% else %}
{% for x li %}{% endfor %}
{% for x.y in li %}{% endfor %}
{% macro %}{% endmacro %}
{% set %}
{% endfor %}
{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %} {% if n < 5 %}a{% elif n == 7 %}b{% elif n == 7 %}c{% endif %} {% if no %}x{% endif %}|{% if nil is none %}y{% endif %}
{% if n and not no or nil %}a{% endif %} {% if (n > 5) == yes %}b{% endif %} {% if s in ['Hello World'] %}c{% endif %} {% if not (n in li) %}d{% endif %}
{% generation %}a{{ n }}{% endgeneration %}b {% for i in li %}{% generation %}<{{ i }}{{ loop.index }}>{% endgeneration %}{% endfor %} {% if true %}{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{% endif %}{{ x is defined }}
{% generation %}a
{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}
{% for i in li %}{% generation %}{% if i == 1 %}{% break %}{% endif %}{% endgeneration %}{% endfor %}
{% set g = li | map('string') %}{{ g | list }}{{ g | list }} {% set g2 = ls | select('upper') %}{% for x in g2 %}{{ x }}{% endfor %}{% for x in g2 %}{{ x }}{% else %}spent{% endfor %}
{% set g = d.items() %}{{ g | list | length }}{{ g | list | length }} {% set r = li | reverse %}{{ r | list }}{{ r | list }} {% set u = li | unique %}{{ u | first }}{{ u | list }}
{% for x in li | map('string') %}{{ x }}{{ loop.length }}{{ loop.last }}{{ loop.revindex }} {% endfor %} {% for x in li | select('odd') %}{{ loop.nextitem }}{% endfor %}
{% for k, v in d | dictsort %}{{ k }}:{{ v }};{% endfor %} {% for x in li | sort %}{{ x }}{% endfor %} {% for x in li[::-1] %}{{ x }}{% endfor %} {% for x in ls | batch(2) %}{{ x }}{% endfor %}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }} {% set j = joiner() %}{{ j() }}{{ j() }}{{ j() }} {% set k = joiner('|') %}{{ k() }}a{{ k() }}b
{% include 'x' %}
{% import 'x' as y %}
{% extends 'x' %}
{% block b %}in {{ n }}{% endblock %} {{ self.b() }}
{% for i in li %}{% block c %}{{ i }}{% endblock %}{% endfor %}
{% for i in li %}{% block e scoped %}{{ i }}{% endblock %}{% endfor %}
{% block x %}a{% endblock %}{% block x %}b{% endblock %}
{% autoescape true %}{{ html }}{{ '<' | safe }}{% endautoescape %}{{ '<' }}
{% trans %}a{% endtrans %}
{% debug %}
{{ super() }}
{{ raise_exception('bad thing') }}
{{ raise_exception(5) }}
{{ raise_exception() }}
{{ raise_exception('a\nb') }}
{% if n > 5 %}{{ raise_exception('n is ' ~ n) }}{% endif %}
{{ raise_exception(d) }}
{{ raise_exception(message='kw') }}
before {{ raise_exception('late') }}
{% set _ = raise_exception('in set') %}
{{ strftime_now('%Y-%m-%d') }}|{{ strftime_now('%d %B %Y') }}|{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%H:%M:%S') }}|{{ strftime_now('%A %a') }}
{{ strftime_now('%j %y %e %-d %I %p %%') }}|{{ strftime_now('%-m/%-d/%y %-H %-I %-M %-S %-j') }}|{{ strftime_now('%U %W %w %u %V %G %C') }}|{{ strftime_now('%D %F %T %R %r %c %x %X %h') }}
{{ strftime_now('%n%t|%f|%Z|%z|') }}|{{ strftime_now('') }}|{{ strftime_now('no directive é') }}|{{ strftime_now('%k %l %s' | replace('%s', '')) }}|{{ strftime_now('%B').upper() }}|{{ strftime_now('%_d %0e %^a %#Z') }}
{{ strftime_now() }}
{{ strftime_now(5) }}
{{ strftime_now('%Y')|int + 1 }} {{ strftime_now(format='%m') }} {{ strftime_now('%Q') }} {{ strftime_now('100%') }}
{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(10, 0, -3) | list }} {{ range(0) | list }} {{ range(5, 1) | list }} {{ range(-2, 2) | list }} {{ range(true) | list }}
{{ range(100000) | length }}
{{ range(100001) | length }}
{{ range(0, 200000, 2) | length }} {{ range(10 ** 9, 10 ** 9 + 2) | list }}
{{ range(0, 5, 0) }}
{{ range(1.5) }}
{{ range('a') }}
{{ range() }}
{{ range(missing) }}
{{ lipsum(n=1, html=false) is string }} {{ dict(**{'a': 1}).a }} {{ dict(li) }}
{{ dict([['a', 1]]).a }} {{ dict(a=1) == {'a': 1} }} {{ dict.a }}|{{ dict.fromkeys }}|{{ dict.__class__ }}
{{ print('x') }}
{{ len(li) }}
{{ str(5) }}
{{ int('5') }}
{{ enumerate(li) }}
{{ zip }}|{{ open }}|{{ list }}|{{ None }}|{{ true }}|{{ messages }}
{{ s.format }}|{{ ''.join }}|{{ li.index }}
{{ ().__class__ }}|{{ ''.__class__.__mro__ }}
{{ (li | map('string')).gi_frame }}
{{ raise_exception.__globals__ }}
{{ range.__class__ }}|{{ dict.__init__ }}|{{ namespace.__init__ }}
{{ n.__add__(1) }}
{{ cycler.__init__.__globals__ }}
{{ loop.index }}
{% for i in li %}{{ loop.foo }}|{{ loop.index.x }}|{% endfor %}
{% for i in li %}{{ loop }}{% endfor %}
{% for i in [1] %}{{ loop(2) }}{% endfor %}
{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %} {% for i in [1, 2] %}{% set outer = loop %}{% for j in [1] %}{{ outer.index }}{{ loop.index }}{% endfor %}{% endfor %}
{% for i in li %}{{ i }}{{ ',' if not loop.last }}{% endfor %} {% for i in li -%} {{ i }} {%- endfor %}|{% for i in li %} {{- i -}} {% endfor %}|
{%- for i in [1, 2] -%}  x  {%- endfor -%}   y {{- ' z ' -}}   w {%+ if true %} a {% endif +%} b
{{ 'a' }}{{- ' b' }} c {{ 'd' -}} e {{ ' f ' }}
{{'a'}}{{"b"}}{%if true%}c{%endif%}{{-'d'-}}{%-if true-%}e{%-endif-%}
{{ '}}' }} {{ '{{' }} {{ '%}' }} {{ "{% x %}" }} {{ {'a': {'b': 1}} }} {{ {'a':{'b':{}}}}}
{{ {} }}{{ [[]] }}{{{'a':1}.a}}
{ { a } } {% raw %}{{% endraw %} }} %} #} { {%
text only é 日本 "quotes" <html> & \n \\ {x} {%
a {{ 'x'
{{ n }}{{ n }}
$ % # {a} ${b} #{c} {{ '#' }}
# line statement? {{ n }}
## line comment? {{ n }}
% if true
"""
LINES["more"] = r"""
{{ s[:5] ~ '…' if s | length > 5 else s }} {{ (s or 'x')[0] }} {{ [s, t][1] | trim }} {{ (1, 2)[0] + (3, 4)[1] }} {{ 'abc'[1] }} {{ 'abc'.upper()[::-1] }} {{ {'a': [1, 2]}['a'][-1] }} {{ 'a-b'.split('-')[1] }} {{ 'a-b'.split('-') | last }}
{{ s.split()[0].lower() ~ '_' ~ s.split()[-1] }} {{ s.split('o', 1)[1].strip() }} {{ '</think>' in '<think>a</think>b' and '<think>a</think>b'.split('</think>')[-1] }} {{ '\n\na\n'.lstrip('\n').rstrip('\n') }} {{ '<think>x</think>'.split('</think>')[0].split('<think>')[-1] }}
{{ ppl[0].name }} {{ ppl[-1].age is defined }} {{ ppl[1:] | length }} {{ ppl | map(attribute='name') | map('upper') | join('/') }} {{ ppl[0]['name'][0] }} {{ (ppl | first).age + 1 }} {{ ppl | selectattr('age', 'defined') | sum(attribute='age') }}
{{ ppl[0] == {'age': 30, 'name': 'Bob', 'city': 'x'} }} {{ ppl[0] in ppl }} {{ ppl[0] is sameas ppl[0] }} {{ ppl.0.name }} {{ ppl[0].items() | list }} {{ ppl[0] | dictsort | first }}
{{ 1 if n == 7 and s else 0 }} {{ 'a' if missing is defined else 'b' }} {{ ('a' if no) or 'c' }} {{ 'x' if n is odd }} {{ ('' if yes else 'q') ~ 'z' }} {{ li if li else none }} {{ (li | length) if li is defined else 0 }}
{{ n | string | length }} {{ n ~ '' | length }} {{ (n ~ '') | length }} {{ n * 2 | int }} {{ n | float / 2 }} {{ -n | abs }} {{ (n - 10) | abs }} {{ 10 - n | abs }} {{ n ** 2 }} {{ n is number and n }}
{{ [1, 2] + [3] | reverse | list }} {{ ([1, 2] + [3]) | reverse | list }} {{ [n, n + 1] }} {{ [n] * 3 }} {{ (n, s)[1] }} {{ [[n]][0][0] }} {{ {s: n}[s] }} {{ {'k': li}['k'][0] }}
{{ true is defined }} {{ none | default('x') }} {{ None | default('x', True) }} {{ True == true }} {{ True is True }} {{ none is None }} {{ nil == None }} {{ TRUE }}|{{ NONE }}
{{ 1.0 == 1 }} {{ 1.0 is integer }} {{ 3.0 | int }} {{ 3.99 | int }} {{ '3' ~ 4 }} {{ 3 ~ '4' }} {{ 3 ~ 4 }} {{ 3.0 ~ '' }} {{ 1e3 ~ '' }} {{ 10 ** 2 }} {{ 10 ** -2 }} {{ 10.0 ** 2 }} {{ 1e2 | int }}
{{ 100 * 1.1 }} {{ 1.1 + 2.2 }} {{ 3 * 0.1 }} {{ 0.1 * 3 == 0.3 }} {{ 1 - 0.9 }} {{ 4.35 * 100 }} {{ 1.0 * 3 }} {{ 1e400 }} {{ 1e-400 }} {{ 123456789.123456789 }} {{ 0.1 + 0.7 }} {{ 2.5e-3 }} {{ 1.7976931348623157e308 }} {{ 4.9e-324 }} {{ 9007199254740993.0 }} {{ 1e21 }} {{ 12345678901234567890.0 }}
{{ 0.00001 }} {{ 0.000123 }} {{ 123456.0e10 }} {{ 1e15 + 0.5 }} {{ 9999999999999998.0 }} {{ 99999999999999990.0 }} {{ 1.0e0 }} {{ 0.0 }} {{ 0e5 }} {{ 2 ** 0.5 }} {{ 1e16 | int }} {{ 1e23 }} {{ 1e23 | int }}
{{ '\\' }} {{ '\\n' }} {{ "\'" }} {{ '\"' }} {{ 'a\\\'b' }} {{ '\t|' }} {{ ['\\'] }} {{ ['\\n', '\n'] }} {{ "\x7f" | tojson }} {{ '\u0041' }}
{{ '\u{41}' }}
{{ '\x4' }}
{{ 'a' ~ 'b' 'c' }} {{ 'a' 'b' | upper }} {{ ('a' 'b').upper() }} {{ 'a' "b" }} {{ ['a' 'b', 'c'] }}
{{ [1, [2, [3, [4]]]] }} {{ {'a': {'b': {'c': {}}}} }} {{ [{}] }} {{ [{'a': [{'b': none}]}] }} {{ ([1], {'a': (1,)}) }}
{{ ['it"s', "it's", 'both\'"', ''] }} {{ {'"': "'"} }} {{ ["\\'"] }} {{ ['\r\n', '\t'] }} {{ ['\x85', '\u00a0', '\u2009'] }} {{ ['\U0001F1E9', '\uFFFD', '\uFFFE', '\U0010FFFF', '\u0600', '\u061c'] }} {{ ['\u00ad', '\u0300', '\u034f', '\u115f', '\ud7ff', '\u2060', '\ufff9', '\U00013430', '\U0001FAE8'] }}
{{ [1.0, -0.0, 1e16, 1e-5, 100000.0] }} {{ [true, none] | string }} {{ (true, none) | string }} {{ ('a',) ~ '' }} {{ {'a': 'b'} ~ {'c': 1.50} }}
{{ d.items() | list | tojson }} {{ d.keys is none }} {{ d['keys'] is none }} {{ d.values is callable }} {{ d.items is callable }} {{ d['items'] is iterable }} {{ {'items': 1}.items }} {{ {'x': 1}.items is callable }} {{ {'x': 1}['items'] is callable }} {{ {'x': 1}['get']('x') }}
{{ li | length }}{{ li|length }}{{ li |length }}{{ li| length }} {{ (li)|length }} {{ li.__len__ is defined }} {{ [] is defined }} {{ [] | length == 0 }} {{ not li }} {{ not [] }}
{{ ls | sort | join }} {{ ls | sort(case_sensitive=True) | join }} {{ ls | sort(False, True) | join }} {{ ls | sort(reverse=True, case_sensitive=True) | join }} {{ ls | map('lower') | sort | unique | join }} {{ ls | join | upper }} {{ ls | select('in', ['a', 'b']) | join }} {{ ls | reject('==', 'a') | join }} {{ ls | first ~ ls | last }}
{{ ls is sequence and ls[0] is string }} {{ ls.index('c') }} {{ 'c' in ls }} {{ 'C' in ls }} {{ 'C' | lower in ls }} {{ ls[1:3] + ls[:1] }} {{ ls | batch(2, '-') | map('join') | join(';') }}
{{ deep.a[4]['ü'] }} {{ deep.a[4].e }} {{ deep.b }} {{ deep.c }} {{ deep['a'][-1]['o'] }} {{ deep | length }} {{ deep.a | length }} {{ deep.a[3] is true }} {{ deep.a[1] is float }} {{ deep.a[2] is none }} {{ deep.a | tojson }} {{ deep.a[4] | tojson(indent=2) | indent(2) }}
{{ [3, 1, 2] | sort | tojson }} {{ (li | map('string') | list) | tojson }} {{ li | select('odd') | list | tojson }} {{ dict(a=li) | tojson }} {{ {'x': missing | default(none)} | tojson }} {{ {'a': 1.10, 'b': 1e2} | tojson }} {{ ['é'] | tojson(true) }} {{ d | tojson(indent=2, sort_keys=false) }} {{ 'a"b' | tojson }} {{ "a'b" | tojson }}
{{ 5 | tojson | int + 1 }} {{ 'x' | tojson | trim('"') }} {{ {'a': {'b': [1, {'c': 2}]}} | tojson(indent=1) }} {{ [[1, 2], [3]] | tojson(indent=2, separators=(', ', ' : ')) }} {{ {} | tojson }} {{ '' | tojson }} {{ [''] | tojson }} {{ () | tojson }} {{ ((1,),) | tojson }}
{{ [1, 2] | tojson(separators=(',')) }}
{{ [1, 2] | tojson(separators=',:') }} {{ {'a': 1} | tojson(separators=[',', '=']) }}
{% set x = {'a': 1} %}{% set y = dict(x, b=2) %}{{ y }} {{ x }} {% set z3 = dict(x.items(), c=3) %}{{ z3 }} {{ dict(y, **{'a': 9}) }} {{ (x.items() | list + y.items() | list) | length }}
{% set x = li + [4] %}{{ x }}{{ li }} {% set x = x[:2] %}{{ x }} {% set parts = [] %}{% for i in li %}{% set parts = parts + [i] %}{% endfor %}{{ parts }} {% set ns = namespace(p=[]) %}{% for i in li %}{% set ns.p = ns.p + [i * 2] %}{% endfor %}{{ ns.p | join(',') }}
{% set f2 = s.upper %}{{ f2() }} {% set g = range %}{{ g(2) | list }} {% set h = namespace(f=s.lower) %}{{ h.f() }} {% set q = 'a'.join %}{{ q(['x', 'y']) }} {% set m2 = {'f': s.upper} %}{{ m2.f() }} {{ m2['f']() }}
{% set x = 'a' %}{% set x = x ~ 'b' %}{% set x = x ~ x %}{{ x }} {% set x = none %}{{ x is none }}{{ x is defined }} {% set x = '' %}{{ x or 'empty' }} {% set x, y = s.split() %}{{ y }}
{% set x = y = 1 %}
{% set a = 1 %}{% macro mm(a) %}{{ a }}{% endmacro %}{{ mm(2) }}{{ a }} {% macro nn(x, y=n) %}{{ y }}{% endmacro %}{{ nn(1) }} {% set n = 9 %}{{ nn(1) }} {% macro oo() %}{% for i in [1, 2] %}{{ i }}{% endfor %}{% endmacro %}{{ oo() }}{{ oo() | length }}
{% macro opt(x=none, y=[], z={}) %}{{ x }}{{ y }}{{ z }}{% endmacro %}{{ opt() }}{{ opt(y=1) }}{{ opt(*li) }} {% macro um(x) %}{{ x is defined }}{{ x | default('dd') }}{% endmacro %}{{ um() }}{{ um(none) }}
{% macro t(x) %}{%- if x -%} yes {%- else -%} no {%- endif -%}{% endmacro %}{{ t(1) }}{{ t(0) }}{{ t('') ~ t([]) }} {% macro q() %}<b>{% endmacro %}{{ q() | e }} {{ q() == '<b>' }} {{ q()[1] }} {{ q().upper() }} {{ q() in ['<b>'] }} {{ {'<b>': 1}[q()] }}
{% for m in ppl %}{% if loop.first %}{% continue %}{% endif %}{% if m.age is not defined %}{% break %}{% endif %}{{ m.name }}{{ loop.index }}{% endfor %} {% for m in ppl if m.age is defined and m.age > 26 %}{{ m.name }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for m in ppl[::-1] %}{% set i = ppl | length - 1 - loop.index0 %}{{ i }}{{ m.name }} {% endfor %} {% for i in range(ppl | length - 1, -1, -1) %}{{ ppl[i].name[0] }}{% endfor %} {% for m in ppl[loop_start | default(2):] %}{{ m.name }}{% endfor %}
{% for x in li %}{% for y in li if y != x %}{{ x }}{{ y }}{{ loop.length }} {% endfor %}{% endfor %} {% for x in [[1, 2], [3]] %}{% for y in x %}{{ y }}{{ loop.last }}{% endfor %}{% endfor %}
{% for x in 'ab' %}{% for y in 'cd' %}{{ x ~ y }}{{ loop.parent }}{% endfor %}{% endfor %} {% for x in li %}{{ loop.index is odd }}{% endfor %} {% for x in [none, missing, 0] %}[{{ x }}]{% endfor %} {% for x in li %}{{ loop.length - loop.index }}{% endfor %}
{% for k, v in dn.items() recursive %}{{ k }}{% if v is mapping %}({{ loop(v.items()) }}){% endif %} {% endfor %}
{% for x in li %}{% set ns = namespace(v=x) %}{% endfor %}{{ ns is defined }} {% if true %}{% set ns = namespace(v=1) %}{% endif %}{{ ns.v }} {% with %}{% set ww = 1 %}{% endwith %}{{ ww is defined }}
{% for x in range(3) %}{% if x %}{% for y in range(x) %}{{ y }}{% else %}E{% endfor %}{% else %}Z{% endif %}{% endfor %} {% for x in [] %}{% else %}{% for y in [1] %}{{ y }}{% endfor %}{% endfor %}
{% if n is odd and (li | length) == 3 and 'H' in s %}ok{% endif %} {% if n in [7, 8] and not (n in []) %}ok{% endif %} {% if s[0] == 'H' or missing.x %}short{% endif %} {% if 'x' in d.values() | list %}v{% endif %} {% if d and d.a and d.a == 'x' %}d{% endif %}
{% if messages and messages[0].role == 'system' %}a{% else %}b{% endif %} {% if tools is not none and tools %}c{% endif %}{% if tools is not defined or tools is none %}e{% endif %} {% if (tools | default([])) | length %}f{% endif %} {% if not tools %}g{% endif %}
{{ 'a' is in ['a'] }} {{ 'role' in {'role': 1} }} {{ 'tool_calls' not in {'role': 1} }} {{ {'role': 'x'}.role in ['x', 'y'] }} {{ {'role': 'x'}.get('content') is none }} {{ {'role': 'x'}.get('content', '') == '' }} {{ {'content': none}.content is not none }} {{ {'content': []}.content is string }}
{{ ('%05.2f' % 3.14159) ~ ('%3d' % 5) ~ ('%-3d|' % 5) }} {{ '%s, %s!' % ('a', 'b') }} {{ '%s' % s | upper }} {{ '%s' % (s | upper) }} {{ '%s=%r' % ('k', [1, 'v']) }} {{ '%5s|%-5s|%05d|%+.1f' | format('a', 'b', 42, 1.25) }} {{ '%s' % none }} {{ '%5s|' % true }} {{ '%.1f%%' % 99.95 }} {{ '%.2e' % 12345 }} {{ '%G' % 1e-5 }}
{{ 'ab' < 'abc' < 'b' }} {{ 'a' == 'a' != 'b' }} {{ 1 < n < 10 }} {{ 1 < n > 3 }} {{ n == 7 == true }} {{ (n == 7) == true }} {{ 0 <= z <= 0 }} {{ 3 in li in [li] }} {{ 1 < 2 < 'x' }}
{{ 2 < 1 < 'x' }} {{ 1 in [1] == true }} {{ not 1 in [2] }} {{ 1 == 1 and 2 == 2 or 1/0 }} {{ 1 not in [2] and 3 not in [1] }}
"""

# Templates with line ends, mostly about blanks around blocks.
MULTI = [
    "a\n", "a\n\n", "\n", "", " ", "a\r\n", "a\r\nb\rc\n", "{{ n }}\n", "{{ n }}\n\n", "{{ n -}}\n\n x", "x \n {{- n }}",
    "{% if true %}\na\n{% endif %}\nb", "{% if true %}\n\na\n{% endif %}\n\nb\n", "  {% if true %}\n  a\n  {% endif %}\nb",
    "x {% if true %} a {% endif %} y", "\t{% if true %}\t\na\t{% endif %}\n", "  {%+ if true %}\n a{% endif %}", "{% if true +%}\na\n{% endif +%}\nb",
    "{% if true -%}\n\n  a  \n\n{%- endif %}\nb", "a\n  {%- if true %}\n  b{% endif %}", "a  \n\n{%- if true -%}\n\n b \n{%- endif -%}\n c",
    "{# c #}\na", "  {# c #}\na", "a {# c #}\nb", "a\n{#- c -#}\nb", "{# multi\nline #}\nb", "a\n  {# c #}  \nb", "  {#+ c #}\nb", "{# c +#}\nb",
    "{% for x in li %}\n{{ x }}\n{% endfor %}\nend", "{% for x in li %}\n    {{ x }}\n{% endfor %}", "{% for x in li -%}\n    {{ x }}\n{%- endfor %}", "{%- for x in li %}\n    {{- x }}\n{%- endfor %}\n",
    "{% for x in li %}{{ x }}\n{% endfor %}", "    {% for x in li %}  \n  {{ x }}  \n    {% endfor %}  \n  z",
    "{% set x = 1 %}\n{{ x }}", "  {% set x %}\n  abc\n  {% endset %}\n[{{ x }}]", "{% set x -%}\n  abc\n{%- endset %}[{{ x }}]",
    "{% macro m() %}\n  in\n{% endmacro %}\n[{{ m() }}]\n", "{% macro m() -%}\n  in\n{%- endmacro %}\n[{{ m() }}]", "{%- macro m() %}\n    {{- 'a' }}\n    b\n{%- endmacro %}\n[{{ m() }}]",
    "{% raw %}\n  {{ x }}\n{% endraw %}\nb", "  {% raw %}\n  a\n  {% endraw %}\nb", "{% raw -%}\n  a  \n{%- endraw %}\nb", "a {%- raw %} b {% endraw -%} c", "{%- raw +%}\na\n{%+ endraw %}\nb",
    "{{ 'a' }}\n{{ 'b' }}\n", "  {{ 'a' }}  \n  {{ 'b' }}  ", "a{{- '\n' }}b", "{{ '\n' }}\nx", "{{ 'a\nb' }}", "{{ \"a\r\nb\" | length }}", "a\n{{ n\n+\n1 }}\nb",
    "{% if\n  n > 5\n%}\nyes\n{% endif %}", "{%\nif true\n%}a{%\nendif\n%}b", "{{\n  [\n    1,\n    2,\n  ]\n}}", "{{ {\n 'a': 1,\n 'b': [2]\n} }}",
    "{{ s\n  | upper\n  | lower }}", "{{ 'a'\n'b' }}", "{% call(x) m() %}{% endcall %}{% macro m() %}\n{% endmacro %}", "{% filter upper %}\n a\n{% endfilter %}\nb",
    "{% generation %}\na\n{% endgeneration %}\nb", "  {% generation %}\n  a\n  {%- endgeneration -%}\n  b", "{%- generation -%} a {%- endgeneration -%} b",
    "# a\n## b\n{{ n }}", "{{ n }}\x0b{% if true %}\x0b\na{% endif %}", "a\u00a0{%- if true %}b{% endif -%}\u00a0c", "a\u3000\n\u2028{{- n -}}\u2028\x1cb", "\u00a0{% if true %}\na{% endif %}", "\ufeff{{ n }}",
    "{% if true %}\r\na\r\n{% endif %}\r\nb", "{% if true %}\ra", "a\r\n  {%- if true %}\r\nb{% endif %}",
    "line1\nline2 {{ 1/0 }}", "line1\n{% if %}", "line1\n{{ 'a }}\nb", "{{ \"\"\"a\"\"\" }}", "{{ 'a''b' }}",
    "{% if true %}{% if true %}\n{% if true %}\na\n{% endif %}\n{% endif %}\n{% endif %}", "{% if false %}\nx\n{% else %}\ny\n{% endif %}\nz", "{% if false %}x{% elif true -%}\n y\n{% endif %}",
    "{%- set a = 1 -%}\n\n{%- set b = 2 %}\n\n{{ a + b }}\n", "a\n\n{%- set a = 1 %}\n\nb", "a\n{% set a = 1 -%}\n\n\nb", "{{- 'a' -}}\n\n{{- 'b' -}}\n", "\n\n{{- n }}\n\n", "\n  {% if true %}\n  {{ n }}\n  {% endif %}\n",
    "{%- if true %}a\n{%- endif %}\n\n", "{{ n }} \n \n", "{% with x = 1 %}\n  {{ x }}\n{% endwith %}\n", "{% for x in li %}\n  {% if x == 1 %}\n    {% continue %}\n  {% endif %}\n  {{ x }}\n{% endfor %}",
    "{% block b %}\n  in\n{% endblock %}\nout\n", "{% set ns = namespace(a='') %}\n{% for x in li %}\n{% set ns.a = ns.a ~ x ~ '\\n' %}\n{% endfor %}\n{{ ns.a }}", "{{ t }}\n", "{{ '' }}\n{{ missing }}\n", "{#\n{% raw %}\n#}x{# {% endraw %} #}",
    "{{ '{#' }}{# }} #}{{ '#}' }}", "{{ n }}%}", "{%- if true -%}{{ ' a ' }}{%- endif -%}", "{{ n-}}  x", "{{ -n-}} x", "{{--n}}", "x {{ -1 }} {{- -1 }} {{+1}}", "{%-if true%} a{%-endif%} b",
    "{{ [1, 2] | join('\n') }}\n", "{{ 'x'.join(['a\n', '\tb']) }}", "{{ 'tab\there' }}\t{{ 'x' }}",
]

# In lm-evaluation-harness's setting; one template a line.
HARNESS = r"""
{{ missing }}
{{ missing.x }}
{{ missing['x'] }}
{{ d.zz }}
{{ d['zz'] }}
{{ d.zz.y }}
{{ li[9] }}
{{ li['x'] }}
{{ s.zz }}
{{ s[99] }}
{{ n.zz }}
{{ nil.x }}
{{ missing | default('x') }} {{ d.zz | default('y') }} {{ d.zz | d }}|
{{ missing.x | default('x') }}
{{ missing is defined }} {{ missing is undefined }} {{ d.zz is defined }} {{ li[9] is defined }}
{{ missing is none }}
{{ missing is string }} {{ missing is mapping }}
{{ missing is iterable }}
{{ missing is sequence }}
{{ missing is callable }}
{% if missing %}a{% endif %}
{% if not missing %}a{% endif %}
{% if d.zz %}a{% endif %}
{% if missing is defined and missing %}a{% else %}b{% endif %}
{% for x in missing %}a{% endfor %}
{% for x in d.zz %}a{% else %}b{% endfor %}
{{ missing + 1 }}
{{ 'a' ~ missing }}
{{ 'a' + missing }}
{{ missing == none }}
{{ missing != 1 }}
{{ missing == missing }}
{{ 1 == missing }}
{{ missing < 1 }}
{{ missing in [1] }}
{{ missing in [missing] }}
{{ 1 in missing }}
{{ missing and 1 }}
{{ missing or 1 }}
{{ 1 or missing }} {{ 0 and missing }}
{{ not missing }}
{{ -missing }}
{{ missing() }}
{{ [missing] }}
{{ {'a': missing} }}
{{ [missing] | length }} {{ [missing] | default('x') | length }}
{{ missing if false else 'ok' }} {{ 'ok' if true else missing }}
{{ 'a' if false }}
{{ 'x' ~ ('a' if false) }}
{{ missing | length }}
{{ missing | upper }}
{{ missing | trim }}
{{ missing | list }}
{{ missing | join }}
{{ missing | string }}
{{ missing | first }}
{{ [] | first }}
{{ [] | last }}
{{ [] | max }}
{{ missing | tojson }}
{{ missing | int }}
{{ missing | float }}
{{ missing | map('upper') | list }}
{{ missing | selectattr('a') | list }}
{{ missing | items | list }}
{{ missing | replace('a', 'b') }}
{{ ppl | map(attribute='age') | list }}
{{ ppl | map(attribute='age') | join(',') }}
{{ ppl | map(attribute='age', default=0) | list }}
{{ ppl | selectattr('age') | list }}
{{ ppl | selectattr('age', 'defined') | map(attribute='age') | list }}
{{ ppl | sum(attribute='age') }}
{{ ppl | sort(attribute='age') }}
{{ ppl | groupby('age') }}
{{ ['a', missing] | join }}
{{ '%s' % missing }}
{{ '{}'.format(missing) }}
{{ s.replace('l', missing) }}
{{ li[missing] }}
{{ d[missing] }}
{{ li[missing:] }}
{{ range(missing) }}
{% set x = missing %}a
{% set x = missing %}{{ x }}
{% set x = missing.y %}a
{% macro m(a) %}{{ a }}{% endmacro %}{{ m() }}
{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}
{% for x in li %}{{ loop.previtem is defined }}{% endfor %}
{% for x in li %}{{ loop.previtem }}{% endfor %}
{% set ns = namespace() %}{{ ns.x }}
{{ d }} {{ li }} {{ nil }} {{ yes }} {{ f }} {{ t }} {{ uni }} {{ mixed }} {{ nest }}
{{ ctl }}|{{ [ctl] }}
{{ html }} {{ html | e }} {{ html | safe }}
{{ d | tojson }} {{ html | tojson }} {{ uni | tojson }} {{ deep | tojson }}
{{ deep | tojson(indent=2) }}
{{ d | tojson(2) }} {{ {'b': 1, 'a': [true, none]} | tojson }} {{ (html | tojson) ~ '<' }} {{ ('<' | tojson) + '<' }} {{ (1, 2) | tojson }} {{ 1e16 | tojson }} {{ "it's" | tojson }} {{ (html | tojson) | length }} {{ [html | tojson] }}
{{ ctl | tojson }}
{{ {'b': 1, 1: 2} | tojson }}
{{ {2: 1, 1: 2} | tojson }} {{ ('nan' | float) | tojson }}
{{ d | tojson(ensure_ascii=false) }}
{{ li | tojson(indent=none) }} {{ [] | tojson(4) }}
{{ s[:5] }} {{ s[::-1] }} {{ s[-5:] }} {{ s[2:8:2] }} {{ li[1:] }} {{ li[::-1] }} {{ li[:-1] }} {{ li[5:] }}
{{ s.upper() }} {{ s.split(' ')[0] }} {{ s.strip() }} {{ s.replace('o', '0') }} {{ t.strip() }} {{ s.find('W') }} {{ s.startswith('H') }} {{ ', '.join(ls) }} {{ s.lower().title() }} {{ s.format(1) }} {{ '{} {}'.format(n, f) }}
{{ li.append(4) }}{{ li }} {{ li.pop() }}{{ li }}
{% set _ = d.update({'z': 1}) %}{{ d }} {{ d.pop('a') }} {{ d | length }} {{ d.setdefault('q', 2) }}
{% set x = [] %}{% for i in li %}{{ x.append(i) or '' }}{% endfor %}{{ x }} {{ x.sort() }}{{ x }} {{ x.reverse() }}{{ x }} {{ x.insert(0, 'a') }}{{ x }} {{ x.extend([1]) }} {{ x.remove(1) }} {{ x.index('a') }} {{ x.clear() }}{{ x }}
{{ s.__class__ }} {{ s.__class__.__name__ }} {{ s.__len__() }} {{ ''.__class__.__mro__ }}
{{ li.__len__() }} {{ d.__contains__('a') }} {{ n.__add__(1) }}
{{ raise_exception('x') }}
{{ strftime_now('%Y') }}
{% break %}
{% for x in li %}{% continue %}{% endfor %}
{% generation %}a{% endgeneration %}
{% do li.append(1) %}
{{ d.keys }} {{ d.items }} {{ d.a }} {{ d['items'] }} {{ d.get('zz') }} {{ d.get('zz', 'q') }} {{ {'a': 1}.items() }}
{% for k, v in d.items() %}{{ k }}{% endfor %}
{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %} {% for i in range(3) %}{{ loop.index }}{{ ', ' if not loop.last else '' }}{% endfor %} {% for x in ls %}{{ 'ABCDE'[loop.index0] }}. {{ x }} {% endfor %}
{{ ['A', 'B', 'C', 'D'][li[1]] }} {{ li.index(2) }} {{ ls.index('c') }} {{ 'ABCD'[n - 5] }} {{ [s, t].index(s) }} {{ {0: 'no', 1: 'yes'}[z] }} {{ ['no', 'yes'][yes] }} {{ ['False', 'True'][no] }}
{{ ls.index('zz') }}
{{ {0: 'no'}[5] }}
{{ ['a'][5] }}
{{ range(100001) | length }} {{ range(1000000) | length }}
{{ dict(a=1) }} {{ dict }} {{ dict.fromkeys(['a']) }} {{ namespace(_x=1) }} {{ cycler('a').next() }} {{ joiner()() }}
{{ s | capitalize }} {{ s | replace('l', 'L') }} {{ s | regex_replace('a', 'b') }}
{{ 1 / 0 }}
{{ 7 // 2 }} {{ -7 % 3 }} {{ 2 ** 70 }} {{ 1e16 }} {{ 0.1 + 0.2 }} {{ 'a' * 3 }} {{ '%s|%5.1f' % (1, 2.25) }} {{ n / 2 }} {{ true + 1 }} {{ 1.0 }}
{{ s | trim | lower | replace(' ', '_') }} {{ ls | sort | join(' ') }} {{ li | sum }} {{ ls | length }} {{ long | truncate(20) }} {{ f | round }} {{ s | wordcount }} {{ li | first }}{{ li | last }} {{ 3.14159 | round(2) }}
{{ s.split('o') | map('trim') | list }} {{ s.rsplit(' ', 1) | last }} {{ s.partition(' ')[2] }} {{ s[0] | lower }}{{ s[1:] }} {{ (s ~ '.').strip('.') }} {{ s.splitlines() }} {{ s.encode('utf-8') }}
"""
HARNESS_MULTI = [
    "a\n", "a\n\n", "\n", "{{ n }}\n", "{% if true %}\na\n{% endif %}\nb\n", "  {% if true %}\n  a\n  {% endif %}\nb", "{% for x in li %}\n  {{ x }}\n{% endfor %}\n", "{%- for x in li %}\n  {{- x }}\n{%- endfor -%}\n\nend\n",
    "{# c #}\na", "  {# c #}\na", "{% set x = 1 %}\n{{ x }}\n", "{% set x %}\n a\n{% endset %}[{{ x }}]", "{% raw %}\n{{ x }}\n{% endraw %}\n", "a\r\nb\rc\n", "Question: {{ s }}\nAnswer:", "{{ s }}\n\nA. {{ ls[0] }}\nB. {{ ls[1] }}\nAnswer: {{ ['A', 'B'][z] }}",
    "{{ t }}", "{{ s.strip() }}\n{% for c in ls %}{{ loop.index }}) {{ c }}{% if not loop.last %}\n{% endif %}{% endfor %}\n", "{% macro m(a) %}\n {{ a }}\n{% endmacro %}\n{{ m(1) }}", "{%- if yes -%}\n  yes\n{%- else -%}\n  no\n{%- endif -%}\n", "{{ n -}}\n\n", "\n\n{{- n }}",
    "{{ ws }}", "", "{%+ if true +%}\na{% endif %}", "line\n{{ missing }}", "{% if x is not defined %}\nu\n{% endif %}",
]


def error_line(exc):
    lines = str(exc).splitlines()
    return f"{type(exc).__name__}: {lines[0] if lines else ''}"


ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


def attempt(function):
    """(text, error): one of them is null. A text that holds a memory address gives the error "address"."""
    try:
        text = function()
    except RecursionError:
        return None, "RecursionError"
    except Exception as exc:
        error = error_line(exc)
        return None, "address" if ADDRESS.search(error) else error
    if ADDRESS.search(text):
        return None, "address"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return None, "surrogate"
    return text, None


def harness_environment():
    return jinja2.Environment(loader=jinja2.BaseLoader(), undefined=jinja2.StrictUndefined, keep_trailing_newline=True)


def render_small(setting, template, context):
    context = json.loads(json.dumps(context))
    if setting == "chat":
        return ctu._compile_jinja_template(template).render(**context)
    return harness_environment().from_string(template).render(**context)


def context_of(template):
    return {name: value for name, value in VALUES.items() if re.search(rf"\b{re.escape(name)}\b", template)}


def join_split_lines(block):
    """The lines of a block; a line that ends in a backslash goes on in the next one."""
    out, held = [], ""
    for line in block.strip("\n").split("\n"):
        held = held + line
        if line.endswith("\\"):
            held += "\n"
            continue
        out.append(held)
        held = ""
    return out


def split_prints(template):
    """A line of several prints, apart; a line with blocks or comments stays whole."""
    if "{%" in template or "{#" in template:
        return [template]
    # cut only where quotes and braces are balanced, so that no cut falls into a string
    parts, start = [], 0
    for match in re.finditer(r"\}\}[| ]{0,2}(?=\{\{)", template):
        head = template[start : match.start() + 2]
        if head.count("'") % 2 == 0 and head.count('"') % 2 == 0 and head.count("{{") == head.count("}}"):
            parts.append(template[start : match.end()])
            start = match.end()
    parts.append(template[start:])
    return parts if all(part.lstrip().startswith("{{") for part in parts) else [template]


def groups(parts, width=150):
    """Short parts together, so that a case is not always a single print."""
    out = []
    for part in parts:
        if out and sum(map(len, out[-1])) + len(part) < width:
            out[-1].append(part)
        else:
            out.append([part])
    return out


def expressions():
    """(setting, parts): the parts make one case, or, where that fails, one case each."""
    for name in LINES:
        for line in join_split_lines(LINES[name]):
            for parts in groups(split_prints(line)):
                yield "chat", parts
    for template in MULTI:
        yield "chat", [template]
    for line in join_split_lines(HARNESS):
        yield "harness", split_prints(line)
    for template in HARNESS_MULTI:
        yield "harness", [template]


def small_cases():
    seen = set()
    for setting, parts in expressions():
        whole = "".join(parts)
        if len(parts) > 1 and attempt(lambda: render_small(setting, whole, context_of(whole)))[1] is None:
            parts = [whole]
        for template in parts:
            template = template if len(parts) == 1 else template.rstrip(" |")
            if (setting, template) in seen:
                continue
            seen.add((setting, template))
            context = context_of(template)
            text, error = attempt(lambda: render_small(setting, template, context))
            yield {"setting": setting, "template": template, "context": context, "text": text, "error": error}


def make():
    cases = list(small_cases())
    chats = json.loads((HERE / "chats.json").read_text(encoding="utf-8"))
    rendered = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_bytes().decode("utf-8")
        for chat in chats:
            options = json.loads(json.dumps({k: v for k, v in chat.items() if k not in ("id", "messages", "tools", "documents", "add_generation_prompt")}))

            def run():
                messages = ctu._normalize_chat_messages(json.loads(json.dumps(chat["messages"])))
                texts, _ = ctu.render_jinja_template(
                    conversations=[messages],
                    tools=chat["tools"],
                    documents=chat.get("documents"),
                    chat_template=source,
                    add_generation_prompt=chat["add_generation_prompt"],
                    **options,
                )
                return texts[0]

            text, error = attempt(run)
            rendered.append({"template": path.stem, "chat": chat["id"], "text": text, "error": error})
    return cases, rendered


def contexts():
    """What a template sees of each chat."""
    for chat in json.loads((HERE / "chats.json").read_text(encoding="utf-8")):
        names = {key: value for key, value in chat.items() if key != "id"}
        messages = ctu._alias_reasoning_fields(ctu._normalize_chat_messages(chat["messages"]))
        yield {"chat": chat["id"], "context": {"documents": None, **names, "messages": messages}}


def main():
    cases, rendered = make()
    dump = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    versions = {"python": platform.python_version(), "jinja2": jinja2.__version__, "transformers": transformers.__version__}
    for name, rows in [("expressions", cases), ("rendered", rendered), ("contexts", contexts())]:
        lines = [dump({"versions": versions, "now": NOW})] if name == "expressions" else []
        (HERE / f"{name}.jsonl").write_bytes(("\n".join([*lines, *map(dump, rows)]) + "\n").encode("utf-8"))
    count = lambda rows: f"{len(rows)} ({sum(r['error'] is not None for r in rows)} with error)"
    print("chat:", count([c for c in cases if c["setting"] == "chat"]), "harness:", count([c for c in cases if c["setting"] == "harness"]), "chats:", count(rendered))


if __name__ == "__main__":
    main()
