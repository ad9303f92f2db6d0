"""The program of a worker process (`python -m headwater.pipelines.running.worker_start`)."""

from headwater.core_log.foundation.process_switches import freeze_imports, switch_threads_often


def start() -> None:
    """Everything heavy is imported before the first order, while the owner makes its start."""
    with freeze_imports():
        from headwater.pipelines.loops.assembly import watch_source
        from headwater.pipelines.running.first_checks import checked_first, prepare_source
        from headwater.pipelines.running.worker import main
    switch_threads_often()
    main(checked_first(), prepare_source, watch_source)


if __name__ == "__main__":
    start()
