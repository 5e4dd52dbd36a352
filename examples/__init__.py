"""Programs that use kohort."""
