"""Restores recorded code to a folder, from the record alone."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from isobit.record.code_files import recorded_code, recorded_trees, script_in
from isobit.record.errors import RecordError
from isobit.record.store import Run
from isobit.record.workcopy import write_tree

OTHERS = ".isobit-trees"  # below it, folders that were neither the script's tree nor in it, by their whole path


def checkout(run: Run, folder: Path) -> Path:
    """Write the code of `run` to `folder`, the script's tree at its top; returns where the script is.

    Trees inside the script's lie where they lay; others below `OTHERS`. Raises RecordError if `folder` holds anything,
    or the record is damaged; then nothing is written.
    """
    code, trees = recorded_code(run), recorded_trees(run)
    target = Path(os.path.abspath(folder))
    if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
        raise RecordError(f"{folder} is not an empty folder: the code is not written over what is there")
    top, script = next(
        (tree.root, name) for tree, listing in trees if (name := script_in(tree, listing, code)) is not None
    )
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        draft.mkdir(parents=True)
        for tree, listing in trees:
            write_tree(run, tree, listing, Path(os.path.realpath(draft)) / _place(tree.root, top))
        os.replace(draft, target)
    except OSError as error:
        raise RecordError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target / script


def _place(root: str, top: str) -> str:
    inside = os.path.join(root, "").startswith(os.path.join(top, ""))
    return os.path.relpath(root, top) if inside else os.path.join(OTHERS, root.lstrip(os.sep))
