"""A foreign mail server: listens on the unix socket in its argument until it is ended."""

import asyncio
import sys

from aiosmtpd.handlers import Sink
from aiosmtpd.smtp import SMTP


async def serve(path):
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: SMTP(Sink(), hostname="mail.test"), path)
    await server.serve_forever()


asyncio.run(serve(sys.argv[1]))
