"""Rules of the house that no linter knows: sizes, who may import whom, bounds, nothing unfinished."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# One process reads the imports of all modules once, for all rules.
pytestmark = pytest.mark.xdist_group("tidy")

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
MODULE_LINES_MAX = 1_000
FUNCTION_LINES_MAX = 60

MODULES = sorted(SRC.rglob("*.py"))
PROGRAMS = sorted([*MODULES, *(ROOT / "bench").rglob("*.py"), *(ROOT / "examples").rglob("*.py")])


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


@functools.cache
def imports_of(path: Path) -> tuple[tuple[str, int], ...]:
    """Every module that this one imports, also inside functions and for types only, with the line."""
    return tuple(find_imports(path))


def find_imports(path: Path) -> Iterator[tuple[str, int]]:
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            yield target, node.lineno
            yield from ((f"{target}.{alias.name}", node.lineno) for alias in node.names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def test_there_is_something_to_check() -> None:
    assert {"shardway.model", "shardway.errors", "shardway"} <= {module_name(path) for path in MODULES}


def test_modules_are_short() -> None:
    lengths = {where(path, 1): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length >= MODULE_LINES_MAX} == {}


FRAGMENT = re.compile(r"(Of|So many|So much|Those|By|From|Behind|Beside|Than|Also|Else)\b")
"""So begins a docstring that leaves out what it is about: "Of one endpoint." The reader has to guess the rest."""


def test_docstrings_name_what_they_are_about() -> None:
    fragments = []
    for path in MODULES:
        for node in ast.walk(parse(path)):
            match node:
                case ast.Expr(value=ast.Constant(value=str() as text)) if FRAGMENT.match(text.lstrip()):
                    fragments.append(f"{where(path, node.lineno)}: {text.lstrip().splitlines()[0]}")
    assert fragments == []


def test_functions_are_short() -> None:
    long = []
    for path in PROGRAMS:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length >= FUNCTION_LINES_MAX:
                    long.append(f"{where(path, node.lineno)} {node.name}: {length} lines")
    assert long == []


# --- who may import whom --------------------------------------------------------------------------

CORE_MAY_SEE = ("shardway.core", "shardway.model", "shardway.errors", "shardway.events", "shardway.policies")


def core_sees_only_core(importer: str, imported: str) -> bool:
    """``core`` is computed, never connected: the standard library, our own values, and what those are made with."""
    if not within(importer, "shardway.core"):
        return True
    top = imported.partition(".")[0]
    if top == "shardway":
        return imported == "shardway" or any(within(imported, name) for name in CORE_MAY_SEE)
    return top in sys.stdlib_module_names or top == "msgspec"


def values_see_no_parts(importer: str, imported: str) -> bool:
    """``model`` and ``errors`` lie under everything, so they import nothing of ours but each other."""
    values = ("shardway.model", "shardway.errors")
    allowed = ("shardway", "msgspec", *values)
    return importer not in values or imported in allowed or not within(imported, "shardway")


def runtime_never_sees_aws(importer: str, imported: str) -> bool:
    """``runtime`` sees ports; what speaks AWS is handed to it."""
    return not (within(importer, "shardway.runtime") and within(imported, "shardway.aws"))


def botocore_stays_under_aws(importer: str, imported: str) -> bool:
    if not any(within(imported, name) for name in ("botocore", "boto3", "aiobotocore")):
        return True
    return within(importer, "shardway.aws")


def pyspark_stays_under_spark(importer: str, imported: str) -> bool:
    homes = ("shardway.spark", "shardway.pipeline", "pyspark_shardway")
    return not within(imported, "pyspark") or any(within(importer, home) for home in homes)


def spark_sees_little_of_runtime(importer: str, imported: str) -> bool:
    """The source borrows the loop thread and, for the sink, the producer's send loop; never the consumer."""
    if not (within(importer, "shardway.spark") and within(imported, "shardway.runtime")):
        return True
    return not any(within(imported, f"shardway.runtime.{part}") for part in ("consumer", "worker", "shard"))


def a_shard_knows_no_worker_and_a_worker_no_consumer(importer: str, imported: str) -> bool:
    """One shard in its tenure, a worker with its shards, the consumer that people use: each sees what is below it."""
    if within(importer, "shardway.runtime.shard"):
        return not within(imported, "shardway.runtime.worker") and not within(imported, "shardway.runtime.consumer")
    return not (within(importer, "shardway.runtime.worker") and within(imported, "shardway.runtime.consumer"))


