"""`headwater pause`: stops a pipeline, or one of its tables, until it is resumed."""

import click

from headwater.pipelines.terminal.control_writer import TARGET, send_pause
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, shared_options
from headwater.pipelines.terminal.signals import run_until_signal


@click.command()
@TARGET
@log_options
@shared_options
@click.pass_obj
def pause(output: Output, target: str, address: LogAddress) -> None:
    """Pause PIPELINE or PIPELINE/TABLE.

    A paused pipeline neither reads its source nor writes to its targets; a paused table is still
    written to the log, but not to targets. The pause lasts over restarts, until `headwater resume`.
    Note that a source keeps unread changes: a PostgreSQL server keeps its write-ahead log.
    """
    result = run_until_signal(send_pause(address, target, is_paused=True))
    output.result(result, [f"{target} is to pause; headwater resume {target} lets it go on"])
