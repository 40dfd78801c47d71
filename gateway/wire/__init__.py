"""Sans-IO: bytes, dicts and events. No asyncio, no aiohttp, no clock, no routing."""
