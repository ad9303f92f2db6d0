"""A shop as a function of time: any range of its history can be made without the part before."""

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np
import pyarrow as pa

from headwater.connectors.generator.chance import (
    InitialTables,
    RandomColumns,
    tile,
    without_what_went,
)
from headwater.connectors.generator.history import GeneratedChanges
from headwater.connectors.generator.shop_rows import (
    CUSTOMERS,
    CYCLE_ORDERS,
    NEW,
    ORDER_LINES,
    ORDERS,
    PAID,
    PRODUCTS,
    SCHEMAS,
    SHIPPED,
    ShopRows,
)
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import Operation
from headwater.core_log.model.table_schema import TableId, TableSchema

CYCLE_TRANSACTIONS = 8


LINE_COUNTS = np.array(list(permutations((1, 2, 3, 4))), dtype=np.int64)
"""Numbers of lines: ways to divide the ten lines of a cycle between its four orders."""
LINE_ORDERS = np.array([np.repeat(range(4), counts) for counts in LINE_COUNTS], dtype=np.int64)
LINE_NUMBERS = np.array(
    [[line for count in counts for line in range(1, count + 1)] for counts in LINE_COUNTS],
    dtype=np.int64,
)
FORGOTTEN = np.argmax(LINE_COUNTS == 2, axis=1)
"""The order of a cycle that is deleted in the end: the one with two lines."""

PAYING, SHIPPING, CUSTOMERS_CHANGING, FORGETTING = 4, 5, 6, 7
"""Indices of these transactions in a cycle; each of the first four inserts an order."""
CYCLE_ROWS = 29
REST_ROWS = (2, 2, 4, 3)
"""Changes of the last four transactions of a cycle; an order has two more than it has lines."""

READ, INSERT, UPDATE, DELETE = Operation.READ, Operation.INSERT, Operation.UPDATE, Operation.DELETE


