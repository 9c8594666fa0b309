"""Operators of one step: which, where in the script, and that looking changes nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import nn

from isobit.torch.eager import exact
from isobit.torch.events import Event, OperatorEvent, StepEvent
from isobit.torch.optrace import StepTracer
from isobit.torch.steps import StepHooks


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.ReLU())
        self.head = nn.Linear(5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x) * 1.5)


def train(sink: Callable[[Event], None]) -> None:
    torch.manual_seed(0)
    net = Net()
    update = torch.optim.AdamW(net.parameters(), lr=0.1)
    with StepHooks(sink):
        for _ in range(4):
            update.zero_grad()
            net(torch.randn(3, 4)).square().mean().backward()
            update.step()


def traced(step: int) -> tuple[list[OperatorEvent], list[StepEvent], list[int]]:
    """The operators, the steps, and how many steps had been made when each operator ran."""
    operators: list[OperatorEvent] = []
    steps: list[StepEvent] = []
    seen: list[int] = []

    def sink(event: Event) -> None:
        if isinstance(event, OperatorEvent):
            operators.append(event)
            seen.append(len(steps))
        elif isinstance(event, StepEvent):
            steps.append(event)

    with exact():
        train(StepTracer(sink, step, lambda file: file == __file__))
    return operators, steps, seen


def lines() -> dict[str, str]:
    """Where in this file a piece of the script stands."""
    source, start = inspect.getsourcelines(inspect.getmodule(train))  # type: ignore[arg-type]
    return {text.strip(): f"{__file__}:{number}" for number, text in enumerate(source, start + 1 - bool(start))}


def test_one_step_is_traced_and_nothing_changes() -> None:
    plain: list[Event] = []
    with exact():
        train(plain.append)
    for step in (0, 2):
        operators, steps, seen = traced(step)
        assert steps == [event for event in plain if isinstance(event, StepEvent)]
        assert set(seen) == {step} and [o.number for o in operators] == list(range(len(operators)))


def test_operators_stand_in_their_module_and_line() -> None:
    operators, _, _ = traced(2)
    where = {(o.operator, o.phase): (o.module, o.line) for o in operators}
    forward, multiply = (
        lines()["net(torch.randn(3, 4)).square().mean().backward()"],
        lines()["return self.head(self.body(x) * 1.5)"],
    )
    assert where["aten::native_dropout", "forward"] == ("Net.body.1", multiply)
    assert where["aten::native_dropout_backward", "backward"] == ("Net.body.1", multiply)
    assert where["aten::threshold_backward", "backward"][0] == "Net.body.2"
    assert where["aten::mul.Tensor", "forward"] == ("Net", multiply)
    assert where["aten::mean", "forward"] == ("", forward)
    assert where["isobit::adam_step_", "forward"][1] == lines()["update.step()"]
    multiplied = next(o for o in operators if o.operator == "aten::mul.Tensor" and o.phase == "forward")
    assert "1.5" in multiplied.inputs  # numbers count as inputs


def test_equal_runs_have_equal_traces_and_an_update_has_results() -> None:
    first, second = traced(1)[0], traced(1)[0]
    assert first == second
    update = next(o for o in first if o.operator == "isobit::adam_step_")
    assert len(update.outputs) >= 4 and not set(update.outputs) & set(update.inputs)
