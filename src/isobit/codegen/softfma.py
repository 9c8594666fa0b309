"""A fused multiply-add for CPUs without one, as LLVM IR text.

Every input gets the bits of IEEE 754 fusedMultiplyAdd to nearest even: subnormals, overflow, infinities, signed zeros.
"""

from __future__ import annotations

from isobit.arithmetic.dtypes import DType


def soft_fma(dtype: DType, lanes: int) -> tuple[str, str]:
    """The name and definition of ``<lanes x dtype> fma(a, b, c)`` for f32 or f64.

    The name is without ``@``. The text holds internal definitions only: a module may take several widths and dtypes
    (LLVM declares intrinsics by itself).
    Raises ValueError for another dtype or fewer than one lane.
    """
    if dtype not in (DType.F32, DType.F64) or lanes < 1:
        raise ValueError(f"no software fma for {lanes} lanes of {dtype}: f32 and f64 only")
    name = f"isobit.fma.v{lanes}{dtype}"
    return name, _fma_f32(name, lanes) if dtype is DType.F32 else _fma_f64(name, lanes)


def _fma_f32(name: str, n: int) -> str:
    """The product is exact in f64; the sum, rounded to odd there, keeps all that one rounding to f32 must know."""
    return f"""
define internal <{n} x float> @{name}(<{n} x float> %a, <{n} x float> %b, <{n} x float> %c) nounwind {{
  %a64 = fpext <{n} x float> %a to <{n} x double>
  %b64 = fpext <{n} x float> %b to <{n} x double>
  %c64 = fpext <{n} x float> %c to <{n} x double>
  %p = fmul <{n} x double> %a64, %b64
{_two_sum("s", "e", "%p", "%c64", n)}
{_round_to_odd("odd", "%s", "%e", n)}
  %r = fptrunc <{n} x double> %odd to <{n} x float>
  ret <{n} x float> %r
}}
"""


def _fma_f64(name: str, n: int) -> str:
    """Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd"
    (IEEE Trans. Computers 57, 2008), where no step can overflow or underflow: a and b in [2^-400, 2^400), c zero or in
    [2^-800, 2^900). Zero factors and factors that are not finite need just a·b + c. The rest goes lane by lane."""
    return f"""
define internal <{n} x double> @{name}(<{n} x double> %a, <{n} x double> %b, <{n} x double> %c) nounwind {{
entry:
  %uh = fmul <{n} x double> %a, %b
  %plain = fadd <{n} x double> %uh, %c
{_split("a", n)}
{_split("b", n)}
  %hh = fmul <{n} x double> %a.hi, %b.hi
  %lh = fmul <{n} x double> %a.lo, %b.hi
  %hl = fmul <{n} x double> %a.hi, %b.lo
  %ll = fmul <{n} x double> %a.lo, %b.lo
  %e1 = fsub <{n} x double> %uh, %hh
  %e2 = fsub <{n} x double> %e1, %lh
  %e3 = fsub <{n} x double> %e2, %hl
  %ul = fsub <{n} x double> %ll, %e3
{_two_sum("th", "tl", "%c", "%ul", n)}
{_two_sum("vh", "vl", "%uh", "%th", n)}
{_two_sum("zh", "zl", "%tl", "%vl", n)}
{_round_to_odd("z", "%zh", "%zl", n)}
  %exact = fadd <{n} x double> %vh, %z
{_exponent("a", n)}
{_exponent("b", n)}
{_exponent("c", n)}
{_between("a.safe", "%a.exp", 1023 - 400, 1023 + 400, n)}
{_between("b.safe", "%b.exp", 1023 - 400, 1023 + 400, n)}
{_between("c.normal", "%c.exp", 1023 - 800, 1023 + 900, n)}
  %c.zero = fcmp oeq <{n} x double> %c, zeroinitializer
  %c.safe = or <{n} x i1> %c.normal, %c.zero
  %ab.safe = and <{n} x i1> %a.safe, %b.safe
  %safe = and <{n} x i1> %ab.safe, %c.safe
{_zero_or_not_finite("a", n)}
{_zero_or_not_finite("b", n)}
  %simple = or <{n} x i1> %a.simple, %b.simple
  %easy = or <{n} x i1> %safe, %simple
  %hard = xor <{n} x i1> %easy, {_splat("i1 true", n)}
  %r = select <{n} x i1> %simple, <{n} x double> %plain, <{n} x double> %exact
  %any = call i1 @llvm.vector.reduce.or.v{n}i1(<{n} x i1> %hard)
  br i1 %any, label %lane, label %done
lane:
  %i = phi i64 [ 0, %entry ], [ %i2, %next ]
  %r1 = phi <{n} x double> [ %r, %entry ], [ %r3, %next ]
  %is_hard = extractelement <{n} x i1> %hard, i64 %i
  br i1 %is_hard, label %redo, label %next
redo:
  %ai = extractelement <{n} x double> %a, i64 %i
  %bi = extractelement <{n} x double> %b, i64 %i
  %ci = extractelement <{n} x double> %c, i64 %i
  %ri = call double @{name}.hard(double %ai, double %bi, double %ci)
  %r2 = insertelement <{n} x double> %r1, double %ri, i64 %i
  br label %next
next:
  %r3 = phi <{n} x double> [ %r1, %lane ], [ %r2, %redo ]
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, {n}
  br i1 %more, label %lane, label %done
done:
  %result = phi <{n} x double> [ %r, %entry ], [ %r3, %next ]
  ret <{n} x double> %result
}}
{_hard_f64(f"{name}.hard")}"""


