"""The part of pipeline files that is about the console, whatever else they refer to."""

import os
from pathlib import Path

from headwater.config.document import MappingNode, ScalarNode, YamlNode, read_document
from headwater.config.excerpts import add_excerpt
from headwater.config.mistakes import MistakesFound
from headwater.config.substitution import substitute
from headwater.config.validation import Validator
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.console.hidden_columns import NOTHING_HIDDEN, HiddenColumns
from headwater.pipelines.file.pipeline_paths import files_at
from headwater.pipelines.file.spec import ConsoleViewSettings


def hidden_in(path: Path | None) -> HiddenColumns:
    """Of one file, or of a directory of files; nothing is hidden where there is none."""
    if path is None:
        return NOTHING_HIDDEN
    found: dict[str, set[str]] = {}
    for each in files_at(path):
        for pipeline, names in _hidden(each):
            found.setdefault(pipeline, set()).update(names)
    return HiddenColumns(found)


def _hidden(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    written = read_document(path)
    substituted = substitute(written, os.environ)
    root = substituted.document.root
    if not isinstance(root, MappingNode) or "console" not in root.values:
        return []
    validator = Validator(substituted.document)
    found = validator.validate(ConsoleViewSettings, root.values["console"], ("console",))
    if found is None:
        raise MistakesFound(
            [add_excerpt(each, written, substituted.redaction) for each in validator.mistakes]
        )
    return [(_name(path, root.values.get("pipeline")), found.hide)]


def _name(path: Path, node: YamlNode | None) -> str:
    if isinstance(node, MappingNode):
        return _name(path, node.values.get("name"))
    if isinstance(node, ScalarNode) and node.text and not node.is_unset:
        return node.text
    raise ConfigError(
        "the file does not say whose columns the console hides",
        hint="write `pipeline: NAME`",
        file=str(path),
    )
