"""Parity, written from the task's description alone: the samples that the generator must write."""
import hashlib, json, random, struct, sys

def sample(rng, most, qa):
    n = most if qa else rng.randint(1, most)
    bits = [rng.randint(0, 1) for _ in range(n)]
    # Begin, a 1 or 2 for each bit, the marker of the answer, and its token, again 1 or 2.
    return [4] + [1 + bit for bit in bits] + [3, 1 + bits.count(1) % 2]

cases = []
for most, qa, seed in [(16, False, 42), (16, False, 7), (16, True, 42), (1, False, 42), (300, True, 42)]:
    rng = random.Random(seed)
    digest, items, kept = hashlib.sha256(), 0, []
    for n in range(200):
        tokens = sample(rng, most, qa)
        digest.update(struct.pack("<%dI" % (len(tokens) + 1), len(tokens), *tokens))
        items += len(tokens)
        if n < 3:
            kept.append(tokens)
    mode = "qa" if qa else "train"
    cases.append({"id": f"parity-N{most}-{mode}-s{seed}", "mode": mode, "seed": seed, "params": {"N": most},
        "samples": kept, "digest_tokens": {"sha256": digest.hexdigest(), "samples": 200, "items": items},
        "next_u32_after": rng.getrandbits(32)})
out = {"generator": "parity", "made_with": "CPython " + sys.version.split()[0] +
    ", a re-implementation of the task's description; there is no published script"}
print(json.dumps(out)[:-1] + ', "cases": [\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}")
