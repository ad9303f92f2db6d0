"""The data source `headwater` of Spark: topics of the log as tables of any PySpark program."""
