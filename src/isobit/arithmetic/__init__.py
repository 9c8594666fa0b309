"""ARITHMETIC.md as a runnable reference in NumPy: slow and obvious."""

from isobit.arithmetic.dtypes import DType
from isobit.arithmetic.fma import fma_f32, fma_f64, narrow_bf16, narrow_f16, widen_bf16, widen_f16
from isobit.arithmetic.functions import FUNCTIONS, Function, algorithm, evaluate
from isobit.arithmetic.ops import NumpyOps, Ops

__all__ = [
    "FUNCTIONS",
    "DType",
    "Function",
    "NumpyOps",
    "Ops",
    "algorithm",
    "evaluate",
    "fma_f32",
    "fma_f64",
    "narrow_bf16",
    "narrow_f16",
    "widen_bf16",
    "widen_f16",
]
