"""Names are words of the field, and one name has one meaning; lists of exceptions only shrink."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.architecture.sources import PRODUCT, nodes_of, python_files, tree_of

KAFKA_MESSAGES = "core_log/protocol/messages/"
"""Kafka names the parts of its messages, and gives some of them the same name."""

IRREGULAR = re.compile(
    "been|begun|bought|bound|broken|brought|built|caught|chosen|come|dealt|done|drawn|driven|eaten|"
    "fallen|fed|felt|forgotten|found|frozen|given|gone|ground|grown|heard|held|hidden|hung|kept|"
    "known|laid|led|left|lost|made|meant|met|overtaken|paid|ridden|risen|said|seen|sent|shown|"
    "spent|spoken|stood|struck|stuck|sworn|taken|taught|thought|thrown|told|torn|understood|undone|"
    "won|worn|wound|written"
)
VERBS_IN_ED = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"}

NO_SUBJECT = {
    *("what", "whatever", "which", "who", "whoever", "whose", "when", "where", "while", "whether"),
    *("after", "among", "as", "asked", "at", "before", "beyond", "by", "even", "from", "how", "if"),
    *("in", "it", "killed", "neither", "nor", "not", "of", "on", "once", "that", "there", "to"),
    *("under", "until", "with", "within", "without"),
}
"""First words by which nobody knows what a test is about."""

DEFINED_TWICE = {
    "AbortedTransaction": "Kafka's name, in a message and in the index of a segment",
    "TopicPartition": "Kafka's name, in a message and in the contract of the log",
    "TransactionState": "Kafka's name, in messages and in the coordinator",
}


def test_a_public_class_is_defined_once() -> None:
    places = defaultdict(set)
    for path in python_files(*PRODUCT):
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path)

    several = {
        name
        for name, paths in places.items()
        if len(paths) > 1 and not all(path.startswith(KAFKA_MESSAGES) for path in paths)
    }

    assert several == DEFINED_TWICE.keys()


def test_a_public_function_is_not_named_by_a_bare_participle() -> None:
    found = {
        f"{path}: {name}"
        for path in python_files(*PRODUCT)
        for name in public_functions(tree_of(path))
        if is_participle(name)
    }

    assert not found


def test_the_name_of_a_test_begins_with_its_subject() -> None:
    found = {
        f"{path}: {name}"
        for path in python_files("tests")
        for name in public_functions(tree_of(path))
        if name.startswith("test_") and name.split("_")[1] in NO_SUBJECT
    }

    assert not found


def test_a_module_gives_a_constant_one_value() -> None:
    found = set[str]()
    for path in python_files(*PRODUCT):
        given: dict[str, str] = {}
        for statement in tree_of(path).body:
            for target in statement.targets if isinstance(statement, ast.Assign) else ():
                for node in ast.walk(target):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                        said = ast.unparse(statement)
                        if given.setdefault(node.id, said) != said:
                            found.add(f"{path}: {node.id}")

    assert not found


def public_functions(tree: ast.Module) -> Iterator[str]:
    """Of modules and classes; a property is named like the value that it is."""
    for node in tree.body:
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                is_property = any("property" in ast.unparse(one) for one in each.decorator_list)
                if not each.name.startswith("_") and not is_property:
                    yield each.name


def is_participle(name: str) -> bool:
    if IRREGULAR.fullmatch(name):
        return True
    return "_" not in name and name.endswith("ed") and name not in VERBS_IN_ED
