"""Dashboard sessions: a signed cookie, and the CSRF token that belongs to it.

A session holds no secret and no rights: it names a key, which is looked up again for every
request, so that revoking the key ends the session. So does logging out, which is noted in the
database: a cookie that was copied before is worth nothing after. A visitor has an anonymous
session, so that the login form too carries a token; logging in starts a new one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

MAX_AGE = timedelta(hours=12)
COOKIE_NAME = "coserve_admin"


@dataclass(frozen=True)
class DashboardSession:
    """Who is looking.

    Attributes:
        key_id: The API key logged in with; empty for a visitor.
        nonce: Random; the CSRF token is derived from it.
        started_at: Sessions end `MAX_AGE` later.
    """

    key_id: str
    nonce: str
    started_at: datetime

    @property
    def logged_in(self) -> bool:
        """Whether a key stands behind it."""
        return bool(self.key_id)

    @property
    def ended_id(self) -> str:
        """Under which it is noted when it is ended."""
        return hashlib.sha256(self.nonce.encode()).hexdigest()

    def good_at(self, now: datetime) -> bool:
        """Whether it has begun and is not too old; cookies hold whole seconds."""
        return timedelta(seconds=-5) <= now - self.started_at <= MAX_AGE


class SessionSigner:
    """Seals sessions into cookie values and opens them again."""

    def __init__(self, secret: str | None) -> None:
        """Without a secret, a random one is used: sessions then end with this process."""
        material = secret.encode() if secret else secrets.token_bytes(32)
        self._cookie_key = hmac.digest(material, b"coserve dashboard cookie", hashlib.sha256)
        self._csrf_key = hmac.digest(material, b"coserve dashboard csrf", hashlib.sha256)

    def start(self, key_id: str, now: datetime) -> DashboardSession:
        """A new session with a fresh nonce; an empty `key_id` makes a visitor's."""
        return DashboardSession(key_id, secrets.token_urlsafe(24), now.replace(microsecond=0))

    def seal(self, session: DashboardSession) -> str:
        """The cookie value: payload and signature, both URL-safe."""
        started_s = int(session.started_at.timestamp())
        payload = f"1|{session.key_id}|{session.nonce}|{started_s}".encode()
        return f"{_encode(payload)}.{_encode(self._sign(payload))}"

    def open(self, value: str, now: datetime) -> DashboardSession | None:
        """The session in a cookie value, or none if it is forged, damaged or too old."""
        try:
            payload_text, signature_text = value.split(".")
            payload, signature = _decode(payload_text), _decode(signature_text)
        except (ValueError, binascii.Error):
            return None
        if not hmac.compare_digest(signature, self._sign(payload)):
            return None
        # Signed by us, so its form is known from here on.
        _version, key_id, nonce, started_s = payload.decode().split("|")
        started_at = datetime.fromtimestamp(int(started_s), now.tzinfo)
        session = DashboardSession(key_id, nonce, started_at)
        return session if session.good_at(now) else None

    def csrf_token(self, session: DashboardSession) -> str:
        """The token that every form of this session carries."""
        bound = f"{session.key_id}|{session.nonce}".encode()
        return _encode(hmac.digest(self._csrf_key, bound, hashlib.sha256))

    def csrf_matches(self, session: DashboardSession, token: str) -> bool:
        """Whether a form was made for this session."""
        return hmac.compare_digest(token.encode(), self.csrf_token(session).encode())

    def _sign(self, payload: bytes) -> bytes:
        return hmac.digest(self._cookie_key, payload, hashlib.sha256)


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    padded = text.encode("ascii", "strict") + b"=" * (-len(text) % 4)
    return base64.b64decode(padded, altchars=b"-_", validate=True)


# --- Slowing down those who guess at the login form.
#
# Keys have 256 random bits, so guessing is hopeless anyway; this keeps it from costing anything and
# from filling the log. Counted per client address and per process.


FREE_ATTEMPTS = 5
FIRST_WAIT_S = 2.0
MAX_WAIT_S = 300.0
MAX_ADDRESSES = 10_000


@dataclass
class _Failures:
    count: int
    blocked_until_s: float


class LoginThrottle:
    """Failed logins per address.

    Invariant: after `FREE_ATTEMPTS` failures each further one doubles the wait, up to
    `MAX_WAIT_S`; a success forgets them; at most `MAX_ADDRESSES` are remembered.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def wait_s(self, address: str, now_s: float) -> float:
        """How long this address must wait before its next attempt; 0 if it may try now."""
        known = self._failures.get(address)
        return max(0.0, known.blocked_until_s - now_s) if known else 0.0

    def failed(self, address: str, now_s: float) -> None:
        known = self._failures.setdefault(address, _Failures(0, now_s))
        known.count += 1
        extra = known.count - FREE_ATTEMPTS
        if extra >= 0:
            # The exponent is bounded, so that a patient guesser cannot make it overflow.
            known.blocked_until_s = now_s + min(MAX_WAIT_S, FIRST_WAIT_S * 2.0 ** min(extra, 16))
        self._failures.move_to_end(address)
        while len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)

    def succeeded(self, address: str) -> None:
        self._failures.pop(address, None)
