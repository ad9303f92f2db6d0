"""`headwater resume`: continues paused and quarantined pipelines and tables."""

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
def resume(output: Output, target: str, address: LogAddress) -> None:
    """Resume PIPELINE or PIPELINE/TABLE.

    It continues at its offsets. A quarantine ends, and the failed work is tried again. Tables that
    were paused one by one stay paused when their pipeline is resumed.
    """
    result = run_until_signal(send_pause(address, target, is_paused=False))
    output.result(result, [f"{target} is to go on"])
    still_paused = result["paused_tables"]
    if still_paused and not result["table"]:
        output.note(f"still paused by themselves: {', '.join(still_paused)}")
