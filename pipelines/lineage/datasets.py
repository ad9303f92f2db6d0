"""Names of tables as datasets, as OpenLineage's naming specification wants them."""

import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from headwater.core_log.foundation.database_url import url_of
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.objects.store import S3_SCHEME
from headwater.pipelines.file.loader import LoadedPart, LoadedPipeline
from headwater.sinks.object_names import fit_table, hive_table_directory, lake_table_directory

PORTS = {"postgres": 5432, "mysql": 3306}
NAME_BYTES_MAX = 1 << 10
PLACE = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*)(:(?P<port>\d*))?")


class DatasetName(NamedTuple):
    namespace: str
    name: str


def source_dataset(loaded: LoadedPipeline, table: TableId, topic: str) -> DatasetName:
    """Returns the source's own name of a table; that of its topic if the source has none."""
    settings: Any = loaded.source.settings
    match loaded.source.kind:
        case "postgres":
            return _postgres(settings.url.get_secret_value(), table)
        case "mysql" | "mariadb":
            places = urlsplit(settings.url.get_secret_value()).netloc.rpartition("@")[2]
            return DatasetName(_authority("mysql", places.partition(",")[0]), str(table))
        case "sql":
            return _database(settings.url.get_secret_value(), table, loaded.directory)
        case "files":
            return _path(settings.path, loaded.directory)
        case "kafka":
            return DatasetName(f"kafka://{settings.bootstrap[0]}", table.name)
    return DatasetName(f"headwater://{loaded.name}", topic)


def sink_dataset(loaded: LoadedPipeline, sink: LoadedPart, table: TableId) -> DatasetName:
    """Returns the target's name of a table, as the sink writes it."""
    settings: Any = sink.settings
    match sink.kind:
        case "sql":
            found = fit_table(
                table,
                namespace=settings.namespace,
                name=settings.table,
                bytes_max=NAME_BYTES_MAX,
            )
            return _database(settings.url.get_secret_value(), found, loaded.directory)
        case "spark":
            directory = lake_table_directory(table, settings.table)
            return _path(f"{settings.path.rstrip('/')}/{directory}", loaded.directory)
        case "files":
            directory = hive_table_directory(table)
            return _path(f"{settings.path.rstrip('/')}/{directory}", loaded.directory)
        case "kafka":
            from headwater.sinks.kafka.offset_topic import topic_name

            topic = topic_name(settings.topic, pipeline=loaded.name, table=table)
            return DatasetName(f"kafka://{settings.bootstrap[0]}", topic)
    return DatasetName(f"headwater://{loaded.name}", f"{sink.name}.{table}")


def _postgres(address: str, table: TableId) -> DatasetName:
    """By libpq's own reading: its passwords may hold what ends the host elsewhere."""
    from headwater.connectors.postgres.server.connection import parameters_in

    try:
        found = parameters_in(address)
    except HeadwaterError:
        found = {}
    host, port = (str(found.get(name) or "").partition(",")[0] for name in ("host", "port"))
    host = "" if host.startswith("/") else f"[{host}]" if ":" in host else host
    database = found.get("dbname") or found.get("user") or ""
    return DatasetName(_authority("postgres", f"{host}:{port}"), f"{database}.{table}")


def _authority(scheme: str, place: str) -> str:
    """Returns the place of a server; a text that is none is not shown, since it may be a part of a
    password."""
    found = PLACE.fullmatch(place)
    host, port = (found["host"], found["port"]) if found else ("", "")
    return f"{scheme}://{host or 'localhost'}:{port or PORTS[scheme]}"


def _database(address: str, table: TableId, directory: Path) -> DatasetName:
    url = url_of(address, directory=directory)
    backend = url.get_backend_name()
    if backend == "sqlite":
        return DatasetName(f"sqlite:{url.database or ':memory:'}", str(table))
    scheme = {"postgresql": "postgres", "mariadb": "mysql"}.get(backend, backend)
    port = url.port or PORTS.get(scheme)
    namespace = f"{scheme}://{url.host or 'localhost'}" + (f":{port}" if port else "")
    names = [url.database or "", table.namespace, table.name]
    if scheme == "postgres":
        names[1] = names[1] or "public"
    if scheme == "mysql" and table.namespace:
        del names[0]
    return DatasetName(namespace, ".".join(filter(None, names)))


def _path(path: str, directory: Path) -> DatasetName:
    if path.startswith(S3_SCHEME):
        bucket, _, key = path.removeprefix(S3_SCHEME).partition("/")
        return DatasetName(f"{S3_SCHEME}{bucket}", key or "/")
    return DatasetName("file", str(directory / Path(path).expanduser()))
