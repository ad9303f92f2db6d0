"""What a worker process is started with (`python -m headwater.pipelines.running.worker_start`)."""

from headwater.core_log.foundation.preload import all_of_it_stays


def start() -> None:
    """Everything heavy is imported before the first order, while the owner makes its start."""
    with all_of_it_stays():
        from headwater.pipelines.running.first_checks import checked_first, prepare_source
        from headwater.pipelines.running.worker import main
        from headwater.pipelines.running.worker_spawn import take_short_turns
    take_short_turns()
    main(checked_first(), prepare_source)


if __name__ == "__main__":
    start()
