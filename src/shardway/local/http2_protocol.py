"""HTTP/2's rules on the service's side, as h2 keeps them, but for a client's goodbye (GOAWAY).

To h2 a connection is over with the goodbye: it drops what it has to send, and takes what the client still says for an
error. A client that only opens no more streams goes on to read answers (RFC 9113, section 6.8): it gives windows
back, sends what is left of its requests, and pings. Those frames often come in one piece with the goodbye.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine

if TYPE_CHECKING:
    from h2.events import Event


class _States(H2ConnectionStateMachine):
    """The states of a connection, which a client's goodbye leaves as they are."""

    def process_input(self, input_: ConnectionInputs) -> list[Event]:
        """h2: something was said, or is to be said."""
        before = self.state
        events: list[Event] = super().process_input(input_)
        if input_ is ConnectionInputs.RECV_GOAWAY:
            self.state = before
        return events


class ServerProtocol(H2Connection):
    """The protocol of one connection to a client."""

    def __init__(self) -> None:
        super().__init__(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_outbound_headers=False,  # they are our own
                normalize_outbound_headers=False,
            )
        )
        self.state_machine = _States()

    def clear_outbound_data_buffer(self) -> None:
        """h2: the client has said goodbye. Keep what is to be sent, because the client still reads."""
