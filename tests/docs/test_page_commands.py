"""What the pages tell people to type exists: Shardway's options, Spark's settings, AWS's parameters, the messages.

Nothing is started here. What can be run is run by ``test_first_pipeline`` and ``test_standalone_page``.
"""

from __future__ import annotations

import ast
import errno
import functools
import json
import os
import re
import shlex
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import botocore.session
import pyspark
import pytest
import typer
import yaml
from botocore import xform_name
from botocore.validate import ParamValidator

from scripts import reference_commands
from shardway.cli.app import app
from shardway.pipeline.job.errors.exit_codes import ExitCode
from tests.docs.doc_pages import DOCS, ROOT, Block, all_blocks, blocks, prose, rows, section

DEPLOY = sorted((DOCS / "guides" / "deploy").glob("*.md"))
COMMANDS = [(block, command) for block in all_blocks("console") for command in block.commands]
JARS = Path(pyspark.__file__).parent / "jars"


def commands(*programs: str) -> list[Any]:
    """The commands that run one of these, as words."""
    found = []
    for number, (block, command) in enumerate(COMMANDS):
        if not any(program in command for program in programs):
            continue
        for part in re.split(r"\s(?:\||&&)\s", command):
            joined = part.replace("\\\n", " ")  # a command may go on in the next line
            words = shlex.split(re.sub(r"\s(>>? \S+|2>&1|&$)", "", joined))
            if words and words[0] in programs:
                found.append(pytest.param(words, id=f"{block.name}-{number}"))
    return found


# --- ours ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", commands("shardway"))
def test_shardway_takes_it(words: list[str]) -> None:
    command = typer.main.get_command(app)
    _, name, *arguments = words
    context = command.make_context("shardway", [name, *arguments])
    chosen = command.get_command(context, name)  # type: ignore[attr-defined]
    if isinstance(chosen, typer.core.TyperGroup) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        context = chosen.make_context(name, [name, *arguments], parent=context)
        chosen = chosen.get_command(context, name)
        assert chosen is not None
    chosen.make_context(name, arguments, parent=context)


def test_the_tables_of_commands_are_as_the_commands_are() -> None:
    page = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    assert reference_commands.renewed(page) == page, "run python -m scripts.reference_commands with the page"


def test_the_module_takes_what_the_pages_give_it() -> None:
    source = (ROOT / "src/shardway/pipeline/job/run/program.py").read_text(encoding="utf-8")
    taken = set(re.findall(r'add_argument\("(-o|--\w+)"', source))
    assert taken == {"--check", "--online", "--payloads", "-o"}
    given = [
        option
        for page in DEPLOY
        for line in page.read_text(encoding="utf-8").splitlines()
        for option in re.findall(r"job\.toml\"?,? \"?(--?[\w-]+)", line)
    ]
    assert given
    assert set(given) <= taken


def test_the_images_start_what_is_there() -> None:
    for block in all_blocks("dockerfile"):
        for words in re.findall(r"^ENTRYPOINT (.*)$", block.text, re.MULTILINE):
            if "shardway" in words:
                _, name, job = json.loads(words)
                command = typer.main.get_command(app)
                assert command.get_command(command.make_context("shardway", [name, job]), name)  # type: ignore[attr-defined]
        for path in re.findall(r"site-packages/(\S+)", block.text):
            assert (ROOT / "src" / path).is_file()


# --- Spark's ------------------------------------------------------------------------------------------------------

FREE = re.compile(r"spark\.(executorEnv|yarn\.appMasterEnv|emr-serverless\.(driverEnv|executorEnv)|hadoop)\.\w")
"""Settings that end in a name of the user's."""
NO_SETTING = {"spark.dataSource.register", "spark.readStream.format", "spark.read", "spark.sql"}
"""Python that looks like one."""


_SEARCHED = re.compile(r"spark-(core|sql|catalyst|kubernetes|yarn|launcher|common-utils|network-common|streaming)")


@functools.cache
def in_spark(text: str) -> bool:
    """True when a class or a resource of Spark's has this text in it."""
    return any(text.encode() in entry for entry in _spark_entries())