def _hard_f64(name: str) -> str:
    """One lane in integers: both terms as 128-bit numbers with the highest bit at 125, the smaller shifted right with a
    sticky last bit, added, rounded once. a and b are finite and not zero. Bits are only lost when the terms are so far
    apart that the sum keeps over 120 of them, so the sticky bit is always below the half."""
    return f"""
define internal double @{name}(double %a, double %b, double %c) noinline cold nounwind {{
entry:
{_decode("a")}
{_decode("b")}
{_decode("c")}
  %c.finite = icmp ne i64 %c.field, 2047
  br i1 %c.finite, label %finite, label %not_finite
not_finite:
  ret double %c
finite:
  %a.wide = zext i64 %a.mant to i128
  %b.wide = zext i64 %b.mant to i128
  %c.wide = zext i64 %c.mant to i128
  %p.raw = mul nuw i128 %a.wide, %b.wide
  %p.exp0 = add i64 %a.exp, %b.exp
{_normalise("p", "%p.raw", "%p.exp0")}
{_normalise("c", "%c.wide", "%c.exp")}
  %p.sign = xor i1 %a.sign, %b.sign
  %c.is_zero = icmp eq i64 %c.mant, 0
  %c.exp2 = select i1 %c.is_zero, i64 %p.exp1, i64 %c.exp1
  %exp = call i64 @llvm.smax.i64(i64 %p.exp1, i64 %c.exp2)
{_align("p", "%p.exp1")}
{_align("c", "%c.exp2")}
{_signed("p")}
{_signed("c")}
  %sum = add i128 %p.signed, %c.signed
  %cancelled = icmp eq i128 %sum, 0
  br i1 %cancelled, label %zero, label %round
zero:
  ret double 0.0
round:
  %negative = icmp slt i128 %sum, 0
  %mag = call i128 @llvm.abs.i128(i128 %sum, i1 false)
  %lz = call i128 @llvm.ctlz.i128(i128 %mag, i1 true)
  %lz64 = trunc i128 %lz to i64
  %top = sub i64 127, %lz64
  %top.exp = add i64 %top, %exp
  %unit.normal = sub i64 %top.exp, 52
  %unit = call i64 @llvm.smax.i64(i64 %unit.normal, i64 -1074)
  %drop = sub i64 %unit, %exp
  %shifts_right = icmp sgt i64 %drop, 0
  br i1 %shifts_right, label %right, label %left
left:
  %up = sub i64 0, %drop
  %up.wide = zext i64 %up to i128
  %kept.left = shl i128 %mag, %up.wide
  br label %encode
right:
  %vanishes = icmp sgt i64 %drop, 127
  br i1 %vanishes, label %encode, label %nearest
nearest:
  %drop.wide = zext i64 %drop to i128
  %cut = lshr i128 %mag, %drop.wide
  %back = shl i128 %cut, %drop.wide
  %rest = sub i128 %mag, %back
  %half.at = sub i128 %drop.wide, 1
  %half = shl i128 1, %half.at
  %over = icmp ugt i128 %rest, %half
  %tie = icmp eq i128 %rest, %half
  %odd = trunc i128 %cut to i1
  %tie.odd = and i1 %tie, %odd
  %increment = or i1 %over, %tie.odd
  %one = zext i1 %increment to i128
  %rounded = add i128 %cut, %one
  br label %encode
encode:
  %kept = phi i128 [ %kept.left, %left ], [ 0, %right ], [ %rounded, %nearest ]
  %field = add i64 %unit, 1074
  %field.bits = shl i64 %field, 52
  %kept64 = trunc i128 %kept to i64
  %bits = add i64 %field.bits, %kept64
  %overflow = icmp uge i64 %bits, 9218868437227405312
  %clamped = select i1 %overflow, i64 9218868437227405312, i64 %bits
  %sign64 = zext i1 %negative to i64
  %sign.bit = shl i64 %sign64, 63
  %word = or i64 %clamped, %sign.bit
  %r = bitcast i64 %word to double
  ret double %r
}}
"""


