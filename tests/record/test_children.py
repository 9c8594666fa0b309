"""What the processes of a script append to its record."""

from __future__ import annotations

from pathlib import Path

from isobit.record.children import NAME, ChildLog, read_children
from isobit.record.manifest import Hole


def test_holes_add_up_and_notes_come_once(tmp_path: Path) -> None:
    for count in (1, 4):
        log = ChildLog(tmp_path)
        log.hole("aten::cumsum", "it is a scan", count)
        log.note("a remark ü")
    log.hole("aten::median", "unnamed", 1)
    with open(tmp_path / NAME, "a") as file:
        file.write('{"k":"h","op":"aten::cu')  # torn
    holes = (Hole("aten::cumsum", "it is a scan", 5), Hole("aten::median", "unnamed", 1))
    assert read_children(tmp_path) == (holes, ("a remark ü",))


def test_no_children_no_file(tmp_path: Path) -> None:
    assert read_children(tmp_path) == ((), ())
    ChildLog(tmp_path / "gone").note("lost")
    assert not (tmp_path / "gone").exists()
