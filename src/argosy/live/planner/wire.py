"""Frames messages between the daemon and its planner's process: each is a pickle after its length."""

from __future__ import annotations

import pickle
import struct

LENGTH = struct.Struct("<Q")


def frame(message: object) -> bytes:
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body
