"""CPU levels, and LLVM IR text to objects for each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import llvmlite.binding as llvm
import pytest

from isobit.codegen import target as target_module
from isobit.codegen.objects import KernelError, compile_object, target_machine
from isobit.codegen.target import (
    UnsupportedLevelError,
    host_levels,
    host_target,
    level_target,
    next_lower,
)

LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2", "aarch64")


def arithmetic(body: str, type_: str = "<16 x float>") -> str:
    """A kernel that loads two vectors, does `body` to %x and %y, and stores %z."""
    return f"""
define void @k(ptr %slots, ptr %args, i64 %tid, i64 %nthreads) nounwind {{
  %x = load {type_}, ptr %slots, align 4
  %y = load {type_}, ptr %args, align 4
{body}
  store {type_} %z, ptr %slots, align 4
  ret void
}}
"""


MULTIPLY_ADD = "  %p = fmul <16 x float> %x, %y\n  %z = fadd <16 x float> %p, %x"
FMA = "  %z = call <16 x float> @llvm.fma.v16f32(<16 x float> %x, <16 x float> %y, <16 x float> %x)"


def assembly(text: str, level: str) -> str:
    """What compile_object would emit, to read."""
    machine = target_machine(level_target(level))
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        module.triple = level_target(level).triple
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
        builder.getModulePassManager().run(module, builder)
        return str(machine.emit_assembly(module))


REGISTER = {"x86-64-v4": r"%zmm", "x86-64-v3": r"%ymm", "x86-64-v2": r"%xmm", "aarch64": r"\bv\d+\.4s"}


@pytest.mark.parametrize("level", LEVELS)
def test_vectors_are_as_wide_as_the_table_says(level: str) -> None:
    wider = {"x86-64-v3": "%zmm", "x86-64-v2": "%ymm"}
    text = assembly(arithmetic(MULTIPLY_ADD), level)
    assert re.search(REGISTER[level], text)
    assert level not in wider or wider[level] not in text


@pytest.mark.parametrize("level", LEVELS)
def test_product_and_sum_are_not_fused(level: str) -> None:
    assert re.search(r"\bv?f(n?m)l?(add|sub|a|s)\w*", assembly(arithmetic(MULTIPLY_ADD), level)) is None


@pytest.mark.parametrize("level", LEVELS)
def test_fma_is_one_instruction_where_the_table_says_so(level: str) -> None:
    text = assembly(arithmetic(FMA), level)
    fused = re.search(r"\bvfmadd\d+ps|\bfmla\b", text) is not None
    assert fused == level_target(level).has_fma
    assert ("fmaf" in text) != fused


@pytest.mark.parametrize("level", LEVELS)
def test_f16_needs_no_library_where_the_table_says_so(level: str) -> None:
    body = "  %h = fptrunc <16 x float> %x to <16 x half>\n  %z = fpext <16 x half> %h to <16 x float>"
    text = assembly(arithmetic(body), level)
    assert ("sfhf2" in text) != level_target(level).has_f16


@pytest.mark.parametrize(("level", "machine"), [(x, 62 if x.startswith("x86") else 183) for x in LEVELS])
def test_objects_for_every_level_from_any_machine(level: str, machine: int) -> None:
    code = compile_object(arithmetic(MULTIPLY_ADD), level_target(level))
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == machine
    assert code == compile_object(arithmetic(MULTIPLY_ADD), level_target(level))


def test_objects_for_windows() -> None:
    target = level_target("x86-64-v3", "x86_64-w64-windows-gnu")
    assert compile_object(arithmetic(MULTIPLY_ADD), target)[:2] == (0x8664).to_bytes(2, "little")


def test_a_triple_of_another_architecture_is_refused() -> None:
    with pytest.raises(UnsupportedLevelError, match="level x86-64-v3 is for x86_64, not for the triple aarch64"):
        level_target("x86-64-v3", "aarch64-unknown-linux-gnu")


def test_lanes_and_registers() -> None:
    assert [level_target(x).lanes(4) for x in LEVELS] == [16, 8, 4, 4]
    assert [level_target(x).lanes(8) for x in LEVELS] == [8, 4, 2, 2]
    assert [level_target(x).vector_registers for x in LEVELS] == [32, 16, 16, 32]


def test_the_ladder() -> None:
    assert [next_lower(x) for x in LEVELS] == ["x86-64-v3", "x86-64-v2", None, None]
    with pytest.raises(UnsupportedLevelError, match="unknown CPU level"):
        next_lower("x86-64-v5")


def test_this_machine() -> None:
    assert host_target().level == host_levels()[0]
    assert all(host_target(level).level == level for level in host_levels())
    assert list(host_levels()) == [x for x in LEVELS if x in host_levels()], "best first"


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Another machine than this one."""
    host_levels.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    host_levels.cache_clear()


