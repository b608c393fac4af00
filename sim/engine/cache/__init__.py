"""KV blocks: who holds them, what they cache, which are taken next; one kind of cache for each engine that differs."""
