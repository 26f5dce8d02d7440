"""Mutual challenge-response authentication of two tasks (HMAC over the job's name and secret)."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets

# Horovod's own variable. With this secret, other users who reach the port cannot join or end the job.
SECRET_VARIABLE = "_HOROVOD_SECRET_KEY"


def key(job: str) -> bytes:
    """Shared key of a job's tasks: its name, and the secret if the user set one."""
    return hashlib.sha256(f"{job}\n{os.environ.get(SECRET_VARIABLE, '')}".encode()).digest()


def fingerprint(job: str) -> str:
    """Short name of a job, for messages. The secret has no part in it, so that a wrong one is told from another job."""
    return hashlib.sha256(f"fingerprint {job}".encode()).hexdigest()[:8]


def nonce() -> str:
    """Return a new random challenge."""
    return secrets.token_hex(16)


def answer(key: bytes, nonce: str, side: str) -> str:
    """Return the proof of knowing `key`. With `side`, one side's answer cannot be replayed as the other's."""
    return hmac.new(key, f"{side} {nonce}".encode(), hashlib.sha256).hexdigest()


def holds(key: bytes, nonce: str, side: str, proof: str) -> bool:
    """True if `proof` answers `nonce`."""
    return hmac.compare_digest(answer(key, nonce, side), proof)