class Shop:
    """A shop with a cycle of eight transactions. Each cycle has the same number of changes of each
    table: four orders are inserted, orders of certain older cycles change their status,
    customers are inserted and deleted, and one old order is deleted with its lines.

    Cycles are counted from the first order on; the first `self.window` of them are over when the
    history begins. `size` is the number of orders at that moment.
    """

    def __init__(self, *, seed: int, size: int) -> None:
        chance = RandomColumns(seed)
        self.window = -(-size // CYCLE_ORDERS)
        self.paying_after, self.shipping_after = self.window // 8, self.window // 2
        self.customers, self.products = 2 * self.window, max(10, self.window // 10)
        self._chance = chance
        self._rows = ShopRows(chance, customers=self.customers, products=self.products)
        self._opening = InitialTables(
            (self.customers, self.products, self.window * CYCLE_ORDERS, self.window * 10)
        )
        self.opening = self._opening.transactions
        self.schemas: Sequence[TableSchema] = SCHEMAS

    def opening_rows(self) -> dict[TableId, int]:
        counts = self._opening.counts
        return {each.table: count for each, count in zip(SCHEMAS, counts, strict=True)}

    def rows_before(self, transaction: int) -> int:
        if transaction <= self.opening:
            return self._opening.rows_before(transaction)
        cycle, step = divmod(transaction - self.opening, CYCLE_TRANSACTIONS)
        within = int(self._transaction_rows(cycle)[:step].sum())
        return self._opening.rows + cycle * CYCLE_ROWS + within

    def transactions_within(self, rows: int) -> int:
        if rows < self._opening.rows:
            return self._opening.transactions_within(rows)
        cycle, rest = divmod(rows - self._opening.rows, CYCLE_ROWS)
        ends = np.cumsum(self._transaction_rows(cycle))
        within = int(np.searchsorted(ends, rest, side="right"))
        return self.opening + cycle * CYCLE_TRANSACTIONS + within

    def between(
        self, start: int, end: int, *, rows_max: int
    ) -> Iterator[Sequence[GeneratedChanges]]:
        parts = list(self._read(start, min(end, self.opening)))
        first, last = max(start, self.opening) - self.opening, end - self.opening
        if first < last:
            cycles = np.arange(first // CYCLE_TRANSACTIONS, -(-last // CYCLE_TRANSACTIONS))
            makers = (self._customers, self._products, self._orders, self._order_lines)
            parts += [self._cut(make(cycles + self.window), start, end) for make in makers]
        yield [part for part in parts if len(part.transactions)]

    def _transaction_rows(self, cycle: int) -> Int64Array:
        lines = LINE_COUNTS[self._spread(np.array([cycle + self.window]))[0]]
        return np.append(lines + 2, REST_ROWS)

    def _spread(self, cycles: Int64Array) -> Int64Array:
        return self._chance.numbers("spread", cycles, below=len(LINE_COUNTS))

    def _read(self, start: int, end: int) -> Iterator[GeneratedChanges]:
        for reading in self._opening.readings(start, end):
            numbers = np.arange(reading.first, reading.end)
            operations = pa.array(np.full(len(numbers), READ, dtype=np.uint8))
            yield GeneratedChanges(
                SCHEMAS[reading.table],
                self._rows_at_first(reading.table, numbers),
                operations,
                reading.transactions,
                reading.indexes,
            )

    def _rows_at_first(self, table: int, numbers: Int64Array) -> pa.RecordBatch:
        never = np.full(len(numbers), -1)
        match table:
            case 0:
                return self._rows.customers(numbers + 1, changed_in=never)
            case 1:
                return self._rows.products(numbers + 1, changed_by=never)
            case 2:
                statuses = self._statuses_at_first(numbers)
                return self._rows.orders(numbers, self._line_counts(numbers), statuses)
        cycles, step = numbers // 10, numbers % 10
        spread = self._spread(cycles)
        orders = cycles * CYCLE_ORDERS + LINE_ORDERS[spread, step]
        return self._rows.order_lines(orders, LINE_NUMBERS[spread, step])

    def _line_counts(self, orders: Int64Array) -> Int64Array:
        spread = self._spread(orders // CYCLE_ORDERS)
        found: Int64Array = LINE_COUNTS[spread, orders % CYCLE_ORDERS]
        return found

    def _statuses_at_first(self, orders: Int64Array) -> Int64Array:
        cycles, step = orders // CYCLE_ORDERS, orders % CYCLE_ORDERS
        is_paid = (cycles + self.paying_after < self.window) & np.isin(step, (0, 2))
        is_shipped = (cycles + self.shipping_after < self.window) & np.isin(step, (0, 1))
        return np.where(is_shipped, SHIPPED, np.where(is_paid, PAID, NEW))

    def _orders(self, cycles: Int64Array) -> GeneratedChanges:
        """Per cycle, four are inserted, two are paid, two are shipped, one is deleted."""
        cycle = cycles[:, None]
        gone = FORGOTTEN[self._spread(cycles - self.window)][:, None]
        paying, shipping = cycle - self.paying_after, cycle - self.shipping_after
        orders = np.concatenate(
            (
                cycle * CYCLE_ORDERS + np.arange(4),
                paying * CYCLE_ORDERS + np.array([0, 2]),
                shipping * CYCLE_ORDERS + np.array([0, 1]),
                (cycle - self.window) * CYCLE_ORDERS + gone,
            ),
            axis=1,
        ).ravel()
        statuses = tile([NEW] * 4 + [PAID] * 2 + [SHIPPED] * 2 + [NEW], len(cycles))
        return self._generated(
            ORDERS,
            self._rows.orders(orders, self._line_counts(orders), statuses),
            cycles,
            operations=[INSERT] * 4 + [UPDATE] * 4 + [DELETE],
            steps=[0, 1, 2, 3, PAYING, PAYING, SHIPPING, SHIPPING, FORGETTING],
            indexes=[0, 0, 0, 0, 0, 1, 0, 1, 2],
        )

    def _order_lines(self, cycles: Int64Array) -> GeneratedChanges:
        """Per cycle, ten are inserted with their orders, two are deleted before theirs."""
        count = len(cycles)
        spread, gone_spread = self._spread(cycles), self._spread(cycles - self.window)
        came = cycles[:, None] * CYCLE_ORDERS + LINE_ORDERS[spread]
        gone = (cycles - self.window) * CYCLE_ORDERS + FORGOTTEN[gone_spread]
        orders = np.concatenate((came, gone[:, None], gone[:, None]), axis=1)
        leaving = np.broadcast_to([1, 2], (count, 2))
        lines = np.concatenate((LINE_NUMBERS[spread], leaving), axis=1)
        steps = np.concatenate((LINE_ORDERS[spread], np.full((count, 2), FORGETTING)), axis=1)
        indexes = np.concatenate((LINE_NUMBERS[spread], leaving - 1), axis=1)
        return self._generated(
            ORDER_LINES,
            self._rows.order_lines(orders.ravel(), lines.ravel()),
            cycles,
            operations=[INSERT] * 10 + [DELETE] * 2,
            steps=steps,
            indexes=indexes,
        )

    def _products(self, cycles: Int64Array) -> GeneratedChanges:
        """Each order takes its first line's product from the stock."""
        orders = (cycles[:, None] * CYCLE_ORDERS + np.arange(4)).ravel()
        products = self._rows.product_of(orders, np.ones_like(orders))
        return self._generated(
            PRODUCTS,
            self._rows.products(products, changed_by=orders),
            cycles,
            operations=[UPDATE] * 4,
            steps=[0, 1, 2, 3],
            indexes=LINE_COUNTS[self._spread(cycles)] + 1,
        )

    def _customers(self, cycles: Int64Array) -> GeneratedChanges:
        """Per cycle, two are inserted, an existing one moves, and one without orders is deleted:
        those have even ids."""
        since = cycles - self.window
        newest = self.customers + 2 * since
        moving = 2 * self._chance.numbers("moving", cycles, below=newest // 2) + 1
        ids = np.stack((newest + 1, newest + 2, moving, 2 * since + 2), axis=1).ravel()
        never = np.full_like(since, -1)
        changed_in = np.stack((never, never, cycles, never), axis=1).ravel()
        return self._generated(
            CUSTOMERS,
            self._rows.customers(ids, changed_in=changed_in),
            cycles,
            operations=[INSERT, INSERT, UPDATE, DELETE],
            steps=[CUSTOMERS_CHANGING] * 4,
            indexes=[0, 1, 2, 3],
        )

    def _generated(
        self,
        schema: TableSchema,
        rows: pa.RecordBatch,
        cycles: Int64Array,
        *,
        operations: Sequence[int],
        steps: Sequence[int] | Int64Array,
        indexes: Sequence[int] | Int64Array,
    ) -> GeneratedChanges:
        """Returns changes. Transactions of the cycle and indices in the transaction are the same
        for every cycle, or are given per cycle."""
        shape = (len(cycles), len(operations))
        firsts = (cycles - self.window) * CYCLE_TRANSACTIONS + self.opening
        codes = np.tile(np.array(operations, dtype=np.uint8), len(cycles))
        return GeneratedChanges(
            schema,
            without_what_went(schema, rows, codes),
            pa.array(codes),
            (firsts[:, None] + np.broadcast_to(steps, shape)).ravel(),
            np.broadcast_to(np.asarray(indexes, dtype=np.int64), shape).ravel(),
        )

    def _cut(self, part: GeneratedChanges, start: int, end: int) -> GeneratedChanges:
        """Returns the changes of these transactions only; each range is in the order of
        transactions."""
        first, last = np.searchsorted(part.transactions, [start, end])
        return GeneratedChanges(
            part.schema,
            part.rows.slice(first, last - first),
            part.operations.slice(first, last - first),
            part.transactions[first:last],
            part.indexes[first:last],
        )
