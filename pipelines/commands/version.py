"""`headwater version` and `completion`: the installed program, and its names in a shell."""

import platform

import click
from click.shell_completion import get_completion_class

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


PLACES = {
    "bash": "headwater completion bash > ~/.local/share/bash-completion/completions/headwater",
    "zsh": 'headwater completion zsh > "${fpath[1]}/_headwater"',
    "fish": "headwater completion fish > ~/.config/fish/completions/headwater.fish",
}
VARIABLE = "_HEADWATER_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(tuple(PLACES)))
@shared_options
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows every shell that we list"
    # Only the script is needed, without click's check of the running bash's version.
    completer = kind(ctx.find_root().command, {}, "headwater", VARIABLE)
    script = completer.source_template % completer.source_vars()
    output = ctx.ensure_object(Output)
    output.result({"shell": shell, "script": script}, [script])
    output.note(f"to install it: {PLACES[shell]}")
