"""Every dependency has both bounds, and the versions that are installed for tests are within."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
USERS = [
    *PROJECT["dependencies"],
    *(each for name, extra in EXTRAS.items() if name != "dev" for each in extra),
]


@pytest.mark.parametrize("text", USERS)
def test_a_dependency_of_users_has_a_lowest_and_a_highest_version(text: str) -> None:
    operators = {each.operator for each in Requirement(text).specifier}

    assert operators == {">=", "<"}


@pytest.mark.parametrize("text", [*USERS, *EXTRAS["dev"][1:]])
def test_the_constraints_have_a_version_within_the_bounds(text: str) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {
        canonicalize_name(name): version
        for name, version in re.findall(r"^([\w.-]+)==(\S+)$", "\n".join(lines), re.MULTILINE)
    }
    wanted = Requirement(text)

    assert pinned[canonicalize_name(wanted.name)] in wanted.specifier