def telemetry_sees_only_events(importer: str, imported: str) -> bool:
    """What subscribes to events knows no part that emits them, so that it serves all of them."""
    values = (
        "shardway.telemetry", "shardway.events", "shardway.model", "shardway.errors", "shardway.shown",
        "shardway.core.histogram", "shardway.core.options", "shardway.tasks", "shardway.wiring", "shardway.ports",
        "shardway.public",
    )  # fmt: skip
    if not (within(importer, "shardway.telemetry") and within(imported, "shardway")):
        return True
    return imported == "shardway" or any(within(imported, name) for name in values)


def nothing_sees_the_faces(importer: str, imported: str) -> bool:
    """``cli`` is a face: everything may be shown by it, nothing leans on it."""
    return not within(imported, "shardway.cli") or within(importer, "shardway.cli") or importer == "shardway.__main__"


def nothing_but_the_command_sees_the_console(importer: str, imported: str) -> bool:
    return not within(imported, "shardway.console") or any(
        within(importer, home) for home in ("shardway.console", "shardway.cli")
    )


def nothing_but_the_command_sees_kclpy(importer: str, imported: str) -> bool:
    return not within(imported, "shardway.kclpy") or any(
        within(importer, home) for home in ("shardway.kclpy", "shardway.cli")
    )


def a_processors_process_sees_the_standard_library_alone(importer: str, imported: str) -> bool:
    """It runs beside the user's code, in each of his processes: no long start, no conflict of versions."""
    if not any(within(importer, part) for part in ("shardway.kclpy.child", "shardway.kclpy.shim")):
        return True
    ours = imported in ("shardway", "shardway.kclpy") or within(imported, "shardway.kclpy.shim")
    return ours or imported.partition(".")[0] in sys.stdlib_module_names


def parts_below_see_no_part_above(importer: str, imported: str) -> bool:
    """The arrows point one way: core < aws < runtime, local, spark < pipeline."""
    above = {
        "shardway.aws": ("shardway.runtime", "shardway.local", "shardway.spark", "shardway.pipeline"),
        "shardway.local": ("shardway.spark", "shardway.pipeline", "shardway.testing"),
        "shardway.runtime": ("shardway.local", "shardway.spark", "shardway.pipeline"),
        "shardway.spark": ("shardway.local", "shardway.pipeline"),
        "shardway.kclpy": ("shardway.aws", "shardway.local", "shardway.spark", "shardway.pipeline", "shardway.testing"),
    }
    return not any(
        within(importer, low) and any(within(imported, high) for high in highs) for low, highs in above.items()
    )


@pytest.mark.parametrize(
    "allowed",
    [
        core_sees_only_core,
        values_see_no_parts,
        runtime_never_sees_aws,
        botocore_stays_under_aws,
        pyspark_stays_under_spark,
        spark_sees_little_of_runtime,
        a_shard_knows_no_worker_and_a_worker_no_consumer,
        telemetry_sees_only_events,
        nothing_sees_the_faces,
        nothing_but_the_command_sees_kclpy,
        nothing_but_the_command_sees_the_console,
        a_processors_process_sees_the_standard_library_alone,
        parts_below_see_no_part_above,
    ],
)
def test_import_rule(allowed: Callable[[str, str], bool]) -> None:
    wrong = [
        f"{where(path, line)} imports {imported}"
        for path in MODULES
        for imported, line in imports_of(path)
        if not allowed(module_name(path), imported)
    ]
    assert wrong == []


def test_the_import_rules_can_fail() -> None:
    assert not core_sees_only_core("shardway.core.lineage", "aiohttp")
    assert not core_sees_only_core("shardway.core.lineage", "shardway.aws.wire")
    assert not runtime_never_sees_aws("shardway.runtime.worker", "shardway.aws")
    assert not botocore_stays_under_aws("shardway.local.http", "botocore.session")
    assert not pyspark_stays_under_spark("shardway.core.pacing", "pyspark.sql")
    assert not telemetry_sees_only_events("shardway.telemetry.log", "shardway.runtime.producer")
    assert not nothing_sees_the_faces("shardway.local.http", "shardway.cli")
    assert not nothing_but_the_command_sees_kclpy("shardway.runtime.worker", "shardway.kclpy.shim")
    assert not nothing_but_the_command_sees_the_console("shardway.inspect.inspector", "shardway.console.page")
    assert not a_processors_process_sees_the_standard_library_alone("shardway.kclpy.shim.kcl", "shardway.model")
    assert not a_processors_process_sees_the_standard_library_alone("shardway.kclpy.child", "msgspec")
    assert not parts_below_see_no_part_above("shardway.aws.wire", "shardway.local.service")