def _two_sum(s: str, e: str, a: str, b: str, n: int) -> str:
    """Knuth's TwoSum: ``s + e == a + b`` with ``s`` the rounded sum."""
    v = f"<{n} x double>"
    return f"""  %{s} = fadd {v} {a}, {b}
  %{s}.b = fsub {v} %{s}, {a}
  %{s}.a = fsub {v} %{s}, %{s}.b
  %{s}.eb = fsub {v} {b}, %{s}.b
  %{s}.ea = fsub {v} {a}, %{s}.a
  %{e} = fadd {v} %{s}.ea, %{s}.eb"""


def _round_to_odd(out: str, s: str, e: str, n: int) -> str:
    """The rounded sum ``s`` with error ``e``, rounded to odd instead: an inexact even one moves one ulp towards ``e``.

    ``one`` (ordered) is false for the NaN that TwoSum's error is when the sum is not finite.
    """
    f, i = f"<{n} x double>", f"<{n} x i64>"
    return f"""  %{out}.sb = bitcast {f} {s} to {i}
  %{out}.eb = bitcast {f} {e} to {i}
  %{out}.inexact = fcmp one {f} {e}, zeroinitializer
  %{out}.low = and {i} %{out}.sb, {_splat("i64 1", n)}
  %{out}.even = icmp eq {i} %{out}.low, zeroinitializer
  %{out}.moves = and <{n} x i1> %{out}.inexact, %{out}.even
  %{out}.x = xor {i} %{out}.sb, %{out}.eb
  %{out}.sx = ashr {i} %{out}.x, {_splat("i64 63", n)}
  %{out}.step = or {i} %{out}.sx, {_splat("i64 1", n)}
  %{out}.delta = select <{n} x i1> %{out}.moves, {i} %{out}.step, {i} zeroinitializer
  %{out}.bits = add {i} %{out}.sb, %{out}.delta
  %{out} = bitcast {i} %{out}.bits to {f}"""


def _split(x: str, n: int) -> str:
    """Veltkamp's split of ``x`` into two halves of 26 bits (Dekker's product needs them)."""
    v = f"<{n} x double>"
    return f"""  %{x}.t = fmul {v} %{x}, {_splat("double 134217729.0", n)}
  %{x}.d = fsub {v} %{x}.t, %{x}
  %{x}.hi = fsub {v} %{x}.t, %{x}.d
  %{x}.lo = fsub {v} %{x}, %{x}.hi"""


