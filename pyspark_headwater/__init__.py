"""The data source `headwater`, which Spark finds by the name of this package."""

from pyspark_headwater.source import HeadwaterSource as DefaultSource

__all__ = ["DefaultSource"]
