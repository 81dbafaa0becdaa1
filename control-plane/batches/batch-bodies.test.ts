import { once } from 'node:events';
import net from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { CHUNKS_READ_MAX, endless } from '@matting/core/test/endless-bodies.ts';
import { fundedCaller } from '@matting/core/test/fixtures.ts';
import { splits } from '@matting/http/test/forms.ts';
import { HeldBytes, UNCOUNTED } from '@matting/program/held-bytes.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import { BATCH_ITEMS_MAX } from './batch.ts';
import { readBatchBody } from './read-batch-body.ts';
import { openTestApp, useTestApp } from './test/app.ts';

const test = ava.serial;
const BATCHES = '/v1/matting/batches';
const app = useTestApp(test, { credits: 5000 });

const held = () =>
  new HeldBytes({
    bytesMax: 2 ** 30,
    refusal: () => new ContractError('SERVICE_UNAVAILABLE', 'full'),
  });

async function refusalOf(chunks: Iterable<Buffer>): Promise<ContractError> {
  const read = readBatchBody(Readable.from(chunks), UNCOUNTED);
  const error = await read.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (error instanceof ContractError) return error;
  throw error ?? new Error(`accepted: ${[...chunks].join('').slice(0, 200)}`);
}

const ITEM = '{"image_url":"https://a.example/1"}';
const REFUSED: readonly [what: string, items: string, field: string][] = [
  ['no list', '"[]"', 'items'],
  ['null', 'null', 'items'],
  ['an object', '{}', 'items'],
  ['an empty list', '[]', 'items'],
  ['a number', `[${ITEM},0]`, 'items[1]'],
  ['a list', `[${ITEM},[]]`, 'items[1]'],
  ['a comma at the end', `[${ITEM},]`, 'items[1]'],
  ['no comma', `[${ITEM} ${ITEM}]`, 'items'],
  ['another bracket at the end', `[${ITEM}}`, 'items'],
  ['no image_url', `[${ITEM},{"reference":"x"}]`, 'items[1].image_url'],
  ['image_url null', `[${ITEM},{"image_url":null}]`, 'items[1].image_url'],
  ['an object for image_url', `[${ITEM},{"image_url":{}}]`, 'items[1].image_url'],
  ['a list for reference', '[{"image_url":"x","reference":[]}]', 'items[0].reference'],
  ['an unknown name', `[${ITEM},{"model":"x"}]`, 'items[1].model'],
  ['an empty name', '[{"":"x"}]', 'items[0].'],
  ['__proto__', '[{"__proto__":"x"}]', 'items[0].__proto__'],
  ['a name twice', `[${ITEM},{"image_url":"x","image_url":"x"}]`, 'items[1].image_url'],
  ['a name twice, once null', '[{"reference":null,"reference":"y"}]', 'items[0].reference'],
];

for (const [what, items, field] of REFUSED) {
  test(`${what} in a batch is refused by its name, wherever the body is split`, async t => {
    for (const chunks of splits(Buffer.from(`{"items":${items},"crop":true}`))) {
      const { code, fieldErrors } = await refusalOf(chunks);
      t.is(code, 'INVALID_REQUEST');
      t.is(fieldErrors[0]?.field, field);
    }
  });
}

test('the items and fields of a batch are the same wherever the body is split', async t => {
  const reference = 'a: "b" \\ \u{1f600} é';
  const items = [
    { image_url: 'https://a.example/1' },
    { reference, image_url: 'https://a.example/{2}' },
    { image_url: 'https://a.example/3', reference: null },
  ];
  const text = JSON.stringify({ crop: true, items, size_max_megapixels: 4 }, undefined, 1);
  for (const chunks of splits(Buffer.from(text.replace('é', '\\u00e9')))) {
    const read = await readBatchBody(Readable.from(chunks), UNCOUNTED);
    t.deepEqual(
      [...read.shared],
      [
        ['crop', 'true'],
        ['size_max_megapixels', '4'],
      ],
    );
    t.deepEqual(
      read.items.map(item => [item.imageUrl, item.reference]),
      [
        ['https://a.example/1', undefined],
        ['https://a.example/{2}', reference],
        ['https://a.example/3', undefined],
      ],
    );
  }
});

test('a batch with an unknown field in place of items says where its images belong', async t => {
  const { message } = await refusalOf([Buffer.from('{"urls":["https://a.example/1"]}')]);
  t.regex(message, /items.*image_url/);
  const { message: other } = await refusalOf([Buffer.from(`{"items":[${ITEM}],"urls":[]}`)]);
  t.notRegex(other, /image_url/);
});

/** Bound of what a refused body costs: a text, and the fields of one item. */
const SMALL_BYTES = 16 * 1024;

for (const [what, again, once = '{"items":['] of [
  ['zeros', '0,'],
  ['empty lists', '[],'],
  ['lists in lists', '['],
  ['empty objects', '{},'],
  ['objects in objects', '{"image_url":'],
  ['empty names', '"":0,', '{"items":[{'],
  ['one name', '"image_url":"",', '{"items":[{'],
  ['nulls', 'null,'],
  ['texts', '"",'],
] as const) {
  test(`a batch of endless ${what} is refused by its first chunk, and holds little`, async t => {
    const { request, read } = endless({ type: 'application/json', once, again });
    const counted = held();
    const room = counted.begin('an account');
    await t.throwsAsync(readBatchBody(request, room), { code: 'INVALID_REQUEST' });
    t.true(read() <= CHUNKS_READ_MAX, `${read()} chunks were read`);
    t.true(counted.held <= SMALL_BYTES, `${counted.held} bytes were held`);
  });
}

