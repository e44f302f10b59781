"""From a scene to pixels on the device."""

from nerfjax.data.resident import ResidentImages, load_resident, lookup

__all__ = ["ResidentImages", "load_resident", "lookup"]
