"""Blocks that a signal ends, without Spark."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from dbt_recluster.clustering.result import Progress, RoundProgress
from dbt_recluster.exceptions import Interrupted, MergeFailedError, ReclusterError
from dbt_recluster.iceberg.session.jobs import Interruptible, stop_if_interrupted

pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="no signal reaches the tests here"
)


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Have SIGINT handled as Python does; each block must leave it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def press(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)


def run(*steps: Callable[[], Any], signals: Sequence[int] = (signal.SIGINT,)) -> Any:
    """Run steps in an interruptible block; return how it was interrupted, or what the last step returned."""
    result = None
    try:
        with Interruptible(signals=signals):
            for step in steps:
                result = step()
    except Interrupted as e:
        return e
    return result


def fail(error: BaseException) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


def on_thread(work: Callable[..., Any], *arguments: Any) -> None:
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    thread.join()


def test_interrupted_is_raised_once_at_the_end_of_the_block() -> None:
    done: list[int] = []
    interrupted = run(press, lambda: done.append(1))  # a call to Java is never left in the middle
    assert done
    assert str(interrupted) == "interrupted; a round that was not committed changed nothing"
    stop_if_interrupted()
    assert run(lambda: 7) == 7


@pytest.mark.parametrize("error", [MergeFailedError("Job 3 cancelled"), ValueError("x"), KeyboardInterrupt()])
def test_interrupted_replaces_the_error_of_the_block(error: BaseException) -> None:
    interrupted = run(press, fail(error))
    assert isinstance(interrupted, KeyboardInterrupt)
    assert not isinstance(interrupted, (Exception, ReclusterError))
    assert (interrupted.orphans, interrupted.__suppress_context__) == ((), True)
    with pytest.raises(type(error)):  # without a signal it stays as it is
        run(stop_if_interrupted, fail(error))


def test_a_loop_ends_at_its_next_step_and_a_merge_reports_no_more_progress() -> None:
    """Of blocks within each other the outermost counts; the tasks of a merge are watched by another thread."""
    steps: list[float | None] = []

    def loop() -> None:
        start = Progress("t", 1, sets=1, blocks=2, bytes=3)
        merging = RoundProgress(start, lambda progress: steps.append(progress.merged)).merging
        assert merging is not None
        on_thread(merging, 0.3, 0)
        run(press)
        on_thread(merging, 0.6, 0)
        stop_if_interrupted()
        steps.append(1)

    assert isinstance(run(loop), Interrupted)
    assert steps == [0.3]


def test_a_second_signal_ends_it_at_once() -> None:
    def again() -> None:
        with pytest.raises(KeyboardInterrupt) as e:
            press()
        assert type(e.value) is KeyboardInterrupt

    assert isinstance(run(press, again), Interrupted)


def test_other_signals_interrupt_on_request() -> None:
    before = signal.getsignal(signal.SIGTERM)
    interrupted = run(lambda: press(signal.SIGTERM), signals=(signal.SIGINT, signal.SIGTERM))
    assert isinstance(interrupted, Interrupted)
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_and_a_process_that_ignores_it_are_left_alone() -> None:
    """dbt's threads: dbt itself cancels their connections."""
    handlers: list[Any] = []
    on_thread(lambda: handlers.append(run(lambda: signal.getsignal(signal.SIGINT))))
    assert handlers == [signal.default_int_handler]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert run(press, lambda: signal.getsignal(signal.SIGINT)) is signal.SIG_IGN
    assert signal.signal(signal.SIGINT, before) is signal.SIG_IGN
