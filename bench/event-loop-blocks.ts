/**
 * The longest time for which one request holds the event loop of a control plane: for each door
 * that reads a body, a list or a query, the most expensive requests of the largest size. A timer in
 * that process notes the time between two of its turns. The least of all runs counts, since
 * whatever else the machine does only adds to it. Exits with 1 above BLOCK_MS_MAX.
 *
 *     sh bin/node24 bench/event-loop-blocks.ts [part of a name]
 * Needs: batches, mcp, photoroom, portal, rembg, removebg.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { Agent } from 'undici';
import { startControlPlane } from './control-plane-process.ts';
import { HOSTILE_BODIES, HOSTILE_REQUESTS, piecesOf } from './hostile-bodies.ts';
import { writeResults } from './results.ts';

const RUNS = 5;
const BLOCK_MS_MAX = 50;
const MIB = 2 ** 20;
/** Each part of a longer body costs the same. */
const BODY_BYTES = 8 * MIB;
const BATCH_BYTES = 4 * MIB;
const ITEMS = 1000;
const LIST_BYTES = 128 * 1024;
const MESSAGE_BYTES = 320 * 1024;

const WATCH = `data:text/javascript,${encodeURIComponent(`
  let [at, longest] = [performance.now(), 0];
  setInterval(() => {
    const now = performance.now();
    longest = Math.max(longest, now - at);
    at = now;
  }, 1);
  process.on('message', () => {
    process.send(longest);
    longest = 0;
  });
`)}`;

interface Door {
  readonly name: string;
  readonly method?: 'GET' | 'POST';
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
}

