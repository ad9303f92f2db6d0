"""YAML keys of `type: generator`."""

from typing import Literal, Self

from pydantic import Field, model_validator

from headwater.core_log.foundation.settings import YamlSettings

EPOCH_ROWS = 1_000
"""Rows of the wide table in which the shares of updates and deletes are exact."""


class GeneratorSettings(YamlSettings):
    """Exactly once: every change is a function of the seed and of its place in the history."""

    mode: Literal["shop", "wide"] = "shop"
    """`shop`: customers, products, orders and order lines. `wide`: one table of ten columns,
    generated at the highest speed."""
    seed: int = 1
    """The same seed gives the same history again, row by row."""
    size: int = Field(10_000, ge=1_000)
    """Initial rows: orders of the shop (its other tables are in proportion), or rows of the wide
    table."""
    total: int | None = Field(None, ge=1)
    """Rows after which the history ends, at the end of a transaction, including the initial rows.
    Without it the history has no end."""
    rate: int = Field(100, ge=0)
    """Changes per second; 0 is as fast as the log takes them. Initial rows are always generated as
    fast as possible."""
    transaction_rows: int = Field(1_000, ge=1)
    """Changes per transaction of the wide table. Those of the shop have two to six."""
    updates: float = Field(0.2, ge=0, lt=1)
    """Share of updates among the changes of the wide table; the shop has a fixed mix."""
    deletes: float = Field(0.0, ge=0, le=0.5)
    """Share of deletes among the changes of the wide table, at most as many as inserts."""
    batch_rows: int = Field(20_000, ge=1)
    """Approximate number of changes per batch. A larger transaction is split into several batches
    that become readable together."""

    @model_validator(mode="after")
    def _deletes_find_rows(self) -> Self:
        if self.deletes > 1 - self.updates - self.deletes:
            raise ValueError("deletes are more than inserts")
        return self
