"""What a database takes long to load is loaded while the log is still being asked."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


def test_a_sink_does_not_load_sqlalchemy_before_it_is_asked_to_prepare() -> None:
    program = (
        "import sys\n"
        "from headwater.core_log.foundation.speed import Preloading\n"
        "from headwater.sinks.sql.sink import SqlSink\n"
        "assert isinstance(SqlSink(None, None), Preloading)\n"
        "assert 'sqlalchemy' not in sys.modules\n"
    )

    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
