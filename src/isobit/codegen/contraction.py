"""Contractions to LLVM IR: Σ_k lhs[b, m, k]·rhs[b, k, n] in the order of ARITHMETIC.md §4, then an epilogue.

One kernel serves matrix products, batches of them, convolution and its gradients: every operand's address is a sum of
one term per index class, so packing needs nothing but tables of offsets. Sizes, strides and blocking are arguments.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from isobit.arithmetic.dtypes import DType
from isobit.codegen.contraction_driver import define_driver
from isobit.codegen.contraction_epilogue import define_epilogue
from isobit.codegen.contraction_pack import define_offsets, define_pack, define_runs
from isobit.codegen.contraction_plan import MAX_AXES, WIDE_PANELS, contraction_args, contraction_needs, tile_for
from isobit.codegen.contraction_tile import define_direct, define_dot_row, define_tile
from isobit.codegen.emit import Module
from isobit.codegen.expr import Numbering
from isobit.codegen.kernel import KernelSource
from isobit.codegen.target import Target
from isobit.ir.kernel import Contraction

__all__ = ["contraction_args", "contraction_key", "contraction_needs", "lower_contraction"]

_ELEMENTS = {DType.F32: "float", DType.F64: "double"}
_SYMBOL = "contraction"


def lower_contraction(c: Contraction, target: Target) -> tuple[KernelSource, ...]:
    """The kernels of a contraction, in launch order; `contraction_args` makes their argument arrays.

    Raises NotImplementedError for dtypes other than f32 and f64, and for more axes in a class than the tables hold.
    """
    if c.dtype not in _ELEMENTS:
        raise NotImplementedError(f"contraction in {c.dtype}: only f32 and f64 are accumulated here")
    if max(c.n_axes) > MAX_AXES:
        raise NotImplementedError(f"contraction over {c.n_axes} axes: at most {MAX_AXES} in each of b, m, n, k")
    text = _module(c, target).text()
    symbol = f"{_SYMBOL}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return (KernelSource(symbol, text.replace(f"@{_SYMBOL}(", f"@{symbol}(")),)


def contraction_key(c: Contraction) -> str:
    """Equal for contractions of one structure; made in time linear in the epilogue's distinct expressions."""
    number = Numbering()
    stores = [(s.target, number(s.value), s.row) for s in c.stores]
    return repr((replace(c, stores=()), stores, list(number.keys())))


def _module(c: Contraction, target: Target) -> Module:
    module, tile = Module(target), tile_for(c.dtype, target)
    element, size = _ELEMENTS[c.dtype], c.dtype.itemsize
    define_offsets(module)
    define_runs(module)
    define_pack(module, "pack_lhs", tile.rows, tile.lanes, element, size)
    define_pack(module, "pack_rhs", tile.columns, tile.lanes, element, size)
    for rows in tile.variants:
        define_tile(module, f"tile{rows}", rows, tile, element, size)
    define_direct(module, "packing_tile", tile.rows, 1, tile, element, size, packs=True)
    define_direct(module, "wide_row", 1, WIDE_PANELS, tile, element, size, packs=False)
    define_dot_row(module, "dot_row", tile, element, size)
    define_epilogue(module, c, tile, element, size)
    define_driver(module, c, tile, _SYMBOL)
    return module
