"""Serve over TLS: with a given certificate, or with one that is made for this run."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName, KeyUsage

    from shardway.local.options import LocalOptions


VALID_DAYS = 30
_NAMES = ("localhost", "*.localhost")
_ADDRESSES = ("127.0.0.1", "::1")


class Tls:
    """A server's TLS context, and the file that lets clients trust the server."""

    def __init__(self, options: LocalOptions, *, http2: bool = False) -> None:
        """Load the certificate and key of the options, or make a pair. Raises OSError or ssl.SSLError.

        With ``http2`` clients may choose it (ALPN).
        """
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if options.certificate is not None:
            certificate, key = Path(options.certificate), options.key
            self.ca_file = certificate
        else:
            self._folder = tempfile.TemporaryDirectory(prefix="shardway-tls-")
            certificate, key_file = make_certificate(Path(self._folder.name), options.host)
            self.ca_file, key = certificate, str(key_file)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
        self.context.load_cert_chain(certificate, key)

    def close(self) -> None:
        """Delete the certificate and key that were made for this run."""
        if self._folder is not None:
            self._folder.cleanup()


def make_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """Write a self-signed certificate and its key, for loopback and ``host``, and return their files.

    The key is readable by its owner only. Clients trust the certificate file as a CA (``AWS_CA_BUNDLE``).
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Shardway local service")])
    begin = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + dt.timedelta(days=VALID_DAYS + 1))
        .add_extension(x509.SubjectAlternativeName(_alternative_names(host)), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_file, key_file


def _alternative_names(host: str) -> list[GeneralName]:
    from cryptography import x509

    names: list[GeneralName] = [x509.DNSName(name) for name in _NAMES]
    addresses = {ipaddress.ip_address(address) for address in _ADDRESSES}
    try:
        addresses.add(ipaddress.ip_address(host))
    except ValueError:
        names.append(x509.DNSName(host))
    return names + [x509.IPAddress(address) for address in sorted(addresses, key=str)]


def _key_usage() -> KeyUsage:
    """Return the certificate's key usage: strict clients (Python 3.13's default) want a CA certificate to have one."""
    from cryptography.x509 import KeyUsage

    return KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
