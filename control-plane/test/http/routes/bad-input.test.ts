/** What callers send by mistake or malice: refused by name, and nothing of it is left. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava, { type ExecutionContext } from 'ava';
import type { ErrorCode } from '#contract/errors.ts';
import { converse, headOf } from '../../support/raw-http.ts';
import { imageBody, pngHeader, useTestApp } from '../../support/test-app.ts';
import { ASYNC, SYNC, snapshot } from './refusals.ts';

const test = ava.serial;

const app = useTestApp(test, {}, async () => {
  port = await app.listen();
});
let port: number;

async function refused(t: ExecutionContext, code: ErrorCode, body: unknown): Promise<void> {
  const before = await snapshot(app);
  for (const url of [SYNC, ASYNC]) {
    const answer = await app.post(url, body);
    t.is(answer.headers['content-type'], 'application/problem+json');
    t.is(answer.json().code, code, `${answer.payload} for ${String(body).slice(0, 200)}`);
    t.is(answer.headers['x-credits-charged'], undefined);
  }
  t.deepEqual(await snapshot(app), before);
}

const png = pngHeader(4, 3).toString('base64');
const deep = (open: string, close: string) => open.repeat(50_000) + close.repeat(50_000);

// body/matting-body.test.ts has every way in which JSON can be wrong.
test('bodies that are not a request', async t => {
  const wrong: (string | Buffer)[] = [
    '',
    '{}{}',
    `{"image_base64":"${png}"`,
    `{"image_base64":"${png}","colour":"red"}`,
    `{"image_base64":"${png}","__proto__":{"output_format":"webp"}}`,
    `{"image_base64":"${png}","image_base64":"${png}"}`,
    `{"image_base64":"${png}","output_format":null,"output_\\u0066ormat":"png"}`,
    '{"image_url":1e400}',
    `{"image_base64":"${png}","output_format":["png"]}`,
    // Deep.
    deep('[', ']'),
    deep('{"image_url":', '}'),
    `{"image_url":${deep('[', ']')}}`,
    // Text that is none.
    '{"image_url":"https://example.com/\\ud800"}',
    Buffer.from('{"image_url":"https://example.com/\xe9"}', 'latin1'),
    Buffer.from('{"image_url":"x"}', 'utf16le'),
  ];
  for (const body of wrong) await refused(t, 'INVALID_REQUEST', body);
});

test('NUL and nothing in the fields', async t => {
  const callback = { callback_url: 'https://example.com/\0', callback_secret: 's'.repeat(24) };
  for (const [code, body] of [
    ['INVALID_IMAGE_SOURCE', '{"image_url":"https://example.com/\\u0000.png"}'],
    ['INVALID_IMAGE_SOURCE', `{"image_base64":"\\u0000${png}"}`],
    ['INVALID_IMAGE_SOURCE', `{"image_base64":"\0${png}"}`],
    ['INVALID_IMAGE_SOURCE', { image_url: '' }],
    ['INVALID_IMAGE_SOURCE', { image_base64: '' }],
    ['INVALID_IMAGE_SOURCE', { image_url: null, image_base64: null }],
    ['UNSUPPORTED_OUTPUT_FORMAT', imageBody({ output_format: 'png\0' })],
    ['UNSUPPORTED_OUTPUT_FORMAT', imageBody({ output_format: '' })],
    ['UNSUPPORTED_OUTPUT_FORMAT', imageBody({ output_format: 'ｐｎｇ' })],
    ['INVALID_CALLBACK', imageBody(callback)],
    ['INVALID_CALLBACK', imageBody({ callback_url: '', callback_secret: '' })],
  ] as const) {
    await refused(t, code, body);
  }
});

function head(lines: readonly string[]): string {
  return headOf('POST /v1/matting/jobs HTTP/1.1', 'Host: x', ...signed(), ...lines);
}

function signed(): string[] {
  return [
    `Authorization: Bearer ${app.token}`,
    `Idempotency-Key: ${randomUUID()}`,
    'Content-Type: application/json',
  ];
}

async function settled(before: Awaited<ReturnType<typeof snapshot>>): Promise<void> {
  const busy = async () =>
    app.services.uploads.open > 0 || (await app.storedFiles()).length !== before.files.length;
  while (await busy()) await new Promise(setImmediate);
  assert.deepEqual(await snapshot(app), before);
}

const body = JSON.stringify(imageBody());

test('a Content-Length that promises more than comes', async t => {
  const before = await snapshot(app);
  for (const end of ['end', 'resetAndDestroy'] as const) {
    const received = await converse(port, head([`Content-Length: ${body.length + 1}`]) + body, {
      end,
    });
    t.notRegex(received, /^HTTP\/1\.1 (2|5)/);
    await settled(before);
  }
});

test('a Content-Length that promises less than comes', async t => {
  const before = await snapshot(app);
  const cut = head([`Content-Length: ${body.length - 1}`]) + body;
  const received = await converse(port, cut);
  // The rest is the beginning of another request, and no good one either.
  const problems = [...received.matchAll(/\{"type":.*?\}/g)].map(([text]) => JSON.parse(text));
  t.deepEqual(
    problems.map(({ status, code }) => ({ status, code })),
    [1, 2].map(() => ({ status: 400, code: 'INVALID_REQUEST' })),
  );
  t.regex(problems[0].detail, /ends in the middle/);
  await settled(before);
});

test('chunks that are cut off, in a chunk and between chunks', async t => {
  const before = await snapshot(app);
  const size = body.length.toString(16);
  const chunked = head(['Transfer-Encoding: chunked']);
  const cuts = [
    `${chunked}${size}\r\n${body.slice(0, 20)}`,
    `${chunked}${size}\r\n${body}`,
    `${chunked}${size}\r\n${body}\r\n`,
    `${chunked}${size}\r\n${body}\r\n0\r\n`,
    `${chunked}${size}`,
    chunked,
  ];
  for (const text of cuts) {
    for (const end of ['end', 'resetAndDestroy'] as const) {
      const received = await converse(port, text, { end });
      t.notRegex(received, /HTTP\/1\.1 (2|5)/, text);
    }
  }
  await settled(before);
});

test('lengths that are none, or more than one', async t => {
  const before = await snapshot(app);
  const wrong = [
    ['Content-Length: 0x10'],
    ['Content-Length: 1e3'],
    ['Content-Length: +5'],
    ['Content-Length: 99999999999999999999999'],
    ['Content-Length: 5', 'Content-Length: 5'],
    ['Content-Length: 5, 5'],
    ['Transfer-Encoding: chunked', 'Content-Length: 5'],
    ['Transfer-Encoding: chunked, identity'],
    ['Transfer-Encoding: xchunked'],
  ];
  for (const lines of wrong) {
    const received = await converse(port, `${head(lines)}${body}`);
    t.regex(received, /^HTTP\/1\.1 400 Bad Request\r\nContent-Type: application\/problem/);
    t.regex(received, /"code":"INVALID_REQUEST"/, lines.join());
  }
  await settled(before);
});
