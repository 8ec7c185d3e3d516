"""Puts a load on `canonc serve`: load.py URL [--clients N] [--seconds N | --requests N] [--seed N] [--token TOKEN].

Clients take turns: a third streams, a fifth leaves in the middle, some read slowly. Prints a table. Needs no packages.
The server must be on this machine, and the load ends after the given time or number of requests.
"""

import argparse
import asyncio
import json
import random
import sys
import time
import urllib.parse


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=32, choices=range(1, 257), metavar="N")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--token", default=None)
    return parser.parse_args()


ASKED = arguments()
URL = urllib.parse.urlparse(ASKED.url)
if URL.hostname not in ("127.0.0.1", "localhost", "::1"):
    sys.exit("error: {} is not this machine".format(URL.hostname))
if not 0 < ASKED.seconds <= 3600:
    sys.exit("error: --seconds is {}; give at most 3600".format(ASKED.seconds))


class Counts:
    """What happened."""

    def __init__(self):
        self.begun = self.whole = self.left = self.refused = 0
        self.errors = []
        self.tokens = 0
        self.first, self.total = [], []
        self.texts = {}


async def ask(method, path, body=""):
    """A connection with a request on it."""
    reader, writer = await asyncio.open_connection(URL.hostname, URL.port)
    token = "Authorization: Bearer {}\r\n".format(ASKED.token) if ASKED.token else ""
    body = body.encode()
    head = "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n"
    writer.write(head.format(method, path, token, len(body)).encode() + body)
    await writer.drain()
    return reader, writer


async def get(path):
    reader, writer = await ask("GET", path)
    text = (await reader.read()).decode()
    writer.close()
    return text.split("\r\n\r\n", 1)[1]


async def metric(name):
    lines = (await get("/metrics")).splitlines()
    return float(next(line for line in lines if line.startswith("canonc_" + name + " ")).rsplit(" ", 1)[1])


def request(draw):
    """One of some requests, so that many are repeated: equal requests must have equal answers."""
    number = draw.randrange(48)
    own = random.Random(number)
    prompt = " ".join(own.choice(["once", "upon", "a", "time", "there", "was"]) for _ in range(own.randint(1, 60)))
    body = {"prompt": prompt, "max_tokens": own.randint(1, 96), "seed": number, "temperature": own.choice([0, 1])}
    return number, body


async def one(draw, counts):
    number, body = request(draw)
    streams, leaves, slow = draw.random() < 0.34, draw.random() < 0.2, draw.random() < 0.1
    if streams:
        body["stream"] = True
    began = time.monotonic()
    counts.begun += 1
    reader, writer = await ask("POST", "/v1/completions", json.dumps(body))
    try:
        if leaves:
            if streams:
                await reader.read(100)
            await asyncio.sleep(draw.random() * 0.3)
            counts.left += 1
            return
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        data = b""
        first = None
        while True:
            part = await reader.read(256 if slow else 65536)
            if not part:
                break
            first = first or time.monotonic() - began
            data += part
            if slow:
                await asyncio.sleep(0.05)
        if status == 429:
            counts.refused += 1
            return
        if status != 200:
            counts.errors.append("{}: {}".format(status, data[:300]))
            return
        if streams:
            lines = [line[6:] for line in data.decode().splitlines() if line.startswith("data: ")]
            if not lines or lines[-1] != "[DONE]":
                counts.errors.append("a stream is not complete: {}".format(data[-300:]))
                return
            text = "".join(json.loads(line)["choices"][0]["text"] for line in lines[:-1])
        else:
            answer = json.loads(data)
            text = answer["choices"][0]["text"]
            counts.tokens += answer["usage"]["completion_tokens"]
        counts.whole += 1
        if not slow:
            counts.total.append(time.monotonic() - began)
            if streams:
                counts.first.append(first)
        if counts.texts.setdefault(number, text) != text:
            counts.errors.append("request {} has two answers".format(number))
    finally:
        writer.close()


async def client(number, counts, until):
    draw = random.Random(ASKED.seed * 1000 + number)
    while time.monotonic() < until and counts.begun < ASKED.requests:
        try:
            await asyncio.wait_for(one(draw, counts), 300)
        except Exception as error:
            counts.errors.append(repr(error))


def percentile(times, share):
    times = sorted(times)
    return times[min(len(times) - 1, int(share * len(times)))] if times else float("nan")


async def main():
    counts = Counts()
    # Its caches are filled before memory is measured.
    warm = Counts()
    await asyncio.gather(*(client(number, warm, time.monotonic() + min(5.0, ASKED.seconds / 10)) for number in range(ASKED.clients)))
    before, drawn = await metric("resident_memory_bytes"), await metric("generated_tokens_total")
    steps = await metric("steps_total")
    began = time.monotonic()
    middle = asyncio.create_task(later(ASKED.seconds / 2))
    await asyncio.gather(*(client(number, counts, began + ASKED.seconds) for number in range(ASKED.clients)))
    took = time.monotonic() - began
    while await metric("sequences_running") + await metric("sequences_waiting") > 0:
        await asyncio.sleep(0.05)
    middle.cancel()
    half = await asyncio.gather(middle, return_exceptions=True)
    half = half[0] if isinstance(half[0], float) else float("nan")
    after, drawn = await metric("resident_memory_bytes"), await metric("generated_tokens_total") - drawn
    steps = await metric("steps_total") - steps
    counts.errors = warm.errors + counts.errors
    rows = [
        ("clients", "{}".format(ASKED.clients)),
        ("seconds", "{:.0f}".format(took)),
        ("requests", "{}".format(counts.begun)),
        ("answered", "{}".format(counts.whole)),
        ("left by the client", "{}".format(counts.left)),
        ("refused (429)", "{}".format(counts.refused)),
        ("errors", "{}".format(len(counts.errors))),
        ("tokens/s", "{:.0f}".format(drawn / took)),
        ("sequences in a step", "{:.1f}".format(drawn / max(steps, 1))),
        ("first token p50, p99", "{:.2f} s, {:.2f} s".format(percentile(counts.first, 0.5), percentile(counts.first, 0.99))),
        ("whole answer p50, p99", "{:.2f} s, {:.2f} s".format(percentile(counts.total, 0.5), percentile(counts.total, 0.99))),
        ("slowest answer", "{:.2f} s".format(max(counts.total, default=float("nan")))),
        ("memory at start, half, end", "{:.1f}, {:.1f}, {:.1f} MiB".format(*(n / 2**20 for n in (before, half, after)))),
        ("connections at the end", "{:.0f}".format(await metric("connections") - 1)),
    ]
    for name, value in rows:
        print("{:28} {}".format(name, value))
    for error in counts.errors[:5]:
        print("error:", error, file=sys.stderr)
    print("no error" if not counts.errors else "{} errors".format(len(counts.errors)))
    sys.exit(1 if counts.errors else 0)


async def later(seconds):
    await asyncio.sleep(seconds)
    return await metric("resident_memory_bytes")


asyncio.run(main())
