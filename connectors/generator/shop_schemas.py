"""The tables of the made-up shop."""

import pyarrow as pa

from headwater.connectors.generator.history import NAMESPACE
from headwater.core_log.model.table_schema import Column, TableId, TableSchema

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
