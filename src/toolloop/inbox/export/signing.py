"""Sign a text with an Ed25519 key, and verify a signature. The package `cryptography` does both."""

from __future__ import annotations

import base64
import binascii
from typing import Any


def sign(key: bytes, text: bytes) -> str:
    """Return the signature of a text. `key`: a private key as PEM.

    Raises:
        ValueError: it is not a private Ed25519 key, or it has a password.
        ImportError: `cryptography` is not installed.

    """
    serialization, ed25519 = _parts()
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as error:
        raise ValueError(f"the key: expected a private Ed25519 key as PEM, without a password ({error})") from error
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise ValueError(f"the key: expected a private Ed25519 key, got {type(private).__name__}")  # noqa: TRY004 - a file is wrong
    return base64.b64encode(private.sign(text)).decode()


def is_signed_by(public_key: bytes, text: bytes, signature: str) -> bool:
    """Return whether a text has this signature of a key. `public_key`: as PEM.

    Raises:
        ValueError: it is not a public Ed25519 key.
        ImportError: `cryptography` is not installed.

    """
    serialization, ed25519 = _parts()
    try:
        public = serialization.load_pem_public_key(public_key)
    except (ValueError, TypeError) as error:
        raise ValueError(f"the public key: expected a public Ed25519 key as PEM ({error})") from error
    if not isinstance(public, ed25519.Ed25519PublicKey):
        raise ValueError(f"the public key: expected a public Ed25519 key, got {type(public).__name__}")  # noqa: TRY004 - likewise
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra

    try:
        raw = base64.b64decode(signature, validate=True)
        if base64.b64encode(raw).decode() != signature:  # the same bytes, written in another way
            return False
        public.verify(raw, text)
    except (InvalidSignature, binascii.Error):
        return False
    return True


def _parts() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - likewise
    except ImportError as missing:
        raise ImportError(
            f"signatures need cryptography ({missing}): pip install 'toolloop[sign]'", name=missing.name
        ) from missing
    return serialization, ed25519
