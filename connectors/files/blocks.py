"""A file's content in blocks of whole lines."""

from typing import NamedTuple

from headwater.connectors.files.contents import FileContent
from headwater.connectors.files.line_parser import whole_lines


class FileBlock(NamedTuple):
    content: bytes
    is_open: bool = False
    """Whether it is a last line without its end."""
    is_piece: bool = False
    """Whether it is a part of a line that is too long to be kept, not its end."""
    is_too_long: bool = False
    """Whether it is the end of such a line."""


class BlockReader:
    """Reads on from `position`, never beyond `end`; what follows the last line end is kept for
    the next block."""

    def __init__(
        self,
        content: FileContent,
        position: int,
        *,
        end: int | None,
        quote: str,
        block_bytes: int,
        line_bytes_max: int,
    ) -> None:
        self._content, self._position, self._end = content, position, end
        self._quote = quote
        self._block_bytes = block_bytes
        self._line_bytes_max = max(line_bytes_max, block_bytes)
        self._rest = b""
        self._is_within = False  # a line that is too long

    @property
    def has_rest(self) -> bool:
        """Whether something waits for its line end."""
        return bool(self._rest) or self._is_within

    def next(self, *, is_final: bool) -> FileBlock | None:
        """None when there are no more whole lines; a final one needs no line end."""
        wanted = self._block_bytes
        while True:
            is_end = self._fill(wanted)
            if self._is_within:
                return self._next_piece(is_end=is_end, is_final=is_final)
            if cut := whole_lines(self._rest, self._quote):
                return FileBlock(self._cut(cut))
            if is_end:
                is_last = is_final and bool(self._rest)
                return FileBlock(self._cut(len(self._rest)), is_open=True) if is_last else None
            if wanted >= self._line_bytes_max:
                self._is_within = True
            else:
                wanted = min(2 * wanted, self._line_bytes_max)

    def _next_piece(self, *, is_end: bool, is_final: bool) -> FileBlock | None:
        """Of a line that is not kept: it ends at the next line end, enclosed or not."""
        if cut := self._rest.find(b"\n") + 1:
            self._is_within = False
            return FileBlock(self._cut(cut), is_too_long=True)
        if not is_end:
            return FileBlock(self._cut(len(self._rest)), is_piece=True)
        if not is_final:
            return None
        self._is_within = False
        return FileBlock(self._cut(len(self._rest)), is_open=True, is_too_long=True)

    def _fill(self, wanted: int) -> bool:
        """Whether there is no more to be had than what is there now."""
        missing = wanted - len(self._rest)
        if missing <= 0:
            return False
        size = missing if self._end is None else min(missing, self._end - self._position)
        fresh = self._content.read(self._position, size) if size > 0 else b""
        self._position += len(fresh)
        self._rest += fresh
        return len(fresh) < missing

    def _cut(self, size: int) -> bytes:
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken
