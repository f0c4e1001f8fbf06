"""A node that does not exist: physics, sensors and a launcher behind the seams, with known right answers."""