@functools.cache
def _spark_entries() -> list[bytes]:
    entries = []
    for jar in sorted(JARS.glob("spark-*.jar")):
        if re.match(
            r"spark-(core|sql|catalyst|kubernetes|yarn|launcher|common-utils|network-common|streaming)", jar.name
        ):
            with zipfile.ZipFile(jar) as archive:
                entries += [archive.read(name) for name in archive.namelist() if name.endswith((".class", ".json"))]
    errors = Path(pyspark.__file__).parent / "errors" / "error-conditions.json"
    return [*entries, errors.read_bytes()]


def is_setting(name: str) -> bool:
    """True when Spark knows a setting; some of Kubernetes' are put together of two parts."""
    head, _, tail = name.rpartition(".")
    return in_spark(name) or ("authenticate" in head and in_spark(head) and in_spark(tail))


def settings_of(block: Block) -> set[str]:
    return set(re.findall(r"(?<![\w./-])spark\.[a-zA-Z][\w.-]*[a-zA-Z]", block.text)) - NO_SETTING


def test_settings_of_spark_are_known_to_it() -> None:
    named = {
        name
        for page in [*DEPLOY, DOCS / "guarantees.md", DOCS / "guides" / "first-pipeline.md"]
        for block in blocks(page)
        if block.language != "python"
        for name in settings_of(block)
    }
    named |= {name for page in DEPLOY for name in re.findall(r"(?:`|-D)(spark\.[a-zA-Z][\w.]*\w)[`=]", prose(page))}
    assert len(named) > 15
    assert sorted(name for name in named if not FREE.match(name) and not is_setting(name)) == []


@pytest.mark.parametrize("words", commands("spark-submit"))
def test_spark_submit_takes_it(words: list[str]) -> None:
    options = [word for word in words[: _program_at(words)] if word.startswith("--")]
    assert "--master" in options
    assert [option for option in options if not in_spark(option)] == []


def _program_at(words: list[str]) -> int:
    return next(number for number, word in enumerate(words) if word.endswith(".py"))


def test_classes_that_are_started_are_there() -> None:
    named = {word for param in COMMANDS for word in param[1].split() if word.startswith("org.apache.spark.")}
    assert {name.rsplit(".", 1)[1] for name in named} == {"Master", "Worker"}
    with zipfile.ZipFile(next(JARS.glob("spark-core_*.jar"))) as archive:
        assert {name.replace(".", "/") + ".class" for name in named} <= set(archive.namelist())


OPERATOR = {
    "spec": {
        "type", "pythonVersion", "mode", "sparkVersion", "image", "mainApplicationFile", "arguments", "restartPolicy",
        "sparkConf", "driver", "executor",
    },
    "restartPolicy": {
        "type", "onFailureRetries", "onFailureRetryInterval", "onSubmissionFailureRetries",
        "onSubmissionFailureRetryInterval",
    },
    "driver": {"cores", "memory", "serviceAccount", "env"},
    "executor": {"instances", "cores", "memory"},
}  # fmt: skip
"""Fields of the operator's v1beta2 that are used here, as its API has them."""


