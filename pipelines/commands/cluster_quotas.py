"""`headwater cluster quotas`: lists, sets and removes limits of what clients may use."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, shared_options, table
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.core_log.security.quotas import QuotaEntity

HEAD = ("USER", "CLIENT ID", "ADDRESS", "LIMIT", "VALUE")
DEFAULT_SHOWN = "(default)"
KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
Options = Callable[..., object]


def entity_options(command: Options) -> Options:
    """Options that name whose quota it is."""
    options = (
        click.option("--user", default=None, metavar="NAME", help="A user."),
        click.option("--default-user", is_flag=True, help="Each user without a quota of its own."),
        click.option("--client-id", default=None, metavar="NAME", help="Clients with this id."),
        click.option("--default-client-id", is_flag=True, help="Each other client id."),
        click.option("--address", "ip", default=None, metavar="IP", help="Clients of an address."),
        click.option("--default-address", is_flag=True, help="Each other address."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group()
def quotas() -> None:
    """List, set and remove limits of what clients may use."""


@quotas.command("list")
@log_options
@shared_options
@click.pass_obj
def list_quotas(output: Output, address: LogAddress) -> None:
    """List all quotas."""

    async def find() -> "Mapping[QuotaEntity, Mapping[str, float]]":
        async with address.open() as log:
            return await log.quotas.all()

    found = run_until_signal(find())
    rows = [(*entity, key, value) for entity, each in found.items() for key, value in each.items()]
    names = ("user", "client_id", "address", "limit", "value")
    output.result(
        [dict(zip(names, row, strict=True)) for row in rows],
        table(HEAD, [(*map(show_name, row[:3]), row[3], f"{row[4]:g}") for row in rows]),
    )


@quotas.command("set")
@click.argument("limits", nargs=-1, required=True, metavar="LIMIT=VALUE...")
@entity_options
@log_options
@shared_options
@click.pass_obj
def set_quotas(
    output: Output, /, limits: Sequence[str], address: LogAddress, **named: str | bool | None
) -> None:
    """Set limits, such as `producer_byte_rate=1000000`.

    Bytes, partitions and connections are counted per second. A request_percentage of 100 is the
    whole time of one broker.
    """
    entity, values = entity_of(named), dict(map(parse_limit, limits))

    run_until_signal(change(address, entity, values))
    names = " ".join(f"{key}={value:g}" for key, value in values.items())
    output.result({"set": values}, [f"set {names}"])


@quotas.command()
@click.argument("limits", nargs=-1, required=True, metavar="LIMIT...")
@entity_options
@log_options
@shared_options
@click.pass_obj
def remove(
    output: Output, /, limits: Sequence[str], address: LogAddress, **named: str | bool | None
) -> None:
    """Remove limits."""
    entity = entity_of(named)
    for each in limits:
        check_key(each)

    run_until_signal(change(address, entity, dict.fromkeys(limits)))
    output.result({"removed": list(limits)}, [f"removed {' '.join(limits)}"])


async def change(
    address: LogAddress, entity: "QuotaEntity", values: "Mapping[str, float | None]"
) -> None:
    async with address.open() as log:
        await log.quotas.change(entity, values)


def entity_of(named: Mapping[str, str | bool | None]) -> "QuotaEntity":
    from headwater.core_log.security.quotas import DEFAULT, QuotaEntity

    parts = []
    for name, default in (
        ("user", "default_user"),
        ("client_id", "default_client_id"),
        ("ip", "default_address"),
    ):
        given = named[name]
        if given is not None and named[default]:
            raise ConfigError("a name and its default are two quotas", option=f"--{default}")
        parts.append(DEFAULT if named[default] else None if given is None else str(given))
    if all(each is None for each in parts):
        raise ConfigError(
            "the quota has no user, client id or address",
            hint="--user, --client-id or --address, or --default-user and so on",
        )
    return QuotaEntity(*parts)


def parse_limit(text: str) -> tuple[str, float]:
    key, _, value = text.partition("=")
    check_key(key)
    try:
        return key, float(value)
    except ValueError:
        raise ConfigError("the value of a limit is not a number", limit=text) from None


def check_key(key: str) -> None:
    if key not in KEYS:
        raise ConfigError("the limit does not exist", limit=key, hint=", ".join(KEYS))


def show_name(name: str | None) -> str:
    return "-" if name is None else name or DEFAULT_SHOWN