test('a batch is refused at its first item too many, and what follows is not read', async t => {
  const counted = held();
  const most = Buffer.from(`{"items":[${Array(BATCH_ITEMS_MAX).fill(ITEM)}]}`);
  const whole = await readBatchBody(Readable.from([most]), held().begin('an account'));
  t.is(whole.items.length, BATCH_ITEMS_MAX);
  const item = `${ITEM},`;
  const chunks = [`{"items":[${item.repeat(BATCH_ITEMS_MAX)}`, ITEM, ...Array(9).fill(`,${ITEM}`)];
  let given = 0;
  const body = Readable.from(
    (function* () {
      for (const chunk of chunks) {
        given += 1;
        yield Buffer.from(chunk);
      }
    })(),
    { highWaterMark: 1 },
  );
  const read = readBatchBody(body, counted.begin('an account'));
  const error = await t.throwsAsync(read, { code: 'INVALID_REQUEST' });
  t.is((error as ContractError).fieldErrors[0]?.field, 'items');
  t.true(given <= CHUNKS_READ_MAX, `${given} chunks were read`);
});

test('white space and texts without an end are held within a bound', async t => {
  for (const [once, again] of [
    ['{"items":[', ' '],
    [`{"items":[${ITEM}`, ' \n'],
    ['{"items":[{"image_url":"', 'a'],
    ['{"items":[{"', 'a'],
  ] as const) {
    const counted = held();
    const body = new PassThrough();
    const read = readBatchBody(body, counted.begin('an account'));
    body.write(once);
    const piece = Buffer.alloc(65_536, again);
    for (let sent = 0; sent <= 4 * 1_048_576; sent += piece.length) body.write(piece);
    await t.throwsAsync(read, { code: 'IMAGE_TOO_LARGE' });
    t.true(counted.held <= SMALL_BYTES, `${once}: ${counted.held} bytes were held`);
  }
});

test('the items of a batch are counted as they arrive, whatever is in them', async t => {
  const counted = held();
  const body = new PassThrough();
  const read = readBatchBody(body, counted.begin('an account'));
  body.write('{"items":[{"image_url":""}');
  await until('the first item is there', async () => counted.held > 0);
  const first = counted.held;
  body.write(',{"image_url":""}'.repeat(9));
  await until('ten items are there', async () => counted.held >= first + 9 * 512);
  const url = 'a'.repeat(2000);
  body.write(`,{"image_url":"${url}"}`);
  await until('their texts are there', async () => counted.held >= first + 10 * 512 + 2 * 2000);
  body.end(']}');
  t.is((await read).items.length, 11);
});

async function turnsOf(count: number, url: string): Promise<number> {
  const items = Array.from({ length: count }, () => ({ image_url: url }));
  let [turns, isOver] = [0, false];
  const turn = () => {
    turns += 1;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  const { statusCode, body } = await app.post(BATCHES, { items });
  isOver = true;
  if (statusCode !== 202) throw new Error(body);
  return turns;
}

test('long URLs of a batch are checked and stored 64 KiB at a time, short ones without pauses', async t => {
  const url = (length: number) => 'https://a.example/'.padEnd(length, 'a');
  const long = await turnsOf(400, url(2048));
  const short = await turnsOf(400, url(60));
  // 400 URLs of 2 KiB are 12.5 times 64 KiB, checked in as many steps; and four inserts.
  t.true(long >= short + 12, `${long} and ${short} turns`);
});

function beginBatch(port: number, token: string): net.Socket {
  const socket = net.connect(port, '127.0.0.1').on('error', () => undefined);
  const lines = [
    `POST ${BATCHES} HTTP/1.1`,
    'Host: x',
    `Authorization: Bearer ${token}`,
    'Idempotency-Key: a',
    'Content-Type: application/json',
    'Content-Length: 100000',
  ];
  socket.write(`${lines.join('\r\n')}\r\n\r\n{"items":[${ITEM}`);
  return socket;
}

test('batches that arrive slowly keep nobody else out, and leave nothing behind', async t => {
  const port = await app.listen();
  const { uploads } = app.services;
  const callers = await Promise.all(Array.from({ length: 4 }, () => fundedCaller(app.stores, 0)));
  const slow = callers.flatMap(({ token }) =>
    Array.from({ length: 8 }, () => beginBatch(port, token)),
  );
  await until('all are read', async () => uploads.textBytes >= 32 * 512);
  const answer = await app.post(BATCHES, { items: [{ image_url: 'https://a.example/1' }] });
  t.is(answer.statusCode, 202, answer.body);
  for (const socket of slow) socket.destroy();
  await until('their room is free', async () => uploads.textBytes === 0);
});

test('an account’s batches hold their share of all texts, and leave others room', async t => {
  const narrow = await openTestApp({ uploadSlots: { textBytesMax: 32 * 1024 } }, t);
  const port = await narrow.listen();
  const { uploads } = narrow.services;
  const { token } = await fundedCaller(narrow.stores, 0);
  const slow = Array.from({ length: 30 }, () => beginBatch(port, token));
  const [refused] = await Promise.race(slow.map(socket => once(socket, 'data')));
  t.regex(String(refused), /^HTTP\/1\.1 503 .*retry-after: 5/is);
  const answer = await narrow.post(BATCHES, { items: [{ image_url: 'https://a.example/1' }] });
  t.is(answer.statusCode, 202, answer.body);
  for (const socket of slow) socket.destroy();
  await until('their room is free', async () => uploads.textBytes === 0);
});
