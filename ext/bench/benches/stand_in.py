"""Stand-ins for the playground's generators in plain CPython: as many draws and list operations as a sample of Depo1
(N=375, K=8) and of Mano (L=10) takes, and no sample of either. Prints samples a second of both."""
import random
import time


def depo(rng, longest=375, hops=8, questions=10, letters=50):
    n = min(rng.randint(3, longest), rng.randint(3, longest))
    names = set()
    while len(names) < n:
        names.add(tuple(rng.randrange(1, letters + 1) for _ in range(rng.randint(1, 2))))
    cycle = list(names)
    rng.shuffle(cycle)
    edges = [(cycle[i], cycle[(i + 1) % n]) for i in range(n)]
    rng.shuffle(edges)
    tokens = [9999]
    for a, b in edges:
        tokens.extend(a)
        tokens.extend(b)
    for start in rng.sample(range(n), min(n, questions)):
        k = rng.randint(1, hops)
        tokens.append(9000 + k)
        tokens.extend(cycle[start])
        tokens.extend(cycle[(start + k) % n])
    return tokens


def mano(rng, longest=10, modulus=23):
    def expression(operations):
        if operations == 0:
            value = rng.randrange(modulus)
            return [value], value
        op = rng.choice("asm")
        left = rng.randint(0, operations - 1)
        a, x = expression(left)
        b, y = expression(operations - 1 - left)
        value = x + y if op == "a" else x - y if op == "s" else x * y
        return [op, *a, *b], value % modulus

    length = rng.randint(1, longest)
    tokens, value = expression(length)
    return [9999, length, *tokens, value]


for task in depo, mano:
    rng, samples, start = random.Random(1), 0, time.process_time()
    while time.process_time() - start < 1.5:
        for _ in range(64):
            task(rng)
        samples += 64
    print(samples / (time.process_time() - start))
