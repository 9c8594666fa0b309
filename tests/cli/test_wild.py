"""Scripts as they are in the wild: modules, standard input, seeds that nobody set, processes of their own, GPUs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from isobit.cli import devices
from isobit.cli.devices import hidden_devices
from isobit.cli.environment import pinned, pins_of
from isobit.record.code_files import code_files
from isobit.record.errors import RecordError
from tests.cli.programs import command, environment, isobit
from tests.cli.test_commands import latest, script_lines, store

PLAIN = ("--plain", "--threads", "1")

MODULE = """\
import argparse, inspect, multiprocessing, pickle, sys, warnings
from pathlib import Path
from . import sibling
import torch

class Thing:
    pass

def square(n):
    return n * n

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int)
    warnings.warn("look here")
    print(parser.prog, parser.parse_args().n, sibling.NAME, __name__, __package__, __spec__.name, Path(__file__).name)
    print(Path(sys.argv[0]) == Path(__file__), sys.path[0] == str(Path.cwd()) or "isobit-replay" in sys.path[0])
    print(inspect.getsource(square).splitlines()[0], type(pickle.loads(pickle.dumps(Thing()))) is Thing)
    print(sys.orig_argv[-4:], sys.flags.optimize)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(square, [3]))
    print(sorted(len(line) for line in sys.stdin))
    w = torch.nn.Parameter(torch.ones(3))
    (w * w).sum().backward()
    torch.optim.SGD([w], lr=0.1).step()
    1 / int(parser.parse_args().n != 7)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder with a package, and a run of a module in it that reads two lines."""
    folder = tmp_path_factory.mktemp("module")
    (folder / "tools").mkdir()
    (folder / "tools" / "__init__.py").write_text("")
    (folder / "tools" / "sibling.py").write_text("NAME = 'sibling'\n")
    (folder / "tools" / "train.py").write_text(MODULE)
    return folder, _fed("run", *PLAIN, "-m", "tools.train", "--n", "3", cwd=folder, text="ab\nabc\n")


def _fed(*args: str, cwd: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*args), cwd=cwd, env=environment(), input=text, capture_output=True, text=True)


def test_a_module_runs_as_under_python(package: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = package
    plain = subprocess.run(
        [sys.executable, "-m", "tools.train", "--n", "3"],
        cwd=folder, env=environment(), input="ab\nabc\n", capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, script_lines(done.stderr)) == (0, plain.stdout, plain.stderr)
    manifest = latest(folder).manifest
    assert manifest.module == "tools.train" and manifest.code is not None
    assert sorted(code_files(latest(folder))) == ["tools/__init__.py", "tools/sibling.py", "tools/train.py"]
    assert (store(folder).open(manifest.id).folder / "stdin").read_text() == "ab\nabc\n"


def test_a_module_replays_from_its_record_with_its_input(
    package: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder = package[0]
    sibling = folder / "tools" / "sibling.py"
    sibling.write_text("NAME = 'today'\n")
    done = isobit("replay", store(folder).ids()[0], cwd=folder)
    sibling.write_text("NAME = 'sibling'\n")
    assert (done.returncode, done.stdout.splitlines()[-1][:17]) == (0, "identical: 1 step"), done.stderr
    assert "sibling" in done.stdout and "today" not in done.stdout and "[3, 4]" in done.stdout


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tools.nothing", "there is no module 'tools.nothing'"),
        ("no such", "there is no module 'no such'"),
        ("tools", "tools is a package without a __main__"),
    ],
)
def test_modules_that_cannot_run(package: tuple[Path, subprocess.CompletedProcess[str]], name: str, says: str) -> None:
    done = isobit("run", "-m", name, cwd=package[0])
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


CHILD = """\
import random, sys
first = random.random()
import numpy, torch
torch.cumsum(torch.ones(3), 0)
torch.cumsum(torch.ones(3), 0)
w = torch.nn.Parameter(torch.ones(3))
(w * w).sum().backward()
torch.optim.SGD([w], lr=0.1).step()
print(sys.argv[1], first, numpy.random.rand(), numpy.random.default_rng().random(), torch.rand(1).item())
print(float(torch.linspace(-3, 3, 5000).exp().sum()))
"""

PARENT = """\
import multiprocessing, os, random, subprocess, sys, tempfile
from numpy.random import default_rng
import numpy as np, torch

