"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, without I/O."""
