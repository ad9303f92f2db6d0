"""Holds a part of a document against its settings, and puts what does not fit into words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from headwater.config.document import Document, ListNode, MappingNode, ScalarNode, YamlNode, plain
from headwater.config.mistakes import (
    MISTAKES_SHOWN_MAX,
    Code,
    KeyPath,
    Mistake,
    TextPosition,
    did_you_mean,
)
from headwater.config.model_keys import (
    annotation_of,
    fields_of,
    is_model,
    members,
    models_at,
    step,
    unit_of,
)

EXAMPLES = {"duration": "5ms, 10s or 7d", "size": "64KiB or 8MiB"}


@dataclass(slots=True)
class Validator:
    """Validates parts of one document and gathers what is wrong with all of them."""

    document: Document
    mistakes: list[Mistake] = field(default_factory=list)

    def validate(self, model: type[BaseModel], node: YamlNode, at: KeyPath) -> Any:
        """The settings in `node`, which stands at `at`; None when something is wrong with them.

        Problems that come only from an unset reference are not told again."""
        found = list(self._misread(model, node))
        try:
            settings = model.model_validate(plain(node), by_alias=True, by_name=False)
        except ValidationError as error:
            found += self._describe(model, error, node, at)
            settings = None
        self.mistakes += found
        return None if found else settings

    def tell(
        self,
        code: Code,
        text_position: TextPosition | None,
        problem: str,
        hint: str = "",
        *,
        keys: KeyPath = (),
    ) -> None:
        mistake = Mistake(self.document.path, text_position, problem, hint, code=code, keys=keys)
        self.mistakes.append(mistake)

    def tell_at(self, code: Code, keys: KeyPath, problem: str, hint: str = "") -> None:
        """A mistake of the value that stands at `keys`, or of what it is missing from."""
        self.tell(code, self.document.find(keys)[1], problem, hint, keys=keys)

    def _describe(
        self, model: type[BaseModel], error: ValidationError, node: YamlNode, at: KeyPath
    ) -> Iterator[Mistake]:
        part = Document(self.document.path, node)
        alternatives: dict[TextPosition, list[Mistake]] = {}
        errors = error.errors(include_url=False)[:MISTAKES_SHOWN_MAX]
        for each in errors:
            keys: KeyPath = each["loc"]
            if each["type"] == "too_short" and any(_is_within(keys, one["loc"]) for one in errors):
                continue  # it is short only because an element of it is wrong
            blamed, text_position, is_found = part.find(keys)
            if _is_unset(blamed):
                continue
            if each["type"] == "missing" and not keys[:-1] and at:
                text_position = self.document.find(at)[1]
                text_position = _key_position(self.document, at) or text_position
            elif each["type"] == "missing":
                text_position = _key_position(part, keys[:-1]) or text_position
            elif each["type"] == "extra_forbidden":
                text_position = _key_position(part, keys) or text_position
            problem, hint = _words(each, model, keys, blamed)
            mistake = Mistake(
                self.document.path,
                text_position,
                problem,
                hint,
                code=_code(each["type"]),
                keys=(*at, *_there(part, keys), *(keys[-1:] if each["type"] == "missing" else ())),
            )
            if is_found or each["type"] == "missing":
                yield mistake
            else:
                # The last keys name members of a union: the value is none of them.
                alternatives.setdefault(text_position, []).append(mistake)
        for mistakes in alternatives.values():
            yield _concat(mistakes)

    def _misread(self, annotation: Any, node: YamlNode) -> Iterator[Mistake]:
        """Finds what Python would take and a person does not mean: a number without a unit where a
        duration or a size is wanted, and `true` for 1."""
        if not isinstance(node, MappingNode):
            return
        for model in filter(is_model, members(annotation)):
            fields = fields_of(model)
            for key, value in node.values.items():
                if key not in fields:
                    continue
                inner = annotation_of(fields[key])
                if isinstance(value, ScalarNode):
                    yield from self._misread_scalar(inner, unit_of(inner), value)
                for each in step(model, key):
                    yield from self._misread(each, value)

    def _misread_scalar(self, annotation: Any, unit: str, node: ScalarNode) -> Iterator[Mistake]:
        value, path = plain(node), self.document.path
        if isinstance(value, bool):
            kinds = set(members(annotation))
            if bool not in kinds and kinds & {int, float}:
                yield Mistake(path, node.text_position, "should be a number", code=Code.WRONG_KIND)
        elif unit and isinstance(value, int | float) and value != 0:
            hint = f"write it as {EXAMPLES[unit]}"
            yield Mistake(
                path, node.text_position, f"a {unit} has a unit", hint, code=Code.WRONG_KIND
            )


def _is_within(outer: KeyPath, inner: KeyPath) -> bool:
    return len(outer) < len(inner) and inner[: len(outer)] == outer


def _is_unset(node: YamlNode) -> bool:
    """Whether it, or a value in its list, is a variable that is not set here."""
    if isinstance(node, ListNode):
        return any(map(_is_unset, node.items))
    return isinstance(node, ScalarNode) and node.is_unset


def _key_position(document: Document, keys: Sequence[str | int]) -> TextPosition | None:
    """Where the last of `keys` itself stands, if it is a key."""
    if not keys:
        return None
    parent, _, is_found = document.find(keys[:-1])
    if is_found and isinstance(parent, MappingNode):
        return parent.key_positions.get(str(keys[-1]))
    return None


def _concat(mistakes: Sequence[Mistake]) -> Mistake:
    wishes = [each.problem.removeprefix("should be ") for each in mistakes]
    distinct = list(dict.fromkeys(wishes))
    hint = next((each.hint for each in mistakes if each.hint), "")
    first = mistakes[0]
    if len(distinct) == 1:
        return first
    return replace(first, problem=f"should be {' or '.join(distinct)}", hint=hint)


def _there(part: Document, keys: KeyPath) -> KeyPath:
    """As many of `keys` as lead somewhere: the last ones may name members of a union."""
    for end in range(len(keys), 0, -1):
        if part.find(keys[:end])[2]:
            return keys[:end]
    return ()


def _code(kind: str) -> Code:
    if kind == "missing":
        return Code.MISSING_KEY
    if kind == "extra_forbidden":
        return Code.UNKNOWN_KEY
    is_kind = kind.endswith(("_type", "_parsing")) or kind == "int_from_float"
    return Code.WRONG_KIND if is_kind else Code.WRONG_VALUE


def _words(
    error: Mapping[str, Any], model: type[BaseModel], keys: KeyPath, node: YamlNode
) -> tuple[str, str]:
    """Returns the problem and the hint. The value itself is never among the words."""
    kind, facts = str(error["type"]), error.get("ctx", {})
    if kind == "missing":
        return f"the key {str(keys[-1])!r} is missing", ""
    if kind == "extra_forbidden":
        known = [key for each in models_at(model, keys[:-1]) for key in fields_of(each)]
        return f"key {str(keys[-1])!r} is unknown", did_you_mean(str(keys[-1]), known)
    if isinstance(node, ScalarNode) and plain(node) is None and kind.endswith("_type"):
        return "the key has no value", "give it one, or take the key out"
    if kind in ("literal_error", "enum"):
        return f"should be {facts['expected']}", _near(error.get("input"), facts["expected"])
    if kind == "string_type":
        is_scalar = isinstance(node, ScalarNode)
        return "should be text", "put it between quotes" if is_scalar else ""
    if kind == "value_error":
        return str(facts["error"]), ""
    for kinds, words in WORDS.items():
        if kind in kinds:
            return words.format(**facts), ""
    return _lower(str(error["msg"])), ""


WORDS = {
    ("int_type", "int_parsing", "int_from_float", "int_parsing_size"): "should be a whole number",
    ("float_type", "float_parsing", "decimal_parsing", "decimal_type"): "should be a number",
    ("bool_type", "bool_parsing"): "should be true or false",
    ("model_type", "model_attributes_type", "dict_type"): "should be keys with values",
    ("list_type", "tuple_type", "set_type", "frozen_set_type"): "should be a list",
    ("path_type",): "should be a path",
    ("greater_than_equal",): "should be at least {ge}",
    ("greater_than",): "should be more than {gt}",
    ("less_than_equal",): "should be at most {le}",
    ("less_than",): "should be less than {lt}",
    ("too_short",): "should have at least {min_length} of them",
    ("too_long",): "should have at most {max_length} of them",
    ("string_too_short",): "should have at least {min_length} characters",
    ("string_too_long",): "should have at most {max_length} characters",
    ("string_pattern_mismatch",): "should match {pattern}",
}
"""Pydantic's kinds of errors in our words."""


def _near(value: Any, expected: str) -> str:
    if not isinstance(value, str):
        return ""
    guess = did_you_mean(
        value, [each.strip("'") for each in expected.replace(" or ", ", ").split(", ")]
    )
    return guess if guess.startswith("did") else ""


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
