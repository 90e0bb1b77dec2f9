"""What a package index shows of a release: links that lead somewhere, and one place for the project's addresses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from scripts.addresses import security_policy, written
from scripts.package_metadata import PLACEHOLDER, Addresses, read_addresses, with_absolute_links
from scripts.readme_programs import programs

from scripts import release_check

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/Anna/shardway"
ADDRESSES = Addresses(REPOSITORY, "security@shardway.example")


@pytest.fixture(scope="module")
def metadata() -> dict[str, object]:
    """What a build writes, by the build's own tool."""
    done = subprocess.run([sys.executable, "-m", "hatchling", "metadata"], cwd=ROOT, capture_output=True, check=True)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_each_relative_link_of_the_readme_becomes_one_into_the_repository_at_the_versions_tag() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    made = with_absolute_links(text, ROOT, REPOSITORY, "1.2.3")
    targets = re.findall(r"\]\((.+?)\)", made)
    assert len(targets) == len(re.findall(r"\]\((.+?)\)", text)) > 20
    for target in targets:
        found = re.fullmatch(rf"{REPOSITORY}/(blob|tree)/v1\.2\.3/([^#]+)(#.+)?", target)
        assert found is not None, target
        assert (ROOT / found[2]).is_dir() if found[1] == "tree" else (ROOT / found[2]).is_file(), target


@pytest.mark.parametrize(
    ("link", "made"),
    [
        ("[a](https://a.example/x)", "[a](https://a.example/x)"),
        ("[a](mailto:a@a.example)", "[a](mailto:a@a.example)"),
        ("[a](#all-parts)", "[a](#all-parts)"),
        ("[a](docs/README.md#reference)", f"[a]({REPOSITORY}/blob/v1/docs/README.md#reference)"),
        ("[a](docs/guides/)", f"[a]({REPOSITORY}/tree/v1/docs/guides)"),
        ("![a](no.png) [b](LICENSE)", f"![a]({REPOSITORY}/blob/v1/no.png) [b]({REPOSITORY}/blob/v1/LICENSE)"),
    ],
)
def test_only_what_is_relative_is_changed(link: str, made: str) -> None:
    assert with_absolute_links(link, ROOT, REPOSITORY, "1") == made


def test_a_link_of_a_page_in_a_folder_leads_from_that_folder() -> None:
    made = with_absolute_links("[a](../LICENSE)", ROOT, REPOSITORY, "1", page="docs/README.md")
    assert made == f"[a]({REPOSITORY}/blob/v1/LICENSE)"


def test_the_site_is_where_the_repositorys_host_serves_it() -> None:
    assert ADDRESSES.site == "https://anna.github.io/shardway/"


def test_the_image_has_a_name_that_registries_take_once_the_owner_is_known() -> None:
    assert ADDRESSES.image("1.2.3") == "anna/shardway-local:v1.2.3"
    unknown = ADDRESSES._replace(repository=f"https://github.com/{PLACEHOLDER}/shardway")
    assert unknown.image("1.2.3") == "OWNER/shardway-local:v1.2.3"


def test_the_build_takes_links_and_readme_from_the_addresses(metadata: dict[str, object]) -> None:
    urls, readme = metadata["urls"], metadata["readme"]
    assert isinstance(urls, dict)
    assert isinstance(readme, dict)
    repository = read_addresses(ROOT).repository
    assert urls["Source"] == repository
    assert set(urls) == {"Homepage", "Documentation", "Source", "Changelog", "Issues", "Security"}
    assert f"]({repository}/blob/v{metadata['version']}/CONTRIBUTING.md)" in readme["text"]


def test_no_file_has_an_address_of_the_project_but_those_that_are_made_from_the_one_place() -> None:
    found = read_addresses(ROOT)
    for path, text in written(ROOT, found).items():
        assert path.read_text(encoding="utf-8") == text, "run python -m scripts.addresses"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    holders = {
        name
        for name in tracked.split("\0")
        if name and found.repository.encode() in (ROOT / name).read_bytes() and (ROOT / name).is_file()
    }
    assert holders == {"pyproject.toml", "SECURITY.md", ".github/ISSUE_TEMPLATE/config.yml"}


def test_another_address_reaches_every_file() -> None:
    assert not read_addresses(ROOT)._replace(repository=f"https://github.com/{PLACEHOLDER}/x").is_complete
    assert ADDRESSES.is_complete
    for path, text in written(ROOT, ADDRESSES).items():
        assert PLACEHOLDER not in text, path
        assert REPOSITORY in text or '"anna/shardway-local:v' in text, path


def test_a_policy_without_its_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no lines"):
        security_policy("# Security\n", ADDRESSES)


def test_the_readme_has_a_program_for_each_way_in() -> None:
    found = programs((ROOT / "README.md").read_text(encoding="utf-8"))
    assert list(found) == [
        "Read a stream with Spark",
        "Read a stream from a service",
        "Write to a stream",
        "A Kinesis for your tests",
    ]


def wheel(path: Path, *names: str, readme: str = "[a](https://a.example)", version: str = "0.3.0") -> Path:
    """A wheel with files of these names, and what a build writes about it."""
    made = path / "shardway-0.3.0-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as packed:
        packed.writestr("shardway-0.3.0.dist-info/METADATA", f"Name: shardway\nVersion: {version}\n\n{readme}")
        for name in names:
            packed.writestr(name, "")
    return made


def test_a_wheel_that_is_right_may_be_released(tmp_path: Path) -> None:
    release_check.check_wheel(wheel(tmp_path, "shardway/py.typed", "pyspark_shardway/__init__.py"), None)


@pytest.mark.parametrize(
    ("names", "readme", "tag", "said"),
    [
        (["shardway/__init__.py"], "", None, "no shardway/py.typed"),
        (["shardway/py.typed", "tests/__init__.py"], "", None, "more than our packages: tests"),
        (["shardway/py.typed"], "[a](docs/x.md)", None, r"lead nowhere: docs/x\.md"),
        (["shardway/py.typed"], "", "v0.4.0", r"the tag is v0\.4\.0, and the version in pyproject\.toml is 0\.3\.0"),
    ],
)
def test_a_wheel_that_is_not_says_why(
    names: list[str], readme: str, tag: str | None, said: str, tmp_path: Path
) -> None:
    with pytest.raises(release_check.ReleaseError, match=said):
        release_check.check_wheel(wheel(tmp_path, *names, readme=readme), tag)


def test_a_release_with_placeholders_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_ones = Addresses(f"https://github.com/{PLACEHOLDER}/shardway", "security@shardway.example")
    monkeypatch.setattr(release_check, "read_addresses", lambda _root: open_ones)
    with pytest.raises(release_check.ReleaseError, match="still says OWNER"):
        release_check.check_wheel(wheel(tmp_path, "shardway/py.typed"), "v0.3.0")


def test_distributions_never_mix_with_older_ones(tmp_path: Path) -> None:
    (tmp_path / "shardway-0.2.0.tar.gz").touch()
    with pytest.raises(release_check.ReleaseError, match=r"is not empty: shardway-0\.2\.0\.tar\.gz"):
        release_check.build(tmp_path)
