"""What reading takes long to load is loaded while the log is still being asked."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


def test_a_source_begins_to_load_what_it_reads_with() -> None:
    program = (
        "import sys, time\n"
        "from headwater.connectors.postgres.source import PostgresSource\n"
        "from headwater.core_log.foundation.speed import Preloading\n"
        "source, name = PostgresSource(None, None), 'headwater.connectors.postgres.session'\n"
        "assert isinstance(source, Preloading) and name not in sys.modules\n"
        "source.prepare()\n"
        "while name not in sys.modules: time.sleep(0.01)\n"
    )

    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)
