"""SASL mechanisms: the exchange of each login, and the choice of one."""
