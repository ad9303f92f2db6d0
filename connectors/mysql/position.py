"""The position in the stream: whole groups by GTID or by file, and the server."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.connectors.mysql.server.gtid_set import GtidSet, MariadbGtids
from headwater.connectors.mysql.server.server_identity import FilePosition
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.changes import Positions

STREAM, FILE, SERVER, CREATED = "stream", "file", "server", "created"
"""Parts of the position: GTIDs, or the place without; the place of their end in the server's files;
the server; and without GTIDs the second in which the file was created."""
NOWHERE = FilePosition("", 0)
PLACE = re.compile(r"\S+\.\d+:\d+")
XA_STREAM, XA_FILE = "xa/stream", "xa/file"
"""The same of the oldest prepared XA transaction, from just before it; empty if there is none."""


@dataclass(slots=True)
class BinlogPosition:
    """A position between two groups."""

    gtids: GtidSet | MariadbGtids | None
    """None if only the place counts: the server has, or had, no GTIDs."""
    place: FilePosition

    def copy(self) -> "BinlogPosition":
        return BinlogPosition(None if self.gtids is None else self.gtids.copy(), self.place)

    @property
    def text(self) -> str:
        return str(self.place if self.gtids is None else self.gtids)

    def parts(self) -> dict[str, str]:
        return {STREAM: self.text, FILE: str(self.place)}


def stored_position(
    positions: Positions, *, is_mariadb: bool, names: tuple[str, str] = (STREAM, FILE)
) -> BinlogPosition | None:
    """Returns the stored position; None before the first one."""
    stream, file = (positions.get(name, "") for name in names)
    if not file:
        return None
    try:
        if PLACE.fullmatch(stream):
            return BinlogPosition(None, FilePosition.parse(stream))
        parse = MariadbGtids.parse if is_mariadb else GtidSet.parse
        return BinlogPosition(parse(stream), FilePosition.parse(file))
    except ValueError:
        raise DecodeError("the stored position is not one of a binary log") from None


def xa_parts(oldest: BinlogPosition | None) -> Mapping[str, str]:
    if oldest is None:
        return {XA_STREAM: "", XA_FILE: ""}
    return {XA_STREAM: oldest.text, XA_FILE: str(oldest.place)}
