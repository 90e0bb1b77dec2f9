"""Threads, and what runs on which of them.

Read `host` first: it says where a consumer's own work runs, and what guards that work. `own_thread` is the host in a
thread of its own, `loop_thread` the thread with a loop that it and all synchronous callers use, `host_lock` the lock,
and `signal` wakes the tasks that wait for the host. `calls` go from a thread to a loop and back.
"""
