"""The house style that no linter knows: sizes, names, first lines, reachable pages."""

import ast
import importlib
import re
from pathlib import PurePosixPath

from pydantic import BaseModel

from headwater.core_log.foundation.settings import explanations_of
from tests.architecture.sources import (
    CODE,
    PRODUCT,
    ROOT,
    module_of,
    nodes_of,
    python_files,
    text_files,
    text_of,
    tree_of,
)

LINES_MAX = 600
TABLES_OF_DATA = {"core_log/protocol/error_codes.py"}

BANNED_MODULES = {"utils", "helpers", "common", "base", "misc", "manager", "types"}
BANNED_NAME = re.compile(
    r"^_?(?:Abstract|Base)(?=[A-Z])|(?<=[a-z])(?:Base|Impl|Manager|Helper|Data|Info)$|^_?do_|_async$"
)
ENDS_IN_ING = {"string"}
"""Nouns of the field that end so; all other modules that do are named after a verb."""
NAMED_BY_KAFKA = "core_log/protocol/messages/"
TYPE_MAPPING = re.compile(r"connectors/\w+/types\.py")

LEFT_OVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
MACHINE_TALK = re.compile(
    r"(?<![\w.])/wo" r"rk/|(?<![\w.])/ro" r"ot/|cla" r"ude|anthro" r"pic|chat" r"gpt", re.IGNORECASE
)

TURNED_AROUND = re.compile(r"(?:What|Whatever|Who|Whoever|Whose|Of)\b")
"""First words after which the subject of a sentence comes late, or is only meant."""

HANDLERS = "core_log/broker/handlers"
HANDLER_HEAD = re.compile(r"(\w+) \(key (\d+)\), versions? (\d+)(?: to (\d+))?: ")

FILES = python_files(*CODE)


def test_a_file_holds_one_idea() -> None:
    long = {
        path: line_count
        for path in FILES
        if (line_count := text_of(path).count("\n")) > LINES_MAX and path not in TABLES_OF_DATA
    }

    assert not long


def test_the_entry_of_a_program_is_the_last_statement_of_its_module() -> None:
    """Everything below it would not exist yet when the program runs."""
    places = {path: [is_entry(node) for node in tree_of(path).body] for path in FILES}

    programs = {path: found for path, found in places.items() if any(found)}

    assert programs
    assert not [path for path, found in programs.items() if not found[-1]]


def is_entry(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def test_names_say_what_a_thing_is() -> None:
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

    modules = [path for path in FILES if PurePosixPath(path).stem in BANNED_MODULES]
    names = [
        (path, node.name)
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, definitions) and BANNED_NAME.search(node.name)
    ]

    assert not [path for path in modules if not TYPE_MAPPING.fullmatch(path)]
    assert not [(path, name) for path, name in names if not path.startswith(NAMED_BY_KAFKA)]


def test_a_module_is_named_by_a_noun() -> None:
    stems = {path: PurePosixPath(path).stem for path in FILES}

    assert not {
        path for path, stem in stems.items() if stem.endswith("ing") and stem not in ENDS_IN_ING
    }


def test_a_module_opens_with_the_sentence_it_is_for() -> None:
    unclear = {
        path: docstring
        for path in FILES
        if text_of(path).strip()  # an empty __init__.py has nothing to explain
        and not is_sentence(docstring := opening_of(path))
    }

    assert not unclear


def opening_of(path: str) -> str:
    """The docstring; of a handler its first paragraph, because what is not done comes second."""
    docstring = ast.get_docstring(tree_of(path)) or ""
    return docstring.split("\n\n")[0] if path.startswith(HANDLERS) else docstring


def is_sentence(text: str) -> bool:
    ends = re.findall(r"[.!?](?=\s+[A-Z]|$)", text.replace("\n", " "))
    return len(ends) == 1 and text.endswith((".", "!", "?"))


def test_docstrings_begin_with_their_subject() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path in python_files(*PRODUCT)
        for node in nodes_of(path)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and TURNED_AROUND.match(node.value.value)
    ]

    assert not found


def test_a_handler_opens_with_its_api_and_versions() -> None:
    """For example: Heartbeat (key 12), versions 0 to 4: a member says that it is alive."""
    from headwater.core_log.broker.dispatch import load_handlers

    served = {(each.api_key, each.name, *each.versions) for each in load_handlers().values()}
    paths = [path for path in python_files(HANDLERS) if not path.endswith("__init__.py")]

    heads = {path: HANDLER_HEAD.match(opening_of(path)) for path in paths}

    assert not [path for path, head in heads.items() if head is None]
    said = {
        (int(head[2]), head[1], int(head[3]), int(head[4] or head[3]))
        for head in heads.values()
        if head
    }
    assert said == served


def test_every_setting_is_documented() -> None:
    modules = [path for path in python_files(*PRODUCT) if path.endswith("settings.py")]

    silent = [
        (path, model.__name__, name)
        for path in modules
        for model in vars(importlib.import_module(module_of(path))).values()
        if isinstance(model, type) and issubclass(model, BaseModel)
        for name, text in explanations_of(model).items()
        if not text
    ]

    assert modules and not silent


def test_nothing_is_left_over() -> None:
    found = {
        path: words
        for path in text_files()
        if (words := LEFT_OVER.findall(text_of(path)) + MACHINE_TALK.findall(text_of(path)))
    }

    assert not found


def test_every_page_can_be_reached_from_the_first() -> None:
    waiting, reached = [ROOT / "docs/README.md"], set[str]()
    while waiting:
        page = waiting.pop()
        name = page.relative_to(ROOT).as_posix()
        if name in reached:
            continue
        reached.add(name)
        for target in re.findall(r"\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)", page.read_text()):
            linked = (page.parent / target).resolve()
            assert linked.is_file(), f"{name} links to {target}, which is not there"
            waiting.append(linked)

    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}

    assert not pages - reached


def test_the_readme_is_read_in_two_minutes() -> None:
    assert text_of("README.md").count("\n") <= 120
