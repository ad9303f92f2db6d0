"""One command after the other in one process: how long the last of them takes, all else warm."""

# python -m benchmarks.warm_command ARGUMENT ... [--then ARGUMENT ...]; a line of JSON for each.

import json
import sys
import time
from itertools import groupby

from headwater.pipelines.cli import cli

THEN = "--then"


def main() -> None:
    groups = groupby(sys.argv[1:], key=lambda word: word == THEN)
    for command in [list(words) for is_then, words in groups if not is_then]:
        begun = time.perf_counter()
        try:
            cli.main(command, prog_name="headwater")
        except SystemExit as ended:
            if ended.code:
                raise
        print(json.dumps({"seconds": time.perf_counter() - begun}), flush=True)


if __name__ == "__main__":
    main()
