"""What one thread tells another one."""

import threading

import pytest

from shardway.reply import Reply


def test_what_is_told_first_counts() -> None:
    reply = Reply[int]()
    assert not reply.done()
    reply.set_result(1)
    reply.set_result(2)
    reply.set_exception(ValueError("late"))
    assert reply.done()
    assert [reply.result(), reply.result(0)] == [1, 1]


def test_an_error_is_raised() -> None:
    reply = Reply[int]()
    reply.set_exception(ValueError("told"))
    for _ in range(2):
        with pytest.raises(ValueError, match="told"):
            reply.result()


def test_it_is_told_by_another_thread() -> None:
    reply = Reply[str]()
    thread = threading.Thread(target=lambda: reply.set_result("told"))
    thread.start()
    assert reply.result(20) == "told"
    thread.join()


@pytest.mark.parametrize("timeout_s", [0, -1.0, 0.01])
def test_no_answer_in_time(timeout_s: float) -> None:
    with pytest.raises(TimeoutError):
        Reply[int]().result(timeout_s)
