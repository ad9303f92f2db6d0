"""Reading the log on Spark's executors."""
