import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import type { RequestListener } from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';
import sharp from 'sharp';
import type { ContractError } from '#contract/errors.ts';
import { BACKGROUND_BYTES_MAX, IMAGE_BYTES_MAX } from '#contract/limits.ts';
import { ImageFetcher } from '../../src/sources/fetch-image.ts';
import { type FetchLimits, GuardedFetch } from '../../src/sources/guard/guarded-fetch.ts';
import { OutgoingGuard } from '../../src/sources/guard/outgoing-guard.ts';
import type { BlobStore } from '../../src/storage/blob-store.ts';
import { openDirectoryBlobStore } from '../../src/storage/directory/directory-blob-store.ts';
import { openRawSource, openSource, recordingConnector } from './loopback-source.ts';

/** For sources that hang, so that they do not hold the tests up; the others have the usual ones. */
const IMPATIENT: Partial<FetchLimits> = { firstByteMs: 1000, idleMs: 1000 };
const MIB = Buffer.alloc(1024 * 1024, 7);

let root: string;
let store: BlobStore;
let png: Buffer;

before(async () => {
  root = await mkdtemp(path.join(os.tmpdir(), 'fetch-image-'));
  store = await openDirectoryBlobStore(root);
  const noise = { type: 'gaussian', mean: 128, sigma: 30 } as const;
  const image = { width: 300, height: 200, channels: 3, background: 'white', noise } as const;
  png = await sharp({ create: image }).png().toBuffer();
});

after(async () => {
  await rm(root, { recursive: true });
});

function fetcherWith(limits: Partial<FetchLimits> = {}): ImageFetcher {
  const policy = { fetchPorts: [80, 443], allowPrivateAddresses: true };
  const guard = new OutgoingGuard({ policy });
  return new ImageFetcher(new GuardedFetch(guard, limits));
}

/** Fetches into a writer that is aborted whatever comes of it. */
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

async function assertFails(handler: RequestListener, expected: Expected): Promise<void> {
  await using source = await openSource(handler);
  await assert.rejects(fetchInto(`${source.url}/a.png`), error => {
    const { code, retryable, message } = error as Error & Expected;
    assert.deepEqual({ code, retryable }, expected);
    assert.doesNotMatch(message, /127\.0\.0\.1|ECONN|localhost/);
    return true;
  });
}

const lost = { code: 'IMAGE_DOWNLOAD_FAILED', retryable: true };
const refused = { code: 'IMAGE_DOWNLOAD_FAILED', retryable: false };

describe('a source that fails', () => {
  for (const status of [400, 401, 403, 404, 408, 410, 451, 204, 206, 304]) {
    it(`with ${status} fails for good`, () =>
      assertFails((_request, response) => response.writeHead(status).end(), refused));
  }
  for (const status of [429, 500, 502, 503, 504]) {
    it(`with ${status} may be tried again`, () =>
      assertFails((_request, response) => response.writeHead(status).end(), lost));
  }

  it('that refuses the connection may be tried again', async () => {
    const source = await openSource(() => assert.fail());
    await source[Symbol.asyncDispose]();
    await assert.rejects(fetchInto(`${source.url}/a.png`), lost);
  });

  it('that hangs meets the bound of that stage, before its headers and in its body', async () => {
    const hangs: [string, RequestListener][] = [
      ['UND_ERR_HEADERS_TIMEOUT', () => undefined],
      [
        'UND_ERR_BODY_TIMEOUT',
        (_request, response) => {
          response.writeHead(200, { 'content-length': png.length });
          response.write(png.subarray(0, 40));
        },
      ],
    ];
    for (const [code, handler] of hangs) {
      await using source = await openSource(handler);
      const fetcher = fetcherWith(IMPATIENT);
      await assert.rejects(fetchInto(source.url, { fetcher }), (error: ContractError) => {
        assert.deepEqual({ code: error.code, retryable: error.retryable }, lost);
        assert.equal(((error.cause as Error).cause as NodeJS.ErrnoException).code, code);
        return true;
      });
    }
  });

  it('that drips for ever meets the total bound', async () => {
    await using source = await openSource((_request, response) => {
      const timer = setInterval(() => response.write('x'), 20);
      response.on('close', () => clearInterval(timer));
    });
    const fetcher = fetcherWith({ totalMs: 200 });
    await assert.rejects(fetchInto(source.url, { fetcher }), lost);
  });

  it('that closes at once, or in the middle', async () => {
    for (const answer of ['', 'HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n\x89PNG']) {
      await using source = await openRawSource(socket => socket.end(answer, 'latin1'));
      await assert.rejects(fetchInto(source.url), lost);
    }
  });

  it('that does not speak HTTP, or says too much of it', async () => {
    const noise = Array.from({ length: 3000 }, (_, i) => `x-${i}: noise\r\n`).join('');
    for (const answer of ['SSH-2.0-OpenSSH_9.2\r\n', `HTTP/1.1 200 OK\r\n${noise}\r\n`]) {
      await using source = await openRawSource(socket => socket.end(answer));
      await assert.rejects(fetchInto(source.url), refused);
    }
  });

  it('that redirects for ever', () =>
    assertFails((_request, response) => response.writeHead(302, { location: '/' }).end(), refused));

  it('that sends an encoding that was not accepted', () =>
    assertFails((_request, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(png));
    }, refused));
});