def test_the_operator_is_given_what_the_image_holds() -> None:
    page = DOCS / "guides" / "deploy" / "kubernetes.md"
    image = blocks(page, "dockerfile")[0].text
    (application,) = [
        one
        for block in blocks(page, "yaml")
        for one in yaml.safe_load_all(block.text)
        if one["kind"] == "SparkApplication"
    ]
    spec = application["spec"]
    assert application["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    assert spec.keys() <= OPERATOR["spec"]
    assert all(spec[part].keys() <= OPERATOR[part] for part in ("restartPolicy", "driver", "executor"))
    assert spec["type"] == "Python"
    assert spec["mainApplicationFile"].removeprefix("local://") in image
    assert Path(spec["arguments"][0]).parent.as_posix() in image
    assert f"spark:{spec['sparkVersion']}-" in image
    submitted = next(command for block, command in COMMANDS if block.page == page and "k8s://" in command)
    assert f"{spec['mainApplicationFile']} {' '.join(spec['arguments'])}" in submitted
    accounts = {spec["driver"]["serviceAccount"]}
    accounts |= set(re.findall(r"serviceAccountName[=:] ?(\w+)", page.read_text(encoding="utf-8")))
    assert accounts == {"orders"}


# --- AWS's --------------------------------------------------------------------------------------------------------

OF_THE_CLI = {
    ("s3", "cp"): set(),
    ("kinesis", "wait"): {"stream-name"},
    ("emr", "create-cluster"): {
        "name", "release-label", "applications", "instance-type", "instance-count", "service-role", "ec2-attributes",
        "log-uri", "step-concurrency-level",
    },
    ("emr", "add-steps"): {"cluster-id", "steps"},
}  # fmt: skip
"""Commands that the command line has in place of an operation, and the options that are used here."""
OPTIONS_OF_THE_CLI = {"cli-input-json"}


def operation(words: list[str]) -> tuple[Any, dict[str, str]]:
    """The operation's model, and what is given, by option."""
    _, service, name, *rest = words
    model = botocore.session.get_session().get_service_model(service)
    by_name = {xform_name(known, "-"): known for known in model.operation_names}
    assert name in by_name, f"{service} has no {name}"
    assert len(rest) % 2 == 0
    given = {option.removeprefix("--"): value for option, value in zip(rest[::2], rest[1::2], strict=True)}
    return model.operation_model(by_name[name]), given


@pytest.mark.parametrize("words", commands("aws"))
def test_aws_takes_it(words: list[str]) -> None:
    special = OF_THE_CLI.get((words[1], words[2]))
    if special is not None:
        assert {word.removeprefix("--") for word in words if word.startswith("--")} <= special
        return
    model, given = operation(words)
    members = model.input_shape.members
    by_option = {xform_name(member, "-"): member for member in members}
    assert set(given) - OPTIONS_OF_THE_CLI <= by_option.keys()
    if not OPTIONS_OF_THE_CLI & set(given):
        required = {xform_name(member, "-") for member in model.input_shape.required_members}
        assert required - {"client-token"} <= set(given)  # a token is made up by the command line


def valid(value: Any, service: str, operation_name: str, member: str | None = None) -> str:
    """What botocore finds wrong with a value as an operation's input, or as a member of it."""
    model = botocore.session.get_session().get_service_model(service)
    shape = model.operation_model(operation_name).input_shape
    return str(ParamValidator().validate(value, shape if member is None else shape.members[member]).generate_report())


def json_of(page: str) -> list[Any]:
    return [json.loads(block.text) for block in blocks(DOCS / "guides" / "deploy" / page, "json")]


def test_the_inputs_are_of_the_shape_that_aws_wants() -> None:
    driver, steps = json_of("emr.md")
    assert valid(driver, "emr-serverless", "StartJobRun", "jobDriver") == ""
    words = shlex.split(driver["sparkSubmit"]["sparkSubmitParameters"])
    assert set(words[::2]) == {"--conf"}
    (step,) = steps
    assert step["Type"] == "CUSTOM_JAR"
    as_asked = {
        "Name": step["Name"],
        "ActionOnFailure": step["ActionOnFailure"],
        "HadoopJarStep": {"Jar": step["Jar"], "Args": step["Args"]},
    }
    assert step.keys() == {"Name", "Type", "Jar", "ActionOnFailure", "Args"}
    assert valid([as_asked], "emr", "AddJobFlowSteps", "Steps") == ""
    (job,) = json_of("glue.md")
    assert valid(job, "glue", "CreateJob") == ""
    assert valid({"Name": "x"}, "glue", "CreateJob") != ""


def test_what_is_sent_is_what_is_run() -> None:
    """The archives, the program and the job have the same names wherever EMR's page writes them."""
    page = DOCS / "guides" / "deploy" / "emr.md"
    driver, (step,) = json_of("emr.md")
    archives = "s3://BUCKET/environment.tar.gz#environment,s3://BUCKET/job.tar.gz#job"
    assert f"spark.archives={archives}" in driver["sparkSubmit"]["sparkSubmitParameters"]
    assert step["Args"][step["Args"].index("--archives") + 1] == archives
    run = [driver["sparkSubmit"]["entryPoint"], *driver["sparkSubmit"]["entryPointArguments"]]
    assert step["Args"][-4:] == run == ["s3://BUCKET/submit.py", "job/job.toml", "-o", "jsonl"]
    text = page.read_text(encoding="utf-8")
    for sent in ("environment.tar.gz", "job.tar.gz", "submit.py"):
        assert f"aws s3 cp {sent} s3://BUCKET/{sent}" in text


def test_the_job_of_databricks_runs_the_program_of_the_page() -> None:
    page = DOCS / "guides" / "deploy" / "databricks.md"
    (job,) = json_of("databricks.md")
    (task,) = job["tasks"]
    (program,) = blocks(page, "python")
    assert Path(task["spark_python_task"]["python_file"]).name == program.file_name
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    pinned = re.findall(r"shardway==([\d.]+\d)", "".join(path.read_text(encoding="utf-8") for path in DEPLOY))
    assert set(pinned) == {version}


def test_packages_are_asked_for_as_the_project_does() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    wanted = set(extras["spark"])
    for path in DEPLOY:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"['`]((?:pyarrow|numpy|pandas)[<>=][^'`]*)['`]", text)) <= wanted
        for names in re.findall(r"shardway\[([\w,]+)\]", text):
            assert set(names.split(",")) <= extras.keys()


