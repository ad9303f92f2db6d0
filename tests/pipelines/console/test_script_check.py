"""The check of the console's scripts tells what is wrong in them, and nothing of libraries."""

from scripts.check_web import own_findings

SAID = """\
web/vendor/htm.mjs(1,5): error TS7016: no declaration file
  of the module
web/pages/table.js(41,6): error TS2552: Cannot find name 'cuont'.
  Did you mean 'count'?
web/vendor/preact.mjs(2,1): error TS2339: no such property
"""


def test_a_finding_of_a_library_is_left_out_with_all_its_lines() -> None:
    found = own_findings(SAID)

    assert found == [
        "web/pages/table.js(41,6): error TS2552: Cannot find name 'cuont'.",
        "  Did you mean 'count'?",
    ]


def test_a_finding_without_a_file_is_told() -> None:
    assert own_findings("error TS5058: no such path\n") == ["error TS5058: no such path"]
