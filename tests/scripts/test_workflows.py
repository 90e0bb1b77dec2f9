"""The workflows of the repository's host. They cannot run here, so what they may do and what they call is held here."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardway.local.options import environment

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
MAY_WRITE = {
    ("release.yml", "attest"): {"attestations", "id-token"},
    ("release.yml", "publish"): {"id-token"},
    ("release.yml", "announce"): {"contents"},
    ("image.yml", "push"): {"packages"},
    ("site.yml", "deploy"): {"pages", "id-token"},
}
"""The jobs that change something outside of their own machine, with what they may change."""

each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


def read(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    found["on"] = found.pop(True)  # YAML 1.1 reads the word as a truth value
    return found


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    found = read(path)["jobs"]
    assert isinstance(found, dict)
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs(path).values() for step in job.get("steps", [])]


def actionlint() -> str | None:
    found = subprocess.run([ROOT / "scripts" / "actionlint"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


ACTIONLINT = actionlint()


@each_workflow
def test_an_action_is_pinned_by_its_commit_and_says_its_version(path: Path) -> None:
    """A tag can be moved to other code; a commit cannot."""
    for line in re.findall(r"uses: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE):
        if not line.startswith("./"):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_one_action_has_one_version_in_all_workflows() -> None:
    lines = {
        line for path in WORKFLOWS for line in re.findall(r"uses: (\S+@.+)$", path.read_text("utf-8"), re.MULTILINE)
    }
    names = [line.partition("@")[0] for line in lines]
    assert len(names) == len(set(names)), sorted(lines)


@each_workflow
def test_a_job_has_the_least_permissions_and_an_end(path: Path) -> None:
    assert read(path)["permissions"] == {}
    for name, job in jobs(path).items():
        writes = {what for what, may in job["permissions"].items() if may == "write"}
        assert writes == MAY_WRITE.get((path.name, name), set()), name
        assert set(job["permissions"].values()) <= {"read", "write"}
        if "uses" in job:
            continue
        assert 0 < job["timeout-minutes"] <= 120, name
        assert "latest" not in job["runs-on"], "a new system is taken by a change, and not by chance"


def test_the_table_of_what_may_write_has_no_job_that_is_gone() -> None:
    there = {(path.name, name) for path in WORKFLOWS for name in jobs(path)}
    assert {one for one in MAY_WRITE if (GITHUB / "workflows" / one[0]).exists()} <= there


@each_workflow
def test_a_checkout_leaves_no_token_behind_and_no_secret_is_read(path: Path) -> None:
    assert "secrets." not in path.read_text(encoding="utf-8")
    for step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@each_workflow
def test_commands_are_shell_take_no_text_of_others_and_call_what_is_there(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for step in steps(path):
        command = step.get("run", "")
        assert "${{" not in command, "the value of an expression in a command is run as code: use env"
        assert subprocess.run(["bash", "-n"], input=command, text=True, check=False).returncode == 0
        assert set(re.findall(r"\bmake ([a-z-]+)", command)) <= targets
        for name in re.findall(r"(?:^|\s)((?:scripts|\.ci)/\w+)", command):
            assert (ROOT / name).is_file(), name


def test_the_tests_run_on_each_python_and_system_that_is_claimed() -> None:
    matrix = jobs(GITHUB / "workflows" / "tests.yml")["tests"]["strategy"]["matrix"]
    claimed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    pythons = {
        found[1] for one in claimed if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one))
    }
    assert pythons
    assert pythons <= set(matrix["python"])
    systems = {"Operating System :: POSIX :: Linux": "ubuntu", "Operating System :: MacOS": "macos"}
    for one in claimed:
        if one.startswith("Operating System ::"):
            assert any(system.startswith(systems[one]) for system in matrix["system"])


def test_nothing_is_released_that_was_not_tested_and_checked() -> None:
    release = jobs(GITHUB / "workflows" / "release.yml")
    assert release["tests"]["uses"] == "./.github/workflows/tests.yml"
    order, name = ["announce"], "announce"
    while "needs" in release[name]:
        name = release[name]["needs"]
        order.append(name)
    assert order == ["announce", "publish", "attest", "build", "tests"]
    assert [job for job in release if release[job].get("environment")] == ["publish"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_for_an_issue_has_what_the_host_wants(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(form)
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    names = [part["id"] for part in asked]
    assert len(set(names)) == len(names) > 0
    for part in asked:
        assert part["type"] in {"textarea", "dropdown", "input", "checkboxes"}
        assert part["attributes"]["label"]


def test_zizmor_finds_nothing_dangerous() -> None:
    command = [str(Path(sys.executable).parent / "zizmor"), "--offline", "--no-progress", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(ACTIONLINT is None, reason="no actionlint is here: scripts/actionlint install builds it with Go")
def test_actionlint_finds_no_mistake() -> None:
    assert ACTIONLINT is not None
    done = subprocess.run([ACTIONLINT, *WORKFLOWS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_takes_what_its_recipe_copies_and_starts_what_is_there() -> None:
    """The recipe is built by a workflow alone; here stands that the files it copies are in its context."""
    recipe = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    sources = [
        name for line in re.findall(r"^COPY (?!--from)(.+)$", recipe, re.MULTILINE) for name in line.split()[:-1]
    ]
    taken = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    assert taken == set(sources)
    for name in sources:
        assert (ROOT / name).exists(), name
    assert re.search(r"^USER (?!0|root)\S+$", recipe, re.MULTILINE)
    assert "/_shardway/health" in recipe


def test_the_compose_file_starts_the_image_for_this_machine_alone() -> None:
    """No Compose is asked here. The image brings the health check that its services wait for."""
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    (service,) = yaml.safe_load(text)["services"].values()
    assert service["ports"] == ["127.0.0.1:4567:4567"]
    assert (service["build"], service["command"]) == (".", ["--stream", "orders:4"])
    assert "healthcheck" not in service
    example = yaml.safe_load("\n".join(re.findall(r"^  # ?(  .*|\w+:)$", text, re.MULTILINE)))
    (own,) = example.values()
    assert own["depends_on"] == {"kinesis": {"condition": "service_healthy"}}
    assert own["environment"].items() <= environment("http://kinesis:4567", "us-east-1").items()