# --- what goes wrong ----------------------------------------------------------------------------------------------

ELSEWHERE = {
    "ModuleNotFoundError: No module named 'pyarrow'": "Python",
    "No module named 'shardway'": "Python",
    "requires a different Python": "pip",
    "OOMKilled": "Kubernetes",
    "kubectl describe pod": "Kubernetes",
}
"""Messages that are neither ours nor Spark's nor AWS's."""
EXAMPLES = {
    "orders",
    "LAKE",
    "127.0.0.1:4567",
    "Address",
    "already",
    "in",
    "use",
    "No",
    "such",
    "file",
    "or",
    "directory",
}


@functools.cache
def our_texts() -> list[list[str]]:
    """The words of each text in the code; those of a text with values in it that are always there."""
    texts: list[str] = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else " " for part in node.values]
                texts.append("".join(str(part) for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return [_words(text) for text in texts]


def is_said(message: str) -> bool:
    """True when it is a message of ours, of Spark's, of AWS's, or of the system's (with an example of ours in it)."""
    if message in ELSEWHERE:
        return True
    if re.fullmatch(r"(KMS)?[A-Z]\w+Exception", message):
        return message in botocore.session.get_session().get_service_model("kinesis").shape_names
    if re.match(r"sinks\[0\] parquet", message):
        return True  # test_the_label_of_a_step
    wanted = [word for word in _words(message) if word not in EXAMPLES]
    if any(_in_order(wanted, words) for words in our_texts()):
        return True
    return in_spark(message) or message in {os.strerror(errno.ENOENT), os.strerror(errno.ENOSPC)}


def _words(text: str) -> list[str]:
    return [word for word in (word.strip(".,:;()") for word in text.split()) if word]


def _in_order(wanted: list[str], words: list[str]) -> bool:
    rest = iter(words)
    return all(word in rest for word in wanted)


def wrong_tables() -> list[Any]:
    pages = [*DEPLOY, DOCS / "guides" / "first-pipeline.md"]
    return [
        pytest.param(page, id=page.stem)
        for page in pages
        if "## When it goes wrong" in page.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("page", wrong_tables())
def test_what_goes_wrong_says_what_the_page_says(page: Path) -> None:
    table = rows(section(page, "When it goes wrong"))
    messages = [message for row in table for message in re.findall(r"`([^`]+)`", row[0]) or [row[0]]]
    assert len(messages) >= 5
    assert [message for message in messages if not is_said(message)] == []
    assert is_said("a thing that is not said") is False
    if len(table[0]) == 3:
        codes = {code for row in table for code in re.findall(r"\d+", row[1])}
        assert codes <= {str(int(code)) for code in ExitCode} | {"137"}


def test_the_label_of_a_step() -> None:
    source = (ROOT / "src/shardway/pipeline/job/batch/batches.py").read_text(encoding="utf-8")
    assert 'f"sinks[{number}] {self._job.sinks[number].label}"' in source
