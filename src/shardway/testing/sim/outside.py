"""A virtual loop refuses what reaches out of it: sockets, pipes, processes, threads and signals have real times."""

from __future__ import annotations

import asyncio
from typing import Any


class RealInputOutputError(RuntimeError):
    """The program asked a virtual loop for a connection, a thread or a process, whose times no seed can fix."""


def _refusing(name: str) -> Any:
    def refuse(self: object, *args: Any, **more: Any) -> Any:
        raise RealInputOutputError(f"{name}: a virtual loop has no sockets, processes, threads or signals")

    refuse.__name__ = name
    return refuse


class NoOutside(asyncio.AbstractEventLoop):
    """The part of a loop that reaches out of it: each call raises RealInputOutputError."""

    getaddrinfo = _refusing("getaddrinfo")
    getnameinfo = _refusing("getnameinfo")
    create_connection = _refusing("create_connection")
    create_server = _refusing("create_server")
    create_unix_connection = _refusing("create_unix_connection")
    create_unix_server = _refusing("create_unix_server")
    connect_accepted_socket = _refusing("connect_accepted_socket")
    create_datagram_endpoint = _refusing("create_datagram_endpoint")
    connect_read_pipe = _refusing("connect_read_pipe")
    connect_write_pipe = _refusing("connect_write_pipe")
    subprocess_shell = _refusing("subprocess_shell")
    subprocess_exec = _refusing("subprocess_exec")
    add_reader = _refusing("add_reader")
    remove_reader = _refusing("remove_reader")
    add_writer = _refusing("add_writer")
    remove_writer = _refusing("remove_writer")
    sock_recv = _refusing("sock_recv")
    sock_recv_into = _refusing("sock_recv_into")
    sock_recvfrom = _refusing("sock_recvfrom")
    sock_recvfrom_into = _refusing("sock_recvfrom_into")
    sock_sendall = _refusing("sock_sendall")
    sock_sendto = _refusing("sock_sendto")
    sock_connect = _refusing("sock_connect")
    sock_accept = _refusing("sock_accept")
    sock_sendfile = _refusing("sock_sendfile")
    sendfile = _refusing("sendfile")
    start_tls = _refusing("start_tls")
    run_in_executor = _refusing("run_in_executor")
    set_default_executor = _refusing("set_default_executor")
    add_signal_handler = _refusing("add_signal_handler")
    remove_signal_handler = _refusing("remove_signal_handler")
