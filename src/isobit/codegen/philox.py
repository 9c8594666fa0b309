"""Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011) on registers."""

from __future__ import annotations

from isobit.codegen.emit import Builder, Value, const, const_vector, i64

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF


def word(b: Builder, key: Value, j: Value) -> Value:
    """Word j of the stream of `key`, as i64: word j mod 4 of counter j div 4 (ARITHMETIC.md §6)."""
    n = j.lanes
    words = counter_words(b, key, b.binary("lshr", j, const(2, "i64", n)))
    odd = b.compare("ne", b.binary("and", j, const(1, "i64", n)), const(0, "i64", n))
    upper = b.compare("ne", b.binary("and", j, const(2, "i64", n)), const(0, "i64", n))
    return b.select(upper, b.select(odd, words[3], words[2]), b.select(odd, words[1], words[0]))


def consecutive_words(b: Builder, key: Value, j: Value, lanes: int) -> Value:
    """Words j, j + 1, … (`lanes` of them, a multiple of 4) for a scalar j: a counter's four words are used together
    where j is a multiple of 4.
    """

    def together() -> Value:
        quarter = lanes // 4
        counter = b.splat(b.binary("lshr", j, i64(2)), quarter)
        words = counter_words(b, b.splat(key, quarter), b.add(counter, const_vector(range(quarter), "i64")))
        pairs = b.concat(words[:2]), b.concat(words[2:])
        return b.shuffle(*pairs, [k * quarter + i for i in range(quarter) for k in range(4)])

    def apart() -> Value:
        each = b.add(b.splat(j, lanes), const_vector(range(lanes), "i64"))
        return word(b, b.splat(key, lanes), each)

    return b.choose(b.compare("eq", b.binary("and", j, i64(3)), 0), together, apart)


def counter_words(b: Builder, key: Value, counter: Value) -> list[Value]:
    """The four words of a counter; 32-bit words stand in 64-bit lanes, where their products fit."""
    n = counter.lanes
    low = const(_LOW, "i64", n)
    key_words = [b.binary("and", key, low), b.binary("lshr", key, const(32, "i64", n))]
    c = [b.binary("and", counter, low), b.binary("lshr", counter, const(32, "i64", n))]
    c += [const(0, "i64", n)] * 2
    for _ in range(10):
        c = _round(b, c, key_words)
        key_words = [
            b.binary("and", b.binary("add", k, const(w, "i64", n)), low) for k, w in zip(key_words, _WEYL, strict=True)
        ]
    return c


def _round(b: Builder, c: list[Value], key: list[Value]) -> list[Value]:
    n = c[0].lanes
    products = [b.binary("mul", x, const(m, "i64", n)) for x, m in zip((c[0], c[2]), _MULTIPLIERS, strict=True)]
    high = [b.binary("lshr", p, const(32, "i64", n)) for p in products]
    low = [b.binary("and", p, const(_LOW, "i64", n)) for p in products]
    first = b.binary("xor", b.binary("xor", high[1], c[1]), key[0])
    third = b.binary("xor", b.binary("xor", high[0], c[3]), key[1])
    return [first, low[1], third, low[0]]
