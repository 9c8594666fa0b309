"""The files that scripts really open, by whichever way, in this process and its children."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from blake3 import blake3

from isobit.record.inputs import CHILD, Inputs, read_inputs
from isobit.record.store import Run, Store
from tests.cli.programs import command, environment, isobit, write

# Records what the statements in its first argument open.
WATCHED = """\
import sys, torch
from pathlib import Path
from isobit.cli.watch import DataWatch
from isobit.record.store import Store
from tests.record.manifests import manifest

run = Store(Path(".isobit").absolute()).create(lambda run_id: manifest(run_id))
watch = DataWatch(run, "", "")
watch.start()
exec(compile(sys.argv[1], "script", "exec"))
found = watch.finish()
assert found.note is None, found.note
"""

MAKE = """\
import csv, gzip, json, os, pickle, shutil, sqlite3, zipfile
import numpy as np
def made(name, text=b"a,b\\n1,2\\n"):
    with open(name, "wb") as file: file.write(text)
for name in ("plain.txt", "pathlib.txt", "os.txt", "csv.csv", "mmap.bin", "update.bin", "fdopen.bin", "bytes.bin", "copied.txt"):
    made(name)
os.makedirs("package/data"); made("package/__init__.py", b""); made("package/data/res.txt"); made("package/data/get.txt")
np.save("array.npy", np.ones(3)); np.savez("arrays.npz", x=np.ones(3)); np.ones(4).tofile("raw.bin"); np.savetxt("text.np", np.ones(2))
with gzip.open("zip.gz", "wb") as file: file.write(b"text")
with open("object.pickle", "wb") as file: pickle.dump([1], file)
with zipfile.ZipFile("archive.zip", "w") as file: file.writestr("x", "y")
with open("config.json", "w") as file: json.dump({}, file)
database = sqlite3.connect("base.sqlite"); database.execute("create table t (x)"); database.commit(); database.close()
made("settings.py", b"lr = 0.1"); made("helper.py", b"x = 1"); made("late.txt")
for folder, _, files in os.walk("."):
    for file in files: os.utime(os.path.join(folder, file), (1e9, 1e9))
"""

USE = """\
import sys, os; sys.path.insert(0, os.getcwd())
import csv, gzip, importlib.resources, io, json, mmap, pickle, pkgutil, shutil, sqlite3, subprocess, threading, traceback, zipfile
import numpy as np
from pathlib import Path
open("plain.txt").close(); Path("pathlib.txt").read_text(); os.close(os.open("os.txt", os.O_RDONLY)); list(csv.reader(open("csv.csv")))
with open("mmap.bin", "rb") as file: mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[:]
open("update.bin", "r+b").close(); os.fdopen(os.open("fdopen.bin", os.O_RDONLY)).close(); open(b"bytes.bin").close()
shutil.copy("copied.txt", "copy.txt")
np.load("array.npy"); np.load("arrays.npz")["x"]; np.fromfile("raw.bin"); np.loadtxt("text.np")
gzip.open("zip.gz").read(); pickle.load(open("object.pickle", "rb")); zipfile.ZipFile("archive.zip").read("x"); json.load(open("config.json"))
sqlite3.connect("base.sqlite").execute("select * from t")
importlib.resources.files("package").joinpath("data/res.txt").read_text(); pkgutil.get_data("package", "data/get.txt")
exec(open("settings.py").read()); import helper
open("copy.txt").close(); open("plain.txt").close(); open("/proc/self/stat").close()
thread = threading.Thread(target=lambda: open("late.txt").close()); thread.start(); thread.join()
"""

READ = [
    "plain.txt", "pathlib.txt", "os.txt", "csv.csv", "mmap.bin", "update.bin", "fdopen.bin", "bytes.bin", "copied.txt",
    "array.npy", "arrays.npz", "raw.bin", "text.np", "zip.gz", "object.pickle", "archive.zip", "config.json",
    "base.sqlite", "res.txt", "get.txt", "settings.py", "late.txt",
]  # fmt: skip


def watched(folder: Path, statements: str, make: str = "") -> Inputs:
    """What `statements` have read in `folder`, after `make` has run there."""
    home = {**environment(), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", make], cwd=folder, env=home, check=True)
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, statements], cwd=folder, env=home, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return read_inputs(latest(folder))


def latest(folder: Path) -> Run:
    store = Store(folder / ".isobit")
    return store.open(store.ids()[-1])


def test_every_way_of_reading_is_seen(tmp_path: Path) -> None:
    inputs = watched(tmp_path, USE, MAKE)
    assert [os.path.basename(file.path) for file in inputs.read] == READ
    assert [os.path.basename(path) for path, file in inputs.files.items() if file.made] == ["copy.txt"]
    for file in inputs.read:
        assert file.digest == blake3(Path(file.path).read_bytes()).hexdigest(), file


CHILDREN = """\
import multiprocessing as mp, os, sys
def work(name): open(name).close()
if sys.argv[0] != "-c" or True:
    child = os.fork()
    if child == 0: work("forked"); os._exit(0)
    os.waitpid(child, 0)
    process = mp.get_context("fork").Process(target=work, args=("worker",)); process.start(); process.join()
    from tests.cli import test_watch
    for method in ("spawn", "forkserver"):
        process = mp.get_context(method).Process(target=test_watch.read_it, args=(method,)); process.start(); process.join()
        assert process.exitcode == 0