# --- bounds, time and chance ----------------------------------------------------------------------


def calls_of(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_queues_are_bounded() -> None:
    queues = {
        "asyncio.Queue", "asyncio.LifoQueue", "asyncio.PriorityQueue",
        "queue.Queue", "queue.LifoQueue", "queue.PriorityQueue", "queue.SimpleQueue",
        "Queue", "SimpleQueue", "multiprocessing.Queue",
    }  # fmt: skip
    unbounded = [
        where(path, call.lineno)
        for path in MODULES
        for name, call in calls_of(path)
        if name in queues and not call.args and not any(keyword.arg == "maxsize" for keyword in call.keywords)
    ]
    assert unbounded == []


MAKES_TASKS = re.compile(r"(^|\.)(create_task|ensure_future|Task|TaskGroup|Thread|Timer|start_new_thread)$")
"""What begins something beside the code that calls it."""
MAY_MAKE_TASKS = {
    "shardway.tasks": "the rule itself",
    "shardway.testing.sim": "a simulated process has a loop of its own, which hears of each error",
    # A group raises at its end what its tasks raised, so the code that made them hears of it.
    "shardway.runtime.consumer.handlers": "groups",
    "shardway.waiting": "groups",
}


def test_tasks_and_threads_are_made_by_the_one_rule() -> None:
    """No task may die unheard: each is made by `shardway.tasks`, which wants to know what hears of its end."""
    assert MAKES_TASKS.search("asyncio.get_running_loop().create_task")
    assert MAKES_TASKS.search("threading.Thread")
    found = [
        f"{where(path, call.lineno)} calls {name}"
        for path in MODULES
        for name, call in calls_of(path)
        if MAKES_TASKS.search(name) and not any(within(module_name(path), one) for one in MAY_MAKE_TASKS)
    ]
    assert found == []


def test_core_takes_time_and_chance_as_arguments() -> None:
    impure = re.compile(
        r"^(time\.(time|monotonic|perf_counter|sleep)(_ns)?"
        r"|(datetime|dt)\.(datetime\.)?(now|utcnow|today)"
        r"|random\.(?!Random$)\w+|uuid\.uuid\d|os\.urandom|secrets\.\w+)$"
    )
    assert impure.match("time.time")
    assert impure.match("random.random")
    found = [
        f"{where(path, call.lineno)} calls {name}"
        for path in MODULES
        if within(module_name(path), "shardway.core")
        for name, call in calls_of(path)
        if impure.match(name)
    ]
    assert found == []


# --- types ----------------------------------------------------------------------------------------

MAY_TAKE_ANY_ARGUMENTS = {
    "shardway.cli.dead_letters": "a function of the user's, which is looked up by its name",
    "shardway.pipeline.job.functions": "the same",
    "shardway.local.model.state": "each kind of change has arguments of its own, as the journal keeps them",
    "shardway.local.moto_process": "WSGI's function, which this only hands on",
    "shardway.runtime.dead_letters.reading": "repeats any call of a source",
    "shardway.runtime.producer.send_loop": "a loop's `call_soon_threadsafe`",
    "shardway.runtime.shard.batch": "any way to settle, with what it is given",
    "shardway.testing.pytest_plugin": "a fixture that makes consumers of any options",
}
"""Where a function's type leaves its arguments open, and why: a call with wrong ones is then seen by no check."""


def test_types_of_functions_name_their_arguments() -> None:
    found = {
        module_name(path)
        for path in MODULES
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Subscript) and re.match(r"([\w.]+\.)?Callable\[\.\.\.,", ast.unparse(node))
    }
    assert found - set(MAY_TAKE_ANY_ARGUMENTS) == set(), "name the arguments, or give the reason why they are open"
    assert set(MAY_TAKE_ANY_ARGUMENTS) - found == set(), "these reasons are not needed any more"


# --- nothing unfinished, nothing of one machine ---------------------------------------------------


