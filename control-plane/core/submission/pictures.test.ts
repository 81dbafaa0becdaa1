/** Pictures as they come: by Base64, by their URL, and what is read of their headers. */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import type { RequestListener } from 'node:http';
import path from 'node:path';
import { Base64Decoder } from '@matting/http/base64.ts';
import { type FetchLimits, GuardedFetch } from '@matting/http/outgoing/guarded-fetch.ts';
import { OutgoingGuard } from '@matting/http/outgoing/outgoing-guard.ts';
import { openRawSource, openSource } from '@matting/http/test/loopback-source.ts';
import type { ContractError } from '@matting/proto/contract/errors.ts';
import { BACKGROUND_BYTES_MAX, IMAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import { openDirectoryBlobStore } from '@matting/storage/directory-store.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith, throwsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import sharp from 'sharp';
import sinon from 'sinon';
import { ImageFetcher } from '../fetching/fetch-image.ts';
import { requireAcceptableImage } from '../jobs/acceptable-image.ts';

const test = ava.serial;

const MIB = Buffer.alloc(1024 * 1024, 7);

const root = await temporaryFolder({ teardown: test.after.always });
let store: BlobStore;
let png: Buffer;

test.before(async () => {
  store = await openDirectoryBlobStore(root);
  const noise = { type: 'gaussian', mean: 128, sigma: 30 } as const;
  const image = { width: 300, height: 200, channels: 3, background: 'white', noise } as const;
  png = await sharp({ create: image }).png().toBuffer();
});

function fetcherWith(limits: Partial<FetchLimits> = {}): ImageFetcher {
  const policy = { fetchPorts: [80, 443], allowPrivateAddresses: true };
  const guard = new OutgoingGuard({ policy });
  return new ImageFetcher(new GuardedFetch(guard, limits));
}

async function fetchInto(
  url: string,
  {
    fetcher = fetcherWith(),
    signal = new AbortController().signal,
    kind = 'image' as 'image' | 'background',
  } = {},
) {
  const writer = await store.createWriter('inputs/fetched');
  try {
    const image = await fetcher.fetchImage(url, { writer, accountId: 'account', signal, kind });
    const written = Buffer.from(await writer.readAt(0, writer.bytesWritten));
    return { ...image, written };
  } finally {
    await writer.abort();
  }
}

interface Expected {
  readonly code: string;
  readonly retryable: boolean;
}

async function assertFails(
  t: ExecutionContext,
  handler: RequestListener,
  expected: Expected,
): Promise<void> {
  await using source = await openSource(handler);
  await rejectsWith(t, fetchInto(`${source.url}/a.png`), error => {
    const { code, retryable, message } = error as Error & Expected;
    t.deepEqual({ code, retryable }, expected);
    t.notRegex(message, /127\.0\.0\.1|ECONN|localhost/);
    return true;
  });
}

const lost = { code: 'IMAGE_DOWNLOAD_FAILED', retryable: true };
const forGood = { code: 'IMAGE_DOWNLOAD_FAILED', retryable: false };

for (const [expected, statuses] of [
  [forGood, [400, 401, 403, 404, 408, 410, 451, 204, 206, 304]],
  [lost, [429, 500, 502, 503, 504]],
] as const) {
  for (const status of statuses) {
    test(`a source that fails › with ${status} may be tried again: ${expected.retryable}`, t =>
      assertFails(t, (_request, response) => response.writeHead(status).end(), expected));
  }
}

test('a source that fails › that refuses the connection may be tried again', async t => {
  const source = await openSource(() => assert.fail());
  await source[Symbol.asyncDispose]();
  await rejectsWith(t, fetchInto(`${source.url}/a.png`), lost);
});

test('a source that fails › that hangs meets the bound of that stage, before its headers and in its body', async t => {
  const hangs: [string, Partial<FetchLimits>, RequestListener][] = [
    ['UND_ERR_HEADERS_TIMEOUT', { firstByteMs: 100 }, () => undefined],
    [
      'UND_ERR_BODY_TIMEOUT',
      { idleMs: 100 },
      (_request, response) => {
        response.writeHead(200, { 'content-length': png.length });
        response.write(png.subarray(0, 40));
      },
    ],
  ];
  for (const [code, limits, handler] of hangs) {
    await using source = await openSource(handler);
    const fetcher = fetcherWith(limits);
    await rejectsWith(t, fetchInto(source.url, { fetcher }), (error: ContractError) => {
      t.deepEqual({ code: error.code, retryable: error.retryable }, lost);
      t.is(((error.cause as Error).cause as NodeJS.ErrnoException).code, code);
      return true;
    });
  }
});

test('a source that fails › that drips for ever meets the total bound', async t => {
  await using source = await openSource((_request, response) => {
    const timer = setInterval(() => response.write('x'), 20);
    response.on('close', () => clearInterval(timer));
  });
  const fetcher = fetcherWith({ totalMs: 200 });
  await rejectsWith(t, fetchInto(source.url, { fetcher }), lost);
});

test('a source that fails › that does not speak HTTP, or says too much of it', async t => {
  const noise = Array.from({ length: 3000 }, (_, i) => `x-${i}: noise\r\n`).join('');
  for (const answer of ['SSH-2.0-OpenSSH_9.2\r\n', `HTTP/1.1 200 OK\r\n${noise}\r\n`]) {
    await using source = await openRawSource(socket => socket.end(answer));
    await rejectsWith(t, fetchInto(source.url), forGood);
  }
});

const unsupported = { code: 'UNSUPPORTED_IMAGE_FORMAT', retryable: false };

test('a source that sends something else › HTML, whatever it calls itself', t =>
  assertFails(
    t,
    (_request, response) => {
      response.writeHead(200, { 'content-type': 'image/png' }).end('<!doctype html><p>Sign in');
    },
    unsupported,
  ));

test('a source that sends something else › less than it has, by a Content-Length that is too small', async t => {
  await using source = await openRawSource(socket => {
    socket.write('HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n');
    socket.write(png);
  });
  await rejectsWith(t, fetchInto(source.url), unsupported);
});

const tooLarge = { code: 'IMAGE_TOO_LARGE', retryable: false };

test('the bound of 50 MB › is held by Content-Length, before the body', async t => {
  let sent = 0;
  await using source = await openSource((_request, response) => {
    response.writeHead(200, { 'content-length': IMAGE_BYTES_MAX + 1 });
    response.write(MIB, () => {
      sent += 1;
    });
  });
  await rejectsWith(t, fetchInto(source.url), tooLarge);
  t.true(sent <= 1);
});

test('the bound of 50 MB › is held while the bytes come without a length', async t => {
  let sentBytes = 0;
  await using source = await openSource((_request, response) => {
    const send = (error?: Error | null): void => {
      if (error) return;
      sentBytes += MIB.length;
      response.write(MIB, send);
    };
    response.write(png, send);
  });
  await rejectsWith(t, fetchInto(source.url), tooLarge);
  t.true(sentBytes < 2 * IMAGE_BYTES_MAX, `${sentBytes} bytes were sent`);
});

test('the bound of 50 MB › lets exactly 50 MB through', async t => {
  await using source = await openSource((_request, response) => {
    response.write(png);
    response.end(Buffer.alloc(IMAGE_BYTES_MAX - png.length));
  });
  t.is((await fetchInto(source.url)).bytes, IMAGE_BYTES_MAX);
});

test('a lease that is lost › ends the fetch with its own reason, at every stage', async t => {
  const handlers: RequestListener[] = [
    () => undefined,
    (_request, response) => {
      response.write(png.subarray(0, 40));
    },
  ];
  for (const handler of handlers) {
    const lease = new AbortController();
    const reason = new Error('lease lost');
    await using source = await openSource((request, response) => {
      handler(request, response);
      setTimeout(() => lease.abort(reason), 20);
    });
    const fetched = fetchInto(source.url, { signal: lease.signal });
    await rejectsWith(t, fetched, error => error === reason);
  }
  const over = AbortSignal.abort(new Error('already lost'));
  await t.throwsAsync(fetchInto('http://127.0.0.1:9/', { signal: over }), {
    message: /already lost/,
  });
});

test('a good source › gives the bytes and their header', async t => {
  await using source = await openSource((request, response) => {
    if (request.url === '/a') response.writeHead(308, { location: '/b' }).end();
    // The answer comes in pieces and without a length, with a media type that is wrong.
    else {
      response.writeHead(200, { 'content-type': 'text/html', 'content-encoding': 'identity' });
      response.write(png.subarray(0, 5));
      setTimeout(() => response.end(png.subarray(5)), 10);
    }
  });
  const image = await fetchInto(`${source.url}/a`);
  t.is(image.bytes, png.length);
  t.deepEqual(image.header, { format: 'png', width: 300, height: 200, animated: false });
  t.true(image.written.equals(png));
});

test('a good source › passes on what the writer throws', async t => {
  await using source = await openSource((_request, response) => response.end(png));
  const writer = {
    bytesWritten: 0,
    write: () => Promise.reject(new Error('disk full')),
    readAt: () => Promise.resolve(Buffer.alloc(0)),
    commit: () => Promise.resolve(),
    abort: () => Promise.resolve(),
  };
  const { signal } = new AbortController();
  await t.throwsAsync(
    fetcherWith().fetchImage(source.url, { writer, accountId: 'account', signal }),
    { message: /disk full/ },
  );
});

test('a good source › leaves no unfinished file behind, after all of the above', async t => {
  t.deepEqual(await readdir(path.join(root, 'tmp')), []);
});

const kind = 'background';
const wide = pngOf(5001, 5000);

/** The picture is as large as its header shows, if no larger than the file is. */
function pngOf(width: number, height: number): Buffer {
  const header = Buffer.from(
    '89504e470d0a1a0a0000000d49484452000000000000000008020000000000000049454e44ae426082',
    'hex',
  );
  header.writeUInt32BE(width, 16);
  header.writeUInt32BE(height, 20);
  return header;
}

test('a background › has bounds of its own, and says in every error that it is the background', async t => {
  const files: readonly [Buffer, string][] = [
    [wide, 'IMAGE_RESOLUTION_TOO_LARGE'],
    [Buffer.concat([png, Buffer.alloc(BACKGROUND_BYTES_MAX)]), 'IMAGE_TOO_LARGE'],
    [Buffer.from('no picture'), 'UNSUPPORTED_IMAGE_FORMAT'],
  ];
  for (const [file, code] of files) {
    for (const announced of [true, false]) {
      await using source = await openSource((_request, response) => {
        if (announced) response.setHeader('content-length', file.length);
        response.end(file);
      });
      await rejectsWith(t, fetchInto(source.url, { kind }), (error: ContractError) => {
        t.is<string, string>(error.code, code);
        t.regex(error.message, /background/);
        return true;
      });
    }
  }
  await using taken = await openSource((_request, response) => response.end(wide));
  t.is((await fetchInto(taken.url)).header.width, 5001, 'an image may be as large');
});

test('a background › that cannot be had, or that is forbidden, names its field', async t => {
  await using source = await openSource((_request, response) => response.writeHead(503).end());
  const once = fetcherWith({ againMs: [] });
  await rejectsWith(t, fetchInto(source.url, { fetcher: once, kind }), (error: ContractError) => {
    t.deepEqual({ code: error.code, retryable: error.retryable }, lost);
    t.regex(error.message, /^background_url: /);
    return true;
  });
  const guard = new OutgoingGuard({
    policy: { fetchPorts: [80, 443], allowPrivateAddresses: false },
  });
  const fetcher = new ImageFetcher(new GuardedFetch(guard));
  for (const [kind, code] of [
    ['background', 'INVALID_PARAMETER'],
    ['image', 'INVALID_IMAGE_SOURCE'],
  ] as const) {
    await rejectsWith(t, fetchInto(source.url, { fetcher, kind }), { code, retryable: false });
  }
});

function accept(file: Buffer, sizeBytes = file.length) {
  return requireAcceptableImage(
    (offset, length) => file.subarray(offset, offset + length),
    sizeBytes,
  );
}

test('an acceptable image › refuses more than 50 MB, and takes exactly 50 MB', async t => {
  await t.throwsAsync(accept(pngOf(1, 1), IMAGE_BYTES_MAX + 1), { code: 'IMAGE_TOO_LARGE' });
  await accept(pngOf(1, 1), IMAGE_BYTES_MAX);
});

test('an acceptable image › refuses bytes that are not a supported image', async t => {
  for (const text of ['', 'GIF89a', 'this is text that calls itself image.png']) {
    await rejectsWith(t, accept(Buffer.from(text)), {
      code: 'UNSUPPORTED_IMAGE_FORMAT',
      retryable: false,
    });
  }
});

test('an acceptable image › refuses animations', async t => {
  const animated = Buffer.alloc(48);
  animated.write('RIFF(\0\0\0WEBPVP8X\n\0\0\0\x02', 'latin1');
  await t.throwsAsync(accept(animated), {
    code: 'UNSUPPORTED_IMAGE_FORMAT',
    message: /animated\. Send one frame/,
  });
});

test('an acceptable image › refuses a side or an area over the bound, and takes the bound itself', async t => {
  for (const [width, height] of [
    [10_001, 1],
    [1, 10_001],
    [17_000, 17_000],
    [2 ** 31 - 1, 2 ** 31 - 1],
  ] as const) {
    await t.throwsAsync(accept(pngOf(width, height)), { code: 'IMAGE_RESOLUTION_TOO_LARGE' });
  }
  await accept(pngOf(10_000, 10_000));
});

test('an acceptable image › takes a known format whose size cannot be read', async t => {
  const header = await accept(pngOf(0, 5));
  t.deepEqual(header, {
    format: 'png',
    width: undefined,
    height: undefined,
    animated: false,
  });
});

/** Decodes text given in pieces of these lengths, the last of them repeated. */
function decode(text: string, lengths: readonly number[] = [text.length || 1]): Buffer {
  const decoder = new Base64Decoder();
  const bytes = Buffer.from(text, 'utf8');
  const parts: Uint8Array[] = [];
  for (let from = 0, i = 0; from < bytes.length; i += 1) {
    const length = lengths[Math.min(i, lengths.length - 1)] ?? 1;
    parts.push(decoder.push(bytes.subarray(from, from + length)));
    from += length;
  }
  parts.push(decoder.finish());
  const out = Buffer.concat(parts);
  assert.equal(decoder.decodedBytes, out.length);
  return out;
}

function outcome(text: string, lengths: readonly number[]): string {
  try {
    return decode(text, lengths).toString('hex');
  } catch (error) {
    return (error as { code: string }).code;
  }
}

const REFUSED_TEXTS: [string, string][] = [
  ['nothing', ''],
  ['white space', ' \r\n\t'],
  ['a data URI without data', 'data:image/png;base64,'],
  ['padding alone', '===='],
  ['one character', 'Q'],
  ['five characters', 'QUJDR'],
  ['the URL-safe alphabet', 'Q-_A'],
  ['the URL-safe alphabet in a full group', 'QUJD____'],
  ['one = of two', 'QQ='],
  ['= for a full group', 'QUJD='],
  ['three =', 'QQ==='],
  ['= after one character', 'Q==='],
  ['data after padding', 'QQ==QUJD'],
  ['data between two =', 'QQ=A='],
  ['no Base64 at all', 'not, base64!'],
  ['characters that are not ASCII', 'QUJDé'],
  ['a NUL', 'QUJD\0'],
  ['a no-break space', 'QU\u00a0JD'],
  ['percent-encoding', 'data:image/png;base64,QQ%3D%3D'],
  ['a data URI without ;base64', 'data:image/png,QUJD'],
  ['a data URI with another encoding', 'data:image/png;base32,QUJD'],
  ['a data URI without a comma', 'data:image/png;base64'],
  ['base64 as the media type', 'data:base64,QUJD'],
  ['a second data URI prefix', 'data:image/png;base64,data:image/png;base64,QUJD'],
  ['an endless prefix', `data:${'x'.repeat(2000)};base64,QUJD`],
];
for (const [name, text] of REFUSED_TEXTS) {
  test(`Base64 that is refused › ${name}`, t => {
    for (const lengths of [[text.length || 1], [1], [2, 3]]) {
      throwsWith(t, () => decode(text, lengths), {
        code: 'INVALID_IMAGE_SOURCE',
        retryable: false,
      });
    }
  });
}

test('Base64 that is refused › names the field and the place, and nothing of the content', t => {
  const expected = [
    { field: 'image_base64', detail: 'is not Base64: character 6 is not in the Base64 alphabet' },
  ];
  for (const lengths of [[11], [1], [4, 7]]) {
    throwsWith(t, () => decode('QUJDR!secret', lengths), { fieldErrors: expected });
  }
});

const TAKEN: [string, string, string][] = [
  ['with padding', 'QQ==', 'A'],
  ['without padding', 'QQ', 'A'],
  ['two bytes without padding', 'QUI', 'AB'],
  ['white space anywhere', ' Q\tU\r\nJ\fD\nQ Q = \n= \n', 'ABCA'],
  ['a data URI', 'data:image/png;base64,QUJD', 'ABC'],
  ['a data URI without a media type', 'data:;base64,QUJD', 'ABC'],
  ['a data URI with parameters, in any case', 'DATA:text/plain;charset=utf-8;BASE64,QUJD', 'ABC'],
  ['a data URI behind white space', '\n data:image/png;base64,QUJD', 'ABC'],
  ['what begins like a data URI', 'data', 'u\xabZ'],
  ['less than that', 'dat', 'u\xab'],
  ['more than that', 'dataQUJD', 'u\xabZABC'],
  ['bits too many in the last character', 'QR==', 'A'],
  ['the whole of + and /', '++//', '\xfb\xef\xff'],
];
for (const [name, text, expected] of TAKEN) {
  test(`Base64 that is taken › ${name}`, t => {
    for (const lengths of [[text.length], [1], [3], [5, 1]]) {
      t.is(decode(text, lengths).toString('latin1'), expected);
    }
  });
}

test('Base64 that is taken › gives back any bytes, however the text is cut, wrapped, padded and prefixed', t => {
  const property = fc.property(
    fc.uint8Array({ minLength: 1, maxLength: 300 }),
    fc.array(fc.integer({ min: 1, max: 90 }), { minLength: 1, maxLength: 40 }),
    fc.constantFrom('', '\r\n', ' '),
    fc.integer({ min: 1, max: 77 }),
    fc.boolean(),
    fc.constantFrom('', 'data:image/jpeg;base64,', ' data:;base64,'),
    (bytes, lengths, space, column, padded, prefix) => {
      const text = Buffer.from(bytes).toString('base64');
      const body = padded ? text : text.replace(/=+$/, '');
      const lines = body.match(new RegExp(`.{1,${column}}`, 'g')) ?? [];
      return decode(prefix + lines.join(space), lengths).equals(bytes);
    },
  );
  t.notThrows(() => fc.assert(property, { numRuns: 300 }));
});

test('Base64 that is taken › takes a long text as it takes its pieces, whatever stands in it', t => {
  const long = Buffer.alloc(900, 'any bytes').toString('base64');
  for (const strange of ['-', '_', '=', '==', ' ', '\r\n', '\0', '\u007f', 'é', 'AB', '']) {
    for (const at of [0, 5, 400, 800, 1195, 1198, 1199, 1200]) {
      const text = long.slice(0, at) + strange + long.slice(at);
      t.is(outcome(text, [text.length + 1]), outcome(text, [100]), `${strange} at ${at}`);
      const replaced = long.slice(0, at) + strange + long.slice(at + strange.length);
      t.is(outcome(replaced, [2000]), outcome(replaced, [100]), `${strange} for ${at}`);
    }
  }
});

test('Base64 that is taken › agrees with itself on any text, however it is cut', t => {
  const character = fc.constantFrom(...'ABCDdata:;,base64+/=-_ \n\0é');
  const property = fc.property(
    fc.string({ unit: character, maxLength: 40 }),
    fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 20 }),
    (text, lengths) => outcome(text, lengths) === outcome(text, [1000]),
  );
  t.notThrows(() => fc.assert(property, { numRuns: 1000 }));
});

const CHUNK_LENGTH = 65_536;
for (const [name, line] of [
  ['after each group', 'AAAA '],
  ['as in a mail', `${'A'.repeat(76)}\r\n`],
] as const) {
  test(`the cost of white space › is read once by each decoder: ${name}`, t => {
    const chunk = Buffer.from(line.repeat(CHUNK_LENGTH / line.length));
    const native = sinon.spy(Buffer.prototype, 'write');
    t.teardown(() => native.restore());
    const decoder = new Base64Decoder();
    for (let count = 0; count < 3; count += 1) decoder.push(chunk);
    t.true(native.callCount <= 3, `${native.callCount}`);
    t.true(decoder.decodedBytes > 3 * 0.55 * CHUNK_LENGTH);
  });
}
