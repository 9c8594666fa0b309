"""Broadcasting: how operators read the elements of several operands on one grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import Affine, Axis, Expr, Load, Scalar, axes, const
from isobit.ir.graph import Graph, Shape, Value

Operand = Value | Scalar


def broadcast_shape(*shapes: Shape) -> Shape:
    """The common shape of `shapes` under NumPy's rule; raises ValueError where there is none."""
    ndim = max(map(len, shapes), default=0)
    padded = [(1,) * (ndim - len(s)) + tuple(s) for s in shapes]
    out = []
    for extents in zip(*padded, strict=True):
        wide = {n for n in extents if n != 1}
        if len(wide) > 1:
            raise ValueError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        out.append(wide.pop() if wide else 1)
    return tuple(out)


def element(x: Value, at: Sequence[Axis | Affine]) -> Load:
    """The element of x at position `at` of a tensor it broadcasts to."""
    trailing = at[len(at) - x.ndim :]
    return x.at(*(0 if n == 1 else a for n, a in zip(x.shape, trailing, strict=True)))


def is_run_time_scalar(x: Operand) -> bool:
    """A 0-d f64 tensor: a number that is known only when the graph runs. It takes the compute dtype of the others."""
    return isinstance(x, Value) and x.dtype == DType.F64 and x.ndim == 0


def compute_dtype(operands: Sequence[Operand]) -> DType:
    """The one dtype of the tensors among `operands` (masks and run-time scalars aside); TypeError if they differ."""
    tensors = [x.dtype for x in operands if isinstance(x, Value)]
    decisive = [x.dtype for x in operands if isinstance(x, Value) and not is_run_time_scalar(x)]
    found: set[DType] = {d for d in decisive if d != DType.BOOL} or set(decisive) or set(tensors)
    if len(found) != 1:
        raise TypeError(f"operands of {sorted(found)}: convert them to one dtype first")
    return found.pop()


def graph_of(operands: Sequence[Operand]) -> Graph:
    return next(x.graph for x in operands if isinstance(x, Value))


def read(x: Operand, at: Sequence[Axis | Affine], dtype: DType) -> Expr:
    """Operand x at `at` as an expression; numbers and run-time scalars are rounded once to `dtype`."""
    if not isinstance(x, Value):
        return const(x, dtype)
    e = element(x, at)
    return e.cast(dtype) if is_run_time_scalar(x) else e


def pointwise(fn: Callable[..., Expr], *operands: Operand) -> Value:
    """y[...] = fn(operands[...]) over their broadcast shape.

    Tensors have one dtype (TypeError otherwise); bool masks may stand beside another.
    """
    dtype = compute_dtype(operands)
    at = axes(*broadcast_shape(*(x.shape for x in operands if isinstance(x, Value))))
    return graph_of(operands).map(at, fn(*(read(x, at, dtype) for x in operands)))
