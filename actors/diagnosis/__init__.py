"""Diagnosis of SGLang's log: rules by kind, one reading, one verdict."""

from actors.diagnosis.reading import EVIDENCE_LENGTH
from actors.diagnosis.verdict import diagnose

__all__ = ["EVIDENCE_LENGTH", "diagnose"]
