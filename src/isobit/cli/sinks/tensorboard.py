"""TensorBoard: event files in a folder of the run's own, ``DIR/<run id>``."""

from __future__ import annotations

import shutil
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from isobit.cli.sinks.facts import ending, parameters, tags, used
from isobit.cli.sinks.feed import Point, feed, final_status
from isobit.record.manifest import NAME
from isobit.record.store import Run


def main() -> None:
    """Serve one run."""
    feed("tensorboard", TensorBoard)


class TensorBoard:
    """Writes scalars as they come, and what is known of the run as text."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).resolve()

    def open(self, run: Run) -> None:
        """Start an event file."""
        self._own = self._folder / run.manifest.id
        self._own.mkdir(parents=True, exist_ok=True)
        self._writer = EventFileWriter(str(self._own))
        self._text("isobit/run", {**tags(run.manifest), **parameters(run.manifest)})
        self._writer.flush()

    def send(self, points: list[Point]) -> None:
        """Write scalars."""
        for point in points:
            value = Summary.Value(tag=point.name, simple_value=point.value)
            self._add(Event(wall_time=point.seconds, step=point.step, summary=Summary(value=[value])))
        self._writer.flush()

    def close(self, run: Run) -> None:
        """Write how it ended; the manifest lies beside the event file."""
        shutil.copyfile(run.folder / NAME, self._own / NAME)
        self._text("isobit/end", {**used(run.manifest), **ending(run.manifest, final_status(run))})
        self._writer.close()

    def _text(self, tag: str, facts: dict[str, str]) -> None:
        """A table in Markdown, which the text plugin shows."""
        rows = [f"| {name} | {value.replace('|', chr(92) + '|')} |" for name, value in facts.items()]
        table = "\n".join(("| | |", "|---|---|", *rows)).encode("utf-8", "backslashreplace")
        value = Summary.Value(
            tag=tag,
            metadata=SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text")),
            tensor=TensorProto(
                dtype=DT_STRING,
                string_val=[table],
                tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
            ),
        )
        self._add(Event(summary=Summary(value=[value])))

    def _add(self, event: Event) -> None:
        self._writer.add_event(event)
