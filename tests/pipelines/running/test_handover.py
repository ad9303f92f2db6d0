"""What one run hands over, the other takes, and nothing else."""

from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.loader import load
from headwater.pipelines.running.data_directory_lock import body_of, handed_over

PIPELINE = """
pipeline: copy
source: {type: generator}
sink: {type: console}
"""


@pytest.mark.parametrize("until_end", [True, False])
def test_pipelines_arrive_as_they_were(tmp_path: Path, until_end: bool) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    [loaded] = load(path, environment={})

    [taken], is_until_end = handed_over(body_of([loaded], until_end=until_end))

    assert (taken.name, taken.spec, taken.content) == (loaded.name, loaded.spec, loaded.content)
    assert is_until_end is until_end


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"7", b"{}", b'{"pipelines": 5, "until_end": true}',
        b'{"pipelines": ["e30="], "until_end": true}', b'{"pipelines": ["%"], "until_end": true}',
        b'{"pipelines": []}', b'{"pipelines": ["bnVsbA=="], "until_end": true}',
    ],
)  # fmt: skip
def test_a_body_that_is_no_handover_is_refused(body: bytes) -> None:
    with pytest.raises(ConfigError, match="not a list of pipelines"):
        handed_over(body)
