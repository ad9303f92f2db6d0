"""The rows of the shop: every value is a function of its row's key and last change."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.generator.chance import (
    CITIES,
    NAMES,
    NOTES,
    STATUSES,
    RandomColumns,
    decimals,
    times,
)
from headwater.connectors.generator.history import NAMESPACE
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.table_schema import Column, TableId, TableSchema

NEW, PAID, SHIPPED = 0, 1, 2
"""Indices in the list of statuses."""

START_US = 1_767_225_600_000_000  # 2026-01-01
ORDER_EVERY_US = 40_000_000
DAY_US = 86_400_000_000
START_DAY = 20_454  # 2026-01-01, in days
CYCLE_ORDERS = 4
"""Orders that each cycle inserts, see `shop`."""
LINES_MAX = 4


class ShopRows:
    """The rows of each table. Orders are counted from 0 here, and from 1 in their ids."""

    def __init__(self, chance: RandomColumns, *, customers: int, products: int) -> None:
        self._chance, self._customers, self._products = chance, customers, products

    def customers(self, ids: Int64Array, *, changed_in: Int64Array) -> pa.RecordBatch:
        """Returns customers. `changed_in` is the cycle in which a customer moved, -1 for none."""
        version = ids * 1_000_003 + changed_in
        names = self._chance.pick("customer name", ids, NAMES)
        cents = self._chance.numbers("credit", version, below=2_000_000) - 500_000
        credit = decimals(cents, precision=12, scale=2)
        has_credit = pa.array(self._chance.numbers("has credit", version, below=5) > 0)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(ids),
                names,
                _addresses(names, ids),
                self._chance.pick("city", version, CITIES),
                pc.if_else(has_credit, credit, pa.scalar(None, credit.type)),
                pa.array(self._chance.numbers("business", ids, below=10) == 0),
                times(START_US - DAY_US + ids * 60_000_000, zone="UTC"),
            ],
            schema=CUSTOMERS.arrow,
        )

    def products(self, ids: Int64Array, *, changed_by: Int64Array) -> pa.RecordBatch:
        """Returns products. `changed_by` is the order that took it from the stock, -1 for none."""
        version = ids * 1_000_003 + changed_by
        days = START_DAY - self._chance.numbers("released", ids, below=3_000)
        grams = self._chance.numbers("weight", ids, below=20_000)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(ids),
                self._chance.pick("product name", ids, NAMES),
                decimals(self._cents(ids), precision=10, scale=2),
                pa.array(self._chance.numbers("stock", version, below=1_000).astype(np.int32)),
                pa.array(grams / 1_000),
                pa.array(days.astype(np.int32)).cast(pa.date32()),
            ],
            schema=PRODUCTS.arrow,
        )

    def orders(
        self, orders: Int64Array, line_counts: Int64Array, statuses: Int64Array
    ) -> pa.RecordBatch:
        placed = START_US + orders * ORDER_EVERY_US
        placed += self._chance.numbers("placed", orders, below=ORDER_EVERY_US)
        steps = self._chance.numbers("step", orders, below=DAY_US) + 60_000_000
        return pa.RecordBatch.from_arrays(
            [
                pa.array(orders + 1),
                pa.array(self._customer_of(orders)),
                STATUSES.take(pa.array(statuses)),
                decimals(self._totals(orders, line_counts), precision=12, scale=2),
                self._chance.pick("note", orders, NOTES),
                times(placed),
                times(placed + statuses * steps),
            ],
            schema=ORDERS.arrow,
        )

    def order_lines(self, orders: Int64Array, lines: Int64Array) -> pa.RecordBatch:
        products = self.product_of(orders, lines)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(orders + 1),
                pa.array(lines.astype(np.int32)),
                pa.array(products),
                pa.array(self._quantities(orders, lines).astype(np.int32)),
                decimals(self._cents(products), precision=10, scale=2),
            ],
            schema=ORDER_LINES.arrow,
        )

    def product_of(self, orders: Int64Array, lines: Int64Array) -> Int64Array:
        return self._chance.numbers("product", orders * 8 + lines, below=self._products) + 1

    def _quantities(self, orders: Int64Array, lines: Int64Array) -> Int64Array:
        return self._chance.numbers("quantity", orders * 8 + lines, below=5) + 1

    def _cents(self, products: Int64Array) -> Int64Array:
        return self._chance.numbers("price", products, below=20_000) + 99

    def _totals(self, orders: Int64Array, line_counts: Int64Array) -> Int64Array:
        totals = np.zeros_like(orders)
        for line in range(1, LINES_MAX + 1):
            lines = np.full_like(orders, line)
            cents = self._cents(self.product_of(orders, lines)) * self._quantities(orders, lines)
            totals += np.where(line <= line_counts, cents, 0)
        return totals

    def _customer_of(self, orders: Int64Array) -> Int64Array:
        """Returns an existing customer with an odd id: the first of each two that are inserted."""
        cycles_since = (orders // CYCLE_ORDERS - self._customers // 2).clip(0)
        there = self._customers // 2 + cycles_since
        return 2 * self._chance.numbers("customer", orders, below=there) + 1


def _addresses(names: pa.Array, ids: Int64Array) -> pa.Array:
    words = pc.replace_substring(names, " ", ".")
    numbers = pa.array(ids).cast(pa.string())
    return pc.binary_join_element_wise(words, numbers, "@shop.example", "")


_TIME = pa.timestamp("us")


def _table(name: str, key: tuple[str, ...], *columns: Column) -> TableSchema:
    return TableSchema(TableId(NAMESPACE, name), columns, key)


def _always(name: str, type: pa.DataType) -> Column:
    return Column(name, type, is_nullable=False)


CUSTOMERS = _table(
    "customers",
    ("id",),
    _always("id", pa.int64()),
    _always("name", pa.string()),
    _always("email", pa.string()),
    Column("city", pa.string()),
    Column("credit", pa.decimal128(12, 2)),
    _always("is_business", pa.bool_()),
    _always("joined_at", pa.timestamp("us", "UTC")),
)
PRODUCTS = _table(
    "products",
    ("id",),
    _always("id", pa.int64()),
    _always("name", pa.string()),
    _always("price", pa.decimal128(10, 2)),
    _always("stock", pa.int32()),
    _always("weight", pa.float64()),
    Column("released", pa.date32()),
)
ORDERS = _table(
    "orders",
    ("id",),
    _always("id", pa.int64()),
    _always("customer_id", pa.int64()),
    _always("status", pa.string()),
    _always("total", pa.decimal128(12, 2)),
    Column("note", pa.string()),
    _always("placed_at", _TIME),
    _always("updated_at", _TIME),
)
ORDER_LINES = _table(
    "order_lines",
    ("order_id", "line"),
    _always("order_id", pa.int64()),
    _always("line", pa.int32()),
    _always("product_id", pa.int64()),
    _always("quantity", pa.int32()),
    _always("price", pa.decimal128(10, 2)),
)
SCHEMAS = (CUSTOMERS, PRODUCTS, ORDERS, ORDER_LINES)
