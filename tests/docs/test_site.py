"""What the site is made of: each page once, links that are right there, and a list for programs."""

from __future__ import annotations

import re
from pathlib import Path

import botocore.session
import pytest
from scripts.package_metadata import read_addresses
from scripts.site_reference import MODULES, module_page

from scripts import site
from tests.docs.doc_pages import DOCS, ROOT, prose
from tests.test_exports import PUBLIC

REPOSITORY = "https://github.com/Anna/shardway"
PLACES = site.pages(ROOT)


def places_of(navigation: object) -> list[str]:
    """All pages that a navigation leads to."""
    if isinstance(navigation, str):
        return [navigation]
    below = navigation.values() if isinstance(navigation, dict) else navigation
    assert not isinstance(below, str)
    return [place for one in below for place in places_of(one)]  # type: ignore[attr-defined]


def test_each_page_has_a_place_of_its_own() -> None:
    assert len(set(PLACES.values())) == len(PLACES)
    assert PLACES["docs/start.md"] == "index.md"
    assert PLACES["docs/guides/deploy/README.md"] == "guides/deploy/README.md"


def test_the_navigation_leads_to_each_page_once() -> None:
    found = places_of(site.navigation(ROOT, PLACES))
    assert len(set(found)) == len(found)
    modules = {f"reference/python/{module}.md" for module in MODULES}
    assert set(found) == {*PLACES.values(), *modules}


@pytest.mark.parametrize(
    ("page", "link", "made"),
    [
        ("docs/README.md", "guides/consumer.md#many-shards", "guides/consumer.md#many-shards"),
        ("docs/README.md", "../CONTRIBUTING.md", "contributing.md"),
        ("docs/guides/consumer.md", "../README.md", "../contents.md"),
        ("docs/guides/consumer.md", "../start.md", "../index.md"),
        ("docs/guides/consumer.md", "../iam/consumer.json", "../iam/consumer.json"),
        ("docs/guides/consumer.md", "../monitoring", f"{REPOSITORY}/tree/main/docs/monitoring"),
        ("docs/reference/job.md", "../../examples/jobs", f"{REPOSITORY}/tree/main/examples/jobs"),
        ("docs/README.md", "../LICENSE", f"{REPOSITORY}/blob/main/LICENSE"),
        ("CONTRIBUTING.md", "docs/DESIGN.md#tests", "DESIGN.md#tests"),
        ("CONTRIBUTING.md", "https://a.example/x.md", "https://a.example/x.md"),
        ("CONTRIBUTING.md", "#rules", "#rules"),
    ],
)
def test_a_link_is_right_on_the_site(page: str, link: str, made: str) -> None:
    assert site.relinked(f"[a]({link})", page, PLACES, ROOT, REPOSITORY) == f"[a]({made})"


def test_code_keeps_what_looks_like_a_link() -> None:
    text = "```python\nrows[0](docs/README.md)\n```\n"
    assert site.relinked(text, "README.md", {**PLACES, "README.md": "x.md"}, ROOT, REPOSITORY) == text


def test_a_page_without_a_heading_is_an_error() -> None:
    with pytest.raises(site.SiteError, match="has no heading"):
        site.title("some text\n")


def test_groups_have_the_pages_that_their_lists_name() -> None:
    contents = (
        "# All\n\n[x](x.md)\n\n**One**\n\n- [a.md](a.md), [a](a.md#b)\n\n## Two\n\ntext\n\n## Three\n\n- [c](c.md)\n"
    )
    assert list(site.groups(contents)) == [("One", ["a.md"]), ("Three", ["c.md"])]


def test_the_stage_has_the_files_that_pages_show_and_one_program_for_diagrams(tmp_path: Path) -> None:
    texts = site.stage(ROOT, tmp_path, read_addresses(ROOT))
    staged = tmp_path / "docs"
    assert (staged / "guides" / "console" / "overview.png").is_file()
    assert (staged / "iam" / "consumer.json").is_file()
    drawn = {
        path.relative_to(staged).as_posix() for path in staged.rglob("*.md") if "mermaid.min.js" in path.read_text()
    }
    assert drawn == {place for place, text in texts.items() if "```mermaid" in text}
    assert '<script src="../assets/mermaid.min.js"></script>' in (staged / "DESIGN.md").read_text(encoding="utf-8")


def test_the_list_for_programs_names_each_page_of_the_contents() -> None:
    texts = {place: (ROOT / page).read_text(encoding="utf-8") for page, place in PLACES.items()}
    listed = site.list_for_programs((DOCS / "README.md").read_text(encoding="utf-8"), texts, "https://a.example/")
    assert listed.startswith("# Shardway\n\n> Shardway carries records from Amazon Kinesis Data Streams")
    linked = set(re.findall(r"\]\(https://a\.example/(\S+)\)", listed))
    decisions = {place for place in PLACES.values() if place.startswith("decisions/")} - {"decisions/README.md"}
    assert linked == set(PLACES.values()) - {"index.md", "contents.md"} - decisions


def test_each_public_module_has_a_page() -> None:
    """Spark alone imports ``pyspark_shardway``, to find the source."""
    assert set(PUBLIC) - {"pyspark_shardway"} <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_a_page_of_a_module_has_its_public_names(module: str) -> None:
    page = module_page(module)
    assert page.startswith(f"# {module}\n\n")
    assert len(re.findall(r"^::: shardway\.[\w.]+$", page, re.MULTILINE)) > 0


def test_the_page_of_the_package_has_what_programs_import() -> None:
    page = module_page("shardway")
    for name in ("Consumer", "Producer", "Record", "by_key"):
        assert re.search(rf"^::: shardway\.\S+\.{name}\n    options:\n      heading: {name}$", page, re.MULTILINE)


def test_what_is_said_of_lambda_and_firehose_is_what_their_services_take() -> None:
    page = " ".join(prose(DOCS / "guides" / "which-tool-when.md").split())
    session = botocore.session.get_session()
    mapping = session.get_service_model("lambda").operation_model("CreateEventSourceMapping").input_shape.members
    assert f"up to {mapping['BatchSize'].metadata['max']:,} records of one shard" in page
    assert f"up to {mapping['ParallelizationFactor'].metadata['max']} batches of a shard" in page
    assert f"a window of up to {mapping['TumblingWindowInSeconds'].metadata['max']} seconds" in page
    firehose = session.get_service_model("firehose")
    hints = firehose.shape_for("BufferingHints").members
    longest, largest = (hints[name].metadata["max"] for name in ("IntervalInSeconds", "SizeInMBs"))
    assert f"up to {longest} seconds or {largest} MB" in page
    source = firehose.shape_for("KinesisStreamSourceConfiguration").members
    assert set(source) == {"KinesisStreamARN", "RoleARN"}, "the page says that there is no way to begin earlier"
