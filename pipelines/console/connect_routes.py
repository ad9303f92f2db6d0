"""Kafka Connect's REST API over the pipelines: reads, pause, resume and restart."""

from collections.abc import Awaitable, Callable
from importlib.metadata import version as version_of
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from headwater.connectors import SETTINGS as SOURCE_SETTINGS
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.foundation.settings import explanations_of
from headwater.pipelines.console.connect_view import (
    ConnectorNames,
    file_settings,
    kind_of,
    state_of,
)
from headwater.pipelines.console.console_route import ConsoleContext
from headwater.pipelines.console.pipeline_routes import send_signal
from headwater.pipelines.file.reference import component
from headwater.pipelines.watching.http_guard import App, AsgiSend, Receive, Scope
from headwater.pipelines.watching.http_routes import json_response
from headwater.sinks import SETTINGS as SINK_SETTINGS

CONNECT = "/connect"
ConnectHandler = Callable[[Request], Awaitable[Response]]
_NOTHING = Response(status_code=204)
READ_ONLY = "connectors are read from the pipeline file: edit {file}, and run it"


def is_connect(path: str) -> bool:
    return path == CONNECT or path.startswith(f"{CONNECT}/")


class ConnectError(Exception):
    """An error in Connect's form."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def connect_app(console: ConsoleContext, *, worker: str) -> App:
    """`worker`: HOST:PORT, which Connect calls the worker's id."""
    handlers = _Handlers(console, worker)
    connector = "/connectors/{name}"
    routes = [
        ("GET", "/", handlers.root),
        ("GET", "/health", handlers.health),
        ("GET", "/connectors", handlers.connectors),
        ("GET", connector, handlers.connector),
        ("GET", connector + "/config", handlers.config),
        ("GET", connector + "/status", handlers.status),
        ("GET", connector + "/tasks", handlers.tasks),
        ("GET", connector + "/tasks/{task:count}/status", handlers.task_status),
        ("GET", connector + "/topics", handlers.topics),
        ("GET", connector + "/offsets", handlers.offsets),
        ("GET", "/connector-plugins", handlers.plugins),
        ("GET", "/connector-plugins/{plugin}/config", handlers.plugin_config),
        ("GET", "/admin/loggers", handlers.loggers),
        ("GET", "/admin/loggers/{logger}", handlers.logger),
        ("PUT", "/admin/loggers/{logger}", handlers.refuse),
        ("POST", "/connectors", handlers.refuse),
        ("PUT", connector + "/config", handlers.refuse),
        ("PATCH", connector + "/config", handlers.refuse),
        ("DELETE", connector, handlers.refuse),
        ("PUT", connector + "/stop", handlers.refuse),
        ("PUT", connector + "/topics/reset", handlers.refuse),
        ("PUT", "/connector-plugins/{plugin}/config/validate", handlers.refuse),
        ("PATCH", connector + "/offsets", handlers.refuse),
        ("DELETE", connector + "/offsets", handlers.refuse),
    ]
    if not console.sources.is_read_only:
        routes += [
            ("PUT", connector + "/pause", handlers.pause),
            ("PUT", connector + "/resume", handlers.resume),
            ("POST", connector + "/restart", handlers.restart),
            ("POST", connector + "/tasks/{task:count}/restart", handlers.restart_task),
        ]
    router = Router(
        [Route(path, _answered(each), methods=[method]) for method, path, each in routes]
    )

    async def app(scope: Scope, receive: Receive, send: AsgiSend) -> None:
        path = scope["path"].removeprefix(CONNECT).rstrip("/") or "/"
        try:
            await router({**scope, "path": path, "root_path": "", "app": app}, receive, send)
        except HTTPException as error:
            words = {404: "HTTP 404 Not Found", 405: "HTTP 405 Method Not Allowed"}
            response = _error(error.status_code, words[error.status_code])
            await response(scope, receive, send)

    return app


def _answered(handler: ConnectHandler) -> ConnectHandler:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except ConnectError as error:
            return _error(error.code, error.message)
        except HeadwaterError as error:
            return _error(500, error.statement)

    return answer


def _error(code: int, message: str) -> Response:
    return json_response({"error_code": code, "message": message}, status=code)


