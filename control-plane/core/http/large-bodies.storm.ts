import { BOUNDARY, FORM_TYPE, imagePart, partOf } from '@matting/http/test/forms.ts';
import { IMAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import ava from 'ava';
import { sendPieces } from '../test/support/raw-http.ts';
import { pngHeader, useTestApp } from '../test/support/test-app.ts';

const test = ava.serial;

const app = useTestApp(test, {}, async () => {
  port = await app.listen();
});
let port: number;

const PIECE = Buffer.alloc(64 * 1024, 'A');

function* imageText(imageBytes: number): Generator<Buffer> {
  const header = pngHeader(100, 100);
  yield Buffer.from(header.toString('base64'));
  const zeros = imageBytes - header.length;
  let letters = Math.floor(zeros / 3) * 4;
  for (; letters > 0; letters -= PIECE.length) {
    yield letters >= PIECE.length ? PIECE : PIECE.subarray(0, letters);
  }
  yield Buffer.from(Buffer.alloc(zeros % 3).toString('base64'));
}

interface Body {
  readonly type: string;
  readonly pieces: Iterable<Buffer>;
}

function* json(text: Iterable<Buffer>): Generator<Buffer> {
  yield Buffer.from('{"image_base64":"');
  yield* text;
  yield Buffer.from('"}');
}

function* imageBytes(bytes: number): Generator<Buffer> {
  const header = pngHeader(100, 100);
  yield header;
  const piece = Buffer.alloc(PIECE.length);
  for (let left = bytes - header.length; left > 0; left -= piece.length) {
    yield piece.subarray(0, Math.min(left, piece.length));
  }
}

function* form(bytes: number): Generator<Buffer> {
  yield partOf(imagePart(Buffer.alloc(0))).subarray(0, -2);
  yield* imageBytes(bytes);
  yield Buffer.from(`\r\n--${BOUNDARY}--\r\n`);
}

const FORMS: Readonly<Record<string, (bytes: number) => Body>> = {
  Base64: bytes => ({ type: 'application/json', pieces: json(imageText(bytes)) }),
  multipart: bytes => ({ type: FORM_TYPE['content-type'], pieces: form(bytes) }),
  'a picture': bytes => ({ type: 'image/png', pieces: imageBytes(bytes) }),
};

function send({ type, pieces }: Body) {
  const headers = app.headers({ 'content-type': type });
  return sendPieces(pieces, { port, path: '/v1/matting/jobs', headers });
}

for (const [name, bodyOf] of Object.entries(FORMS)) {
  test(`50 MB as ${name} are taken to the byte, one more is not`, async t => {
    const largest = await send(bodyOf(IMAGE_BYTES_MAX));
    t.is(largest.status, 202);
    const stored = await app.blobs.stat(`inputs/${largest.body.job_id}`);
    t.is(stored?.bytes, IMAGE_BYTES_MAX);
    await app.blobs.remove(`inputs/${largest.body.job_id}`);

    const over = await send(bodyOf(IMAGE_BYTES_MAX + 1));
    t.is(over.status, 413);
    t.is(over.body.code, 'IMAGE_TOO_LARGE');
    t.is(app.services.uploads.open, 0);
    t.deepEqual(
      (await app.storedFiles()).filter(name => name.startsWith('inputs')),
      [],
    );
  });
}

/** The bodies together have 200 to 280 MB; measured growth is about 40 MB. */
const RSS_GROWTH_MAX = 160 * 1024 * 1024;

for (const [name, bodyOf] of Object.entries(FORMS)) {
  test(`four images of 50 MB at once as ${name} cost the memory of their chunks`, async t => {
    const before = process.memoryUsage().rss;
    let peak = before;
    const sampling = setInterval(() => {
      peak = Math.max(peak, process.memoryUsage().rss);
    }, 10);
    const bodies = Array.from({ length: 4 }, () => send(bodyOf(IMAGE_BYTES_MAX)));
    const answers = await Promise.all(bodies);
    clearInterval(sampling);
    t.deepEqual(
      answers.map(answer => answer.status),
      [202, 202, 202, 202],
    );
    t.true(peak - before < RSS_GROWTH_MAX, `${peak - before} bytes more`);
    for (const { body: answer } of answers) await app.blobs.remove(`inputs/${answer.job_id}`);
  });
}
