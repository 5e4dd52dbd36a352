"""The choice between both group protocols, for ``group_protocol="auto"``, without I/O."""
