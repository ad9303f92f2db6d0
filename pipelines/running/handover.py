"""Pipelines as one `headwater run` hands them to the one that runs already, by `POST /run`."""

import base64
from collections.abc import Sequence

import orjson

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.loader import LoadedPipeline


def body_of(loaded: Sequence[LoadedPipeline], *, until_end: bool) -> bytes:
    wires = [base64.b64encode(each.to_wire()).decode() for each in loaded]
    return orjson.dumps({"pipelines": wires, "until_end": until_end})


def handed_over(body: bytes) -> tuple[list[LoadedPipeline], bool]:
    """The pipelines, and whether they are to be run to their end."""
    try:
        given = orjson.loads(body)
        wires = [base64.b64decode(each) for each in given["pipelines"]]
        return [LoadedPipeline.from_wire(each) for each in wires], bool(given["until_end"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            "these are no pipelines as `headwater run` hands them over",
            hint="run headwater run FILE; both have to be of the same version",
        ) from None
