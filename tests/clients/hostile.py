"""Holds, floods and breaks a `canonc serve` of this machine beside ordinary clients: hostile.py URL PID [--seconds N].

A quarter of the time the ordinary clients are alone, then hostile ones are there as well: slow heads and bodies, floods of
messages, bombs for the chat template, bodies that are too large, and connections that break. Prints the ordinary clients'
times in both parts and the server's memory. Ends with 1 if an ordinary request failed. Needs no packages.
"""

import argparse
import asyncio
import json
import random
import sys
import time
import urllib.parse

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0])
PARSER.add_argument("url")
PARSER.add_argument("pid", type=int)
PARSER.add_argument("--seconds", type=float, default=600.0)
PARSER.add_argument("--seed", type=int, default=0)
ASKED = PARSER.parse_args()
URL = urllib.parse.urlparse(ASKED.url)
if URL.hostname not in ("127.0.0.1", "localhost", "::1"):
    sys.exit("error: {} is not this machine".format(URL.hostname))

MESSAGE = b'{"role":"user","content":"a"}'
FLOOD = b'{"messages":[' + b",".join([MESSAGE] * 125_000) + b'],"max_tokens":1}'
OBJECTS = b'{"prompt":[' + b",".join([b'{"":0}'] * 500_000) + b"]}"
NUMBERS = b'{"prompt":[' + b",".join([b"1"] * 1_900_000) + b"]}"
LONG = b'{"messages":[{"role":"user","content":"' + b"lorem ipsum " * 300_000 + b'"}],"max_tokens":1}'
TEXT = b'{"prompt":"' + b"a" * 4_000_000 + b'","max_tokens":1}'
DEEP = b'{"prompt":' + b"[" * 2_000_000 + b"}"


def head(path, length, method="POST"):
    text = "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
    return text.format(method, path, length).encode()


async def ask(path, body, method="POST", timeout=300):
    """The status and the body of an answer."""
    async def exchange():
        reader, writer = await asyncio.open_connection(URL.hostname, URL.port)
        try:
            writer.write(head(path, len(body), method) + body)
            await writer.drain()
            answer = await reader.read()
            return int(answer.split(b" ", 2)[1]), answer.split(b"\r\n\r\n", 1)[1]
        finally:
            writer.close()

    return await asyncio.wait_for(exchange(), timeout)


class Times:
    def __init__(self):
        self.answers, self.health, self.errors = [], [], []


async def ordinary(number, times, until):
    draw = random.Random(number)
    while time.monotonic() < until:
        body = {"prompt": " ".join(draw.choice(["once", "upon", "a", "time"]) for _ in range(20)), "max_tokens": 16, "seed": 1}
        began = time.monotonic()
        try:
            status, text = await ask("/v1/completions", json.dumps(body).encode())
            if status == 200:
                times.answers.append(time.monotonic() - began)
            else:
                times.errors.append("{}: {}".format(status, text[:200]))
        except Exception as error:
            times.errors.append(repr(error))


async def watch(times, until):
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            status, _ = await ask("/health", b"", "GET", 30)
            times.health.append(time.monotonic() - began)
            if status != 200:
                times.errors.append("/health: {}".format(status))
        except Exception as error:
            times.errors.append("/health: {!r}".format(error))
        await asyncio.sleep(0.2)


async def slow_head(until):
    reader, writer = await asyncio.open_connection(URL.hostname, URL.port)
    writer.write(b"GET /health HTTP/1.1\r\n")
    while time.monotonic() < until:
        writer.write(b"X: y\r\n")
        await writer.drain()
        await asyncio.sleep(5)
    writer.close()


async def slow_body(until):
    reader, writer = await asyncio.open_connection(URL.hostname, URL.port)
    writer.write(head("/v1/completions", 4 << 20) + TEXT[: 3 << 20])
    while time.monotonic() < until:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(3)
    writer.close()


async def posted(path, body, until):
    await ask(path, body)


async def breaks(until):
    reader, writer = await asyncio.open_connection(URL.hostname, URL.port)
    body = b'{"prompt":"a","max_tokens":60,"stream":true}'
    writer.write(head("/v1/completions", len(body)) + body)
    await writer.drain()
    await reader.read(100)
    writer.close()


async def nonsense(until):
    reader, writer = await asyncio.open_connection(URL.hostname, URL.port)
    writer.write(random.randbytes(2000) + b"\r\n\r\n")
    await writer.drain()
    await reader.read()
    writer.close()


def posts(path, body):
    return lambda until: posted(path, body, until)


#: What hostile clients do, and how many do it at a time.
HOSTILE = [
    (slow_head, 300),
    (slow_body, 60),
    (posts("/v1/chat/completions", FLOOD), 2),
    (posts("/v1/completions", OBJECTS), 1),
    (posts("/tokenize", NUMBERS), 1),
    (posts("/v1/chat/completions", LONG), 2),
    (posts("/tokenize", TEXT), 1),
    (posts("/v1/completions", DEEP), 1),
    (posts("/v1/completions", b"x" * (20 << 20)), 1),
    (breaks, 4),
    (nonsense, 4),
]


async def hostile(attack, until):
    while time.monotonic() < until:
        try:
            await attack(until)
        except Exception:
            pass
        # They share two cores with the server that they attack.
        await asyncio.sleep(0.5)


def memory():
    with open("/proc/{}/status".format(ASKED.pid)) as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    return tuple(int(lines[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM"))


def percentile(times, share):
    times = sorted(times)
    return times[min(len(times) - 1, int(share * len(times)))] if times else float("nan")


async def part(seconds, attacks):
    times, until = Times(), time.monotonic() + seconds
    everyone = [ordinary(number, times, until) for number in range(4)] + [watch(times, until)]
    everyone += [hostile(attack, until) for attack, count in attacks for _ in range(count)]
    running = [asyncio.create_task(one) for one in everyone]
    await asyncio.wait(running[:5])
    for one in running[5:]:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return times


async def main():
    await part(2, [])
    begin = memory()[0]
    alone = await part(ASKED.seconds / 4, [])
    beside = await part(ASKED.seconds * 3 / 4, HOSTILE)
    for name, times in (("alone", alone), ("beside hostile clients", beside)):
        row = "{:24} {:6} answers, p50 {:.3f} s, p99 {:.3f} s, slowest {:.3f} s; /health p99 {:.3f} s, slowest {:.3f} s; {} errors"
        print(row.format(name, len(times.answers), percentile(times.answers, 0.5), percentile(times.answers, 0.99), max(times.answers, default=0), percentile(times.health, 0.99), max(times.health, default=0), len(times.errors)))
    await asyncio.sleep(2)
    print("memory {} MiB at the start, {} at its peak, {} at the end".format(begin, memory()[1], memory()[0]))
    errors = alone.errors + beside.errors
    for error in errors[:5]:
        print("error:", error, file=sys.stderr)
    sys.exit(1 if errors else 0)


asyncio.run(main())
