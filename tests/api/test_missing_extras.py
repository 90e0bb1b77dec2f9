"""Each extra in an environment without it: one line says which to install."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from shardway import extras

ROOT = Path(__file__).resolve().parents[2]
HIDING = """
import importlib.abc, sys


class Hiding(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Hiding())
{program}
"""
SPARK = ("pyspark", "pyarrow", "numpy", "pandas", "py4j")
CLI = ("typer", "click", "rich")
CONSOLE = "from shardway.cli import main; sys.argv = ['shardway', 'console']; sys.exit(main())"
CASES: list[tuple[str, tuple[str, ...], str]] = [
    ("spark", SPARK, "from shardway.pipeline import ParquetFolder"),
    ("spark", SPARK, "import shardway.pipeline as pipeline; pipeline.decode_json"),
    ("spark", SPARK, "from shardway.pipeline.job import run_file"),
    ("spark", SPARK, "import pyspark_shardway"),
    ("spark", SPARK, "from shardway.cli import main; sys.argv = ['shardway', 'run', 'x.toml']; sys.exit(main())"),
    ("local", ("httptools",), "from shardway.testing import LocalKinesis; LocalKinesis()"),
    ("local", ("httptools",), "from shardway.local import LocalKinesis"),
    ("local", ("h2",), "from shardway.testing import LocalKinesis"),
    ("local", ("cbor2",), "from shardway.local import SpawnedKinesis"),
    ("local", ("cryptography",), "from shardway.testing import LocalKinesis"),
    ("local", ("h2",), "from shardway.cli import main; sys.argv = ['shardway', 'local']; sys.exit(main())"),
    ("cli", CLI, "from shardway.cli import main; sys.exit(main())"),
    ("cli", CLI, "import runpy; runpy.run_module('shardway', run_name='__main__')"),
    ("cli", ("rich",), "from shardway.cli import main; sys.exit(main())"),
    ("console", ("starlette", "jinja2", "uvicorn"), CONSOLE),
    ("console", ("uvicorn",), CONSOLE),
    ("inspect", ("re2",), "from shardway.inspect.filters import pattern; pattern('x')"),
    (
        "postgres",
        ("asyncpg",),
        "import asyncio\n"
        "from shardway.leases import PostgresLeaseTable\n"
        "asyncio.run(PostgresLeaseTable('postgresql://127.0.0.1:1/leases').ensure())",
    ),
    (
        "http2",
        ("h2",),
        "from shardway import ConnectionOptions, Credentials, SyncProducer\n"
        "there = ConnectionOptions(http2='all', credentials=Credentials('a', 'b'), endpoint_url='http://127.0.0.1:1')\n"
        "SyncProducer('orders', region='eu-west-1', connection=there).start()",
    ),
    ("prometheus", ("prometheus_client",), "from shardway.telemetry import PrometheusCollector as P; P()"),
    ("opentelemetry", ("opentelemetry",), "from shardway.telemetry import OpenTelemetryExporter as E; E()"),
    ("opentelemetry", ("opentelemetry",), "from shardway.telemetry import OpenTelemetryTracing as T; T()"),
]


@pytest.mark.parametrize(("extra", "hidden", "program"), CASES)
def test_the_last_line_says_which_extra_to_install(extra: str, hidden: tuple[str, ...], program: str) -> None:
    code = HIDING.format(hidden={*hidden}, program=program)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1, done.stdout
    assert re.search(rf"""pip install ['"]shardway\[{extra}\]['"]""", last), done.stderr


def test_each_extra_has_a_case() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {extra for extra, _, _ in CASES} == {*declared} - {"all"}
    by_themselves = {"moto", "typer", "rich", "google-re2", "backports-zstd"}  # What lacks them says it where it does.
    for extra, modules in extras.PACKAGES.items():
        needed = {re.split(r"[><=;\[]", one)[0] for one in declared[extra]}
        assert needed - by_themselves <= {*modules}, extra


def test_what_is_no_package_of_the_extra_is_told_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'nothing_of_ours'"), extras.needing("spark", "it"):
        import nothing_of_ours  # type: ignore[import-not-found]  # noqa: F401


def test_the_module_is_the_command() -> None:
    for program in ("shardway.cli", "shardway"):
        told = [sys.executable, "-m", program] if program == "shardway" else [Path(sys.executable).parent / "shardway"]
        done = subprocess.run([*told, "--version"], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert "0." in done.stdout


@pytest.mark.parametrize("version", ["(3, 10, 13)", "(3, 9, 0)"])
def test_an_older_python_is_told_which_is_needed(version: str) -> None:
    program = f"import sys; sys.version_info = {version}; import shardway.leases"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    told = done.stderr.strip().splitlines()[-1]
    wanted = re.escape(".".join(re.findall(r"\d+", version)[:2]))
    assert re.fullmatch(rf"ImportError: Shardway needs Python 3\.11 or newer, and .* is Python {wanted}: .*", told)
