"""Mano with division, written from the task's description alone: an independent check of the generator."""
import hashlib, json, random, struct, sys

def sample(rng, ttype, mod, augment, lens, qids, bos):
    i = rng.randint(0, len(lens) - 1)
    length, q = lens[i], qids[i]
    retries = -1
    ids = {"a": (1, 5), "s": (2, 6), "m": (3, 7), "d": (4, 8)}
    def gen(l):
        if l == 0:
            v = rng.randint(0, mod - 1)
            return [5000 + v], v
        op = rng.choice(list(ttype))
        a = rng.randint(0, l - 1)
        left, x = gen(a)
        right, y = gen(l - 1 - a)
        first, second = ids[op]
        token = rng.choice([second, first] if augment else [first])
        if x is None or y is None:
            v = None
        elif op == "a":
            v = (x + y) % mod
        elif op == "s":
            v = (x - y) % mod
        elif op == "m":
            v = x * y % mod
        else:
            # The one number that y times makes x of, found by trying.
            v = next(z for z in range(mod) if z * y % mod == x) if y else None
        return [token] + left + right, v
    value = None
    while value is None:
        retries += 1
        for _ in range(length + 1):
            rng.randint(0, mod - 1)
        text, value = gen(length)
    r = (lambda: rng.randint(0, 1)) if augment else (lambda: 0)
    head = [bos - r(), 10 * q + r()]
    return head + text + [10 * q + 4 + r(), 5000 + value], retries

cases = []
for name, L, ttype, mod, augment, qa, seed in [
    ("L10-asmd-23-ka-train", 10, "asmd", 23, True, False, 42),
    ("L10-asmd-23-ka-train", 10, "asmd", 23, True, False, 7),
    ("L10-asmd-23-ka-qa", 10, "asmd", 23, True, True, 42),
    ("L6-da-5-noka-train", 6, "da", 5, False, False, 42),
    ("L8-d-2-ka-qa", 8, "d", 2, True, True, 42),
    ("L3-md-4889-ka-train", 3, "md", 4889, True, False, 42),
]:
    lens = [L] if qa else list(range(1, L + 1))
    rng = random.Random(seed)
    digest, items, retries, kept = hashlib.sha256(), 0, 0, []
    for n in range(200):
        tokens, again = sample(rng, ttype, mod, augment, lens, lens, 9999)
        retries += again
        digest.update(struct.pack("<%dI" % (len(tokens) + 1), len(tokens), *tokens))
        items += len(tokens)
        if n < 3:
            kept.append(tokens)
    cases.append({"id": f"mano-{name}-s{seed}", "mode": "qa" if qa else "train", "seed": seed,
        "params": {"L": L, "ttype": ttype, "value_mod": mod, "knowledge_augment": augment},
        "samples": kept, "retries": retries,
        "digest_tokens": {"sha256": digest.hexdigest(), "samples": 200, "items": items},
        "next_u32_after": rng.getrandbits(32)})
out = {"generator": "mano", "made_with": "CPython " + sys.version.split()[0] +
    ", a re-implementation of the task's description; the published script never divides"}
print(json.dumps(out)[:-1] + ', "cases": [\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}")
