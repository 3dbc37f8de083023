"""The texts of a request's header fields in the order in which they are signed, read in one pass.

Pure. A server with access control asks for them with every send. To read all fields into a
dictionary and to put them in order takes twice as long as what is done here: a struct is declared
with the fields that requests of a code have, in the order in which they are signed, and `msgspec`
fills it. A field that was not sent is an empty text, which adds nothing to what is signed.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final, final

import msgspec

from rmq.remoting.header import READ_ERRORS
from rmq.remoting.signing import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, UNSIGNED, signed_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmq.remoting.command import Command

NAMES_MAX: Final = 64
"""How many fields requests of a code may have to be read here; a client sends some twenty."""
_NAME_CHARS_MAX: Final = 64
_astuple = msgspec.structs.astuple


@final
class SignedTexts:
    """Reads the fields of JSON requests that have no other fields than those it knows."""

    __slots__ = (
        "_asked",
        "_known",
        "_read_fields",
        "_read_header",
        "access_key_at",
        "asked_of",
        "names",
    )

    def __init__(self, names: Iterable[str], asked: Sequence[str] = ()) -> None:
        """Know these fields, and those that every signed request has; `asked` are some of them."""
        signed = {*names, ACCESS_KEY, SECURITY_TOKEN} - {SIGNATURE}
        self.names: Sequence[str] = (*signed_order(signed), SIGNATURE)
        """In the order of what is read; the signature is the last one."""
        self.access_key_at = self.names.index(ACCESS_KEY)
        self.asked_of = itemgetter(*places) if (places := self._places(asked)) else None
        """Returns from what was read the text of what is asked for, a tuple if it is more than one.
        """
        self._asked = tuple(asked)
        self._known = frozenset(self.names)
        fields = msgspec.defstruct(
            "Fields",
            [(f"f{at}", str, msgspec.field(default="", name=n)) for at, n in enumerate(self.names)],
            forbid_unknown_fields=True,
            gc=False,
        )
        header = msgspec.defstruct(
            "Header", [("fields", fields, msgspec.field(name="extFields"))], gc=False
        )
        self._read_fields = msgspec.json.Decoder(fields).decode
        self._read_header = msgspec.json.Decoder(header).decode

    def _places(self, names: Iterable[str]) -> list[int]:
        return [self.names.index(name) for name in names]

    def read(self, command: Command) -> tuple[str, ...] | None:
        """Return a text for each of `names`; None for what has to be read with more care."""
        try:
            if command.raw_header is not None:
                return _astuple(self._read_header(command.raw_header).fields)  # type: ignore[attr-defined]
            if command.binary_ext is None:
                return _astuple(self._read_fields(command.json_ext))
        except READ_ERRORS:
            pass
        return None

    def knows(self, names: Mapping[str, object]) -> bool:
        """Return whether a request has no other fields."""
        return self._known >= names.keys()

    def knowing(self, names: Iterable[str]) -> SignedTexts | None:
        """Return a reader that knows these fields as well; None if that cannot be."""
        everything = {*self.names, *names}
        if len(everything) == len(self.names) or len(everything) > NAMES_MAX:
            return None
        return SignedTexts(everything, self._asked) if all(map(_can_be_known, everything)) else None


def _can_be_known(name: str) -> bool:
    # One field is signed in two ways, and names that JSON escapes cannot be declared.
    is_plain = name.isascii() and name.isprintable() and '"' not in name and "\\" not in name
    return is_plain and name != UNSIGNED and len(name) <= _NAME_CHARS_MAX
