"""LLVM IR of `Nest` kernels: pointwise work and reductions, over any strides."""

from __future__ import annotations

from isobit.codegen.emit import Builder, Module
from isobit.codegen.expr import Evaluator
from isobit.codegen.kernel import KernelSource
from isobit.codegen.memory import Memory
from isobit.codegen.nest_frame import Launch, NestFrame, my_units
from isobit.codegen.nest_inner import InnerNest
from isobit.codegen.nest_outer import OuterNest
from isobit.codegen.nest_plan import nest_key, nest_values, plan_nest, row_lanes
from isobit.codegen.target import Target
from isobit.ir.kernel import Nest

__all__ = ["nest_kernel", "nest_key", "row_lanes"]


def nest_kernel(nest: Nest, target: Target) -> KernelSource:
    """The kernel that runs `nest`; its arguments are those of `NestCall.args`.

    Row buffers hold `row_lanes(nest, target)` elements for each inner position. Raises ValueError for a nest that
    breaks the rules of ir.kernel.
    """
    plan = plan_nest(nest, target)
    module = Module(target)
    params = [("ptr", "slots"), ("ptr", "args"), ("i64", "tid"), ("i64", "nthreads")]
    b = Builder(module, plan.symbol, "void", params, "", tame=True)
    launch = Launch(b, plan)
    frame = NestFrame(launch, Memory(b, 1, launch.dummy), None, {}, {})
    whole = Evaluator(b, frame, plan.number, None, lambda e: plan.level(e) == 0)
    whole.prepare(nest_values(nest))
    stages = InnerNest(launch, frame, whole) if nest.vector == "inner" else OuterNest(launch, frame, whole)
    with my_units(b, stages.unit_sizes()) as indices:
        stages.unit(indices)
    b.ret()
    module.define(plan.symbol, b.finish())
    return KernelSource(plan.symbol, module.text())