describe('a source that sends something else', () => {
  const unsupported = { code: 'UNSUPPORTED_IMAGE_FORMAT', retryable: false };

  it('HTML, whatever it calls itself', () =>
    assertFails((_request, response) => {
      response.writeHead(200, { 'content-type': 'image/png' }).end('<!doctype html><p>Sign in');
    }, unsupported));

  it('less than it has, by a Content-Length that is too small', async () => {
    await using source = await openRawSource(socket => {
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n');
      socket.write(png);
    });
    await assert.rejects(fetchInto(source.url), unsupported);
  });

  it('a URL or a redirect that is forbidden', async () => {
    const connector = recordingConnector();
    await using source = await openSource((_request, response) => {
      response.writeHead(302, { location: 'http://169.254.169.254/latest/' }).end();
    });
    const guard = new OutgoingGuard({
      policy: { fetchPorts: [source.port, 80], allowPrivateAddresses: false },
      resolveHost: async () => ['93.184.215.14'],
      createConnector: connector.createConnector,
    });
    const fetcher = new ImageFetcher(new GuardedFetch(guard));
    const forbidden = { code: 'INVALID_IMAGE_SOURCE', retryable: false };
    for (const url of ['http://127.0.0.1/', `http://a.example.com:${source.port}/`]) {
      await assert.rejects(fetchInto(url, { fetcher }), forbidden);
    }
    assert.deepEqual(connector.dialled, ['93.184.215.14']);
  });
});

describe('the bound of 50 MB', () => {
  const tooLarge = { code: 'IMAGE_TOO_LARGE', retryable: false };

  it('is held by Content-Length, before the body', async () => {
    let sent = 0;
    await using source = await openSource((_request, response) => {
      response.writeHead(200, { 'content-length': IMAGE_BYTES_MAX + 1 });
      response.write(MIB, () => {
        sent += 1;
      });
    });
    await assert.rejects(fetchInto(source.url), tooLarge);
    assert.ok(sent <= 1);
  });

  it('is held while the bytes come without a length', async () => {
    let sentBytes = 0;
    await using source = await openSource((_request, response) => {
      const send = (error?: Error | null): void => {
        if (error) return;
        sentBytes += MIB.length;
        response.write(MIB, send);
      };
      response.write(png, send);
    });
    await assert.rejects(fetchInto(source.url), tooLarge);
    assert.ok(sentBytes < 2 * IMAGE_BYTES_MAX, `${sentBytes} bytes were sent`);
  });

  it('lets exactly 50 MB through', async () => {
    await using source = await openSource((_request, response) => {
      response.write(png);
      response.end(Buffer.alloc(IMAGE_BYTES_MAX - png.length));
    });
    assert.equal((await fetchInto(source.url)).bytes, IMAGE_BYTES_MAX);
  });
});