const JSON_BODY = { 'content-type': 'application/json' };
const MCP = { accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-06-18' };

/** `once`, and then `again` as often as it fits, and `end`. */
function fill(again: string, bytes: number, once = '', end = ''): string {
  const left = bytes - Buffer.byteLength(once) - Buffer.byteLength(end);
  return once + again.repeat(Math.max(0, Math.floor(left / Buffer.byteLength(again)))) + end;
}

const batch = (name: string, body: string): Door => ({
  name: `batch of ${name}`,
  path: '/v1/matting/batches',
  headers: JSON_BODY,
  body,
});
const items = (url: (item: number) => string, reference?: string) =>
  JSON.stringify({
    items: Array.from({ length: ITEMS }, (_, item) => ({ image_url: url(item), reference })),
  });
const BATCHES: readonly Door[] = [
  ...['0,', '[],', '{},', '['].map(again => batch(again, fill(again, BATCH_BYTES, '{"items":['))),
  batch('white space', fill(' ', BATCH_BYTES, '{"items":[')),
  batch(
    '1,000 items',
    items(item => `https://a.example/${item}.jpg`),
  ),
  batch(
    '1,000 long URLs',
    items(item => fill('%41', 2048, `https://a.example/${item}?`), 'é'.repeat(128)),
  ),
  batch(
    '1,000 hosts of IDNA',
    items(item => `${fill('ü.', 1000, 'https://')}example/${item}`),
  ),
  batch(
    '1,000 escaped URLs',
    items(() => 'https://a.example/').replaceAll('a.example/', fill('\\u00e9', 3900, 'a.example/')),
  ),
];

const POINT = '[0.5,0.5]';
const job = (name: string, body: string): Door => ({
  name: `job with ${name}`,
  path: '/v1/matting/jobs',
  headers: JSON_BODY,
  body: `{"image_url":"https://a.example/1",${body}}`,
});
const message = (name: string, text: string): Door => ({
  name: `/mcp: ${name}`,
  path: '/mcp',
  headers: { ...JSON_BODY, ...MCP },
  body: text,
});
const call = (name: string, given: string) =>
  message(
    name,
    `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"remove_background","arguments":${given}}}`,
  );
const MESSAGE_ROOM = MESSAGE_BYTES - 200;

const JOBS: readonly Door[] = [
  job('keep of 0,', fill('0,', LIST_BYTES, '"keep":[', '0]')),
  job('keep of [', fill('[', LIST_BYTES / 2, '"keep":') + fill(']', LIST_BYTES / 2 - 8)),
  job('keep of {"a":', `"keep":[${fill('{"a":', LIST_BYTES - 30_000)}0${'}'.repeat(20_000)}]`),
  job('keep of names', fill('"a":0,', LIST_BYTES, '"keep":[{', '"b":0}]')),
  job('keep of 4,096 points', `"keep":[{"line":[${Array(4096).fill(POINT).join(',')}],"width":1}]`),
  job('unknown shapes', fill('{"box":[1,2,3,4]},', LIST_BYTES, '"keep":[', '{}]')),
];

const MESSAGES: readonly Door[] = [
  message('0,', fill('0,', MESSAGE_BYTES, '[', '0]')),
  message('[', fill('[', MESSAGE_BYTES / 2) + fill(']', MESSAGE_BYTES / 2)),
  message('calls', fill('{"jsonrpc":"2.0","id":1,"method":"ping"},', MESSAGE_BYTES, '[', '0]')),
  message('strings', fill('"",', MESSAGE_BYTES, '[', '0]')),
  call('names', `{${Array.from({ length: 7000 }, (_, at) => `"${at}":0`).join(',')}}`),
  call('nesting', fill('{"a":', 50_000) + 0 + fill('}', 10_000)),
  call('keep of 0,', fill('0,', MESSAGE_ROOM, '{"keep":[', '0]}')),
  call('keep of points', fill(`${POINT},`, MESSAGE_ROOM, '{"keep":[{"line":[', '[1,1]]}]}')),
];

const picture = (name: string, begin: Buffer, again: Buffer): Door => ({
  name: `picture of ${name}`,
  path: '/v1/matting/jobs',
  headers: { 'content-type': 'application/octet-stream' },
  body: Buffer.concat([begin, Buffer.alloc(BODY_BYTES, again)]),
});
const hex = (text: string) => Buffer.from(text, 'hex');
const PICTURES: readonly Door[] = [
  picture('JPEG segments', hex('ffd8'), hex('ffe00002')),
  picture('JPEG fill bytes', hex('ffd8'), hex('ff')),
  picture('PNG chunks', hex('89504e470d0a1a0a'), hex('000000007445587400000000')),
  picture('WebP chunks', hex('52494646ffffff7f574542504a554e4b00000000'), hex('4a554e4b00000000')),
  picture('boxes', hex('0000001466747970617669660000000061766966'), hex('0000000866726565')),
  picture('nested boxes', hex('0000001466747970617669660000000061766966'), hex('007000006d657461')),
  picture('GIF blocks', Buffer.from('GIF89a\x01\0\x01\0\0\0\0', 'latin1'), hex('21fe0000')),
];

const read = (path: string): Door => ({ name: `GET ${path.slice(0, 60)}`, method: 'GET', path });
const READS: readonly Door[] = [
  ...['/v1/openapi.json', '/v1/models', '/v1/account/usage', '/docs/rest', '/docs/errors'].map(
    read,
  ),
  read('/v1/matting/jobs?limit=100'),
  read(`/v1/matting/jobs?limit=100&reference=${'%CC%81'.repeat(2000)}`),
  read(`/v1/matting/jobs?cursor=${'A'.repeat(12_000)}`),
];

const COMPAT = ['/compat/photoroom/v1/segment', '/compat/rembg/api/remove'];

const wanted = process.argv[2] ?? '';
const plane = await startControlPlane(undefined, WATCH);
const agent = new Agent({ connections: 1, bodyTimeout: 60_000 });

async function send({ method = 'POST', path, headers, body = '' }: Door) {
  const all = { ...plane.headers(), ...headers };
  const request = { origin: plane.origin, path, method, headers: all };
  const sent = method === 'GET' ? request : { ...request, body };
  const { statusCode, body: answer } = await agent.request(sent);
  return { status: statusCode, text: await answer.text() };
}

async function measure(door: Door): Promise<{ ms: number; status: number }> {
  let [least, status] = [Number.POSITIVE_INFINITY, 0];
  for (let run = 0; run < RUNS; run += 1) {
    await delay(20);
    await plane.ask('longest');
    // An answer before the end of a body may come with a reset.
    ({ status } = await send(door).catch(() => ({ status: 0 })));
    await delay(20);
    least = Math.min(least, (await plane.ask('longest')) as number);
  }
  return { ms: least, status };
}

const figures: { name: string; ms: number; status: number }[] = [];
try {
  const hostile = HOSTILE_BODIES.filter(one => one.chunkBytes === undefined).flatMap(one =>
    [one.path, ...(one.path === '/v1/matting/jobs' ? [] : COMPAT)].map(path => ({
      name: `${path}: ${one.name}`,
      path,
      headers: { 'content-type': one.type },
      body: Buffer.concat([...piecesOf(one, BODY_BYTES)]),
    })),
  );
  const { batch_id: id } = JSON.parse((await send(BATCHES[6]!)).text);
  const results = read(`/v1/matting/batches/${id}/results?limit=1000`);
  const all = [...BATCHES, results, ...JOBS, ...MESSAGES, ...PICTURES, ...READS];
  for (const door of [...all, ...hostile, ...HOSTILE_REQUESTS]) {
    if (!door.name.includes(wanted)) continue;
    const figure = { name: door.name, ...(await measure(door)) };
    console.log(`${figure.ms.toFixed(1).padStart(7)} ms  ${figure.status}  ${door.name}`);
    figures.push(figure);
  }
} finally {
  await agent.destroy();
  await plane.close();
}
const [longest] = figures.sort((a, b) => b.ms - a.ms);
if (longest !== undefined && longest.ms > BLOCK_MS_MAX) process.exitCode = 1;
writeResults('event-loop-blocks', { doors: figures.length, longest, wantedMs: BLOCK_MS_MAX });
