"""docs/BENCHMARKS.md: a run of one program leaves the sections of the others as they are."""

from __future__ import annotations

from bench.__main__ import PAGE, page, programs, section, sections_of


def test_the_page_is_what_its_sections_make() -> None:
    text = PAGE.read_text()
    sections = sections_of(text)
    assert sections.keys() <= set(programs())
    assert page(sections) == text


def test_a_section_is_written_anew_and_the_others_stay() -> None:
    before = {"imports": "## bench/imports.py\n\nof last week\n", "wire": "## bench/wire.py\n\nkept\n"}
    after = sections_of(page(before | {"imports": section("imports", {"results": [], "text": "new"})}))
    assert after["wire"] == before["wire"]
    assert "new" in after["imports"]
    assert "of last week" not in after["imports"]


def test_a_program_that_is_gone_has_no_section() -> None:
    assert sections_of(page({"nothing_of_this_name": "## bench/nothing_of_this_name.py\n"})) == {}
