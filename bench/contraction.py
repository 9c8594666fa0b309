"""Contraction kernels against PyTorch's: `python -m bench.contraction [--threads N] [WORD...]` (words select by name).

Both sides write into memory that exists. Isobit's result is checked bit for bit on a sample of its elements first.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch.nn import functional

from bench.timing import Side, alternate
from isobit.arithmetic import orders
from isobit.codegen.contraction import contraction_args, contraction_needs, lower_contraction
from isobit.ir.kernel import ContractionCall, Place
from isobit.runtime.program import Launch, Program, ProgramSpec, Runtime, RuntimeOptions
from tests.codegen.contraction_cases import (
    Array,
    Call,
    address,
    convolution,
    input_gradient,
    matmul,
    same_bits,
    weight_gradient,
)

SAMPLE = 24


@dataclass(frozen=True)
class Case:
    """A contraction and what PyTorch does for the same product; `flops` counts both operations of each term."""

    name: str
    call: Call
    peer: Callable[[], object]
    flops: int


def tensor(x: Array) -> torch.Tensor:
    return torch.from_numpy(x)


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def product(m: int, n: int, k: int, layout: str = "NN") -> Case:
    """Layout T: the operand lies transposed, as the weight of a linear layer does."""
    a = random(m, k) if layout[0] == "N" else random(k, m).T
    b = random(k, n) if layout[1] == "N" else random(n, k).T
    out, peer_out = np.empty((m, n), np.float32), torch.empty(m, n)
    name = f"mm {layout} {m}×{n}×{k}"
    return Case(name, matmul(a, b, out), partial(torch.mm, tensor(a), tensor(b), out=peer_out), 2 * m * n * k)


def batched(batch: int, m: int, n: int, k: int, layout: str = "NN") -> Case:
    a = random(batch, m, k)
    b = random(batch, k, n) if layout[1] == "N" else random(batch, n, k).transpose(0, 2, 1)
    out, peer_out = np.empty((batch, m, n), np.float32), torch.empty(batch, m, n)
    work = partial(torch.bmm, tensor(a), tensor(b), out=peer_out)
    return Case(f"bmm {layout} {batch}×{m}×{n}×{k}", matmul(a, b, out), work, 2 * batch * m * n * k)


def convolutions(n: int, ci: int, co: int, size: int, kernel: int = 3, stride: int = 1) -> Iterator[Case]:
    """The forward pass, and with stride 1 both gradients. Ours reads an image padded beforehand."""
    edge = kernel // 2
    padding = [(0, 0), (0, 0), (edge, edge), (edge, edge)]
    x, w = random(n, ci, size, size), random(co, ci, kernel, kernel)
    dy = random(n, co, -(-size // stride), -(-size // stride))
    flops, name = 2 * dy.size * ci * kernel * kernel, f"{n}×{ci}→{co} {size}² {kernel}×{kernel}/{stride}"
    forward = partial(functional.conv2d, tensor(x), tensor(w), None, stride, edge)
    yield Case(f"conv {name}", convolution(np.pad(x, padding), w, np.empty_like(dy), stride), forward, flops)
    if stride == 1:
        gradient = partial(
            torch.ops.aten.convolution_backward, tensor(dy), tensor(x), tensor(w), None,
            [1, 1], [edge, edge], [1, 1], False, [0, 0], 1,
        )  # fmt: skip
        to_weight = weight_gradient(np.pad(x, padding), dy, np.empty_like(w))
        yield Case(f"dw   {name}", to_weight, partial(gradient, [False, True, False]), flops)
        to_input = input_gradient(w, np.pad(dy, padding), np.empty_like(x))
        yield Case(f"dx   {name}", to_input, partial(gradient, [True, False, False]), flops)


def cases() -> Iterator[Case]:
    for n in (16, 64, 256, 512, 1024, 2048):
        yield product(n, n, n)
    for layout in ("NT", "TN", "TT"):
        yield product(512, 512, 512, layout)
    for m in (1, 8, 64, 128):
        yield product(m, 1024, 1024, "NT")
    yield product(1, 1024, 1024, "NN")
    yield batched(48, 128, 128, 64, "NT")
    yield batched(48, 128, 64, 128)
    yield batched(512, 16, 16, 16)
    yield from convolutions(16, 64, 64, 32)
    yield from convolutions(16, 3, 64, 32)
    yield from convolutions(16, 256, 256, 8)
    yield from convolutions(4, 64, 64, 56)
    yield from convolutions(16, 64, 256, 16, kernel=1)
    yield from convolutions(16, 64, 128, 32, stride=2)


def load(call: Call, runtime: Runtime) -> Program:
    """The call as a program: inputs are lhs and rhs, outputs the operands."""
    target, threads, c = runtime.target, runtime.threads, call.contraction
    shared, own = (-(-n // 64) * 64 for n in contraction_needs(c, call.sizes, target, threads))
    lhs, rhs, *operands = (Place(i, 0, t.strides) for i, t in enumerate((call.lhs, call.rhs, *call.operands)))
    arena = 2 + len(operands)
    numbers = ContractionCall(
        c, call.sizes, lhs, rhs, tuple(operands), workspace=(arena, 0), scratch=(arena, shared, own)
    )
    arguments = contraction_args(numbers, target, threads)
    launches = tuple(Launch(k, a, True) for k, a in zip(lower_contraction(c, target), arguments, strict=True))
    return runtime.load(ProgramSpec(launches, 2, len(operands), shared, own, True))


def check(call: Call) -> None:
    """Compare some elements of operand 0 with the reference. Raises AssertionError where a bit differs."""
    b, m, n, k = (int(np.prod(part)) for part in call.parts())
    rng = np.random.default_rng(1)
    at = [rng.integers(0, extent, SAMPLE) for extent in (b, m, n)]
    lhs = call.lhs.reshape(b, m, k)[at[0], at[1]]
    rhs = call.rhs.reshape(b, k, n)[at[0], :, at[2]]
    found = call.operands[0].reshape(b, m, n)[at[0], at[1], at[2]]
    assert same_bits(found, orders.contract(lhs, rhs)), "a result differs from the reference"


def measure(case: Case, runtime: Runtime) -> str:
    program = load(case.call, runtime)
    places = [address(case.call.lhs), address(case.call.rhs)], [address(x) for x in case.call.operands]
    program.run(*places)
    check(case.call)
    times = alternate(Side(partial(program.run, *places)), Side(case.peer), rounds=7, seconds=0.1)
    rates = [case.flops / seconds / 1e9 for seconds in (times.ours, times.peer)]
    figures = f"{times.ours * 1e6:11.1f} {times.peer * 1e6:11.1f} µs {rates[0]:8.1f} {rates[1]:8.1f} GFLOP/s"
    return f"{case.name:28s} {figures} {times.ratio:6.2f}×"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    runtime = Runtime(RuntimeOptions(options.threads))
    print(f"{runtime.target.level}, {options.threads} threads; ours, PyTorch {torch.__version__}; by turns, medians")
    for case in cases():
        if not options.words or any(word in case.name for word in options.words):
            print(measure(case, runtime), flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
