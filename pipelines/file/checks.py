"""Checks of a pipeline file beyond single keys: contradictions between keys and between
pipelines."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from headwater.core_log.foundation.endpoint import is_loopback, parse_address
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.name_patterns import Pattern
from headwater.core_log.foundation.settings import SecuritySettings
from headwater.pipelines.file.log_settings import LogSettings

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPipeline

SECRET = re.compile(r"[\w-]{43}")
"""The form of a secret that `headwater cluster secret` prints."""
SALT_CHARACTERS_MIN = 16
"""Shorter salts can be found by trying, and with them every hashed value."""

Problem = tuple[tuple[str | int, ...], str, str]
"""The path of the key in the file, the problem, and the hint."""


def problems_within(pipeline: "LoadedPipeline") -> Iterator[Problem]:
    """Yields mistakes of one file that need no system."""
    spec = pipeline.spec
    yield from _of_log(spec.log)
    if spec.log.cluster is not None and spec.workers == 0:
        yield (
            ("workers",),
            "the process of a cluster's broker runs no tasks: a busy one would miss its session",
            "take it out, or write 1 or more",
        )
    retention = spec.log.retention
    forgets = retention.time_ms is not None or retention.size_bytes is not None
    has_holes = getattr(pipeline.source.settings, "leaves_holes", False)
    if has_holes and (spec.log.cleanup != "delete" or forgets):
        yield (
            ("source", "toast"),
            "with placeholders, only all records of a key together hold its row",
            "log: {cleanup: delete, retention: {time: forever, size: unlimited}}",
        )
    if spec.verify is not None and bool(spec.verify.every_ms) == bool(spec.verify.cron):
        yield ("verify",), "a time is given by either `every` or `cron`", "keep one of them"
    if 0 < len(spec.pipeline.salt.get_secret_value()) < SALT_CHARACTERS_MIN:
        yield (
            ("pipeline", "salt"),
            f"a salt has at least {SALT_CHARACTERS_MIN} characters",
            "make one: openssl rand -hex 32",
        )
    for at, rule in enumerate(spec.transform):
        both = sorted(set(rule.mask) & set(rule.drop))
        if both:
            yield ("transform", at, "drop"), f"{both[0]!r} is masked as well", "keep one of them"
    for at, route in enumerate(spec.route):
        yield from _of_groups(at, route.source, (route.to, *route.add_key.values()))
    names = [test.name for test in spec.tests]
    for at, name in enumerate(names):
        if name in names[:at]:
            yield ("tests", at, "name"), "two tests have this name", "give each its own"


def remarks_within(pipeline: "LoadedPipeline") -> Iterator[Problem]:
    """Yields remarks on permitted but unusual settings."""
    spec = pipeline.spec
    if not spec.pipeline.salt.get_secret_value():
        for at, rule in enumerate(spec.transform):
            if "hash" in rule.mask.values():
                yield (
                    ("transform", at, "mask"),
                    "a hash without a salt can be found out by guessing",
                    "pipeline: {name: ..., salt: ${env:SALT}}",
                )
    bounds = spec.log.retention
    if spec.log.cleanup == "compact" and (bounds.time_ms or bounds.size_bytes):
        yield (
            ("log", "retention"),
            "retention does nothing where topics are only compacted",
            "cleanup: compact,delete",
        )


def problems_between(
    pipelines: Sequence["LoadedPipeline"],
) -> Iterator[tuple["LoadedPipeline", str, str]]:
    """Yields mistakes between several files of one directory."""
    first_of: dict[str, LoadedPipeline] = {}
    for each in pipelines:
        if each.name in first_of:
            problem = f"the pipeline {each.name!r} is in {first_of[each.name].path.name} as well"
            yield each, problem, "give each pipeline its own name"
        first_of.setdefault(each.name, each)
        if pipelines and _log_of(each) != _log_of(pipelines[0]):
            yield (
                each,
                f"the log is another one than that of {pipelines[0].path.name}",
                "pipelines of one directory share type, path, listen, cluster, fsync, bootstrap "
                "and security of `log`",
            )


def remarks_between(
    pipelines: Sequence["LoadedPipeline"],
) -> Iterator[tuple["LoadedPipeline", str, str]]:
    """Yields remarks on pipelines with the same topics: a reader could not tell whose position
    counts."""
    first_of: dict[str, LoadedPipeline] = {}
    for each in pipelines:
        template = each.spec.log.topic
        if "{pipeline}" in template:
            continue
        if template in first_of:
            problem = f"the topics are named like those of {first_of[template].path.name}"
            yield each, problem, "begin log.topic with {pipeline}, unless no table is in both"
        first_of.setdefault(template, each)


def _of_log(log: LogSettings) -> Iterator[Problem]:
    if log.type == "kafka" and not log.bootstrap:
        yield ("log", "bootstrap"), "a Kafka cluster needs an address", "bootstrap: HOST:PORT"
    if log.type == "embedded" and log.bootstrap:
        yield ("log", "bootstrap"), "the embedded log has no bootstrap", "write `type: kafka`"
    if log.type == "embedded" and log.security != SecuritySettings():
        hint = "write `type: kafka`, or log: {cluster: {security: ...}}"
        yield ("log", "security"), "the key says how a Kafka cluster is reached", hint
    if log.type == "embedded":
        yield from _of_listener(log)
    if log.type == "kafka" and log.cluster is not None:
        yield ("log", "cluster"), "the log is a Kafka cluster's", "take it out, or `type: kafka`"
    if log.cluster is not None and log.fsync == "never":
        yield ("log", "fsync"), "a cluster keeps what it promises on its disks", "take it out"
    is_avro = log.value.endswith("avro")
    if is_avro and not log.registry:
        yield ("log", "value"), "Avro needs a schema registry", "registry: http://HOST:PORT"
    if is_avro and log.has_schemas:
        yield ("log", "schemas"), "`schemas` is for JSON", "take it out, Avro has its registry"
    if log.registry and not is_avro:
        yield ("log", "registry"), "only Avro uses a registry", "take it out, or change `value`"


def _of_listener(log: LogSettings) -> Iterator[Problem]:
    """Yields settings that the broker would refuse, with their place."""
    try:
        is_here = is_loopback(parse_address(log.listen)[0])
    except ConfigError as error:
        yield ("log", "listen"), error.problem, "write 127.0.0.1:0, or another port"
        return
    cluster = log.cluster
    if cluster is None:
        if not is_here:
            problem = "the log of a pipeline listens beyond loopback only as part of a cluster"
            hint = "log: {cluster: ...}; or use `headwater broker` and `type: kafka`"
            yield ("log", "listen"), problem, hint
        return
    if cluster.secret is None and (cluster.security.authenticates or not is_here):
        problem = "brokers know each other by a secret beyond loopback or with authentication"
        hint = "`headwater cluster secret > cluster.secret`, and `secret: cluster.secret`"
        yield ("log", "cluster", "secret"), problem, hint
        return
    if cluster.secret is not None and SECRET.fullmatch(cluster.secret.name):
        hint = "write `secret: cluster.secret`, without ${file:}"
        yield (
            ("log", "cluster", "secret"),
            "the secret is the path of a file, not its content",
            hint,
        )
        return
    from headwater.core_log.security.login import security_of

    try:
        security_of(log.as_broker(log.path, directory=log.path))
    except ConfigError as error:
        yield ("log", "cluster", "security"), error.problem, error.hint


def _of_groups(at: int, pattern: str, texts: Iterable[str]) -> Iterator[Problem]:
    groups = Pattern(pattern).group_count
    for text in texts:
        for number in re.findall(r"\$(\d+)", text):
            if not 1 <= int(number) <= groups:
                yield (
                    ("route", at, "from"),
                    f"the pattern has no group {number}",
                    f"the pattern has {groups}; put the text of a group between parentheses",
                )


def _log_of(pipeline: "LoadedPipeline") -> tuple[object, ...]:
    log = pipeline.spec.log
    if log.type == "kafka":
        return (log.type, log.bootstrap, log.security.beside(pipeline.directory))
    return (log.type, pipeline.log_path, log.listen, log.fsync, log.cluster)