V3 = [
    "sse3",
    "ssse3",
    "sse4.1",
    "sse4.2",
    "popcnt",
    "cx16",
    "sahf",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "bmi",
    "bmi2",
    "lzcnt",
    "movbe",
]
V4 = [*V3, *["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]]


@pytest.mark.parametrize(
    ("features", "levels"),
    [
        (V4, ("x86-64-v4", "x86-64-v3", "x86-64-v2")),
        ([x for x in V4 if x != "avx512vl"], ("x86-64-v3", "x86-64-v2")),
        (V3, ("x86-64-v3", "x86-64-v2")),
        ([x for x in V3 if x != "fma"], ("x86-64-v2",)),
        ([x for x in V3 if x != "popcnt"], ()),
    ],
)
def test_levels_follow_the_features(pretend: pytest.MonkeyPatch, features: list[str], levels: tuple[str, ...]) -> None:
    pretend.setattr(target_module.llvm, "get_host_cpu_features", lambda: dict.fromkeys(features, True))
    pretend.setattr(target_module.llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    assert host_levels() == levels
    if "x86-64-v4" not in levels and levels:
        with pytest.raises(UnsupportedLevelError, match=r"cannot run CPU level x86-64-v4 \(no .*\); it can run: x86"):
            host_target("x86-64-v4")
    if not levels:
        with pytest.raises(UnsupportedLevelError, match="no level that Isobit knows"):
            host_target()


def test_levels_of_another_architecture(pretend: pytest.MonkeyPatch) -> None:
    pretend.setattr(target_module.llvm, "get_host_cpu_features", dict)
    pretend.setattr(target_module.llvm, "get_process_triple", lambda: "arm64-apple-darwin24")
    assert host_levels() == ("aarch64",)
    assert host_target().level == "aarch64"
    with pytest.raises(UnsupportedLevelError, match=r"x86-64-v3 \(it is aarch64\); it can run: aarch64"):
        host_target("x86-64-v3")


INEXACT = [
    "  %z = fadd fast <16 x float> %x, %y",
    "  %z = fmul contract <16 x float> %x, %y",
    "  %z = fadd nsz <16 x float> %x, %y",
    "  %z = fadd nnan ninf <16 x float> %x, %y",
    "  %z = call reassoc <16 x float> @llvm.sqrt.v16f32(<16 x float> %x)",
    "  %z = tail call nnan <16 x float> @llvm.sqrt.v16f32(<16 x float> %x)",
    "  %z = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %x, <16 x float> %y, <16 x float> %y)",
    "  %z = call <16 x float> @llvm.exp.v16f32(<16 x float> %x)",
    "  %z = call <16 x float> @llvm.sin.v16f32(<16 x float> %x)",
    "  %z = call <16 x float> @llvm.pow.v16f32(<16 x float> %x, <16 x float> %y)",
]


@pytest.mark.parametrize("line", INEXACT)
def test_what_would_change_bits_is_refused(line: str) -> None:
    llvm.parse_assembly(arithmetic(line)).verify()  # it is valid IR: nobody else would complain
    with pytest.raises(KernelError, match=r"kernel soft, line 5: .* may change the bits"):
        compile_object(arithmetic(line), level_target("x86-64-v3"), "soft")


@pytest.mark.parametrize(
    "attribute", ['"unsafe-fp-math"="true"', '"denormal-fp-math"="preserve-sign"', '"no-nans-fp-math"="true"']
)
def test_attributes_that_would_change_bits_are_refused(attribute: str) -> None:
    text = arithmetic(MULTIPLY_ADD).replace("nounwind", f"nounwind {attribute}")
    with pytest.raises(KernelError, match="line 2"):
        compile_object(text, level_target("x86-64-v3"))


def test_names_and_comments_may_say_fast() -> None:
    body = "  ; a fast fadd, call it contract\n  %fast = fadd <16 x float> %x, %y"
    body += "\n  %z = fsub <16 x float> %fast, %y"
    compile_object(arithmetic(body), level_target("x86-64-v3"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("define void @k() { %x = bogus }", "kernel k does not parse: .*expected instruction opcode"),
        ("define void @k() { ret i32 0 }", "kernel k .*value doesn't match function result type"),
        ("define void @k() {\nentry:\n br label %l\nl:\n %y = add i32 %x, 1\n %x = add i32 1, 1\n ret void }",
         "kernel k is not valid LLVM IR: Instruction does not dominate"),
        ("declare double @exp(double)\ndefine void @k() {\n ret void }", "kernel k calls exp, which is not part of it"),
    ],
)  # fmt: skip
def test_errors_name_the_kernel(text: str, message: str) -> None:
    with pytest.raises(KernelError, match=re.compile(message, re.DOTALL)):
        compile_object(text, level_target("x86-64-v3"), "k")
