"""The run store: folders, JSON records, samples and the seal. Knows nothing of how a run is made."""

from ecobench.store.documents import as_plain, read_document, to_json, write_document
from ecobench.store.folders import HOME_VARIABLE, RunFolder, Store, TrialFolder
from ecobench.store.seal import broken_seals, write_seal

__all__ = [
    "HOME_VARIABLE",
    "RunFolder",
    "Store",
    "TrialFolder",
    "as_plain",
    "broken_seals",
    "read_document",
    "to_json",
    "write_document",
    "write_seal",
]
