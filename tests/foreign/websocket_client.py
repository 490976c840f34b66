"""Several clients in parallel, each sending all kinds of messages. The argument is the port.

Requires Debian's python3-websockets."""

import asyncio
import sys

import websockets


async def client(number, compression):
    uri = f"ws://127.0.0.1:{sys.argv[1]}/"
    options = {"max_size": None, "open_timeout": 60, "ping_timeout": 60, "close_timeout": 60}
    async with websockets.connect(uri, compression=compression, **options) as socket:
        await socket.send("hello")
        assert await socket.recv() == "hello"
        await socket.send(["a message ", "of three ", "fragments"])
        assert await socket.recv() == "a message of three fragments"
        await (await socket.ping(b"are you there"))
        await socket.send(b"")
        assert await socket.recv() == b""
        long = bytes(range(256)) * 4096  # 1 MiB
        await socket.send(long)
        assert await socket.recv() == long
        await socket.close(4000 + number, "enough")
    assert socket.close_code == 4000 + number, socket.close_code


async def main():
    await asyncio.gather(*(client(number, "deflate" if number % 2 else None) for number in range(4)))


asyncio.run(main())
