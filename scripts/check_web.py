"""Checks the console's scripts with TypeScript, and its libraries against their lock file."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.vendor_web import VENDOR, copy_libraries

HERE = Path(__file__).parent / "web"
LOCK, COMPILER = HERE / "package-lock.json", HERE / "node_modules/typescript/bin/tsc"
INSTALL = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
FINDING = re.compile(r"^(\S+)\(\d+,\d+\): error ")


def main() -> int:
    if shutil.which("npm") is None:
        print("the console's scripts are not checked: npm is missing", file=sys.stderr)
        return 0
    if not COMPILER.exists() or COMPILER.stat().st_mtime < LOCK.stat().st_mtime:
        subprocess.run(INSTALL, cwd=HERE, check=True, stdout=subprocess.DEVNULL)
        COMPILER.touch()
    ran = subprocess.run(["node", COMPILER, "-p", HERE], capture_output=True, text=True)
    if ran.returncode and not ran.stdout:
        print(f"TypeScript cannot run: {ran.stderr}", file=sys.stderr)
        return 1
    found = [*own_findings(ran.stdout), *changed_libraries()]
    print("\n".join(found) or "Success: no issues found in the console's scripts")
    return int(bool(found))


def own_findings(said: str) -> list[str]:
    """Returns the lines about our own files; libraries come as their makers release them."""
    lines, is_own = list[str](), True
    for line in said.splitlines():
        if place := FINDING.match(line):
            is_own = "/vendor/" not in place[1]
        if is_own:
            lines.append(line)
    return lines


def changed_libraries() -> list[str]:
    """Returns a line for each file that `make web` would change."""
    with TemporaryDirectory() as written:
        copy_libraries(Path(written))
        wanted, kept = contents(Path(written)), contents(VENDOR)
    differing = sorted(name for name in wanted | kept if wanted.get(name) != kept.get(name))
    return [f"{VENDOR.name}/{name}: is not what `make web` writes" for name in differing]


def contents(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in directory.iterdir()}


if __name__ == "__main__":
    sys.exit(main())
