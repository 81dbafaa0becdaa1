/**
 * What Apache HttpClient 4.5.14 and 5.4.4 sent for remove.bg's sample in Java, recorded by
 * test/foreign/java, with another picture: byte for byte on both interfaces.
 */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { pngHeader, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const app = useTestApp(test, {}, async () => {
  jobs = app.onSubmitted(id => app.succeedJob(id, Buffer.from('a result')));
});
let jobs: { stop(): Promise<void> };
test.after.always(() => jobs.stop());

interface Recorded {
  readonly type: string;
  /** Lines, the picture between the two halves. */
  readonly head: readonly string[];
  readonly tail: readonly string[];
}

const BOUNDARY_4 = 'IndMy5NJI0r3Jp8Mbr4-psUwcr11wFA6ZPw';
const BOUNDARY_5 = 'httpclient_boundary_4895b64e-16a8-4b18-bb53-9accaada5176';

const version4 = (field: string, value: string): Recorded => ({
  type: `multipart/form-data; boundary=${BOUNDARY_4}`,
  head: [
    `--${BOUNDARY_4}`,
    'Content-Disposition: form-data; name="image_file"; filename="tiny.png"',
    'Content-Type: application/octet-stream',
    'Content-Transfer-Encoding: binary',
  ],
  tail: [
    `--${BOUNDARY_4}`,
    `Content-Disposition: form-data; name="${field}"`,
    'Content-Type: text/plain; charset=ISO-8859-1',
    'Content-Transfer-Encoding: 8bit',
    '',
    value,
    `--${BOUNDARY_4}--`,
  ],
});
const version5 = (field: string, value: string): Recorded => ({
  type: `multipart/form-data; charset=ISO-8859-1; boundary=${BOUNDARY_5}`,
  head: [
    `--${BOUNDARY_5}`,
    'Content-Disposition: form-data; name="image_file"; filename="tiny.png"',
    'Content-Type: application/octet-stream',
  ],
  tail: [
    `--${BOUNDARY_5}`,
    `Content-Disposition: form-data; name="${field}"`,
    'Content-Type: text/plain; charset=UTF-8',
    '',
    value,
    `--${BOUNDARY_5}--`,
  ],
});

const picture = () => Buffer.concat([pngHeader(40, 30), Buffer.from(randomUUID())]);

function bytesOf({ head, tail }: Recorded): Buffer {
  const [before, behind] = [`${head.join('\r\n')}\r\n\r\n`, `\r\n${tail.join('\r\n')}\r\n`];
  return Buffer.concat([Buffer.from(before), picture(), Buffer.from(behind)]);
}

function removebg(payload: Buffer, type: string) {
  const headers = { 'x-api-key': app.token, 'content-type': type };
  return app.app.inject({ method: 'POST', url: '/v1.0/removebg', headers, payload });
}

for (const [version, recorded] of [
  ['4', version4],
  ['5', version5],
] as const) {
  test(`the form of HttpClient ${version} on the remove.bg interface`, async t => {
    const sent = recorded('size', 'auto');
    const answer = await removebg(bytesOf(sent), sent.type);
    t.is(answer.statusCode, 200, answer.payload);
    t.is(answer.headers['x-credits-charged'], '1');
    t.is(answer.payload, 'a result');
  });

  test(`the form of HttpClient ${version} on /v1`, async t => {
    const sent = recorded('output_format', 'webp');
    const answer = await app.post('/v1/matting', bytesOf(sent), { 'content-type': sent.type });
    t.is(answer.statusCode, 200, answer.payload);
    const job = await app.stores.jobs.find(answer.json().job_id);
    t.is(job?.outputFormat, 'webp');
  });

  test(`text of HttpClient ${version} that is not ASCII is read as UTF-8 or refused`, async t => {
    const sent = recorded('callback_url', 'https://example.com/ü');
    const latin1 = Buffer.from(bytesOf(sent).toString('latin1').replace('Ã¼', 'ü'), 'latin1');
    const answer = await app.post('/v1/matting', latin1, { 'content-type': sent.type });
    t.is(answer.statusCode, 400, answer.payload);
    const [error] = answer.json().errors;
    t.is(error.field, 'callback_url');
    t.regex(error.detail, version === '4' ? /not ASCII/ : /not UTF-8/);
  });
}

test('UTF-8 under the name of another charset is refused too: its bytes say two things', async t => {
  const sent = version4('callback_url', 'https://example.com/ü');
  const answer = await app.post('/v1/matting', bytesOf(sent), { 'content-type': sent.type });
  t.is(answer.statusCode, 400, answer.payload);
  t.regex(answer.json().detail, /neither ASCII nor UTF-8/);
});

test('the pairs of HttpClient 5', async t => {
  const base64 = encodeURIComponent(picture().toString('base64'));
  const type = 'application/x-www-form-urlencoded; charset=ISO-8859-1';
  const answer = await removebg(Buffer.from(`image_file_b64=${base64}&size=preview`), type);
  t.is(answer.statusCode, 200, answer.payload);
  t.is(answer.headers['x-credits-charged'], '1');
});
