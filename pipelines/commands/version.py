"""`headwater version`: prints the installed version."""

import platform

import click

from headwater.pipelines.terminal.output import Output, shared_options


@click.command()
@shared_options
@click.pass_obj
def version(output: Output) -> None:
    """Print the version of Headwater, and whether its decoders are compiled.

    They are compiled if numba is installed; HEADWATER_SPEED=python or =fast chooses.
    """
    from importlib.metadata import version as version_of

    from headwater.core_log.foundation.speed import INSTALL, chosen_speed

    speed = chosen_speed()
    found = {
        "headwater": version_of("headwater"),
        "python": platform.python_version(),
        "decoders": speed,
    }
    decoders = "compiled" if speed == "fast" else f"plain Python ({INSTALL} compiles them)"
    output.result(
        found,
        [f"headwater {found['headwater']} (Python {found['python']})", f"decoders: {decoders}"],
    )
