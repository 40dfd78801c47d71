"""Pure decisions. Time is an argument; nothing here does I/O or knows a wire format's looks."""
