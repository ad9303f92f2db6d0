"""Spark looks for packages named so, and finds the data source `headwater` in this one."""

from headwater.pipelines.spark_source.source import HeadwaterSource as DefaultSource

__all__ = ["DefaultSource"]
