"""What all tests share: a timing is never asserted, so hypothesis has no deadline."""

from hypothesis import settings

settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")
