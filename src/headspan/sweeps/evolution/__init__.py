"""What changes along training, and when: `evolution(store)`, from what a sweep kept."""

from headspan.sweeps.evolution.course import evolution
from headspan.sweeps.evolution.tables import as_json

__all__ = ["as_json", "evolution"]
