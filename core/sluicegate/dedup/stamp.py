"""Stamps: the identity of a message, and many of them as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sluicegate.arrow import texts
from sluicegate.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

MAX_SEQUENCE = 2**63 - 1
MAX_PARTITION = 2**31 - 1
MAX_PRODUCER_BYTES = 64 * 1024
REJECTED = "/rejected"
"""The suffix of a log's name in the stamps of rejected records, which are their positions.

Not the name itself: after a fix of the stream's table, such a record may be valid, and its position
may then be its own stamp. These stamps have no retention: below a floor it would not be known
whether a record was published as rejected."""

Column: TypeAlias = "np.ndarray[Any, Any]"
Texts: TypeAlias = "pa.Array"


class StampInvalid(UsageError):
    """A value that is not a stamp."""

    default_hint = "write it as PRODUCER/PARTITION/SEQUENCE, such as checkout/0/42"


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """The identity of a message: its producer, partition, and number within that partition."""

    producer_id: str
    partition: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.producer_id}/{self.partition}/{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Stamp:
        """From text; read from its end, because a producer's name may contain slashes."""
        parts = text.rsplit("/", 2)
        if len(parts) != 3 or not all(p.isascii() and p.isdigit() for p in parts[1:]):
            raise StampInvalid(f"{text!a:.80} is not a stamp")
        return cls(parts[0], int(parts[1]), int(parts[2])).checked()

    def checked(self) -> Stamp:
        """This stamp, if its numbers are in range and its name can be stored."""
        if not 0 <= self.sequence <= MAX_SEQUENCE:
            raise StampInvalid(f"sequence {self.sequence} is not from 0 to 2^63-1")
        if not 0 <= self.partition <= MAX_PARTITION:
            raise StampInvalid(f"partition {self.partition} is not from 0 to 2^31-1")
        try:
            size = len(self.producer_id.encode())
        except UnicodeEncodeError as e:
            raise StampInvalid(f"producer {self.producer_id!a:.80} is not valid text") from e
        if size > MAX_PRODUCER_BYTES:
            raise StampInvalid(f"a producer's name of {size} bytes is over {MAX_PRODUCER_BYTES}")
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Stamps:
    """Many stamps as columns of equal length: names (Arrow text), partitions, sequences (numpy)."""

    producers: Texts
    partitions: Column
    sequences: Column

    def __len__(self) -> int:
        return len(self.sequences)

    @classmethod
    def of(cls, producers: Any, partitions: Any, sequences: Any) -> Stamps:
        """From columns of any kind; `StampInvalid` if one of them cannot be a stamp's."""
        import numpy as np
        import pyarrow as pa

        if isinstance(producers, pa.ChunkedArray):
            producers = producers.combine_chunks()
        if not isinstance(producers, pa.Array):
            producers = pa.array(producers, pa.string())
        if pa.types.is_dictionary(producers.type):
            names = producers.dictionary
            if names.null_count or len(names.unique()) < len(names):
                # Arrow allows both; here each name must have exactly one number.
                producers = producers.dictionary_decode()
        part = np.asarray(partitions, dtype=np.int64)
        seq = np.asarray(sequences, dtype=np.int64)
        if not len(producers) == len(part) == len(seq):
            raise StampInvalid("the columns of stamps differ in length")
        if producers.null_count:
            raise StampInvalid("a stamp has no producer")
        if len(seq) and (seq.min() < 0 or part.min() < 0 or part.max() > MAX_PARTITION):
            raise StampInvalid("a partition or sequence is out of range")
        return cls(producers, part, seq)

    def encoded(self) -> Stamps:
        """The same with every name as a number into a dictionary."""
        import pyarrow as pa

        if pa.types.is_dictionary(self.producers.type):
            return self
        names = self.producers.cast(pa.string()).dictionary_encode()
        return Stamps(names, self.partitions, self.sequences)

    def slices(self, size: int) -> list[Stamps]:
        """The same in pieces of so many."""
        return [
            Stamps(
                self.producers[start : start + size],
                self.partitions[start : start + size],
                self.sequences[start : start + size],
            )
            for start in range(0, len(self), size)
        ]

    @classmethod
    def from_stamps(cls, stamps: list[Stamp]) -> Stamps:
        """From single stamps, for few of them."""
        for each in stamps:
            each.checked()
        return cls.of(
            texts([each.producer_id for each in stamps]),
            [each.partition for each in stamps],
            [each.sequence for each in stamps],
        )
