"""Waits for submitted runs in coroutines."""

import asyncio


async def wait(run):
    """Waits for a PendingRun in a thread of asyncio. If the task is cancelled, cancels the run."""
    try:
        return await asyncio.to_thread(run.wait)
    except asyncio.CancelledError:
        run.cancel()
        raise
