"""Copies the console's libraries from node_modules into the product, for `make web`."""

import hashlib
import json
import re
import shutil
from pathlib import Path

HERE = Path(__file__).parent / "web"
MODULES = HERE / "node_modules"
VENDOR = Path(__file__).parent.parent / "pipelines" / "console" / "web" / "vendor"

FILES = {
    "preact.mjs": ("preact", "dist/preact.mjs"),
    "hooks.mjs": ("preact", "hooks/dist/hooks.mjs"),
    "signals-core.mjs": ("@preact/signals-core", "dist/signals-core.mjs"),
    "signals.mjs": ("@preact/signals", "dist/signals.mjs"),
    "htm.mjs": ("htm", "dist/htm.mjs"),
    "inter.woff2": (
        "@fontsource-variable/inter",
        "files/inter-latin-wght-normal.woff2",
    ),
    "mono.woff2": (
        "@fontsource-variable/jetbrains-mono",
        "files/jetbrains-mono-latin-wght-normal.woff2",
    ),
}
"""Name in the product, to package and file."""

BARE_NAMES = {
    "preact/hooks": "./hooks.mjs",
    "preact": "./preact.mjs",
    "@preact/signals-core": "./signals-core.mjs",
}
"""Imports that a browser cannot resolve, to files beside."""


def copy_libraries(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Libraries of the console",
        "",
        "Written by `make web` from `scripts/web/package-lock.json`; not to be edited. Only names",
        "of imports are rewritten, and references to source maps left out.",
        "",
        "| File | Package | Version | Licence | SHA-512 |",
        "|---|---|---|---|---|",
    ]
    for name, (package, source) in FILES.items():
        target = directory / name
        if name.endswith(".mjs"):
            target.write_text(browser_module((MODULES / package / source).read_text()))
        else:
            shutil.copyfile(MODULES / package / source, target)
        facts = json.loads((MODULES / package / "package.json").read_text())
        digest = hashlib.sha512(target.read_bytes()).hexdigest()[:32]
        lines.append(
            f"| {name} | {package} | {facts['version']} | {facts['license']} | {digest}… |"
        )
    for package in dict.fromkeys(package for package, _ in FILES.values()):
        text = (MODULES / package / "LICENSE").read_text().strip()
        lines += ["", f"## Licence of {package}", "", "```", text, "```"]
    (directory / "README.md").write_text("\n".join(lines) + "\n")


def browser_module(text: str) -> str:
    """Rewrites bare names of imports."""
    for name, path in BARE_NAMES.items():
        text = re.sub(rf'(from\s*)["\']{re.escape(name)}["\']', rf'\1"{path}"', text)
    return re.sub(r"//# sourceMappingURL=.*", "", text)


if __name__ == "__main__":
    copy_libraries(VENDOR)
