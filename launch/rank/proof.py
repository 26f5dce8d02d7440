"""How two tasks show each other that they belong to one job, without saying what they know."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets

# Horovod's own variable; jobs that share it cannot be joined or ended by others who reach the port.
SECRET_VARIABLE = "_HOROVOD_SECRET_KEY"


def key(job: str) -> bytes:
    """What the tasks of a job know: its name, and the secret where the user set one."""
    return hashlib.sha256(f"{job}\n{os.environ.get(SECRET_VARIABLE, '')}".encode()).digest()


def fingerprint(key: bytes) -> str:
    """A short name for a key, for messages."""
    return hashlib.sha256(b"fingerprint" + key).hexdigest()[:8]


def nonce() -> str:
    """Something new to be answered."""
    return secrets.token_hex(16)


def answer(key: bytes, nonce: str, side: str) -> str:
    """The proof of knowing `key`; `side` keeps one side's answer from serving as the other's."""
    return hmac.new(key, f"{side} {nonce}".encode(), hashlib.sha256).hexdigest()


def holds(key: bytes, nonce: str, side: str, proof: str) -> bool:
    """Whether `proof` answers `nonce`."""
    return hmac.compare_digest(answer(key, nonce, side), proof)