class _Handlers:
    """One method per route, with the answers of Connect 4.3."""

    def __init__(self, console: ConsoleContext, worker: str) -> None:
        self._console, self._worker = console, worker
        self._version = version_of("headwater")

    async def root(self, request: Request) -> Response:
        async with self._console.open_log() as log:
            cluster = (await log.describe_cluster()).cluster_id
        return json_response(
            {"version": self._version, "commit": "headwater", "kafka_cluster_id": cluster}
        )

    async def connectors(self, request: Request) -> Response:
        names, wanted = self._names(), request.query_params.getlist("expand")
        if not wanted:
            return json_response(names.all())
        found: dict[str, dict[str, Any]] = {}
        for name in names.all():
            found[name] = {}
            if "status" in wanted:
                found[name]["status"] = self._status(name)
            if "info" in wanted:
                found[name]["info"] = self._info(name)
        return json_response(found)

    async def connector(self, request: Request) -> Response:
        return json_response(self._info(self._find(request)))

    async def config(self, request: Request) -> Response:
        return json_response(self._config(self._find(request)))

    async def status(self, request: Request) -> Response:
        name = request.path_params["name"]
        if self._names().split(name) is None:
            raise ConnectError(404, f"No status found for connector {name}")
        return json_response(self._status(name))

    async def tasks(self, request: Request) -> Response:
        name = self._find(request)
        config = self._config(name)
        return json_response(
            [
                {"id": {"connector": name, "task": number}, "config": config | {"table": table}}
                for number, table in enumerate(self._tables(name))
            ]
        )

    async def task_status(self, request: Request) -> Response:
        name, number = request.path_params["name"], request.path_params["task"]
        found = self._names().split(name)
        tables = [] if found is None else self._tables(name)
        if number >= len(tables):
            raise ConnectError(404, f"No status found for task {name}-{number}")
        return json_response(self._task_status(name, number))

    async def topics(self, request: Request) -> Response:
        name = request.path_params["name"]
        is_known = self._names().split(name) is not None
        return json_response({name: {"topics": sorted(self._offsets_of(name)) if is_known else []}})

    async def offsets(self, request: Request) -> Response:
        name = self._find(request)
        pipeline, task = self._split(name)
        positions = self._names().task(pipeline, task)["positions"]
        if task == "source":
            found = [
                {"partition": {"part": part}, "offset": {"position": at}}
                for part, at in sorted(positions.items())
            ]
            return json_response({"offsets": found})
        return json_response(
            {
                "offsets": [
                    {
                        "partition": {"kafka_topic": topic, "kafka_partition": partition},
                        "offset": {"kafka_offset": at},
                    }
                    for topic, of_topic in sorted(self._offsets_of(name).items())
                    for partition, at in sorted(of_topic.items())
                ]
            }
        )

    async def plugins(self, request: Request) -> Response:
        kinds = [(each, "source") for each in SOURCE_SETTINGS] + [
            (e, "sink") for e in SINK_SETTINGS
        ]
        return json_response(
            [
                {"class": _class_of(kind, type), "type": type, "version": self._version}
                for kind, type in sorted(kinds)
            ]
        )

    async def plugin_config(self, request: Request) -> Response:
        plugin = request.path_params["plugin"]
        for settings, type in ((SOURCE_SETTINGS, "source"), (SINK_SETTINGS, "sink")):
            for kind in settings:
                if plugin == _class_of(kind, type):
                    model = component(kind, is_source=type == "source").settings
                    return json_response(_config_keys(model))
        raise ConnectError(404, f"Unknown plugin {plugin}.")

    async def loggers(self, request: Request) -> Response:
        """Processes of pipelines have none that can be set from here."""
        return json_response({})

    async def logger(self, request: Request) -> Response:
        raise ConnectError(404, f"Logger {request.path_params['logger']} not found.")

    async def health(self, request: Request) -> Response:
        message = "Worker has completed startup and is ready to handle requests."
        return json_response({"status": "healthy", "message": message})

    async def pause(self, request: Request) -> Response:
        await self._send(self._find(request, "Unknown connector {}"), "pause")
        return Response(status_code=202)

    async def resume(self, request: Request) -> Response:
        await self._send(self._find(request, "Unknown connector {}"), "resume")
        return Response(status_code=202)

    async def restart(self, request: Request) -> Response:
        """Restarts a whole pipeline: its tasks restart together, at their offsets."""
        name, given = self._find(request, "Unknown connector: {}"), request.query_params
        has_tasks = "true" in (given.get("includeTasks"), given.get("onlyFailed"))
        if given.get("onlyFailed") != "true" or self._has_failed(name):
            await self._send(name, "restart")
        return json_response(self._status(name), status=202) if has_tasks else _NOTHING

    async def restart_task(self, request: Request) -> Response:
        name = self._find(request, "Unknown connector: {}")
        tables, number = self._tables(name), request.path_params["task"]
        if number >= len(tables):
            raise ConnectError(404, f"Unknown task: {name}-{number}")
        await self._send(name, "restart", tables[number])
        return _NOTHING

    async def refuse(self, request: Request) -> Response:
        files = {each.get("headwater.file", "") for each in self._settings().values()}
        file = ", ".join(sorted(each for each in files if each)) or "the pipeline file"
        raise ConnectError(405, READ_ONLY.format(file=file))

    async def _send(self, name: str, verb: str, table: str | None = None) -> None:
        pipeline, _ = self._split(name)
        await send_signal(self._console, pipeline, verb, table)

    def _names(self) -> ConnectorNames:
        return ConnectorNames(self._console.live.now)

    def _find(self, request: Request, problem: str = "Connector {} not found") -> str:
        name = str(request.path_params["name"])
        if self._names().split(name) is None:
            raise ConnectError(404, problem.format(name))
        return name

    def _split(self, name: str) -> tuple[str, str]:
        found = self._names().split(name)
        assert found is not None, "the connector was found"
        return found

    def _tables(self, name: str) -> list[str]:
        return self._names().tables(*self._split(name))

    def _has_failed(self, name: str) -> bool:
        status = self._status(name)
        return "FAILED" in (each["state"] for each in (status["connector"], *status["tasks"]))

    def _status(self, name: str) -> dict[str, Any]:
        pipeline, task = self._split(name)
        connector = state_of(self._names().task(pipeline, task), self._worker, self._version)
        tasks = [self._task_status(name, number) for number in range(len(self._tables(name)))]
        return {"name": name, "connector": connector, "tasks": tasks, "type": kind_of(task)}

    def _task_status(self, name: str, number: int) -> dict[str, Any]:
        pipeline, task = self._split(name)
        facts = self._names().table(pipeline, task, self._tables(name)[number])
        return {"id": number, **state_of(facts, self._worker, self._version)}

    def _info(self, name: str) -> dict[str, Any]:
        _, task = self._split(name)
        return {
            "name": name,
            "config": self._config(name),
            "tasks": [{"connector": name, "task": each} for each in range(len(self._tables(name)))],
            "type": kind_of(task),
        }

    def _settings(self) -> Any:
        return file_settings(self._console.sources.file)

    def _config(self, name: str) -> dict[str, str]:
        _, task = self._split(name)
        settings = dict(self._settings().get(name, {}))
        kind = settings.get("type", "unknown")
        tables = self._tables(name)
        found = settings | {
            "name": name,
            "connector.class": _class_of(kind, kind_of(task)),
            "tasks.max": str(max(len(tables), 1)),
        }
        return found if task == "source" else found | {"topics": ",".join(self._offsets_of(name))}

    def _offsets_of(self, name: str) -> dict[str, dict[int, int]]:
        """Offsets by topic and partition; those of a source are what its sinks have applied."""
        pipeline, task = self._split(name)
        tasks = self._console.live.now["pipelines"][pipeline]["tasks"]
        chosen = tasks if task == "source" else {task: tasks[task]}
        found: dict[str, dict[int, int]] = {}
        for each, facts in chosen.items():
            for part, at in facts["positions"].items() if each != "source" else ():
                topic, _, number = part.rpartition("-")
                if topic and number.isdigit() and at.isdigit() and not topic.startswith("__"):
                    found.setdefault(topic, {})[int(number)] = int(at)
        return found


def _class_of(kind: str, type: str) -> str:
    return f"headwater.{kind}.{type}"


def _config_keys(model: type[BaseModel]) -> list[dict[str, Any]]:
    explained = explanations_of(model)
    return [
        {
            "name": field.alias or name,
            "type": "STRING",
            "required": field.is_required(),
            "default_value": None
            if field.is_required() or field.default is PydanticUndefined or field.default is None
            else str(field.default),
            "importance": "HIGH" if field.is_required() else "MEDIUM",
            "documentation": explained[name],
            "group": None,
            "width": "NONE",
            "display_name": name,
            "dependents": [],
            "order_in_group": -1,
        }
        for name, field in model.model_fields.items()
    ]
