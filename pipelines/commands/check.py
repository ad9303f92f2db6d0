"""`headwater check`: all mistakes of a pipeline file, without access to any system."""

import os
from pathlib import Path

import click

from headwater.pipelines.terminal.output import Output, format_count, shared_options


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("pipeline.yaml"))
@click.option(
    "--allow-unset",
    is_flag=True,
    help="Allow references to missing variables and files, for a machine without the secrets.",
)
@shared_options
@click.pass_obj
def check(output: Output, path: Path, allow_unset: bool) -> None:
    """Check a pipeline file, or a directory of them, offline.

    All mistakes are shown at once, each with its place, its key, its line and a code of
    docs/error-codes.md; exit code 2 means that there are some. The default PATH is ./pipeline.yaml.
    """
    from headwater.pipelines.file.loader import check as check_files

    found = check_files(
        path, environment=os.environ, may_be_unset=allow_unset, reads_expressions=True
    )
    for mistake in found.unset:
        output.note(f"not set: {mistake}")
    for remark in found.remarks:
        output.note(f"remark: {remark}")
    answer = {
        "files": [str(each) for each in found.files],
        "pipelines": list(found.names),
        "unset": [each.as_json() for each in found.unset],
        "remarks": [each.as_json() for each in found.remarks],
    }
    output.result(answer, [f"nothing is wrong in {format_count(len(found.files), 'file')}"])
