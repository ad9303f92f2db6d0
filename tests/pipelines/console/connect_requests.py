"""Requests of kcctl, kafka-ui and Redpanda Console, and the form of Connect's answers to them.

kcctl: `get`, `describe`, `pause`, `resume` and `restart`; kafka-ui and Redpanda Console list
connectors with their status and configuration at once, and look at tasks and topics of one.
"""

from typing import Any, NamedTuple


class ConnectRequest(NamedTuple):
    """`{source}` and `{sink}` stand for names of connectors, `{plugin}` for the class of one."""

    method: str
    path: str


# Those of kcctl's KafkaConnectApi.java, of kafka-ui's kafka-connect-api.yaml and of Redpanda
# Console's client (cloudhut/connect-client), read in November 2026; REFUSED has the others.
# kcctl asks for plugins with `connectorsOnly=false`, which adds converters and transforms of a
# worker: there are none here, so that this form is compared by what a plugin is alone.
LOOKS = tuple(
    ConnectRequest("GET", path)
    for path in (
        "/",
        "/health",
        "/connectors",
        "/connectors/",
        "/connectors?expand=status",
        "/connectors?expand=info",
        "/connectors?expand=status&expand=info",
        "/connectors?expand=nothing",
        "/connectors?search=x",
        "/connectors/{source}",
        "/connectors/{source}/",
        "/connectors/{sink}",
        "/connectors/{source}/config",
        "/connectors/{source}/status",
        "/connectors/{sink}/status",
        "/connectors/{source}/tasks",
        "/connectors/{source}/tasks/0/status",
        "/connectors/{source}/tasks/7/status",
        "/connectors/{source}/tasks/x/status",
        "/connectors/{source}/topics",
        "/connectors/{source}/offsets",
        "/connectors/{sink}/offsets",
        "/connector-plugins",
        "/connector-plugins?connectorsOnly=true",
        "/connector-plugins/{plugin}/config",
        "/connectors/{source}/tasks-config",
        "/connector-plugins/Nope/config",
        "/connectors/nobody",
        "/connectors/nobody/config",
        "/connectors/nobody/status",
        "/connectors/nobody/tasks",
        "/connectors/nobody/tasks/0/status",
        "/connectors/nobody/topics",
        "/connectors/nobody/offsets",
        "/admin/loggers",
        "/admin/loggers/nothing.has.this.name",
        "/nothing",
    )
)
ACTS = (
    ConnectRequest("PUT", "/connectors/{source}/pause"),
    ConnectRequest("PUT", "/connectors/{source}/resume"),
    ConnectRequest("POST", "/connectors/{source}/restart"),
    ConnectRequest("POST", "/connectors/{source}/restart?includeTasks=false&onlyFailed=false"),
    ConnectRequest("POST", "/connectors/{source}/restart?includeTasks=true&onlyFailed=false"),
    ConnectRequest("POST", "/connectors/{source}/restart?includeTasks=true&onlyFailed=true"),
    ConnectRequest("POST", "/connectors/{source}/tasks/0/restart"),
    ConnectRequest("POST", "/connectors/{source}/tasks/7/restart"),
    ConnectRequest("PUT", "/connectors/nobody/pause"),
    ConnectRequest("PUT", "/connectors/nobody/resume"),
    ConnectRequest("POST", "/connectors/nobody/restart"),
    ConnectRequest("POST", "/connectors/nobody/restart?includeTasks=true"),
    ConnectRequest("POST", "/connectors/nobody/tasks/0/restart"),
    ConnectRequest("POST", "/connectors/{source}/status"),
    ConnectRequest("DELETE", "/connector-plugins"),
)
REFUSED = (
    ConnectRequest("POST", "/connectors"),
    ConnectRequest("POST", "/connectors/"),
    ConnectRequest("PUT", "/connectors/{sink}/config"),
    ConnectRequest("PATCH", "/connectors/{sink}/config"),
    ConnectRequest("DELETE", "/connectors/{sink}"),
    ConnectRequest("PUT", "/connectors/{sink}/stop"),
    ConnectRequest("PUT", "/connectors/{sink}/topics/reset"),
    ConnectRequest("PUT", "/connector-plugins/{plugin}/config/validate"),
    ConnectRequest("PATCH", "/connectors/{sink}/offsets"),
    ConnectRequest("DELETE", "/connectors/{sink}/offsets"),
    ConnectRequest("PUT", "/admin/loggers/headwater"),
    ConnectRequest("PUT", "/admin/loggers/headwater?scope=cluster"),
)
"""Requests of the same clients that would change something: 405, with the file to edit."""
FREE = ("config", "partition", "offset")
"""Their keys are those of a connector."""
PASSING = ("trace", "version")
"""They come and go while a worker restarts something."""


def form_of_answer(request: ConnectRequest, content: Any, names: dict[str, str]) -> object:
    """Loggers have names of their own, and optional values of plugins may be there or not."""
    if request.path == "/admin/loggers":
        return sorted({repr(form_of(each, names)) for each in content.values()})
    if request.path == "/connector-plugins/{plugin}/config":
        return sorted({key for each in content for key in each})
    return form_of(content, names)


def form_of(content: Any, names: dict[str, str]) -> object:
    """Names of keys and types of values; messages as they are, but for names of connectors."""
    if isinstance(content, dict):
        if "connector.class" in content:
            return "free"
        return {
            names.get(key, key): "free" if key in FREE else form_of(value, names)
            for key, value in content.items()
            if key not in PASSING
        }
    if isinstance(content, list):
        forms = [form_of(each, names) for each in content]
        return sorted({repr(each) for each in forms})
    if isinstance(content, str):
        if content in ("source", "sink"):
            return content
        for name, stand_in in names.items():
            if content.startswith(name) or f" {name}" in content:
                return content.replace(name, stand_in)
        return "text" if " " not in content else content
    return type(content).__name__


FIXTURE = "tests/pipelines/console/connect_answers.json"
"""What Kafka Connect 4.3.1 answers; `make compat` compares it with a worker again."""