def _exponent(x: str, n: int) -> str:
    i = f"<{n} x i64>"
    return f"""  %{x}.bits = bitcast <{n} x double> %{x} to {i}
  %{x}.up = lshr {i} %{x}.bits, {_splat("i64 52", n)}
  %{x}.exp = and {i} %{x}.up, {_splat("i64 2047", n)}"""


def _between(out: str, x: str, low: int, high: int, n: int) -> str:
    i = f"<{n} x i64>"
    return f"""  %{out}.rel = sub {i} {x}, {_splat(f"i64 {low}", n)}
  %{out} = icmp ult {i} %{out}.rel, {_splat(f"i64 {high - low}", n)}"""


def _zero_or_not_finite(x: str, n: int) -> str:
    return f"""  %{x}.zero = fcmp oeq <{n} x double> %{x}, zeroinitializer
  %{x}.special = icmp eq <{n} x i64> %{x}.exp, {_splat("i64 2047", n)}
  %{x}.simple = or <{n} x i1> %{x}.zero, %{x}.special"""


def _decode(x: str) -> str:
    """Sign, exponent of the last place and integer mantissa of a finite double."""
    return f"""  %{x}.word = bitcast double %{x} to i64
  %{x}.sign = icmp slt i64 %{x}.word, 0
  %{x}.top = lshr i64 %{x}.word, 52
  %{x}.field = and i64 %{x}.top, 2047
  %{x}.place = call i64 @llvm.umax.i64(i64 %{x}.field, i64 1)
  %{x}.exp = sub i64 %{x}.place, 1075
  %{x}.frac = and i64 %{x}.word, 4503599627370495
  %{x}.isnormal = icmp ne i64 %{x}.field, 0
  %{x}.implicit = select i1 %{x}.isnormal, i64 4503599627370496, i64 0
  %{x}.mant = or i64 %{x}.frac, %{x}.implicit"""


def _normalise(x: str, value: str, exponent: str) -> str:
    """Shift the highest bit to 125 (zero stays zero; its exponent is replaced by the caller)."""
    return f"""  %{x}.lz = call i128 @llvm.ctlz.i128(i128 {value}, i1 false)
  %{x}.lz2 = call i128 @llvm.umax.i128(i128 %{x}.lz, i128 2)
  %{x}.by = sub i128 %{x}.lz2, 2
  %{x}.by1 = and i128 %{x}.by, 127
  %{x}.norm = shl i128 {value}, %{x}.by1
  %{x}.by64 = trunc i128 %{x}.by to i64
  %{x}.exp1 = sub i64 {exponent}, %{x}.by64"""


def _align(x: str, exponent: str) -> str:
    """Shift right to the common exponent, keeping in the last bit whether anything was lost."""
    return f"""  %{x}.down = sub i64 %exp, {exponent}
  %{x}.gone = icmp sgt i64 %{x}.down, 127
  %{x}.down1 = select i1 %{x}.gone, i64 127, i64 %{x}.down
  %{x}.down2 = zext i64 %{x}.down1 to i128
  %{x}.cut = lshr i128 %{x}.norm, %{x}.down2
  %{x}.again = shl i128 %{x}.cut, %{x}.down2
  %{x}.lost = icmp ne i128 %{x}.again, %{x}.norm
  %{x}.sticky = zext i1 %{x}.lost to i128
  %{x}.aligned = or i128 %{x}.cut, %{x}.sticky"""


def _signed(x: str) -> str:
    return f"""  %{x}.minus = sub i128 0, %{x}.aligned
  %{x}.signed = select i1 %{x}.sign, i128 %{x}.minus, i128 %{x}.aligned"""


def _splat(element: str, n: int) -> str:
    return f"<{', '.join([element] * n)}>"
