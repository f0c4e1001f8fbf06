"""ecobench: at which power limit, batch size and recipe does training cost the least energy, and how sure are we?"""

__version__ = "0.1.0"
