"""The client trusts the certificate authorities that the environment names, or says why it cannot."""

import datetime as dt
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from planner.client import Client, ServiceError
from planner.errors import InputError

DAY = dt.timedelta(days=1)


class Answering(BaseHTTPRequestHandler):
    """Answers everything with one document."""

    def do_GET(self) -> None:
        """Answer."""
        body = json.dumps({"version": "1"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def certificate(tmp_path) -> Path:
    """A certificate of this machine that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "planner test")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - DAY, now + DAY)
    signed = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    file = tmp_path / "certificate.pem"
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    text = key.private_bytes(serialization.Encoding.PEM, *plain)
    file.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + text)
    return file


@pytest.fixture
def url(certificate) -> Iterator[str]:
    """The address of a server with that certificate."""
    server = HTTPServer(("127.0.0.1", 0), Answering)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_authority_of_the_environment_is_trusted(url, certificate, monkeypatch):
    with Client(url) as client, pytest.raises(ServiceError, match="self-signed"):
        client.server()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with Client(url) as client:
        assert client.server() == {"version": "1"}


def test_a_file_of_certificates_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(InputError, match=r"SSL_CERT_FILE=.*none\.pem: .*No such file"):
        Client("https://127.0.0.1:9")
    # It was refused for a server without TLS too.
    with Client("http://127.0.0.1:9") as client, pytest.raises(ServiceError, match="no answer"):
        client.server()