def work(queue):
    torch.cumsum(torch.ones(3), 0)
    torch.cumprod(torch.ones(3), 0)
    queue.put((random.random(), np.random.default_rng().random(), float(torch.linspace(-3, 3, 5000).exp().sum())))

if __name__ == "__main__":
    print(default_rng().random(), np.random.default_rng().random(), np.random.SeedSequence().entropy)
    print(np.random.Generator(np.random.PCG64()).random(), np.random.RandomState().rand(), default_rng(5).random())
    print(float(torch.linspace(-3, 3, 5000).exp().sum()))
    for name in "ab":
        sys.stdout.write(subprocess.run([sys.executable, "child.py", name], capture_output=True, text=True).stdout)
    idle = "import sys; sys.exit('torch' in sys.modules or 'isobit.seeds' in sys.modules)"
    print(subprocess.run([sys.executable, "-c", idle]).returncode)
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        print(*queue.get())
        process.join()
    if os.fork() == 0:
        torch.cumsum(torch.ones(3), 0)
        print(random.random())
        sys.exit()
    os.wait()
    torch.cumsum(torch.ones(3), 0)
    random.Random(), random.Random(3)
    random.SystemRandom().random()
    tempfile.mkdtemp()
    torch.zeros(2).to("cuda")
"""


@pytest.mark.slow
def test_processes_and_entropy_of_a_script(tmp_path: Path) -> None:
    """Two runs print the same, and their records hold what all processes did."""
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "parent.py").write_text(PARENT)
    first, second = (isobit("run", "parent.py", cwd=tmp_path) for _ in range(2))
    assert first.stdout == second.stdout and first.returncode == 1
    lines = first.stdout.splitlines()
    exact = lines[2]
    assert [lines[4], lines[6], lines[8].split()[2], lines[9].split()[2]] == [exact] * 4 and lines[7] == "0"
    a, b = (lines[k].split()[1:] for k in (3, 5))
    assert a[:3] != b[:3] and a[3] == b[3]  # numbers go by the command; PyTorch's seed is one
    assert len({*lines[8].split()[:2], *lines[9].split()[:2], lines[10], a[0], b[0]}) == 7
    assert first.stderr.splitlines()[-2].startswith("RuntimeError: the script asks for the device 'cuda', but Isobit")
    assert "accelerators.py" not in first.stderr
    manifest = latest(tmp_path).manifest
    assert {hole.operator: hole.count for hole in manifest.holes} == {"aten::cumsum": 8, "aten::cumprod": 2}
    number = PARENT.splitlines().index("    random.Random(), random.Random(3)") + 1
    assert set(manifest.notes) == {
        "a process that the script started made optimizer steps, which are not in the trace",
        f"entropy: random.Random() without a seed at {tmp_path}/parent.py:{number}",
        f"entropy: random.SystemRandom.random() at {tmp_path}/parent.py:{number + 1}",
    }
    assert manifest.settings.pins["OPENBLAS_NUM_THREADS"] == "1"


OWN = """\
import os, sys, sitecustomize, subprocess
if len(sys.argv) == 1:
    print(subprocess.run([sys.executable, __file__, "child"], capture_output=True, text=True).stdout, end="")
    print(subprocess.run([sys.executable, "-m", "isobit", "run", "--plain", __file__, "run"]).returncode)
else:
    print(sys.argv[1], sitecustomize.MINE, [p for p in sys.path if p.endswith("hook")], "ISOBIT_CHILD" in os.environ)
