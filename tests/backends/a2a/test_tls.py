"""HTTPS to a checked address verifies the certificate of the name."""

from __future__ import annotations

import datetime
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import wakeful.outbound as guard
from wakeful.errors import BackendError

from .requests import thread
from .servers import card_for, listening


def certificate(folder: Path, name: str) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "server.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


async def test_certificate_is_checked_against_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = certificate(tmp_path, "agent.test")
    real = socket.getaddrinfo

    def resolves(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        return real("127.0.0.1" if str(host).endswith(".test") else host, port, *rest, **more)

    async def card(_: Request) -> JSONResponse:
        return JSONResponse(MessageToDict(card_for("https://agent.test", bindings=[("SOAP", "1.0")])))

    monkeypatch.setattr(socket, "getaddrinfo", resolves)
    app = Starlette(routes=[Route("/.well-known/agent-card.json", card)])
    with listening(app, ssl_certfile=pem, ssl_keyfile=pem) as url:
        port = url.rpartition(":")[2]

        async def answer(name: str) -> str:
            with pytest.raises(BackendError) as failure:
                await thread(f"https://{name}:{port}").ask("hi")
            return failure.value.detail

        assert "CERTIFICATE_VERIFY_FAILED" in await answer("agent.test")  # The issuer isn't trusted.
        trusting = ssl.create_default_context(cafile=str(pem))
        monkeypatch.setattr(guard, "_tls", lambda: trusting)
        assert "offers no supported interface" in await answer("agent.test")  # The card was fetched.
        assert "Hostname mismatch" in await answer("other.test")
