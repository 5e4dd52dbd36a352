"""The public methods of both consumers: they check arguments and leave the rest to a driver."""
