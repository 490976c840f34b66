// As h2_peer.go, with Node, and with WebSocket's extended CONNECT in place of tests that only Go supports.
import http2 from 'node:http2';
import readline from 'node:readline';

const LARGE = 1 << 20;
const fail = (...words) => { console.log(...words); process.exit(1); };
process.on('unhandledRejection', (error) => fail(error.stack));

const server = http2.createServer({ settings: { enableConnectProtocol: true } });
server.on('stream', (stream, head) => {
  stream.on('error', () => {});
  const path = head[':path'];
  if (head[':method'] === 'CONNECT') {
    stream.respond({ ':status': 200, 'x-protocol': head[':protocol'] });
    stream.pipe(stream);
  } else if (path === '/large') {
    stream.respond({ ':status': 200 });
    stream.end('x'.repeat(LARGE));
  } else if (path === '/echo') {
    let sum = 0;
    stream.respond({ ':status': 200 }, { waitForTrailers: true });
    stream.on('data', (data) => { sum += data.length; });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': String(sum) }));
    stream.pipe(stream);
  } else {
    stream.respond({ ':status': 200, 'set-cookie': ['a=1', 'b=2'] });
    stream.end(`${head[':method']} ${path} ${head.cookie ?? ''}`);
  }
});

// Sends a request and returns the whole response.
const ask = (client, head, body) => new Promise((resolve, reject) => {
  const stream = client.request(head);
  const answer = { pieces: [] };
  stream.on('response', (head) => { answer.head = head; });
  stream.on('trailers', (trailers) => { answer.trailers = trailers; });
  stream.on('data', (data) => answer.pieces.push(data));
  stream.on('error', reject);
  stream.on('end', () => resolve({ ...answer, body: Buffer.concat(answer.pieces) }));
  stream.end(body);
});

server.listen(0, '127.0.0.1', async () => {
  console.log(server.address().port);
  const lines = readline.createInterface({ input: process.stdin });
  const [address] = await new Promise((resolve) => lines.once('line', (line) => resolve([line.trim()])));
  const client = http2.connect(`http://${address}`);
  client.on('error', (error) => fail(error.stack));
  const settings = await new Promise((resolve) => client.once('remoteSettings', resolve));
  if (!settings.enableConnectProtocol) fail('extended CONNECT is not offered');

  const asked = Array.from({ length: 100 }, (_, n) => ask(client, { ':path': `/${n}`, cookie: 'c=1; d=2' }));
  for (const [n, { head, body }] of (await Promise.all(asked)).entries()) {
    if (head[':status'] !== 200 || String(body) !== `GET /${n} c=1; d=2`) fail(n, head, String(body));
    if (String(head['set-cookie']) !== 'a=1,b=2') fail(head);
  }
  const large = await ask(client, { ':path': '/large' });
  if (String(large.body) !== 'x'.repeat(LARGE)) fail('/large', large.body.length);
  const sent = Buffer.alloc(LARGE, 'some text ');
  const echo = await ask(client, { ':path': '/echo', ':method': 'POST' }, sent);
  if (!echo.body.equals(sent) || echo.trailers['x-sum'] !== String(LARGE)) fail('/echo', echo.trailers);

  const socket = client.request(
    { ':method': 'CONNECT', ':protocol': 'websocket', ':path': '/chat', ':scheme': 'http', ':authority': 'a' },
    { endStream: false },
  );
  const [head] = await new Promise((resolve) => socket.once('response', (head) => resolve([head])));
  if (head[':status'] !== 200 || head['x-protocol'] !== 'websocket') fail('/chat', head);
  for (const word of ['one', 'three']) {
    socket.write(word);
    const data = await new Promise((resolve) => socket.once('data', resolve));
    if (String(data) !== word) fail('/chat', String(data));
  }
  socket.end();
  await new Promise((resolve) => socket.once('end', resolve));
  console.log('well');
  process.exit(0);
});