describe('a lease that is lost', () => {
  it('ends the fetch with its own reason, at every stage', async () => {
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
      await assert.rejects(fetched, error => error === reason);
    }
    const over = AbortSignal.abort(new Error('already lost'));
    await assert.rejects(fetchInto('http://127.0.0.1:9/', { signal: over }), /already lost/);
  });
});

describe('a good source', () => {
  it('gives the bytes and their header', async () => {
    await using source = await openSource((request, response) => {
      if (request.url === '/a') response.writeHead(308, { location: '/b' }).end();
      // In pieces and without a length, with a media type that is wrong.
      else {
        response.writeHead(200, { 'content-type': 'text/html', 'content-encoding': 'identity' });
        response.write(png.subarray(0, 5));
        setTimeout(() => response.end(png.subarray(5)), 10);
      }
    });
    const image = await fetchInto(`${source.url}/a`);
    assert.equal(image.bytes, png.length);
    assert.deepEqual(image.header, { format: 'png', width: 300, height: 200, animated: false });
    assert.deepEqual(image.written, png);
  });

  it('passes on what the writer throws', async () => {
    await using source = await openSource((_request, response) => response.end(png));
    const writer = {
      bytesWritten: 0,
      write: () => Promise.reject(new Error('disk full')),
      readAt: () => Promise.resolve(Buffer.alloc(0)),
      commit: () => Promise.resolve(),
      abort: () => Promise.resolve(),
    };
    const { signal } = new AbortController();
    await assert.rejects(
      fetcherWith().fetchImage(source.url, { writer, accountId: 'account', signal }),
      /disk full/,
    );
  });

  it('leaves no unfinished file behind, after all of the above', async () => {
    assert.deepEqual(await readdir(path.join(root, 'tmp')), []);
  });
});

describe('a background', () => {
  const kind = 'background';
  const tooLarge = pngOf(5001, 5000);

  /** As large as its header says, if no larger than the file is. */
  function pngOf(width: number, height: number): Buffer {
    const header = Buffer.from(
      '89504e470d0a1a0a0000000d49484452000000000000000008020000000000000049454e44ae426082',
      'hex',
    );
    header.writeUInt32BE(width, 16);
    header.writeUInt32BE(height, 20);
    return header;
  }

  it('has bounds of its own, and says in every error that it is the background', async () => {
    const files: readonly [Buffer, string][] = [
      [tooLarge, 'IMAGE_RESOLUTION_TOO_LARGE'],
      [Buffer.concat([png, Buffer.alloc(BACKGROUND_BYTES_MAX)]), 'IMAGE_TOO_LARGE'],
      [Buffer.from('no picture'), 'UNSUPPORTED_IMAGE_FORMAT'],
    ];
    for (const [file, code] of files) {
      for (const announced of [true, false]) {
        await using source = await openSource((_request, response) => {
          if (announced) response.setHeader('content-length', file.length);
          response.end(file);
        });
        await assert.rejects(fetchInto(source.url, { kind }), (error: ContractError) => {
          assert.equal(error.code, code);
          assert.match(error.message, /background/);
          return true;
        });
      }
    }
    await using taken = await openSource((_request, response) => response.end(tooLarge));
    assert.equal((await fetchInto(taken.url)).header.width, 5001, 'an image may be as large');
  });

  it('that cannot be had names its field', async () => {
    await using source = await openSource((_request, response) => response.writeHead(503).end());
    await assert.rejects(fetchInto(source.url, { kind }), (error: ContractError) => {
      assert.deepEqual({ code: error.code, retryable: error.retryable }, lost);
      assert.match(error.message, /^background_url: /);
      return true;
    });
    const guard = new OutgoingGuard({
      policy: { fetchPorts: [80, 443], allowPrivateAddresses: false },
    });
    const fetcher = new ImageFetcher(new GuardedFetch(guard));
    await assert.rejects(fetchInto(source.url, { fetcher, kind }), {
      code: 'INVALID_PARAMETER',
      retryable: false,
    });
  });
});
