"""`headwater cluster acls`: lists, adds and removes the rules of who may do what."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.control_writer import confirm, yes_option
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, format_count, shared_options, table
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.core_log.security.acls import Acl, AclFilter

HEAD = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
OPERATIONS = (
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
)
Options = Callable[..., object]


def resource_options(command: Options) -> Options:
    """Options that name resources, as those of `kafka-acls`."""
    options = (
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic."),
        click.option("--group", "groups", multiple=True, metavar="NAME", help="A consumer group."),
        click.option(
            "--transactional-id", "ids", multiple=True, metavar="NAME", help="A transactional id."
        ),
        click.option("--cluster", "is_cluster", is_flag=True, help="The cluster itself."),
        click.option(
            "--prefixed", is_flag=True, help="Names are beginnings of names; `*` is any name."
        ),
        click.option("--deny", is_flag=True, help="Deny, which wins over all that is allowed."),
        click.option("--host", default=None, metavar="ADDRESS", help="The client's address."),
        click.option(
            "--operation",
            "operations",
            multiple=True,
            type=click.Choice(OPERATIONS),
            help="Operation; all if left out.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group()
def acls() -> None:
    """List, add and remove the rules of who may do what."""


@acls.command("list")
@click.option("--principal", default=None, metavar="User:NAME", help="Only its rules.")
@log_options
@shared_options
@click.pass_obj
def list_acls(output: Output, principal: str | None, address: LogAddress) -> None:
    """List the rules."""
    from headwater.core_log.security.acls import AclFilter

    async def find() -> "list[Acl]":
        async with address.open() as log:
            return await log.acls.list(AclFilter(principal=principal))

    found = run_until_signal(find())
    output.result([row_of(each) for each in found], table(HEAD, [words_of(each) for each in found]))


@acls.command()
@click.option(
    "--principal",
    "principals",
    multiple=True,
    required=True,
    metavar="User:NAME",
    help="Who; `User:*` is everybody.",
)
@resource_options
@log_options
@shared_options
@click.pass_obj
def add(
    output: Output, /, principals: Sequence[str], address: LogAddress, **resources: Any
) -> None:
    """Allow operations on resources, or deny them."""
    wanted = acls_of(principals, **resources)

    async def create() -> None:
        async with address.open() as log:
            await log.acls.create(wanted)

    run_until_signal(create())
    output.result([row_of(each) for each in wanted], [f"added {format_count(len(wanted), 'rule')}"])


@acls.command()
@click.option(
    "--principal", "principals", multiple=True, required=True, metavar="User:NAME", help="Whose."
)
@resource_options
@yes_option
@log_options
@shared_options
@click.pass_obj
def remove(
    output: Output, /, principals: Sequence[str], yes: bool, address: LogAddress, **resources: Any
) -> None:
    """Remove the rules that `add` has made with the same options."""
    wanted = [filter_of(each) for each in acls_of(principals, **resources)]
    confirm(f"Remove {format_count(len(wanted), 'rule')}?", yes=yes)

    async def delete() -> int:
        async with address.open() as log:
            return await log.acls.delete(wanted)

    count = run_until_signal(delete())
    output.result({"removed": count}, [f"removed {format_count(count, 'rule')}"])


def acls_of(
    principals: Sequence[str],
    *,
    topics: Sequence[str],
    groups: Sequence[str],
    ids: Sequence[str],
    is_cluster: bool,
    prefixed: bool,
    deny: bool,
    host: str | None,
    operations: Sequence[str],
) -> "list[Acl]":
    """Returns one rule for each principal, resource and operation."""
    from headwater.core_log.security.acls import (
        CLUSTER_NAME,
        WILDCARD,
        Acl,
        AclOperation,
        PatternType,
        Permission,
        ResourceType,
        problem_of,
    )

    resources = [
        *((ResourceType.TOPIC, name) for name in topics),
        *((ResourceType.GROUP, name) for name in groups),
        *((ResourceType.TRANSACTIONAL_ID, name) for name in ids),
        *([(ResourceType.CLUSTER, CLUSTER_NAME)] if is_cluster else []),
    ]
    if not resources:
        raise ConfigError(
            "no resource is named", hint="--topic, --group, --transactional-id or --cluster"
        )
    made = []
    for who, (kind, name), operation in product(principals, resources, operations or ("all",)):
        is_prefix = prefixed and kind is not ResourceType.CLUSTER
        acl = Acl(
            kind,
            name,
            PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
            who,
            host or WILDCARD,
            AclOperation[operation.upper()],
            Permission.DENY if deny else Permission.ALLOW,
        )
        problem = problem_of(acl)
        if problem is not None:
            raise ConfigError(problem, principal=who)
        made.append(acl)
    return made


def filter_of(acl: "Acl") -> "AclFilter":
    from headwater.core_log.security.acls import AclFilter

    return AclFilter(
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


def words_of(acl: "Acl") -> tuple[str, ...]:
    return (
        acl.resource_type.name.lower(),
        acl.resource_name,
        acl.pattern_type.name.lower(),
        acl.principal,
        acl.host,
        acl.operation.name.lower(),
        acl.permission.name.lower(),
    )


def row_of(acl: "Acl") -> dict[str, str]:
    names = (name.lower() for name in HEAD)
    return dict(zip(names, words_of(acl), strict=True))
