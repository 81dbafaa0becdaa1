/**
 * Callers with a key send forms for a while, lawful and broken in every way, cut, slow, in pieces
 * of a byte and by the megabyte, over many connections at once: nothing crashes, the memory of the
 * process stays below the bounds of its uploads, and nothing is left of what was refused.
 */
import { randomBytes, randomInt, randomUUID } from 'node:crypto';
import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import {
  BOUNDARY,
  formOf,
  imagePart,
  type Part,
  partOf,
} from '../../control-plane/test/support/forms.ts';
import { pngHeader } from '../../control-plane/test/support/test-app.ts';
import { Ports } from './ports.ts';

const test = ava.serial;

const RUN_MS = 90_000;
const CALLERS = 96;
/** A place has 256 KiB of a file, the parser and the socket some 100 KB; the rest is the heap's. */
const GROWTH_BYTES_MAX = 250_000_000;
const IMAGE_BYTES_MAX = 2_000_000;

let ports: Ports;
test.before(async () => {
  ports = await Ports.open();
});
test.after.always(() => ports.close());

const NAMES = ['image_file', 'output_format', 'crop', 'background_file', 'image_url', 'scale'];
const pick = <T>(values: readonly T[]): T => values[randomInt(values.length)]!;

function randomPart(): Part {
  const name = randomInt(20) === 0 ? pick(['__proto__', '', 'oops']) : pick(NAMES);
  const body = randomInt(2) === 0 ? randomBytes(randomInt(20_000)) : pick(['png', 'true', '85%']);
  return randomInt(2) === 0 ? { name, body } : { name, body, fileName: 'a.png', type: 'image/png' };
}

/** Lawful, and one in two spoilt at one place. */
function randomForm(): Buffer {
  const image = Buffer.concat([pngHeader(20, 10), randomBytes(randomInt(IMAGE_BYTES_MAX))]);
  const kind = randomInt(6);
  if (kind === 0) return formOf(Array.from({ length: randomInt(80) }, randomPart));
  if (kind === 1) return Buffer.concat(Array(3000).fill(partOf(randomPart())));
  const form = formOf([imagePart(image), { name: 'output_format', body: 'webp' }]);
  if (kind < 4) return form;
  const at = randomInt(form.length);
  const put = pick(['', '\r\n', `\r\n--${BOUNDARY}`, '--', '\0', `--${BOUNDARY}--`]);
  return Buffer.concat([form.subarray(0, at), Buffer.from(put), form.subarray(at + randomInt(9))]);
}

/** What the caller does with a body: whole, in pieces, cut, or with pauses. */
async function sendOn(socket: net.Socket, body: Buffer, way: number): Promise<void> {
  const end = way === 0 ? randomInt(body.length + 1) : body.length;
  const tiny = way === 1 ? 300 : 0;
  for (let at = 0; at < end && socket.writable; ) {
    const size = at < tiny ? 1 : pick([700, 16_000, 64_000, 1_000_000]);
    const piece = body.subarray(at, Math.min(end, at + size));
    if (!socket.write(piece)) {
      await Promise.race([new Promise(resolve => socket.once('drain', resolve)), delay(2000)]);
    }
    if (size === 1 || way === 2) await delay(way === 2 ? 5 : 0);
    at += piece.length;
  }
  if (way === 0) socket.destroy();
}

const statuses = new Map<string, number>();

async function callOnce(): Promise<void> {
  const body = randomForm();
  const way = randomInt(5);
  const socket = net.connect(ports.places.rest, '127.0.0.1').on('error', () => undefined);
  const closed = new Promise<void>(resolve => socket.once('close', () => resolve()));
  let head = '';
  socket.on('data', data => {
    if (head.length < 20) head += data.toString('latin1');
    if (head.length >= 12) socket.end();
  });
  const lines = [
    'POST /v1/matting/jobs HTTP/1.1',
    'Host: x',
    `Authorization: Bearer ${ports.places.apiKey}`,
    `Idempotency-Key: ${randomUUID()}`,
    `Content-Type: multipart/form-data; boundary=${BOUNDARY}`,
    `Content-Length: ${body.length}`,
  ];
  socket.write(`${lines.join('\r\n')}\r\n\r\n`);
  await sendOn(socket, body, way);
  await Promise.race([closed, delay(40_000, undefined, { ref: false })]);
  socket.destroy();
  const status = way === 0 ? 'cut' : head.slice(9, 12) || 'none';
  statuses.set(status, (statuses.get(status) ?? 0) + 1);
}

test('forms of every kind leave nothing and cost the memory of their chunks', async t => {
  const first = await ports.state();
  let most = first.residentBytes;
  const endsAtMs = performance.now() + RUN_MS;
  const callers = Array.from({ length: CALLERS }, async () => {
    while (performance.now() < endsAtMs) await callOnce();
  });
  const watching = (async () => {
    while (performance.now() < endsAtMs) {
      await delay(500);
      most = Math.max(most, (await ports.state()).residentBytes);
    }
  })();
  await Promise.all([...callers, watching]);
  let last = await ports.state();
  // Those that were cut end with their connections.
  for (let tries = 0; tries < 100 && last.uploads + last.waiting > 0; tries += 1) {
    await delay(100);
    last = await ports.state();
  }
  const megabytes = (bytes: number) => Math.round(bytes / 1e6);
  console.log(
    `${JSON.stringify([...statuses])}; ${megabytes(first.residentBytes)} MB, at most ` +
      `${megabytes(most)} MB, ${last.jobs} jobs, ${last.files} files`,
  );
  t.is(last.uploads + last.waiting, 0);
  t.is(last.unfinished, 0);
  t.is(last.files, last.jobs);
  t.deepEqual(last.warnings, []);
  t.true(most - first.residentBytes < GROWTH_BYTES_MAX);
  for (const status of ['202', '400', 'cut']) t.true((statuses.get(status) ?? 0) > 20, status);
  const unexpected = [...statuses.keys()].filter(known => known.startsWith('5'));
  t.deepEqual(unexpected, []);
});
