"""Updates of parts of JSON documents, written as updates with whole documents."""

from collections.abc import Mapping, Sequence

from headwater.connectors.mysql.binlog.byte_reader import ByteReader
from headwater.connectors.mysql.binlog.json_diff import apply_diffs
from headwater.connectors.mysql.binlog.json_document import TEXT_DOCUMENT
from headwater.connectors.mysql.binlog.table_map import JSON, TableMap

PARTIAL_JSON = 1


def whole_updates(
    rows: bytes, table: TableMap, images: Sequence[Sequence[int]], widths: Sequence[int]
) -> tuple[bytes, bool]:
    """Returns the rows of an event in the form of an ordinary update, and whether a part of a
    document has nothing to be applied to, which becomes null."""
    before, after = images
    json_places = [place for place, each in enumerate(table.columns) if each.type == JSON]
    reader, found, is_unapplied = ByteReader(rows), list[bytes](), False
    while reader.left:
        start = reader.pos
        nulls = reader.take((len(before) + 7) // 8)
        olds = _documents(reader, before, widths, nulls, json_places)
        found.append(rows[start : reader.pos])
        partial = _partial_places(reader, json_places)
        bits, values = bytearray(reader.take((len(after) + 7) // 8)), list[bytes]()
        for at, (place, width) in enumerate(zip(after, widths[len(before) :], strict=True)):
            if bits[at // 8] >> at % 8 & 1:
                continue
            if place not in partial:
                start = reader.pos
                _skip(reader, width)
                values.append(rows[start : reader.pos])
                continue
            document = _applied(reader.take(reader.uint(4)), olds.get(place))
            if document is None:
                bits[at // 8] |= 1 << at % 8
                is_unapplied = True
            else:
                values.append(len(document).to_bytes(-width, "little") + document)
        found += [bytes(bits), *values]
        if not (before or after):
            break
    return b"".join(found), is_unapplied


def _applied(diffs: bytes, before: bytes | None) -> bytes | None:
    if before is None or not diffs:
        return before
    return TEXT_DOCUMENT + apply_diffs(diffs, before).encode()


def _documents(
    reader: ByteReader,
    places: Sequence[int],
    widths: Sequence[int],
    nulls: bytes,
    json_places: Sequence[int],
) -> Mapping[int, bytes]:
    """Returns the documents of an image, and steps over it."""
    found = {}
    for at, (place, width) in enumerate(zip(places, widths, strict=False)):
        if nulls[at // 8] >> at % 8 & 1:
            continue
        if place in json_places:
            found[place] = reader.take(reader.uint(-width))
        else:
            _skip(reader, width)
    return found


def _partial_places(reader: ByteReader, json_places: Sequence[int]) -> set[int]:
    if not reader.lenenc() & PARTIAL_JSON:
        return set()
    bits = reader.take((len(json_places) + 7) // 8)
    return {place for at, place in enumerate(json_places) if bits[at // 8] >> at % 8 & 1}


def _skip(reader: ByteReader, width: int) -> None:
    reader.skip(width if width >= 0 else reader.uint(-width))