"""


COMPILED = """\
import torch
def f(x):
    with open("a") as file: k = int(file.read())
    return x + k
compiled = torch.compile(f, backend="eager")
assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
from torch._dynamo.utils import counters
assert counters["frames"]["total"] == 5, counters["frames"]  # as many as without a listener
"""


def test_a_compiled_function_that_opens_files_compiles_as_without(tmp_path: Path) -> None:
    inputs = watched(tmp_path, COMPILED, "open('a', 'w').write('1')")
    assert f"{tmp_path}/a" in inputs.files


def read_it(name: str) -> None:
    """The target of a process that is started afresh."""
    with open(name):
        pass


def test_children_are_seen(tmp_path: Path) -> None:
    names = ["forked", "worker", "spawn", "forkserver"]
    inputs = watched(tmp_path, CHILDREN, f"for name in {names}: open(name, 'w').write(name)")
    assert [os.path.basename(file.path) for file in inputs.read] == names
    assert {file.process for file in inputs.read} == {CHILD} and inputs.summary().unhashed == 0


def test_where_there_can_be_no_hook_the_run_goes_on(tmp_path: Path) -> None:
    refuse = """
import isobit.cli.watch
def no_hook(*arguments): raise RuntimeError("no hooks here")
isobit.cli.watch.AuditHook = no_hook
"""
    program = WATCHED.replace("run = Store", refuse + "run = Store").replace(
        "assert found.note is None, found.note", "print(found.note)"
    )
    home = {**environment(), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program, ""], cwd=tmp_path, env=home, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("the files that it opens are not recorded: no hooks here\n", "")


TRAIN = """\
import sys, torch, numpy as np
from pathlib import Path
from torch.utils.data import DataLoader, Dataset
import isobit
from descent import Descent

class Rows(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.tensor([float(Path(f"rows/{i}").read_text())])

if __name__ == "__main__":
    w = torch.nn.Parameter(torch.load("start.pt"))
    isobit.data("below.h5")
    update = Descent([w], lr=0.01)
    for batch in DataLoader(Rows(), batch_size=2, num_workers=2):
        (w * batch).sum().backward()
        update.step()
    torch.save(w.data, "start.pt")
    np.save("out.npy", w.detach().numpy()); np.load("out.npy")
    if "--endless" in sys.argv:
        print("begun", flush=True)
        input()
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    write(folder, "train.py", TRAIN)
    (folder / ".isobit" / "runs").mkdir(parents=True)
    (folder / "rows").mkdir()
    for n in range(8):
        (folder / "rows" / str(n)).write_text(str(n))
    (folder / "below.h5").write_bytes(b"h5")
    start = "import torch; torch.save(torch.ones(3), 'start.pt')"
    subprocess.run([sys.executable, "-c", start], cwd=folder, check=True)
    done = isobit("run", "--plain", "--threads", "1", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_training_run_records_its_data(trained: Path) -> None:
    inputs = read_inputs(latest(trained))
    names = [os.path.relpath(file.path, trained) for file in inputs.read]
    assert names[:2] == ["start.pt", "below.h5"] and sorted(names[2:]) == [f"rows/{n}" for n in range(8)]
    assert [os.path.basename(path) for path, file in inputs.files.items() if file.made] == ["out.npy"]
    assert inputs.files[str(trained / "below.h5")].declared
    data = latest(trained).manifest.data
    assert data is not None and (data.files, data.unhashed, data.made) == (10, 0, 1)


def test_show_lists_the_data(trained: Path) -> None:
    first = Store(trained / ".isobit").ids()[0]
    line = next(line for line in isobit("show", first, cwd=trained).stdout.splitlines() if line.startswith("data"))
    assert line.split(maxsplit=1)[1].startswith("10 files, ") and "and 1 that the run wrote itself" in line
    listing = isobit("show", first, "--data", cwd=trained).stdout
    assert f"{trained}/below.h5 (declared)" in listing and f"{trained}/out.npy (written by this run)" in listing
    parsed = json.loads(isobit("show", first, "--data", "--json", cwd=trained).stdout)
    assert [file["size"] for file in parsed["files"] if file["path"] == f"{trained}/below.h5"] == [2]


def test_a_replay_says_which_data_has_changed_and_that_it_is_the_cause(trained: Path) -> None:
    first = Store(trained / ".isobit").ids()[0]
    (trained / "rows" / "3").write_text("7")
    done = isobit("replay", first, cwd=trained)
    (trained / "rows" / "3").write_text("3")
    assert f"isobit: data: {trained}/rows/3: it has the same size, other contents" in done.stderr
    assert f"{trained}/start.pt" in done.stderr  # overwritten by the run itself
    assert done.returncode == 1 and f"{trained}/rows/3 has other contents" in done.stdout
    assert list(read_inputs(latest(trained)).files) != []


def test_a_killed_run_leaves_what_it_had_read(trained: Path) -> None:
    arguments = command("run", "--plain", "--threads", "1", "train.py", "--endless")
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, cwd=trained, env=environment(), stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGKILL)
    inputs = read_inputs(latest(trained))
    assert not inputs.complete and len(inputs.read) == 10
    assert "data      " in isobit("show", "latest", cwd=trained).stdout
