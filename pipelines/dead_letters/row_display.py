"""Values of rows as people write them, whatever form they have in the log."""

import base64
import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any


def to_json_value(value: Any) -> Any:
    """What JSON can hold: decimals with all their digits, times in ISO 8601, bytes as text where
    they are one."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return value.isoformat().removesuffix("+00:00") + ("Z" if value.tzinfo else "")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return shown_bytes(value)
    if isinstance(value, Mapping):
        return {name: to_json_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [to_json_value(inner) for inner in value]
    return value


def shown_bytes(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(content).decode()}"


def row_line(row: Mapping[str, Any]) -> str:
    return json.dumps(to_json_value(row), ensure_ascii=False, default=str)
