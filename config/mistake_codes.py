"""The kinds of mistakes in a file, each under a code that stays: `docs/error-codes.md`."""

from enum import Enum


class Code(Enum):
    """A code, what is so, and what to do. A code is never given to something else."""

    UNREADABLE = (
        "HW101",
        "The file cannot be read, is empty, is larger than 1 MiB, or is not UTF-8.",
        "Name a text file that this user may read; `headwater init` writes one.",
    )
    NO_YAML = (
        "HW102",
        "The file is not YAML.",
        "Mend the indentation or the quotes at the place that is named.",
    )
    UNUSED_YAML = (
        "HW103",
        "The file is YAML that is refused: a key that is there twice, a tag, a merge key, several "
        "documents, or far too much.",
        "Write each key out, once.",
    )
    UNKNOWN_KEY = (
        "HW201",
        "There is no such key here.",
        "Correct its name or its indentation; `headwater explain TYPE` lists the keys.",
    )
    MISSING_KEY = ("HW202", "A key that is needed is missing.", "Add it.")
    WRONG_KIND = (
        "HW203",
        "The value is of another kind, such as text where a number is wanted.",
        "Write a value of the kind that the mistake names.",
    )
    WRONG_VALUE = (
        "HW204",
        "The value is of the right kind, and none that is taken here.",
        "Write one that the mistake names.",
    )
    UNKNOWN_TYPE = (
        "HW205",
        "There is no source or sink of this type, or its package is not installed.",
        "Correct `type`, or install the package; `headwater explain` lists the types.",
    )
    DEBEZIUM_OPTION = (
        "HW206",
        "An option of Debezium's has no counterpart here, or another place.",
        "Do what the hint says, or look it up in [Debezium's options](debezium-options.md).",
    )
    BAD_REFERENCE = (
        "HW301",
        "A reference means nothing.",
        "Write `${env:NAME}`, `${env:NAME:-default}` or `${file:path}`; `$${` stands for `${`.",
    )
    UNSET_VARIABLE = (
        "HW302",
        "The environment has no variable of this name.",
        "Export it, or give a default: `${env:NAME:-default}`.",
    )
    UNREADABLE_SECRET = (
        "HW303",
        "A file that is referred to cannot be read.",
        "Make it, or correct its path, which is relative to the pipeline file.",
    )
    CONTRADICTION = (
        "HW401",
        "Keys that are each right contradict each other, or need one another.",
        "Change one of them, as the hint says.",
    )
    BAD_EXPRESSION = (
        "HW402",
        "An SQL expression or a Python function of `transform` cannot be used.",
        "Correct the expression, or the name of the function.",
    )
    NEIGHBOURS = (
        "HW403",
        "Pipelines of one directory cannot run together.",
        "Give each its own name, and all of them one log.",
    )
    REMARK = (
        "HW501",
        "This is allowed, and seldom meant: a remark, with which a pipeline runs.",
        "Do what the hint says, or leave it.",
    )

    def __init__(self, code: str, meaning: str, cure: str) -> None:
        self.code, self.meaning, self.cure = code, meaning, cure
