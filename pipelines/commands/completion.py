"""`headwater completion`: the script that completes our commands in a shell."""

import click
from click.shell_completion import get_completion_class

from headwater.pipelines.terminal.output import Output, shared_options

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
