import { Readable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { HeldBytes, UNCOUNTED } from '@matting/program/held-bytes.ts';
import ava, { type ExecutionContext } from 'ava';
import { readBody } from './bodies.ts';
import { type JsonFields, JsonFieldsParser } from './json-fields.ts';
import { KeptBytes } from './kept-bytes.ts';
import { MultipartReader, PartText } from './multipart.ts';
import { BOUNDARY } from './test/forms.ts';
import { UrlencodedReader } from './urlencoded.ts';

const test = ava.serial;

const CHUNK_BYTES = 60_000;

function counted() {
  const held = new HeldBytes({ bytesMax: 1024 * 1024, refusal: () => new Error('full') });
  return { held, room: held.begin('an account') };
}

test('a buffer grows by what came, in its room, and keeps nothing beyond its bound', t => {
  const { held, room } = counted();
  const kept = new KeptBytes(1000, room);
  t.is(held.held, 0);
  t.true(kept.append(Buffer.from('some')));
  t.is(held.held, 256);
  t.true(kept.append(Buffer.alloc(300, ' '), 10));
  t.is(held.held, 512);
  t.is(kept.view().toString(), `some${' '.repeat(290)}`);
  t.false(kept.append(Buffer.alloc(1000)));
  t.is(kept.length, 294);
  t.true(kept.append(Buffer.alloc(706)));
  t.is(held.held, 1000);
});

test('bytes beyond the room are refused and not kept', t => {
  const held = new HeldBytes({ bytesMax: 1024, refusal: () => new Error('full') });
  held.begin('an account').grow(600);
  const kept = new KeptBytes(4096, held.begin('an account'));
  t.throws(() => kept.append(Buffer.alloc(2000)), { message: 'full' });
  t.is(kept.length, 0);
});

const FIELDS: JsonFields<'text'> = {
  image: 'image',
  fieldOf: name => (name === 'text' || name === 'image' ? name : undefined),
  literalsOf: () => [],
};

function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  setFlagsFromString('--no-expose-gc');
  collect();
}

/** Stops after one chunk until `end`. */
function stalled() {
  const body = new Readable({ read: () => undefined });
  return { body, end: () => body.destroy() };
}

async function forgets(
  t: ExecutionContext,
  chunkOf: () => Buffer,
  take: (chunk: Buffer) => void,
): Promise<void> {
  const { body, end } = stalled();
  const taken = Promise.withResolvers<WeakRef<object>>();
  const reading = readBody(body, { bytesMax: 1e6 }, async chunk => {
    take(chunk);
    taken.resolve(new WeakRef(chunk.buffer));
  });
  body.push(chunkOf());
  const chunk = await taken.promise;
  // References live until the end of their tick.
  for (let ticks = 0; ticks < 5; ticks += 1) await nextTurn();
  collectGarbage();
  t.is(chunk.deref(), undefined);
  end();
  await t.throwsAsync(reading, { message: /ended early/ });
}

const chunkOf =
  (begin: string, filler: string, end = '') =>
  () => {
    const bytes = Buffer.allocUnsafeSlow(CHUNK_BYTES);
    bytes.fill(filler);
    bytes.write(begin);
    bytes.write(end, CHUNK_BYTES - end.length);
    return bytes;
  };

const all = (events: Iterable<unknown>) => void [...events];
const HEAD = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="text"\r\n\r\n`;

test('a chunk that was read › is kept by nobody who waits for the next one', t =>
  forgets(t, chunkOf('', ' '), () => undefined));

test('a chunk that was read › is not kept for a delimiter that it cuts', t => {
  const reader = new MultipartReader(BOUNDARY, UNCOUNTED);
  return forgets(t, chunkOf(HEAD, 'x', `\r\n--${BOUNDARY.slice(0, 2)}`), chunk =>
    all(reader.push(chunk)),
  );
});

test('a chunk that was read › is not kept for a short text in it', t => {
  const parser = new JsonFieldsParser<'text'>(FIELDS, UNCOUNTED);
  return forgets(t, chunkOf('{"text":"', 'x'), chunk => void parser.push(chunk));
});

test('texts › are counted while they are read, and as what they become', t => {
  const { held, room } = counted();
  const parser = new JsonFieldsParser<'text'>(FIELDS, room);
  t.is(held.held, 0);
  parser.push(Buffer.from(`{"text":"${'x'.repeat(10_000)}`));
  t.true(held.held >= 10_000 && held.held <= 12_288);
  const raw = held.held;
  parser.push(Buffer.from('"'));
  t.is(held.held, raw + 2 * 10_000);
});

test('texts › of parts are counted so, too', t => {
  const { held, room } = counted();
  const text = new PartText(room);
  t.is(held.held, 0);
  text.begin({ isAscii: false });
  text.take(Buffer.alloc(5000, 'x'));
  const raw = held.held;
  t.true(raw >= 5000 && raw <= 6144);
  t.is(text.end('text'), 'x'.repeat(5000));
  t.is(held.held, raw + 2 * 5000);
});

test('texts › a head of a part is counted while it is not whole', t => {
  const { held, room } = counted();
  const reader = new MultipartReader(BOUNDARY, room);
  all(reader.push(Buffer.from(`--${BOUNDARY}\r\nX: ${'x'.repeat(6000)}`)));
  t.true(held.held >= 6000 && held.held <= 8196);
});

test('escapes › keep no buffer behind their chunk', t => {
  const urlencoded = new UrlencodedReader('b64');
  const [head, data] = urlencoded.push(Buffer.from(`text=${'%20'.repeat(20_000)}`));
  t.is(head?.kind, 'head');
  t.true(data?.kind === 'data' && data.bytes.length === 20_000);
  // The second event uses another buffer, so the reader holds none.
  const [more] = urlencoded.push(Buffer.from('%41'));
  t.true(more?.kind === 'data' && more.bytes.toString() === 'A');
  t.true(data?.kind === 'data' && data.bytes.every(byte => byte === 0x20));
});
