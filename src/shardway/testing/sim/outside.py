"""A virtual loop refuses what reaches out of it: sockets, pipes, processes, threads and signals have real times."""

from __future__ import annotations

import asyncio
from typing import Any


class RealInputOutputError(RuntimeError):
    """The program asked a virtual loop for a connection, a thread or a process, whose times no seed can fix."""


def _refuser(name: str) -> Any:
    def refuse(self: object, *args: Any, **more: Any) -> Any:
        raise RealInputOutputError(f"{name}: a virtual loop has no sockets, processes, threads or signals")

    refuse.__name__ = name
    return refuse


class NoOutside(asyncio.AbstractEventLoop):
    """The part of a loop that reaches out of it: each call raises RealInputOutputError."""

    getaddrinfo = _refuser("getaddrinfo")
    getnameinfo = _refuser("getnameinfo")
    create_connection = _refuser("create_connection")
    create_server = _refuser("create_server")
    create_unix_connection = _refuser("create_unix_connection")
    create_unix_server = _refuser("create_unix_server")
    connect_accepted_socket = _refuser("connect_accepted_socket")
    create_datagram_endpoint = _refuser("create_datagram_endpoint")
    connect_read_pipe = _refuser("connect_read_pipe")
    connect_write_pipe = _refuser("connect_write_pipe")
    subprocess_shell = _refuser("subprocess_shell")
    subprocess_exec = _refuser("subprocess_exec")
    add_reader = _refuser("add_reader")
    remove_reader = _refuser("remove_reader")
    add_writer = _refuser("add_writer")
    remove_writer = _refuser("remove_writer")
    sock_recv = _refuser("sock_recv")
    sock_recv_into = _refuser("sock_recv_into")
    sock_recvfrom = _refuser("sock_recvfrom")
    sock_recvfrom_into = _refuser("sock_recvfrom_into")
    sock_sendall = _refuser("sock_sendall")
    sock_sendto = _refuser("sock_sendto")
    sock_connect = _refuser("sock_connect")
    sock_accept = _refuser("sock_accept")
    sock_sendfile = _refuser("sock_sendfile")
    sendfile = _refuser("sendfile")
    start_tls = _refuser("start_tls")
    run_in_executor = _refuser("run_in_executor")
    set_default_executor = _refuser("set_default_executor")
    add_signal_handler = _refuser("add_signal_handler")
    remove_signal_handler = _refuser("remove_signal_handler")
