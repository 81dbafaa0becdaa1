import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import test from 'ava';
import { Header, type HeaderData } from 'tar';
import { sha256 } from '../test/fake-registry.ts';
import { storeParts } from './package-parts.ts';

const MIB = 1024 * 1024;
const END = Buffer.alloc(1024);

function header(fields: HeaderData = {}): Buffer {
  const block = Buffer.alloc(512);
  new Header({ path: 'package/a', mode: 0o644, size: 0, type: 'File', ...fields }).encode(block);
  return block;
}

function naming(size: number): Buffer {
  const text = '21 path=package/long\n'.padEnd(size, 'x').padEnd(Math.ceil(size / 512) * 512, '\0');
  return Buffer.concat([header({ type: 'ExtendedHeader', size }), Buffer.from(text)]);
}

/** `wanted` is an empty file. */
async function store(blocks: readonly Buffer[], wanted = 'a') {
  const packed = gzipSync(Buffer.concat(blocks), { level: 1 });
  const integrity = `sha512-${createHash('sha512').update(packed).digest('base64')}`;
  const part = { path: wanted, bytes: 0, sha256: sha256(Buffer.alloc(0)) };
  await storeParts(Readable.from([packed]), {
    source: { type: 'npm', package: 'a', version: '1', bytes: MIB, integrity },
    ...{ host: 'registry.example', onBytes: () => undefined },
    targets: [{ part, file: {} as never, position: 0 }],
  });
}

const refuses = (reason: string) =>
  isModelError(
    'fetch',
    new RegExp(`what registry\\.example sent as a@1 is .*${reason}; check the`),
  );

test('a package has at most 10,000 entries, headers before them among them', async t => {
  for (const one of [header({ path: 'package/b' }), naming(21)]) {
    const full = [header(), ...Array<Buffer>(9999).fill(one)];
    await t.notThrowsAsync(store([...full, END]));
    await rejectsWith(t, store([...full, one, END]), refuses('it has over 10000 entries'));
  }
  await t.notThrowsAsync(store([naming(8192), header(), END], 'long'));
  await rejectsWith(t, store([naming(8193), header(), END], 'long'), refuses('it holds no long'));
});

test('a package unpacks to at most four times its bytes and 16 MiB, and only once', async t => {
  const size = 20 * MIB - 1024 - END.length;
  const full = [header(), header({ path: 'package/b', size }), Buffer.alloc(size), END];
  await t.notThrowsAsync(store(full));
  const more = store([...full, Buffer.alloc(1)]);
  await rejectsWith(t, more, refuses('it unpacks to over 20971520 bytes'));
  const twice = store([gzipSync(Buffer.concat([header(), END]), { level: 0 })]);
  await t.throwsAsync(twice, { code: 'TAR_ENTRY_INVALID' });
});

test.serial('what follows the end of a package is not kept', async t => {
  const before = process.cpuUsage();
  await t.notThrowsAsync(store([header(), END, Buffer.alloc(19 * MIB)]));
  t.true(process.cpuUsage(before).user < 1_500_000);
});