"""


def test_a_sitecustomize_of_the_users_own_and_a_run_within_a_run(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("MINE = 42\n")
    (tmp_path / "own.py").write_text(OWN)
    paths = {"PYTHONPATH": os.pathsep.join([environment()["PYTHONPATH"], str(tmp_path / "site")])}
    done = subprocess.run(
        command("run", *PLAIN, "own.py"), cwd=tmp_path, env={**environment(), **paths}, capture_output=True, text=True
    )
    assert done.stdout == "child 42 [] True\nrun 42 [] True\n0\n", done.stderr
    assert [store(tmp_path).open(i).status for i in store(tmp_path).ids()] == ["finished", "finished"]


SIGNALS = """\
import signal, sys, time, torch
if sys.argv[1:] == ["own"]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print("begun", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("how", "number", "code", "status"),
    [
        ("default", signal.SIGTERM, -signal.SIGTERM, "interrupted"),
        ("own", signal.SIGTERM, 5, "failed"),
    ],
)
def test_termination_closes_the_record(tmp_path: Path, how: str, number: int, code: int, status: str) -> None:
    (tmp_path / "signals.py").write_text(SIGNALS)
    child = subprocess.Popen(
        command("run", *PLAIN, "signals.py", how), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "begun\n"
    child.send_signal(number)
    child.communicate(timeout=60)
    run = latest(tmp_path)
    assert (child.returncode, run.manifest.status) == (code, status) and run.manifest.ended is not None


PINNED = """\
import hashlib, json, math, sys
import numpy as np
x = np.random.RandomState(0).uniform(-9, 9, 99991)
a = x[:90000].reshape(300, 300)
parts = {"ufunc": np.sin(x), "product": a @ a, "libm": np.array([math.sin(v) for v in x[:20000]])}
print(json.dumps({name: hashlib.sha1(part.tobytes()).hexdigest() for name, part in parts.items()}))
"""


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="variants are those of x86-64")
def test_pins_hold_numpy_blas_and_libm_to_one_choice() -> None:
    """With them a process computes as on a CPU with fewer features, and no warning comes of it."""

    def bits(extra: dict[str, str]) -> dict[str, str]:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PINNED], env={**os.environ, **extra}, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        found: dict[str, str] = json.loads(done.stdout)
        return found

    pins = pins_of(pinned({}, {}))
    pinned_bits = bits(pins)
    features = pins["NPY_DISABLE_CPU_FEATURES"].split()
    assert (
        bits({**pins, "OPENBLAS_CORETYPE": "Haswell"})["product"] != pinned_bits["product"] or "X86_V3" not in features
    )
    loose = bits({})
    if "X86_V3" in features and " fma " in Path("/proc/cpuinfo").read_text():
        assert all(loose[name] != pinned_bits[name] for name in ("ufunc", "product", "libm"))


def test_what_the_user_sets_stays() -> None:
    user = {"MKL_CBWR": "AVX2", "GLIBC_TUNABLES": "glibc.malloc.check=1", "HOME": "/"}
    recorded = {"MKL_CBWR": "SSE4_2", "OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "OTHER"}
    found = pinned(user, recorded)
    assert (found["MKL_CBWR"], found["OPENBLAS_CORETYPE"], found["HOME"]) == ("AVX2", "Haswell", "/")
    assert "OTHER" not in found.get("NPY_DISABLE_CPU_FEATURES", "")
    assert found["GLIBC_TUNABLES"].startswith("glibc.malloc.check=1")
    assert pinned({"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX"}, {})["GLIBC_TUNABLES"] == "glibc.cpu.hwcaps=-AVX"


def test_devices_are_hidden_and_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    hidden: list[str] = []
    monkeypatch.setattr(devices, "hide", hidden.extend)
    assert hidden_devices(strict=False, probe=lambda: ("cuda", "mps")) == ("cuda", "mps")
    assert capsys.readouterr().err == (
        "isobit: hidden from the script, since Isobit runs on the CPU: a CUDA or ROCm GPU and an Apple GPU (MPS)\n"
    )
    assert hidden == ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"]
    assert hidden_devices(strict=True, probe=tuple) == () and capsys.readouterr().err == ""
    with pytest.raises(RecordError, match="CUDA_VISIBLE_DEVICES= HIP_VISIBLE_DEVICES= isobit run --strict"):
        hidden_devices(strict=True, probe=lambda: ("cuda",))
