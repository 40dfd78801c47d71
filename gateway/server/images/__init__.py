"""Images in requests: judged, downloaded, made smaller."""
