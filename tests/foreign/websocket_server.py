"""Echoes each message, and prints its port and how each connection was closed.

Requires Debian's python3-websockets."""

import asyncio

import websockets


async def echo(socket):
    try:
        async for message in socket:
            await socket.send(message)
    except websockets.ConnectionClosed:
        pass
    print(f"closed {socket.close_code} {socket.close_reason}", flush=True)


async def main():
    async with websockets.serve(echo, "127.0.0.1", 0, max_size=None, ping_timeout=60) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Future()


asyncio.run(main())
