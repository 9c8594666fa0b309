"""Secrets stay out of a record, wherever they stand; ordinary code comes through to the last byte."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from isobit.record.code_files import code_files, recorded_trees
from isobit.record.environment import environment
from isobit.record.recorder import Recorder
from isobit.record.secrets import is_secret_file, is_secret_name, redact, redact_text, redact_words
from isobit.record.store import Store
from tests.record.manifests import manifest
from tests.record.projects import git, needs_git, recorded, repository

BODY = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5"  # no one's token: it has the shape alone
HEX = "d1f0a67b3c98e45f6a7d2c1b0e9f8a7d6c5b4a39"
TOKENS = {
    "aws": "AKIA" + "QZ7MNB3VCX5LKJ2H", "github": "ghp_" + BODY, "github new": "github_pat_" + BODY, "gitlab": "glpat-" + BODY[:20],
    "slack": "xoxb-" + "204857392-" + BODY[:16], "openai": "sk-proj-" + BODY, "hf": "hf_" + BODY, "google": "AIza" + BODY[:35],
    "jwt": ".".join(["eyJhbGciOiJI", "eyJzdWIiOiIx", BODY]), "pypi": "pypi-" + BODY * 2, "npm": "npm_" + BODY,
}  # fmt: skip
ASSIGNED = [
    f'api_key = "{BODY[:21]}"', f'os.environ["WANDB_API_KEY"] = "{HEX}"', f'login(token="{BODY[:24]}")', f'{{"secret": "{BODY[:12]}"}}',
    'password = "tr0ub4dor"', f'token: str = "{BODY}"', f'setdefault("MY_TOKEN", "{BODY}")', "postgres://me:s3cretpw@db/x",
]  # fmt: skip
ORDINARY = [
    "token = tokenizer.encode(text)", 'key = "attention"', 'state_key = "transformer.h.0.attn.c_attn.weight"', 'pad_token="<|endoftext|>"',
    'api_key = os.environ["OPENAI_API_KEY"]', "password = getpass.getpass()", "self.key = nn.Linear(768, 64)", 'SECRET_KEY = "changeme"',
    "tokenizer_name='bert-base-uncased-v2-2021'", 'token="TinyLlama-1.1B-Chat-v1.0-GPTQ"', 'model_key="openai/clip-vit-large-patch14-336"',
    '"https://{user}:{password}@host"', 'key="blocks.0.Attention2d.QKVProj.weight"', "task-specific-sk-learn-pipeline-name-which-is-long",
    'cache_key = f"{name}_{version}_layer12_Block3"', 'KEYS = "abcdefghijklmnopqrstuvwxyz"', "risk-free-rate-of-return-over-the-year = 1",
]  # fmt: skip
KEY_BLOCK = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nabcdefgh+/==\n-----END RSA PRIVATE KEY-----\n"


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_are_found_by_their_shape(name: str) -> None:
    text = f'x = "{TOKENS[name]}"  # é\n'.encode()
    shown, found = redact(text, "a.py")
    assert (
        sum(found.values()) == 1
        and len(shown) == len(text)
        and shown.startswith(b'x = "')
        and shown.endswith("# é\n".encode())
    )
    assert TOKENS[name][-12:].encode() not in shown


@pytest.mark.parametrize("line", ASSIGNED)
def test_random_values_of_telling_names_are_found(line: str) -> None:
    shown, found = redact(line.encode(), "a.py")
    assert sum(found.values()) == 1 and shown.count(b"*") >= 8 and len(shown) == len(line)


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_code_is_left_alone(line: str) -> None:
    assert redact(line.encode(), "a.py") == (line.encode(), {})


def test_other_kinds_of_files() -> None:
    text = f"export DB_PASSWORD=tr0ub4dor3x\nAPI_TOKEN: {BODY}\n{KEY_BLOCK}".encode()
    shown, found = redact(text, "setup.sh")
    assert sum(found.values()) == 3 and shown.count(b"\n") == text.count(b"\n") and b"MIIE" not in shown
    assert redact(b"\0" + text)[1] == {}  # binary


def test_arguments() -> None:
    words = (
        "--token",
        BODY,
        "--lr",
        "0.1",
        f"--api-key={BODY}",
        "--hub",
        "hf_" + BODY,
        "--key",
        "attention",
        f"PW_TOKEN={BODY}",
    )
    shown, count = redact_words(words)
    assert count == 4 and BODY not in " ".join(shown)
    assert [w for w in shown if "*" not in w] == ["--token", "--lr", "0.1", "--hub", "--key", "attention"]
    assert redact_text("plain \udcff text") == ("plain \udcff text", 0)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        (".env", True), (".env.local", True), (".env.example", False), ("id_rsa", True), ("id_rsa.pub", False), ("server.pem", True),
        ("credentials.json", True), ("secrets.py", False), ("environment.yml", False), (".netrc", True), ("kaggle.json", True),
    ],
)  # fmt: skip
def test_files_that_are_made_for_secrets(name: str, secret: bool) -> None:
    assert is_secret_file(name) is secret


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True), ("OPENAI_API_KEY", True), ("AWS_SECRET_ACCESS_KEY", True), ("MYSQL_PWD", True), ("PGPASSWORD", True),
        ("LR", False), ("TOKENIZERS_PARALLELISM", False), ("KEYBOARD", False), ("MONKEY_COUNT", False), ("PWD", False), ("PATH", False),
    ],
)  # fmt: skip
def test_variables_that_are_named_like_secrets(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


def test_variables_show_what_is_known_and_digests_of_the_rest(tmp_path: Path) -> None:
    variables = {
        "OMP_NUM_THREADS": "4",
        "LR": "0.1",
        "HF_TOKEN": BODY,
        "MINE": "7",
        "PYTHONPATH": f"/x:{TOKENS['github']}",
        "SHLVL": "2",
    }
    one = environment(variables, tmp_path, ["MINE"])
    assert set(one.values) == {"OMP_NUM_THREADS", "MINE", "PYTHONPATH"} and one.values["MINE"] == "7"
    assert one.names == ("HF_TOKEN",) and set(one.digests) == {"LR"} and BODY not in str(one)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert environment(variables, tmp_path, ["MINE"]) == one
    assert environment({**variables, "LR": "0.2"}, tmp_path).digests["LR"] != one.digests["LR"]
    elsewhere = environment(variables, tmp_path / "b") if (tmp_path / "b").mkdir() is None else one
    assert (
        elsewhere.digests["LR"] != one.digests["LR"] and elsewhere.key != one.key
    )  # so that nobody can try all values


def test_texts_that_are_logged(tmp_path: Path) -> None:
    recorder = Recorder(Store(tmp_path).create(manifest))
    said = recorder.log("url", "", f"https://me:{BODY}@host {TOKENS['hf']} é")
    recorder.finish("finished", 0, None)
    assert said is not None and said.text == f"https://me:{'*' * len(BODY)}@host {'*' * len(TOKENS['hf'])} é"
    assert not any(BODY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@needs_git
def test_no_token_gets_into_a_store(tmp_path: Path) -> None:
    token = TOKENS["github"]
    root = repository(tmp_path / "p", {"train.py": "x = 1\n", "late.py": "", "conf.ini": "a=1\n"})
    git(root, "remote", "add", "origin", f"https://{token}@host/x.git")
    (root / "conf.ini").write_text(f"secret_token={token}\n")
    git(root, "add", "conf.ini")  # staged contents
    (root / "conf.ini").write_text(f"b={token}\n")
    (root / "train.py").write_text(f'x = "{token}"\n')  # in the patch, too
    (root / ".env").write_text(f"A={token}\n")
    run = recorded(tmp_path / "s", root / "train.py")
    held = [path for path in (tmp_path / "s").rglob("*") if path.is_file()]
    assert len(held) > 5 and not [path for path in held if token[4:].encode() in path.read_bytes()]
    files = code_files(run)
    assert files["train.py"].read() == b'x = "' + b"*" * len(token) + b'"\n' and files["train.py"].redacted == 1
    listing = recorded_trees(run)[0][1]
    assert listing.redacted == {"train.py": {"GitHub token": 1}, "conf.ini": {"GitHub token": 1}}
    assert list(listing.left_out) == [".env"] and json.loads(listing.to_bytes())["redacted"]
    assert os.path.exists(root / ".env")
