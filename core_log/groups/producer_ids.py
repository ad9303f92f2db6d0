"""Producer ids that nobody has had, out of the blocks that the controller hands out."""

from collections import deque
from collections.abc import Awaitable, Callable


class ProducerIds:
    """A block that is not used up when the broker stops is lost; there are enough."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._left: deque[int] = deque()

    async def next(self) -> int:
        while not self._left:
            self._left.extend(await self._allocate())
        return self._left.popleft()
