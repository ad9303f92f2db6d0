"""HTTP Basic for tools that know no other way: the token is the password, whatever the user."""

import base64
import binascii

from headwater.pipelines.watching.http_guard import App, AsgiSend, Receive, Scope

BASIC = b"basic "


class BasicLogin:
    """Stands before the guard, and hands it the password of some paths as the token."""

    def __init__(self, app: App, *, prefix: str) -> None:
        self._app, self._prefix = app, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        if scope["type"] == "http" and scope["path"].startswith(self._prefix):
            headers = [(name, _as_bearer(name, value)) for name, value in scope["headers"]]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)


def _as_bearer(name: bytes, value: bytes) -> bytes:
    if name.lower() != b"authorization" or not value.lower().startswith(BASIC):
        return value
    try:
        _, _, password = base64.b64decode(value[len(BASIC) :], validate=True).partition(b":")
    except binascii.Error:
        return value
    return b"Bearer " + password