def tracked_texts() -> dict[Path, str]:
    """Every text file that git knows (or, outside of a clone, every file of the packages)."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    names = [name for name in listing.stdout.decode().split("\0") if name]
    paths = [ROOT / name for name in names] or PROGRAMS
    texts = {}
    for path in paths:
        if (
            path.is_file()
            and path.suffix not in {".json", ".gz", ".bin", ".parquet", ".png"}
            and path != Path(__file__)
        ):
            texts[path] = path.read_text(encoding="utf-8", errors="replace")
    return texts


def lines_with(pattern: str, keep: Callable[[Path], bool] = lambda path: True) -> list[str]:
    found = re.compile(pattern)
    return [
        f"{where(path, number)}: {line.strip()[:120]}"
        for path, text in tracked_texts().items()
        if keep(path)
        for number, line in enumerate(text.splitlines(), start=1)
        if found.search(line)
    ]


def test_nothing_is_left_unfinished() -> None:
    marks = r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|not implemented yet"
    assert lines_with(marks, lambda path: path.suffix in {".py", ".sh", ".toml", ".md"} or not path.suffix) == []


def test_no_conflict_is_left_in_a_file() -> None:
    assert lines_with(r"^(<{7}|>{7})( |$)") == []


def test_no_paths_of_one_machine() -> None:
    assert lines_with(r"(^|[\s\"'=(:])/(work|root|farm|home/[a-z]+|Users/[A-Za-z]+|tmp/[a-z0-9_]+)/") == []


def test_requirements_have_hashes_and_no_addresses() -> None:
    files = sorted((ROOT / "requirements").glob("*.txt"))
    assert [path.stem for path in files] == ["build", "dev", "postgres", "release", "run", "site"]
    for path in files:
        text = path.read_text(encoding="utf-8")
        pins = re.findall(r"^([a-z0-9][\w.-]*)(\[[\w,-]+\])?==\S+", text, flags=re.MULTILINE)
        entries = re.findall(r"^[^#\s]", text, flags=re.MULTILINE)
        assert len(pins) == len(entries), f"{path.name}: not every entry is an exact version"
        assert text.count("--hash=sha256:") >= len(pins), f"{path.name}: an entry has no hash"
        assert not re.search(r"https?://|--(extra-)?index-url|--find-links|--trusted-host", text), path.name


# --- words ----------------------------------------------------------------------------------------

PERSONS = re.compile(
    r"\b(he|him|his|himself|who|whom|whoever|(some|any|every)(body|one)|nobody)\b", flags=re.IGNORECASE
)
"""A sentence with one of these leaves open which part acts: the worker, the owner, the caller, the program."""
MAY_NAME_PERSONS = {
    "tests/test_tidy.py": "the rule itself",
    "tests/stores/postgres_server.py": "the operating system has a user of that name",
}


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page; of a module its comments and strings, without the names that an f-string shows."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), start=1)
        return
    for node in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from enumerate(node.value.splitlines(), start=node.lineno)
    with path.open("rb") as file:
        yield from (
            (one.start[0], one.string) for one in tokenize.tokenize(file.readline) if one.type == tokenize.COMMENT
        )


def names_in(path: Path) -> Iterator[tuple[int, str]]:
    """The names of a program's functions and classes, as words: those of a test are a sentence."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name.replace("_", " ")


def test_sentences_name_the_part_that_acts() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    others = ("tests", "bench", "examples", "interop", "scripts")
    programs = [path for folder in others for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [
        f"{where(path, line)}: {prose.strip()[:120]}"
        for path in [*MODULES, *programs, *pages]
        if str(path.relative_to(ROOT)) not in MAY_NAME_PERSONS
        and PERSONS.search(path.read_text(encoding="utf-8").replace("_", " "))  # spares the parsing of most files
        for line, prose in [*prose_of(path), *(names_in(path) if path.suffix == ".py" else ())]
        if PERSONS.search(prose)
    ]
    assert found == [], "say which part: the worker, the owner, the caller, the handler, the program"


def test_the_rule_of_words_sees_comments_strings_and_names_of_functions(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        'def whoami(who: str) -> str:\n    """This is for the owner: theirs, not his."""\n'
        '    return f"{who} is here, and nobody else"  # Somebody asked\n',
        encoding="utf-8",
    )
    assert sorted(line for line, prose in prose_of(program) if PERSONS.search(prose)) == [2, 3, 3]
    program.write_text("def whoami() -> None: ...\n\n\nasync def test_who_is_told() -> None: ...\n", encoding="utf-8")
    assert [line for line, name in names_in(program) if PERSONS.search(name)] == [4]
